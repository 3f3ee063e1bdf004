"""Checks of what users give for a policy, and the errors they raise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class PolicyError(ValueError):
    """A policy was built, used or stored in a way that cannot work."""


class FeaturesError(PolicyError):
    """A rule was asked about people without the features it looks at."""


def checked_floor(floor: float) -> float:
    """Return an exploration floor, a probability below 1."""
    if not 0.0 <= floor < 1.0:
        advice = percentage(floor)
        raise PolicyError(f"an exploration floor lies in [0, 1), not {floor!r}{advice}")
    return float(floor)


def percentage(value: float) -> str:
    """Say how to write a number that looks like a percentage as a fraction; else say nothing."""
    return f": write {value / 100.0:g}" if 1.0 < value < 100.0 else ""


def plain_groups(groups: Any) -> tuple[Hashable, ...]:
    """Return groups as a tuple of Python values, each of them once."""
    names = tuple(groups.tolist() if hasattr(groups, "tolist") else groups)
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise PolicyError(f"the sensitive group {twice[0]!r} is given twice in {list(names)}")
    return names


def group_codes(sensitive: ArrayLike, groups: Sequence[Hashable]) -> NDArray[np.intp]:
    """Return the position of each row's group among `groups`."""
    values = np.asarray(sensitive)
    codes = np.full(values.shape, -1, dtype=np.intp)
    for code, group in enumerate(groups):
        codes[values == group] = code
    if codes.size and codes.min() < 0:
        unknown = values[codes < 0].tolist()[0]
        raise PolicyError(f"unknown sensitive group {unknown!r}; known: {list(groups)}")
    return codes
