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

from consequential.evaluation.bounds import Range
from consequential.evaluation.influence import Ratios, RatioSums
from consequential.evaluation.judged import unsupported_note, weight_notes
from consequential.evaluation.measure import Facts, Measure, Measured
from consequential.evaluation.rates import Rates, RateSums
from consequential.evaluation.yardstick import RATES, TOO_FEW, Yardstick
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
    told: bool = True  # whether the labels it needs are known
    rates: Rates | None = None

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
        usable = (np.abs(self._totals) > NOBODY) & self.told
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
    """How heavy rows are that a rule would accept; those of pieces add up."""

    sums: Floats  # (groups,)
    squares: Floats
    accepted: Floats
    unsupported: Floats  # accepted people no weight stands for
    never: float  # of these, people who could not be accepted
    heaviest: float
    rates: RateSums | None  # where rows are weighted people

    def __add__(self, other: _Weight) -> _Weight:
        return _Weight(
            self.sums + other.sums,
            self.squares + other.squares,
            self.accepted + other.accepted,
            self.unsupported + other.unsupported,
            self.never + other.never,
            max(self.heaviest, other.heaviest),
            None if self.rates is None or other.rates is None else self.rates + other.rates,
        )

    @property
    def effective(self) -> float:
        squares = float(self.squares.sum())
        return float(self.sums.sum()) ** 2 / squares if squares > 0.0 else 0.0

    @property
    def told(self) -> bool:
        """Whether more than a handful of labels speak about the people accepted."""
        return self.effective >= TOO_FEW or float(self.accepted.sum()) == 0.0

    def facts(self, scan: LogScan, whole: Whole, notes: tuple[str, ...]) -> Facts:
        """Return what is known of the rows."""
        total = max(float(self.accepted.sum()), 1e-300)
        by_group = np.zeros(len(self.sums))
        return Facts(
            scan.groups,
            tuple(int(count) for count in whole.sums[0]),
            self.effective,
            np.divide(self.sums**2, self.squares, out=by_group, where=self.squares > 0),
            float(self.unsupported.sum()) / total,
            self.unsupported / np.maximum(self.accepted, 1e-300),
            (
                *unsupported_note(self.never / total),
                *notes,
                *weight_notes(self.effective, self.heaviest, float(self.sums.sum())),
            ),
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
        ratios: list[Any] = []
        for pi in found:
            utility = yardstick.utility(pi)
            benefits = [each.low for each in yardstick.benefits(pi)]
            ratios += [*_three(utility), yardstick.acceptance(pi), *benefits]
        n = self.whole.n
        weights = [_weight(yardstick, pi, n) for pi in found]
        if self.compared:
            one, other = found
            utility = yardstick.utility(one, other)
            ratios += [*_three(utility), yardstick.acceptance(one, other)]
            weights.append(_weight(yardstick, np.abs(one - other), n))
        return Gram.of(ratios, log), tuple(weights)


def _three(utility: Range) -> tuple[RatioSums, RatioSums, RatioSums]:
    """The lowest, the highest and the plain utility: the same columns for every piece."""
    return utility.low, utility.high, utility.plain or utility.low


def _weight(yardstick: Yardstick, propensity: Floats, n_rows: int) -> _Weight:
    weighted, log = yardstick.weighted(propensity), yardstick.log
    lost = yardstick.overall.unsupported
    unsupported = np.zeros(len(log)) if lost is None else propensity * lost

    def by_group(values: Floats) -> Floats:
        return np.bincount(log.group, values, len(log.groups)).astype(np.float64)

    return _Weight(
        by_group(weighted),
        by_group(weighted**2),
        by_group(propensity),
        by_group(unsupported),
        float(propensity[log.propensity <= 0.0].sum()),
        float(weighted.max()),
        yardstick.rate_sums(yardstick.within, propensity, n_rows) if yardstick.has_rates else None,
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
    size = 4 + len(shapes)
    measures = []
    for k, weight in enumerate(weights[: len(rules)]):
        utility, acceptance = _utility_and_acceptance(gram, k * size, weight)
        supported = not weight.unsupported.any()
        benefits = tuple(
            Range.exactly(
                ScannedRatios(
                    gram,
                    k * size + 4 + j,
                    n_groups,
                    labelled,
                    supported or not labelled,
                    getattr(weight.rates, rate) if rate and weight.rates is not None else None,
                )
            )
            for j, (n_groups, labelled, rate) in enumerate(shapes)
        )
        measures.append(Measure(utility, acceptance, benefits))
    notes = _left_out(scan, whole)
    facts = tuple(
        weight.facts(scan, whole, (*notes, *_unmeasured(weight, shapes)))
        for weight in weights[: len(rules)]
    )
    if not compared:
        return Measured(tuple(measures), facts)
    difference = Measure(*_utility_and_acceptance(gram, len(rules) * size, weights[-1]), ())
    return Measured(tuple(measures), facts, difference, weights[-1].effective)


def _utility_and_acceptance(gram: Gram, start: int, weight: _Weight) -> tuple[Range, ScannedRatios]:
    low, high, plain = (ScannedRatios(gram, start + k, 1, True, weight.told) for k in range(3))
    utility = Range.exactly(low)
    if weight.unsupported.any():
        utility = Range(low, high, plain if weight.never == 0.0 else None)
    return utility, ScannedRatios(gram, start + 3, 1, False)


def _unmeasured(weight: _Weight, shapes: list[tuple[int, bool, str]]) -> tuple[str, ...]:
    if not weight.unsupported.any() or not any(labelled for _, labelled, _ in shapes):
        return ()
    return (
        "benefits that need labels of people who were never accepted are not bounded on a scan: "
        "scan.sample(n, rng) gives a log in memory, on which they are",
    )


def _shapes(objective: Objective, n_groups: int) -> list[tuple[int, bool, str]]:
    """For each benefit, how many groups it has, whether labels matter, and the rate it is."""
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
    shapes = [benefit.shape for benefit in benefits]
    return [
        (n_groups, shape is None or shape.labelled, "" if shape is None else RATES.get(shape, ""))
        for shape in shapes
    ]


def _left_out(scan: LogScan, whole: Whole) -> tuple[str, ...]:
    young = len(scan) - whole.n
    if young == 0:
        return ()
    return (
        f"{young} rows younger than the horizon of {scan.horizon} time steps left out, accepted "
        "and rejected alike",
    )
