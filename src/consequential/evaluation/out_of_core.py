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

from consequential.evaluation.cross_fitting import young_notes
from consequential.evaluation.estimate import Additive
from consequential.evaluation.rates import Floats, Rates, RateSums, ratio
from consequential.evaluation.ratios import Range, RatioSums
from consequential.evaluation.weighted_log import TOO_FEW, LabelWeights, Measurement, WeightedLog
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective.functionals import PEOPLE, Shape
from consequential.objective.objective import Objective, Totals
from consequential.policy import DecisionRule


@dataclass(frozen=True)
class Gram(Additive):
    """Sums over rows of the terms of ratios, and of their products.

    There are two columns per ratio: its numerator and its denominator.
    """

    n: int
    sums: Floats  # (columns, groups)
    products: Floats  # (groups, columns, columns)
    cubes: Floats  # (columns,)
    counted: Floats  # (ratios, groups)

    @classmethod
    def of(cls, ratios: Sequence[Any], log: DecisionLog) -> Gram:
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


@dataclass(frozen=True)
class ScannedRatios(RatioSums):
    """One ratio for each group, or one for all, from sums over rows."""

    gram: Gram
    place: int
    n_groups: int = 1
    shape: Shape | None = None
    rates: Rates | None = None
    labels_known: bool = True  # those that it needs

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


# the sums of a chunk for ratios, for the weights of each measurement and for the rates of each
# rule; and the shapes of the benefits
_Sums = tuple[Gram, list[LabelWeights], list[RateSums | None], list[Shape | None]]


def _summed(
    log: DecisionLog,
    objective: Objective,
    totals: Totals,
    rules: tuple[DecisionRule, ...],
    *,
    paired: bool,
) -> _Sums | None:
    if len(log) == 0:
        return None
    weighted = WeightedLog.of(objective, log, totals=totals)
    found = [log.propensity_of(rule) for rule in rules]
    measures = [weighted.measure(propensity) for propensity in found]
    shapes = [each.low.shape for each in measures[0].benefits]
    if paired:
        measures.append(weighted.measure(found[0], versus=found[1]))
    ratios = []
    for each in measures:
        plain = each.utility.plain or each.utility.low
        ratios += [each.utility.low, each.utility.high, plain, each.acceptance.low]
        ratios += [benefit.low for benefit in each.benefits]
    rates = [weighted.rate_sums(propensity) for propensity in found]
    return Gram.of(ratios, log), [each.weights for each in measures], rates, shapes


def measured(
    scan: LogScan, objective: Objective, rules: tuple[DecisionRule, ...], *, paired: bool = False
) -> list[Measurement]:
    """Measure rules on a scan, in two passes; `paired` adds the difference of two rules."""
    totals = reduce(add, scan.map(objective.totals, "weighing the log"))
    if totals.n == 0:
        raise DecisionLogError(f"no decision is as old as the horizon of {scan.horizon} time steps")
    summed = partial(_summed, objective=objective, totals=totals, rules=rules, paired=paired)
    chunks = [each for each in scan.map(summed, "evaluating on the log") if each is not None]
    grams, weights, rates, (shapes, *_) = zip(*chunks, strict=True)
    sizes = tuple(totals.sums[0].astype(int).tolist())
    young = young_notes(len(scan) - totals.n, scan.horizon)
    gram, place, measurements = reduce(add, grams), 0, []
    for k, chunk_weights in enumerate(zip(*weights, strict=True)):
        own = reduce(add, chunk_weights)
        benefits: tuple[Range, ...] = ()
        notes: tuple[str, ...] = ()
        if k < len(rules):
            chunk_rates = [each[k] for each in rates]
            sums = None if None in chunk_rates else reduce(add, chunk_rates)
            benefits = _benefits(gram, place + 4, shapes, own, sums)
            notes = own.notes(*young, *_not_bounded(own, benefits))
        shape = Shape(PEOPLE) if k < len(rules) else None
        acceptance = Range.exactly(ScannedRatios(gram, place + 3, shape=shape))
        ranges = _utility(gram, place, own), acceptance, benefits
        measurements.append(Measurement(*ranges, own, scan.groups, sizes, notes))
        place += 4 + len(benefits)
    return measurements


def _utility(gram: Gram, place: int, weights: LabelWeights) -> Range:
    known = weights.effective_size >= TOO_FEW or not weights.accepted.any()
    low, high, plain = (ScannedRatios(gram, place + k, labels_known=known) for k in range(3))
    if not weights.unsupported.any():
        return Range.exactly(low)
    return Range(low, high, plain if weights.never == 0.0 else None)


def _benefits(
    gram: Gram,
    place: int,
    shapes: list[Shape | None],
    weights: LabelWeights,
    sums: RateSums | None,
) -> tuple[Range, ...]:
    found: list[Range] = []
    for shape in shapes:
        rates = None if sums is None else sums.rates(shape)
        known = not weights.unsupported.any() or (shape is not None and not shape.labelled)
        ratios = ScannedRatios(gram, place + len(found), len(weights.sums), shape, rates, known)
        found.append(Range.exactly(ratios))
    return tuple(found)


def _not_bounded(weights: LabelWeights, benefits: tuple[Range, ...]) -> tuple[str, ...]:
    if not weights.unsupported.any() or not any(each.labelled for each in benefits):
        return ()
    return (
        "benefits that need labels of people who were never accepted are not bounded on a scan: "
        "scan.sample(n, rng) gives a log in memory, on which they are",
    )
