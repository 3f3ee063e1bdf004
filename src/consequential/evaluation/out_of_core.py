"""Out-of-core evaluation: rules measured on a log larger than memory, chunk by chunk.

An influence value is a linear combination of what a row adds to a ratio's two sums. So from the
sums of products of all such columns, group by group, follow the variances and covariances of all
estimates, the same as from rows in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Measured, Range
from consequential.evaluation.influence import Ratios, RatioSums
from consequential.evaluation.measurement import LabelWeights, Measurement
from consequential.evaluation.rates import Rates, RateSums, ratio
from consequential.evaluation.weighted_log import RATES, TOO_FEW, WeightedLog
from consequential.functionals import Shape, Tally
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import Objective, Whole
from consequential.policies import DecisionRule

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gram:
    """Sums over rows of what they add to ratios, and of products of those; chunks add up.

    There are two columns per ratio: its numerator and its denominator.
    """

    n: int
    sums: Floats  # (columns, groups)
    products: Floats  # (groups, columns, columns)
    cubes: Floats  # (columns,)
    counted: Floats  # (ratios, groups)

    @classmethod
    def of(cls, ratios: Sequence[Ratios], log: DecisionLog) -> Gram:
        """Add up the rows of a chunk."""
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
    labels_known: bool = True  # those that it needs
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
        return ratio(sums, self._totals if self.labels_known else 0.0 * self._totals, np.nan)

    @property
    def counted(self) -> Floats:
        """How many rows each ratio rests on."""
        return self._pooled(self.gram.counted[self.place])

    @cached_property
    def combination(self) -> Floats:
        """By group, what the columns are multiplied with to give influence values."""
        per_unit = np.where(self.labels_known, ratio(len(self), self._totals), 0.0)
        mixed = np.zeros((len(self.gram.products), len(self.gram.sums)))
        mixed[:, 2 * self.place] = per_unit
        mixed[:, 2 * self.place + 1] = -per_unit * np.nan_to_num(self.values)
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


def _summed(
    log: DecisionLog,
    objective: Objective,
    whole: Whole,
    rules: tuple[DecisionRule, ...],
    compared: bool,
) -> tuple[Gram, list[LabelWeights], list[RateSums | None]] | None:
    """Return what a chunk of the log adds: to ratios, to weights and to the rates of each rule."""
    if len(log) == 0:
        return None
    weighted = WeightedLog.of(objective, log, whole=whole)
    found = [log.propensity_of(rule) for rule in rules]
    ratios: list[Any] = []
    for pi in found:
        utility = _three(weighted.utility(pi))
        ratios += [*utility, weighted.acceptance(pi), *weighted.benefits(pi)]
    weights = [weighted.label_weights(pi) for pi in found]
    if compared:
        ratios += [*_three(weighted.utility(*found)), weighted.acceptance(*found)]
        weights.append(weighted.label_weights(np.abs(found[0] - found[1])))
    rates = [weighted.rate_sums(weighted.within, pi, whole.n) for pi in found]
    return Gram.of(ratios, log), weights, rates


def _three(utility: Measured) -> tuple[RatioSums, RatioSums, RatioSums]:
    """The lowest, the highest and the plain utility: the same columns for every chunk."""
    return utility.low, utility.high, utility.plain or utility.low


def measured(
    scan: LogScan,
    objective: Objective,
    rules: tuple[DecisionRule, ...],
    *,
    compared: bool = False,
) -> list[Measurement]:
    """Measure rules on a scan, in two passes; `compared` adds the difference of the two rules."""
    whole = reduce(add, scan.map(objective.whole, "weighing the log"))
    if whole.n == 0:
        raise DecisionLogError(f"no decision is as old as the horizon of {scan.horizon} time steps")
    summed = partial(_summed, objective=objective, whole=whole, rules=rules, compared=compared)
    found = scan.map(summed, "evaluating on the log")
    grams, weights_by_chunk, rates_by_chunk = zip(
        *(each for each in found if each is not None), strict=True
    )
    gram = reduce(add, grams)
    weights = [reduce(add, column) for column in zip(*weights_by_chunk, strict=True)]
    rates = [
        None if None in column else reduce(add, column)
        for column in zip(*rates_by_chunk, strict=True)
    ]
    shapes = _shapes(objective, len(scan.groups))
    sizes = tuple(int(count) for count in whole.sums[0])
    measurements = []
    benefits: tuple[Measured, ...]
    for k, each in enumerate(weights):
        start = k * (4 + len(shapes))
        utility, acceptance = _utility_and_acceptance(gram, start, each)
        if k == len(rules):  # the difference of the two rules
            benefits, notes = (), ()
        else:
            benefits = _benefits(gram, start + 4, shapes, each, rates[k])
            notes = each.notes(*_left_out(scan, whole), *_not_bounded(each, shapes))
        measurements.append(
            Measurement(utility, acceptance, benefits, each, scan.groups, sizes, notes)
        )
    return measurements


def _utility_and_acceptance(
    gram: Gram, start: int, weights: LabelWeights
) -> tuple[Measured, ScannedRatios]:
    accepts = float(weights.accepted.sum()) > 0.0
    known = weights.effective_size >= TOO_FEW or not accepts
    low, high, plain = (ScannedRatios(gram, start + k, 1, True, known) for k in range(3))
    utility: Measured = low
    if weights.unsupported.any():
        utility = Range(low, high, plain if weights.never == 0.0 else None)
    return utility, ScannedRatios(gram, start + 3, 1, False)


def _benefits(
    gram: Gram,
    start: int,
    shapes: list[Shape | None],
    weights: LabelWeights,
    rates: RateSums | None,
) -> tuple[ScannedRatios, ...]:
    supported = not weights.unsupported.any()
    found = []
    for place, shape in enumerate(shapes, start):
        labelled = shape is None or shape.labelled
        own = None if rates is None or shape not in RATES else getattr(rates, RATES[shape])
        n_groups = len(weights.sums)
        found.append(ScannedRatios(gram, place, n_groups, labelled, supported or not labelled, own))
    return tuple(found)


def _shapes(objective: Objective, n_groups: int) -> list[Shape | None]:
    """How each benefit weighs people, from a tally of nobody."""
    assert objective.fairness is not None
    nobody, group = np.zeros(0), np.zeros(0, dtype=np.intp)
    totals = np.ones(n_groups), None, np.ones((3, n_groups))
    benefits = objective.fairness.benefits(Tally(nobody, nobody, nobody, group, *totals))
    return [benefit.shape for benefit in benefits]


def _not_bounded(weights: LabelWeights, shapes: list[Shape | None]) -> tuple[str, ...]:
    labelled = any(shape is None or shape.labelled for shape in shapes)
    if not labelled or not weights.unsupported.any():
        return ()
    return (
        "benefits that need labels of people who were never accepted are not bounded on a scan: "
        "scan.sample(n, rng) gives a log in memory, on which they are",
    )


def _left_out(scan: LogScan, whole: Whole) -> tuple[str, ...]:
    young = len(scan) - whole.n
    if young == 0:
        return ()
    return (
        f"{young} rows younger than the horizon of {scan.horizon} time steps left out, accepted "
        "and rejected alike",
    )
