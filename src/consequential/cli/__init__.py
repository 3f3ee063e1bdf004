"""Commands: `consequential demo`, `fit`, `evaluate` and the rest."""

from __future__ import annotations

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
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says."""
    try:
        given = with_columns(sys.argv[1:] if arguments is None else arguments)
        options = command_parser().parse_args(given)
        module = _MODULES.get(options.command, "analyses")
        # imported now and not before: help and usage errors must not wait for it
        run = pkgutil.resolve_name(f"consequential.cli.{module}:{options.command}")
        return int(run(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"consequential: {error}", file=sys.stderr)
        return 2
