"""Monotone features: in which direction a policy may move with each of its features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, LogScan

Floats = NDArray[np.float64]


def signs_of(learner: Any, log: DecisionLog | LogScan) -> Floats | None:
    """Return for each feature of a log 1, -1, or 0 for any direction; None if none is asked for.

    A raw column is asked for by its own name; of its features, the one with its number counts.
    """
    if not learner.monotone:
        return None
    for name in ("feature_map", "outcome_model"):
        if getattr(learner, name) is not None:
            raise ValueError(
                f"monotone= cannot be promised with a {name} of your own, which may turn any way "
                f"with a feature: leave out {name}="
            )
    names = log.feature_names if log.preparation is None else log.preparation.names
    signs = dict.fromkeys(log.feature_names, 0.0)
    for column, direction in learner.monotone.items():
        by_place = isinstance(column, int | np.integer) and 0 <= column < len(names)
        name = names[column] if by_place else column
        if name not in names:
            raise ValueError(
                f"monotone= names a column {column!r}, but the columns are {', '.join(names)}"
            )
        if name not in signs:
            raise ValueError(
                f"monotone= names {column!r}, a column of words, which has no direction: name "
                "columns of numbers, dates or booleans"
            )
        if direction not in (1, -1):
            raise ValueError(
                "monotone= says for each column 1 (more of it never lowers the chance) or -1 "
                f"(never raises it); for {column!r} it says {direction!r}"
            )
        signs[name] = float(direction)
    return np.array(list(signs.values()))
