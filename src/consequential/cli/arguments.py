"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

Found = TypeVar("Found")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help with the defaults there are, and with text that keeps its lines."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def at_least_one(text: str) -> int:
    """Read a number of things."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def at_least_two(text: str) -> int:
    """Read a number of parts."""
    if at_least_one(text) == 1:
        raise argparse.ArgumentTypeError("must be at least 2, not 1")
    return int(text)


def not_negative(text: str) -> float:
    """Read a penalty."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and not negative, not {text}")
    return number


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the option that sends work to a cluster."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="a Dask scheduler that does the work, tcp://host:8786 say (default: this machine)",
    )


def where(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return the block in which work is done: here, or on a cluster."""
    from consequential.workers import cluster

    return nullcontext() if options.cluster is None else cluster(options.cluster)


def share(text: str) -> float:
    """Read a number strictly between 0 and 1."""
    number = text.strip().removesuffix("%").replace(",", ".")
    try:
        value = float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if number == text.strip() and 0.0 < value < 1.0:
        return value
    percent = text.strip().endswith("%") or 1.0 < value < 100.0
    meant = value / 100.0 if percent else value
    advice = f": write {meant:g}" if 0.0 < meant < 1.0 else ""
    raise argparse.ArgumentTypeError(f"must lie strictly between 0 and 1, not {text}{advice}")


def named(what: str, name: str, known: Mapping[str, Found]) -> Found:
    """Return what has a name, or say which names are close to it."""
    if name not in known:
        raise ValueError(f"no {what} {name!r}; {_suggestion(name, known)}")
    return known[name]


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=4, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}"
