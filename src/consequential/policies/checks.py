"""Checks of numbers that users give as fractions and often write as percentages."""

from __future__ import annotations


def checked_cost(cost: float) -> float:
    """Return a cost strictly between 0 and 1.

    Examples
    --------
    >>> from consequential.policies import checked_cost
    >>> checked_cost(60)
    Traceback (most recent call last):
    ValueError: the cost lies strictly between 0 and 1, not 60: write 0.6
    """
    if not 0.0 < cost < 1.0:
        raise ValueError(f"the cost lies strictly between 0 and 1, not {cost!r}{percentage(cost)}")
    return float(cost)


def percentage(value: float) -> str:
    """Say how to write a number that looks like a percentage as a fraction; else say nothing."""
    return f": write {value / 100.0:g}" if 1.0 < value < 100.0 else ""
