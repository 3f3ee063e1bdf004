"""Commands: `consequential demo`, `fit`, `evaluate` and the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from consequential import __version__
from consequential.cli.compare import add_compare
from consequential.cli.completion import add_completion
from consequential.cli.demo import add_demo
from consequential.cli.evaluate import add_evaluate
from consequential.cli.fit import add_fit
from consequential.cli.frontier import add_frontier
from consequential.cli.overlap import add_overlap
from consequential.cli.plan import add_plan
from consequential.cli.reproduce import add_reproduce
from consequential.cli.simulate import add_simulate

_COMMANDS = (
    add_demo,
    add_overlap,
    add_fit,
    add_evaluate,
    add_compare,
    add_frontier,
    add_plan,
    add_simulate,
    add_reproduce,
    add_completion,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"consequential: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="consequential",
        description="Learn to decide when labels exist only for the people you accept.",
        epilog="example: consequential demo",
    )
    parser.add_argument("--version", action="version", version=f"consequential {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in _COMMANDS:
        add(commands)
    return parser
