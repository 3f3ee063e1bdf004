"""Commands: `consequential demo`, `reproduce` and `simulate`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from consequential import __version__
from consequential.cli.demo import add_demo
from consequential.cli.reproduce import add_reproduce
from consequential.cli.simulate import add_simulate


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
    for add in (add_demo, add_reproduce, add_simulate):
        add(commands)
    return parser
