"""Yardstick: the rows of a log, weighed once and ready to measure any rule on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Mask, Range, extreme_ratios
from consequential.evaluation.influence import Ratios, benefit_ratios
from consequential.evaluation.rates import Rates, RateSums
from consequential.evaluation.reach import Extremes, Reach
from consequential.log import DecisionLog
from consequential.objective import (
    Clipped,
    Objective,
    Shape,
    Tally,
    Whole,
    effective_sample_size,
)
from consequential.objective.functionals import LABELLED, NEGATIVES, POSITIVES

Floats = NDArray[np.float64]

# benefits that are shares of weighted people, and what `RateSums` calls them
RATES = {
    Shape(POSITIVES, share_of=POSITIVES): "true_positive_rates",
    Shape(NEGATIVES, share_of=NEGATIVES): "false_positive_rates",
    Shape(POSITIVES, share_of=LABELLED, denominator=LABELLED): "predictive_values",
}
# fewer effective labels than this say nothing about the people a rule would accept
TOO_FEW = 10.0
# how far a sum is moved to see what follows it; the error is of the order of its square
_NUDGE = 1e-4


@dataclass(frozen=True)
class Yardstick:
    """What the rows of a settled log stand for, ready to measure any rule on them."""

    objective: Objective
    log: DecisionLog
    overall: Tally
    within: Tally
    extremes: Extremes | None = None
    part: bool = False

    @classmethod
    def of(
        cls,
        objective: Objective,
        log: DecisionLog,
        extremes: Extremes | None = None,
        whole: Whole | None = None,
    ) -> Yardstick:
        """Weigh the rows of a settled log once; `extremes` where intervals need their reach.

        With `whole` the log is a part of a larger one, whose totals these are.
        """
        overall, within = objective.tallies(log)
        if whole is not None:
            within = replace(within, sizes=whole.sums[0], whole=whole.sums)
        return cls(objective, log, overall, within, extremes, whole is not None)

    def utility(self, propensity: Floats, less: Floats | None = None) -> Range:
        """Return the utility of these propensities, as a mean over all rows.

        `less` that of others, where they are given: rows are then compared one by one.
        """
        tally = self.overall
        if self.is_untold(propensity if less is None else propensity - less):
            tally = _untold(tally)
        zeros = self._gained(propensity, less, tally.filled(False))
        if tally.unknown is None:
            return Range.exactly(self._mean(zeros, tally, propensity, less, False))
        better = self._gained(propensity, less, tally.filled(True)) > zeros
        low, high = (
            self._mean(
                self._gained(propensity, less, tally.filled(mask)), tally, propensity, less, mask
            )
            for mask in (~better, better)
        )
        if np.array_equal(low.numerator, high.numerator):
            return Range.exactly(low)
        plain = _mean_of(self._gained(propensity, less, tally), None, None)
        return Range(low, high, plain if self._clips(tally) else None)

    def acceptance(self, propensity: Floats, less: Floats | None = None) -> Ratios:
        """Return the share of people accepted, `less` that of other propensities."""
        reach = None
        if self.extremes is not None:
            reach = self.extremes.acceptance(paired=less is not None)
        return _mean_of(propensity if less is None else propensity - less, None, reach)

    def benefits(self, propensity: Floats) -> tuple[Range, ...]:
        """Return each benefit of the fairness notion, by group."""
        notion = self.objective.fairness
        if notion is None:
            return ()
        if self.part or self.within.unknown is None:
            found = notion.benefits(self.within)
            return tuple(
                Range.exactly(self._ratios(self.within, propensity, k)) for k in range(len(found))
            )
        n = len(notion.benefits(self.within.filled(False)))
        return tuple(self._range(propensity, k) for k in range(n))

    def is_untold(self, change: Floats) -> bool:
        """Whether next to no label speaks about the people whose decisions these would change."""
        if self.part or not (np.abs(change[self.log.propensity < 1.0]) > 0.0).any():
            return False
        return effective_sample_size(self.weighted(np.abs(change))) < TOO_FEW

    def weighted(self, propensity: Floats) -> Floats:
        """Return how much each row counts where labels matter: weight times propensity."""
        return self.weights * propensity

    @cached_property
    def weights(self) -> Floats:
        """The weight of each row's label, before any clipping."""
        return self.objective.weighting.unclipped(self.log)

    def effective_sizes(self, propensity: Floats) -> tuple[float, Floats]:
        """Return the effective sample size of all accepted people, and of each group's."""
        counted = self.weighted(propensity)
        group, n_groups = self.log.group, len(self.log.groups)
        sums = np.bincount(group, counted, n_groups)
        squares = np.bincount(group, counted**2, n_groups)
        by_group = np.divide(sums**2, squares, out=np.zeros(n_groups), where=squares > 0)
        return effective_sample_size(counted), by_group

    def _gained(self, propensity: Floats, less: Floats | None, tally: Tally) -> Floats:
        accepting, rejecting = self.objective.worth(self.log, tally)
        if less is not None:
            return (propensity - less) * (accepting - rejecting)
        return propensity * (accepting - rejecting) + rejecting

    def _mean(
        self,
        gained: Floats,
        tally: Tally,
        propensity: Floats,
        less: Floats | None,
        mask: Mask | bool,
    ) -> Ratios:
        """Return the mean of what rows gain with unknown labels as in the mask."""
        moved = reach = None
        if tally.normalised is not None:
            doubled = self._gained(propensity, less, _scaled(tally, 2.0).filled(mask))
            moved = -(doubled.mean() - gained.mean()) * (tally.normalised - 1.0)
        if self.extremes is not None:
            reach = self._reach(self.extremes, propensity, less)
        return _mean_of(gained, moved, reach)

    def _reach(self, extremes: Extremes, propensity: Floats, less: Floats | None) -> Reach:
        if less is None:
            return extremes.utility(self.objective, self.log)
        rules = zip((1.0, -1.0), (propensity, less), strict=True)
        logged = [sign for sign, rule in rules if np.array_equal(rule, self.log.propensity)]
        return extremes.difference(self.objective, self.log, np.array(logged))

    def _range(self, propensity: Floats, k: int) -> Range:
        """Return one benefit with the unknown labels at both extremes."""
        notion = self.objective.fairness
        assert notion is not None
        by_row = np.ones(len(self.within.sizes))

        def at(mask: Mask | bool) -> tuple[Ratios, Floats]:
            benefit = notion.benefits(self.within.filled(mask))[k]
            scale = by_row if benefit.scale is None else benefit.scale
            return benefit_ratios(benefit, propensity, self.log.group), scale

        zeros, ones = at(False)[0], at(True)[0]
        if np.array_equal(zeros.numerator, ones.numerator) and np.array_equal(
            zeros.denominator, ones.denominator
        ):
            return Range.exactly(self._ratios(self.within, propensity, k))
        sides = []
        for highest in (False, True):
            _, mask = extreme_ratios(at, highest=highest)
            sides.append(self._ratios(self.within, propensity, k, mask))
        plain = benefit_ratios(notion.benefits(self.within)[k], propensity, self.log.group)
        return Range(sides[0], sides[1], plain if self._clips(self.within) else None)

    def _clips(self, tally: Tally) -> bool:
        """Whether labels are unknown because weights were clipped, and for no other reason."""
        possible = self.log.propensity > 0.0
        return (
            tally.missing is None
            and tally.unsupported is not None
            and bool((possible & (tally.unsupported < 1.0)).all())
        )

    def rate_sums(self, tally: Tally, propensity: Floats, n_rows: int | None = None) -> RateSums:
        """Return the sums that intervals of rates are made of."""
        weighting, log = self.objective.weighting, self.log
        chance = log.label_propensity
        if isinstance(weighting, Clipped):
            chance = np.maximum(chance, 1.0 / weighting.maximum)
        weights = tally.positives + tally.negatives
        # a filled-in label of somebody who was never accepted counts once
        chance = np.where(log.propensity > 0.0, chance, np.minimum(weights, 1.0))
        outcome = np.divide(tally.positives, weights, out=np.zeros(len(log)), where=weights > 0.0)
        return RateSums.of(
            weights, outcome, chance, propensity, log.group, len(tally.sizes), n_rows
        )

    @property
    def has_rates(self) -> bool:
        """Whether rows are weighted people: then rates have intervals of their own."""
        weighting = self.objective.weighting
        pessimistic = isinstance(weighting, Clipped) and weighting.pessimistic
        return weighting.row_by_row and not pessimistic

    def _rates(self, tally: Tally, shape: Shape | None, propensity: Floats) -> Rates | None:
        if self.part or not self.has_rates or shape not in RATES:
            return None
        found: Rates = getattr(self.rate_sums(tally, propensity), RATES[shape])
        return found

    def _ratios(
        self, tally: Tally, propensity: Floats, k: int, mask: Mask | bool = False
    ) -> Ratios:
        notion = self.objective.fairness
        assert notion is not None
        group = self.log.group

        def filled(factor: float = 1.0) -> Tally:
            scaled = tally if factor == 1.0 else _scaled(tally, factor)
            return scaled if self.part else scaled.filled(mask)

        benefit = notion.benefits(filled())[k]
        ratios = benefit_ratios(benefit, propensity, group)
        if self.extremes is not None:
            reach = self.extremes.benefit(benefit.shape)
            return replace(ratios, reach=reach, scale=benefit.scale)
        if tally.normalised is None:
            return replace(ratios, rates=self._rates(filled(), benefit.shape, propensity))
        more, fewer = (
            benefit_ratios(notion.benefits(filled(1.0 + nudge))[k], propensity, group).values
            for nudge in (_NUDGE, -_NUDGE)
        )
        slope = np.nan_to_num((more - fewer) / (2.0 * _NUDGE))
        share = np.maximum(self.log.group_counts, 1) / len(self.log)
        moved = -(slope / share)[group] * (tally.normalised - 1.0)
        return replace(ratios, moved=moved)


def _mean_of(values: Floats, moved: Floats | None, reach: Reach | None) -> Ratios:
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


def _untold(tally: Tally) -> Tally:
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
