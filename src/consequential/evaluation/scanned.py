"""Rules measured on a log that is larger than memory: sums of products, piece by piece.

An influence value is a linear combination of what a row adds to a ratio's two sums. So from the
sums of products of all such columns, group by group, follow the variances and covariances of all
estimates, the same as from rows in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.influence import Ratios, RatioSums, Yardstick
from consequential.evaluation.judged import blind_spots, count_blind, weight_notes
from consequential.evaluation.offpolicy import Facts, Measure, Measured
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import NOBODY, Objective, Tally, Whole
from consequential.policies import DecisionRule

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gram:
    """Sums over rows of what they add to ratios, and of products of those; pieces add up.

    Two columns a ratio: numerator and denominator.
    """

    n: int
    sums: Floats  # (columns, groups)
    products: Floats  # (groups, columns, columns)
    cubes: Floats  # (columns,)
    counted: Floats  # (ratios, groups)

    @classmethod
    def of(cls, ratios: Sequence[Ratios], log: DecisionLog) -> Gram:
        """Add up the rows of a piece."""
        n_groups = len(log.groups)
        columns = np.stack([part for each in ratios for part in (each.numerator, each.denominator)])
        inside = [columns[:, log.group == code] for code in range(n_groups)]
        used = [columns[1::2, log.group == code] != 0.0 for code in range(n_groups)]
        return cls(
            len(log),
            np.stack([rows.sum(axis=1) for rows in inside], axis=1),
            np.stack([rows @ rows.T for rows in inside]),
            (columns**3).sum(axis=1),
            np.stack([rows.sum(axis=1) for rows in used], axis=1).astype(np.float64),
        )

    def __add__(self, other: Gram) -> Gram:
        return Gram(
            self.n + other.n,
            self.sums + other.sums,
            self.products + other.products,
            self.cubes + other.cubes,
            self.counted + other.counted,
        )


@dataclass(frozen=True)
class ScannedRatios(RatioSums):
    """One ratio for each group, or one for all, of which only sums are known."""

    gram: Gram
    place: int
    n_groups: int
    labelled: bool

    def __len__(self) -> int:
        return self.gram.n

    def _pooled(self, by_group: Floats) -> Floats:
        return by_group if self.n_groups > 1 else by_group.sum(keepdims=True)

    @cached_property
    def _totals(self) -> Floats:
        return self._pooled(self.gram.sums[2 * self.place + 1])

    @cached_property
    def values(self) -> Floats:
        """The ratios; NaN where there is nobody to divide by."""
        sums = self._pooled(self.gram.sums[2 * self.place])
        undefined = np.full(self.n_groups, np.nan)
        usable = np.abs(self._totals) > NOBODY
        values: Floats = np.divide(sums, self._totals, out=undefined, where=usable)
        return values

    @property
    def counted(self) -> Floats:
        """How many rows each ratio rests on."""
        return self._pooled(self.gram.counted[self.place])

    @cached_property
    def combination(self) -> Floats:
        """By group, what the columns are multiplied with to give influence values."""
        usable = np.isfinite(self.values)
        per_unit = np.divide(len(self), self._totals, out=np.zeros(self.n_groups), where=usable)
        mixed = np.zeros((len(self.gram.products), len(self.gram.sums)))
        mixed[:, 2 * self.place] = per_unit
        mixed[:, 2 * self.place + 1] = -per_unit * np.where(usable, self.values, 0.0)
        return mixed

    def products(self, other: ScannedRatios) -> Floats:
        """By group, the sum of the products of two ratios' influence values."""
        found = np.einsum("zc,zcd,zd->z", self.combination, self.gram.products, other.combination)
        return self._pooled(found)

    @property
    def skewness(self) -> float:
        """The skewness of a mean's rows; 0 where they do not vary."""
        place, n = 2 * self.place, self.gram.n
        first = float(self.gram.sums[place].sum()) / n
        second = float(self.gram.products[:, place, place].sum()) / n
        spread = second - first**2
        third = float(self.gram.cubes[place]) / n - 3.0 * first * second + 2.0 * first**3
        return third / spread**1.5 if spread > 1e-14 * second else 0.0


@dataclass(frozen=True)
class _Weight:
    """How heavy rows are that a rule would accept; pieces add up."""

    sums: Floats  # (groups,)
    squares: Floats
    heaviest: float
    blind: int

    def __add__(self, other: _Weight) -> _Weight:
        return _Weight(
            self.sums + other.sums,
            self.squares + other.squares,
            max(self.heaviest, other.heaviest),
            self.blind + other.blind,
        )

    @property
    def effective(self) -> float:
        squares = float(self.squares.sum())
        return float(self.sums.sum()) ** 2 / squares if squares > 0.0 else 0.0

    @property
    def by_group(self) -> Floats:
        return np.divide(
            self.sums**2, self.squares, out=np.zeros(len(self.sums)), where=self.squares > 0
        )


@dataclass(frozen=True)
class _Piece:
    """What a piece of the log adds."""

    objective: Objective
    whole: Whole
    rules: tuple[DecisionRule, ...]
    compared: bool

    def __call__(self, log: DecisionLog) -> tuple[Gram, tuple[_Weight, ...]] | None:
        if len(log) == 0:
            return None
        yardstick = Yardstick.of(self.objective, log, whole=self.whole)
        found = [log.propensity_of(rule) for rule in self.rules]
        ratios: list[Any] = [ratio for pi in found for ratio in Measure.of(yardstick, pi).ratios]
        weights = [_weight(yardstick, pi) for pi in found]
        if self.compared:
            one, other = found
            ratios += [yardstick.utility(one, other), yardstick.acceptance(one, other)]
            weights.append(_weight(yardstick, np.abs(one - other)))
        return Gram.of(ratios, log), tuple(weights)


def _weight(yardstick: Yardstick, propensity: Floats) -> _Weight:
    weighted, log = yardstick.weighted(propensity), yardstick.log
    n_groups = len(log.groups)
    return _Weight(
        np.bincount(log.group, weighted, n_groups).astype(np.float64),
        np.bincount(log.group, weighted**2, n_groups).astype(np.float64),
        float(weighted.max()),
        count_blind(log, propensity),
    )


def measured(
    scan: LogScan,
    objective: Objective,
    rules: tuple[DecisionRule, ...],
    *,
    compared: bool = False,
) -> Measured:
    """Measure rules on a scan, in two passes; `compared` takes the difference of two as well."""
    whole = reduce(add, scan.map(objective.whole, "weighing the log"))
    if whole.n == 0:
        raise DecisionLogError(f"no decision is as old as the horizon of {scan.horizon} time steps")
    found = scan.map(_Piece(objective, whole, rules, compared), "judging on the log")
    parts = [part for part in found if part is not None]
    gram = reduce(add, (part for part, _ in parts))
    weights = [reduce(add, column) for column in zip(*(each for _, each in parts), strict=True)]
    shapes = _shapes(objective, len(scan.groups))
    size = len(shapes)
    ratios = [
        ScannedRatios(gram, rule * size + k, n_groups, labelled)
        for rule in range(len(rules))
        for k, (n_groups, labelled) in enumerate(shapes)
    ]
    notes = _left_out(scan, whole)
    measures = tuple(
        Measure(ratios[start], ratios[start + 1], tuple(ratios[start + 2 : start + size]))
        for start in range(0, len(ratios), size)
    )
    facts = tuple(
        Facts(
            scan.groups,
            tuple(int(count) for count in whole.sums[0]),
            weight.effective,
            weight.by_group,
            (
                *notes,
                *weight_notes(weight.effective, weight.heaviest, float(weight.sums.sum())),
                *blind_spots(weight.blind),
            ),
        )
        for weight in weights[: len(rules)]
    )
    if not compared:
        return Measured(measures, facts)
    last = len(rules) * size
    difference = Measure(
        ScannedRatios(gram, last, 1, True), ScannedRatios(gram, last + 1, 1, True), ()
    )
    return Measured(measures, facts, difference, weights[-1].effective)


def _shapes(objective: Objective, n_groups: int) -> list[tuple[int, bool]]:
    """For each ratio of a rule, how many groups it has and whether labels matter."""
    assert objective.fairness is not None
    nobody = np.zeros(0)

    empty = Tally(
        nobody,
        nobody,
        nobody,
        np.zeros(0, dtype=np.intp),
        np.ones(n_groups),
        None,
        np.ones((3, n_groups)),
    )
    benefits = objective.fairness.benefits(empty)
    labelled = [benefit.shape is None or benefit.shape.labelled for benefit in benefits]
    return [(1, True), (1, True), *((n_groups, each) for each in labelled)]


def _left_out(scan: LogScan, whole: Whole) -> tuple[str, ...]:
    young = len(scan) - whole.n
    if young == 0:
        return ()
    return (
        f"{young} rows younger than the horizon of {scan.horizon} time steps left out, accepted "
        "and rejected alike",
    )
