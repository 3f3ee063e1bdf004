"""Shares: numbers strictly between 0 and 1, such as a cost or a confidence."""

from __future__ import annotations

from typing import Any


def checked_share(name: str, value: Any) -> float:
    """Return a share as a number; where it is a percentage, the error says what to write.

    Examples
    --------
    >>> from consequential.shares import checked_share
    >>> checked_share("the cost", 60)
    Traceback (most recent call last):
    ValueError: the cost lies strictly between 0 and 1, not 60: write 0.6
    """
    text = value.strip() if isinstance(value, str) else None
    try:
        number = float(value if text is None else text.removesuffix("%").replace(",", "."))
    except (TypeError, ValueError):
        number = float("nan")
    if text is None and 0.0 < number < 1.0:
        return number
    is_percentage = 1.0 < number < 100.0 or (text is not None and text.endswith("%"))
    meant = number / 100.0 if is_percentage else number
    advice = f": write {meant:g}" if 0.0 < meant < 1.0 else ""
    raise ValueError(f"{name} lies strictly between 0 and 1, not {value!r}{advice}")


def percentage(value: float) -> str:
    """Say how to write a number that looks like a percentage as a fraction; else say nothing."""
    return f": write {value / 100.0:g}" if 1.0 < value < 100.0 else ""
