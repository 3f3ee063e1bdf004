"""Bootstrap: the estimates again and again, from rows drawn with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.influence import Ratios
from consequential.workers import in_order

Floats = NDArray[np.float64]

REPLICATES = 1000
_AT_ONCE = 2_000_000


def replicates(
    ratios: Sequence[Ratios], *, seed: int, n_replicates: int = REPLICATES
) -> list[Floats]:
    """Return each ratio by replicate and group; NaN where nobody of a group was drawn.

    All ratios of a replicate come from the same rows, so differences of them are paired.
    """
    n = len(ratios[0])
    columns = np.column_stack([column for each in ratios for column in _columns(each)])
    at_once = max(1, _AT_ONCE // max(n, 1))
    drawn = [
        (seed, start, min(at_once, n_replicates - start))
        for start in range(0, n_replicates, at_once)
    ]
    sums = np.concatenate(list(in_order(partial(_replicated, columns), drawn)))
    found, at = [], 0
    for each in ratios:
        k = each.n_groups
        numerator, denominator, moved = (sums[:, at + j * k : at + (j + 1) * k] for j in range(3))
        values = np.full(numerator.shape, np.nan)
        np.divide(numerator, denominator, out=values, where=np.abs(denominator) > 0)
        found.append(values + moved / n)
        at += 3 * k
    return found


def _replicated(columns: Floats, draw: tuple[int, int, int]) -> Floats:
    """Sums over rows drawn with replacement, a row a replicate; other draws, other numbers."""
    seed, start, size = draw
    n = len(columns)
    drawn = np.random.default_rng([seed, start]).integers(n, size=(size, n))
    drawn += n * np.arange(size)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
    sums: Floats = counts.astype(np.float64) @ columns
    return sums


def _columns(ratios: Ratios) -> list[Floats]:
    moved = np.zeros(len(ratios)) if ratios.moved is None else ratios.moved
    return [
        np.where(ratios.group == code, column, 0.0)
        for column in (ratios.numerator, ratios.denominator, moved)
        for code in range(ratios.n_groups)
    ]
