"""Commands: `consequential demo`, `fit`, `evaluate` and the rest."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Sequence

from consequential.cli.parser import command_parser

__all__ = ["command_parser", "main"]

# modules are imported when their command runs: help and usage errors must not wait for them
_RUN = {
    "demo": "simulations:demo",
    "overlap": "analyses:overlap",
    "fit": "fit:fit",
    "evaluate": "analyses:evaluate",
    "compare": "analyses:compare",
    "frontier": "analyses:frontier",
    "plan": "analyses:plan",
    "simulate": "simulations:simulate",
    "reproduce": "reproduce:reproduce",
    "completion": "completion:completion",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says."""
    options = command_parser().parse_args(arguments)
    try:
        run = pkgutil.resolve_name(f"consequential.cli.{_RUN[options.command]}")
        return int(run(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"consequential: {error}", file=sys.stderr)
        return 2
