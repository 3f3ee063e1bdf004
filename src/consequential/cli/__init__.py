"""Commands: `consequential demo`, `fit`, `evaluate` and the rest."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Sequence

from consequential.cli.columns import with_columns
from consequential.cli.parser import command_parser

__all__ = ["command_parser", "main"]

_MODULES = {
    "demo": "simulations",
    "simulate": "simulations",
    "reproduce": "simulations",
    "completion": "parser",
    "decide": "decisions",
    "init": "service",
    "serve": "service",
    "migrate": "service",
    "work": "operations",
    "key": "operations",
    "export": "operations",
    "backup": "operations",
    "verify": "operations",
    "forget": "operations",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says."""
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        # who reads the output has closed it, as `head` does; Python would write the rest at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"consequential: {error}", file=sys.stderr)
        return 2


def _run(arguments: Sequence[str]) -> int:
    options = command_parser().parse_args(with_columns(arguments))
    module = _MODULES.get(options.command, "analyses")
    # imported now and not before: help and usage errors must not wait for it
    run = pkgutil.resolve_name(f"consequential.cli.{module}:{options.command}")
    return int(run(options))
