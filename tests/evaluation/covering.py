"""Rows of parameters in which every pair of values occurs, for tests with three of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any


def covering(one: Sequence[Any], other: Sequence[Any], third: Sequence[Any]) -> list[Any]:
    """Return every pair of the first two, with the third as in a Latin square.

    The third must be the shortest, for its values to meet every value of the others.
    """
    assert len(third) <= min(len(one), len(other))
    pairs = product(enumerate(one), enumerate(other))
    return [(a, b, third[(i + j) % len(third)]) for (i, a), (j, b) in pairs]
