"""Bootstrap: intervals from estimates on rows drawn again with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contrasts import Pairs, widest
from consequential.evaluation.estimate import UNKNOWN, Interval
from consequential.evaluation.influence import Ratios
from consequential.evaluation.intervals import Intervals, Terms
from consequential.evaluation.rates import ratio
from consequential.workers import in_order

Floats = NDArray[np.float64]

REPLICATES = 1000
_DRAWN_AT_ONCE = 2_000_000


class Bootstrap(Intervals):
    """Percentiles over replicates of the log."""

    name = "bootstrap"

    def __init__(self, ratios: Sequence[Ratios], confidence: float, seed: int) -> None:
        super().__init__(ratios, confidence, seed)
        self._ratios = tuple(ratios)  # keeps them alive, so that no id is used twice
        drawn = replicates(ratios, seed=seed)
        self._drawn = {id(each): values for each, values in zip(ratios, drawn, strict=True)}

    def _of(self, ratios: Any) -> list[Interval]:
        drawn = self._drawn[id(ratios)]
        return [self._percentiles(value, drawn[:, k]) for k, value in enumerate(ratios.values)]

    def _contrast(self, terms: Terms) -> Interval:
        value = sum(float(signs @ each.values) for each, signs in terms)
        drawn = sum(self._drawn[id(each)] @ signs for each, signs in terms)
        return self._percentiles(value, np.asarray(drawn))

    def _largest(self, benefits: tuple[Any, ...], pairs: Pairs) -> Interval:
        """Return simultaneous bounds; the quantile is that of the replicates."""
        differences = pairs.differences(np.stack([each.values for each in benefits]))
        drawn = np.stack([self._drawn[id(each)] for each in benefits], axis=1)
        drawn = pairs.differences(drawn)
        drawn = drawn[np.isfinite(drawn).all(axis=1)]
        errors = drawn.std(axis=0)
        away = np.abs(drawn - differences)
        scaled = ratio(away, errors)
        q = float(np.quantile(scaled.max(axis=1), self.confidence)) if len(drawn) else inf
        return widest(differences, errors, q)

    def _percentiles(self, value: float, drawn: Floats) -> Interval:
        drawn = drawn[np.isfinite(drawn)]
        if len(drawn) == 0 or not np.isfinite(value):
            return UNKNOWN
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        return Interval(float(value), float(low), float(high), float(drawn.std()))


def replicates(
    ratios: Sequence[Ratios], *, seed: int, n_replicates: int = REPLICATES
) -> list[Floats]:
    """Return each ratio by replicate and group; NaN where nobody of a group was drawn.

    All ratios of a replicate come from the same rows, so differences of them are paired.
    """
    n = len(ratios[0])
    columns = np.column_stack([column for each in ratios for column in _columns(each)])
    at_once = max(1, _DRAWN_AT_ONCE // max(n, 1))
    drawn = [
        (seed, start, min(at_once, n_replicates - start))
        for start in range(0, n_replicates, at_once)
    ]
    sums = np.concatenate(list(in_order(partial(_replicated, columns), drawn)))
    found, at = [], 0
    for each in ratios:
        k = each.n_groups
        numerator, denominator, moved = (sums[:, at + j * k : at + (j + 1) * k] for j in range(3))
        found.append(ratio(numerator, denominator, np.nan) + moved / n)
        at += 3 * k
    return found


def _replicated(columns: Floats, draw: tuple[int, int, int]) -> Floats:
    """Sums over rows drawn with replacement, one row per replicate."""
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
