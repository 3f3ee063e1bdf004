"""Weighted log: the rows of a log with their weights, on which any rule can be measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Measured, Range, extreme, unscaled
from consequential.evaluation.contradictions import CONTRADICTED, weight_doubts
from consequential.evaluation.influence import Ratios, benefit_ratios
from consequential.evaluation.measurement import LabelWeights, Measurement
from consequential.evaluation.rates import Rates, RateSums, ratio
from consequential.evaluation.reach import Extremes, Reach
from consequential.functionals import LABELLED, NEGATIVES, POSITIVES, Shape, Tally
from consequential.log import DecisionLog
from consequential.objective import Objective, Whole
from consequential.weightings import Clipped, effective_sample_size

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# benefits that are shares of weighted people, and what `RateSums` calls them
RATES = {
    Shape(POSITIVES, share_of=POSITIVES): "true_positive_rates",
    Shape(NEGATIVES, share_of=NEGATIVES): "false_positive_rates",
    Shape(POSITIVES, share_of=LABELLED, denominator=LABELLED): "predictive_values",
}
NO_LABELS = (
    "next to no label speaks about the people this rule accepts: intervals cover every label "
    "they could have"
)
# fewer effective labels than this say nothing about the people a rule would accept
TOO_FEW = 10.0
# how far a sum is moved to see what follows it; the error is of the order of its square
_NUDGE = 1e-4


@dataclass(frozen=True)
class WeightedLog:
    """The settled rows of a log with their weights, ready to measure any rule on them.

    `extremes` are there where intervals need to know how far a row can go. A `chunk` has the
    totals of the whole log, and leaves unknown labels of benefits out.
    """

    objective: Objective
    log: DecisionLog
    overall: Tally
    within: Tally
    extremes: Extremes | None = None
    chunk: bool = False

    @classmethod
    def of(
        cls,
        objective: Objective,
        log: DecisionLog,
        extremes: Extremes | None = None,
        whole: Whole | None = None,
    ) -> WeightedLog:
        """Weigh the rows of a settled log, or of a chunk of a log with these totals."""
        overall, within = objective.tallies(log)
        if whole is not None:
            within = replace(within, sizes=whole.sums[0], whole=whole.sums)
        return cls(objective, log, overall, within, extremes, whole is not None)

    def measure(self, propensity: Floats, *notes: str) -> Measurement:
        """Measure a rule; `notes` are what else is known of it."""
        weights = self.label_weights(propensity)
        return Measurement(
            self.utility(propensity),
            self.acceptance(propensity),
            self.benefits(propensity),
            weights,
            self.log.groups,
            tuple(self.log.group_counts.tolist()),
            (
                *weights.notes(*self.objective.weighting.notes(self.log), *notes),
                *((NO_LABELS,) if self.lacks_labels(propensity) else ()),
                *(f"{CONTRADICTED}: {doubt}" for doubt in self._doubts),
            ),
        )

    def difference(self, propensity: Floats, versus: Floats) -> Measurement:
        """Measure how two rules differ, row by row; the weights are of whom they differ on."""
        return Measurement(
            self.utility(propensity, versus),
            self.acceptance(propensity, versus),
            (),
            self.label_weights(np.abs(propensity - versus)),
            self.log.groups,
            tuple(self.log.group_counts.tolist()),
            (),
        )

    @cached_property
    def _doubts(self) -> tuple[str, ...]:
        return weight_doubts(self.log)

    @cached_property
    def _weights(self) -> Floats:
        """The weight of each row's label, before any clipping."""
        return self.objective.weighting.unclipped(self.log)

    def label_weights(self, propensity: Floats) -> LabelWeights:
        """Return how much labels weigh where a rule accepts with these propensities."""
        log, weighted = self.log, self._weights * propensity
        lost = self.overall.unsupported

        def by_group(values: Floats) -> Floats:
            return np.bincount(log.group, values, len(log.groups)).astype(np.float64)

        return LabelWeights(
            by_group(weighted),
            by_group(weighted**2),
            by_group(propensity),
            by_group(np.zeros(len(log)) if lost is None else propensity * lost),
            float(propensity[log.propensity <= 0.0].sum()),
            float(weighted.max(initial=0.0)),
        )

    def lacks_labels(self, change: Floats) -> bool:
        """Whether next to no label speaks about the people whose decisions these would change."""
        if self.chunk or not (np.abs(change[self.log.propensity < 1.0]) > 0.0).any():
            return False
        return effective_sample_size(self._weights * np.abs(change)) < TOO_FEW

    def utility(self, propensity: Floats, versus: Floats | None = None) -> Measured:
        """Return the utility of these propensities as a mean over all rows, less that of others."""
        tally = self.overall
        if self.lacks_labels(propensity if versus is None else propensity - versus):
            tally = without_labels(tally)
        reach = self._reach(propensity, versus)

        def gained(tally: Tally) -> Floats:
            accepting, rejecting = self.objective.worth(self.log, tally)
            if versus is not None:
                return (propensity - versus) * (accepting - rejecting)
            return propensity * (accepting - rejecting) + rejecting

        def mean(mask: Mask | bool) -> Ratios:
            values, moved = gained(tally.filled(mask)), None
            if tally.normalised is not None:
                doubled = gained(_scaled(tally, 2.0).filled(mask))
                moved = -(doubled.mean() - values.mean()) * (tally.normalised - 1.0)
            return _mean_of(values, moved, reach)

        if tally.unknown is None:
            return mean(False)
        better = gained(tally.filled(True)) > gained(tally.filled(False))
        low, high = mean(~better), mean(better)
        if np.array_equal(low.numerator, high.numerator):
            return low
        return Range(low, high, _mean_of(gained(tally)) if self._clips(tally) else None)

    def _reach(self, propensity: Floats, versus: Floats | None) -> Reach | None:
        if self.extremes is None:
            return None
        if versus is None:
            return self.extremes.utility(self.objective, self.log)
        rules = zip((1.0, -1.0), (propensity, versus), strict=True)
        logged = [sign for sign, rule in rules if np.array_equal(rule, self.log.propensity)]
        return self.extremes.difference(self.objective, self.log, logged)

    def acceptance(self, propensity: Floats, versus: Floats | None = None) -> Ratios:
        """Return the share of people accepted, less that of other propensities."""
        reach = None
        if self.extremes is not None:
            reach = self.extremes.acceptance(paired=versus is not None)
        return _mean_of(propensity if versus is None else propensity - versus, None, reach)

    def benefits(self, propensity: Floats) -> tuple[Measured, ...]:
        """Return each benefit of the fairness notion, by group."""
        notion, tally = self.objective.fairness, self.within
        if notion is None:
            return ()
        exact = self.chunk or tally.unknown is None
        n = len(notion.benefits(tally if exact else tally.filled(False)))
        made = self._ratios if exact else self._range
        return tuple(made(propensity, k) for k in range(n))

    def _range(self, propensity: Floats, k: int) -> Measured:
        """Return one benefit with the unknown labels at both extremes."""
        notion, tally, group = self.objective.fairness, self.within, self.log.group
        assert notion is not None
        benefits = [notion.benefits(tally.filled(label))[k] for label in (False, True)]
        zeros, ones = (benefit_ratios(each, propensity, group) for each in benefits)
        if np.array_equal(zeros.numerator, ones.numerator) and np.array_equal(
            zeros.denominator, ones.denominator
        ):
            return self._ratios(propensity, k)
        zeros, ones = (
            benefit_ratios(unscaled(each, group), propensity, group) for each in benefits
        )
        # labels that change nothing are 1 at the lowest and 0 at the highest
        low = extreme((ones, zeros), highest=False)[1] == 0
        high = extreme((zeros, ones), highest=True)[1] == 1
        plain = benefit_ratios(notion.benefits(tally)[k], propensity, group)
        ends = [self._ratios(propensity, k, mask) for mask in (low, high)]
        return Range(ends[0], ends[1], plain if self._clips(tally) else None)

    def _clips(self, tally: Tally) -> bool:
        """Whether labels are unknown because weights were clipped, and for no other reason."""
        possible = self.log.propensity > 0.0
        return (
            tally.missing is None
            and tally.unsupported is not None
            and bool((possible & (tally.unsupported < 1.0)).all())
        )

    def _ratios(self, propensity: Floats, k: int, mask: Mask | bool = False) -> Ratios:
        """Return one benefit with unknown labels as in the mask."""
        notion, group = self.objective.fairness, self.log.group
        assert notion is not None

        def filled(factor: float = 1.0) -> Tally:
            scaled = self.within if factor == 1.0 else _scaled(self.within, factor)
            return scaled if self.chunk else scaled.filled(mask)

        benefit = notion.benefits(filled())[k]
        ratios = benefit_ratios(benefit, propensity, group)
        if self.extremes is not None:
            reach = self.extremes.benefit(benefit.shape)
            return replace(ratios, reach=reach, scale=benefit.scale)
        if self.within.normalised is None:
            return replace(ratios, rates=self._rates(filled(), benefit.shape, propensity))
        more, fewer = (
            benefit_ratios(notion.benefits(filled(1.0 + nudge))[k], propensity, group).values
            for nudge in (_NUDGE, -_NUDGE)
        )
        slope = np.nan_to_num((more - fewer) / (2.0 * _NUDGE))
        share = np.maximum(self.log.group_counts, 1) / len(self.log)
        return replace(ratios, moved=-(slope / share)[group] * (self.within.normalised - 1.0))

    def _rates(self, tally: Tally, shape: Shape | None, propensity: Floats) -> Rates | None:
        if self.chunk or shape not in RATES:
            return None
        sums = self.rate_sums(tally, propensity)
        return None if sums is None else getattr(sums, RATES[shape])

    def rate_sums(
        self, tally: Tally, propensity: Floats, n_rows: int | None = None
    ) -> RateSums | None:
        """Return the sums that intervals of rates are made of; None unless rows weigh people."""
        weighting, log = self.objective.weighting, self.log
        if not weighting.row_by_row:
            return None
        chance = log.label_propensity
        if isinstance(weighting, Clipped):
            if weighting.pessimistic:
                return None
            chance = np.maximum(chance, 1.0 / weighting.maximum)
        weights = tally.positives + tally.negatives
        # a filled-in label of somebody who was never accepted counts once
        chance = np.where(log.propensity > 0.0, chance, np.minimum(weights, 1.0))
        columns = weights, ratio(tally.positives, weights), chance, propensity, log.group
        return RateSums.of(*columns, len(tally.sizes), n_rows=n_rows)


def without_labels(tally: Tally) -> Tally:
    """Return a tally that knows nobody's label."""
    nothing = np.zeros_like(tally.people)
    return replace(
        tally,
        positives=nothing,
        negatives=nothing,
        normalised=None,
        unsupported=np.ones_like(tally.people),
        missing=None,
    )


def _mean_of(values: Floats, moved: Floats | None = None, reach: Reach | None = None) -> Ratios:
    n = len(values)
    return Ratios(values, np.ones(n), np.zeros(n, dtype=np.intp), 1, moved, reach)


def _scaled(tally: Tally, factor: float) -> Tally:
    """Multiply what weights count; people whom they do not stand for stay as they are."""
    return replace(
        tally,
        positives=factor * tally.positives,
        negatives=factor * tally.negatives,
        missing=None if tally.missing is None else factor * tally.missing,
    )
