"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeAlias, TypeVar

Found = TypeVar("Found")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help with defaults, and with text that keeps its lines."""


def at_least_one(text: str) -> int:
    """Read a number of things."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def not_negative(text: str) -> float:
    """Read a penalty."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and not negative, not {text}")
    return number


def share(text: str) -> float:
    """Read a number strictly between 0 and 1."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0.0 < number < 1.0:
        raise argparse.ArgumentTypeError(f"must lie strictly between 0 and 1, not {text}")
    return number


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
