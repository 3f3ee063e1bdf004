"""Shares: numbers strictly between 0 and 1, such as a cost or a confidence."""

from __future__ import annotations

from typing import Any


def checked_share(name: str, value: Any) -> float:
    """Return a share as a number.

    Examples
    --------
    >>> from consequential.shares import checked_share
    >>> checked_share("the cost", 60)
    Traceback (most recent call last):
    ValueError: the cost lies strictly between 0 and 1, not 60
    """
    try:
        number = float("nan" if isinstance(value, str) else value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} lies strictly between 0 and 1, not {value!r}")
    return number
