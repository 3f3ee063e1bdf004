"""Weighted log: the rows of a log with their weights, on which any rule can be measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contradictions import CONTRADICTED, weight_doubts
from consequential.evaluation.estimate import Additive, Estimate, Interval
from consequential.evaluation.intervals import Intervals
from consequential.evaluation.rates import RATES, Floats, RateSums, few_notes, ratio
from consequential.evaluation.ratios import Range, Ratios, extreme
from consequential.evaluation.reach import Extremes, Reach
from consequential.log import DecisionLog
from consequential.objective.fairness import ShapedFairness
from consequential.objective.functionals import PEOPLE, Shape, Tally
from consequential.objective.objective import Objective, Totals
from consequential.objective.weightings import (
    Clipped,
    DoublyRobust,
    InversePropensity,
    effective_sample_size,
)

# below so many people normal intervals are a guess
FEW = 100.0
# fewer effective labels than this say nothing about the people a rule would accept
TOO_FEW = 10.0
NO_LABELS = (
    "next to no label is known of the people this rule accepts: intervals cover every label "
    "they could have"
)
BOOKED = (
    "its value is what was booked; a difference from it leaves out which people it happened to "
    "draw, and is not quite one value less the other"
)
# no row should carry this share of all weight
_MUCH = 0.05
# how far a sum is moved to see what follows it; the error is of the order of its square
_NUDGE = 1e-4


@dataclass(frozen=True)
class LabelWeights(Additive):
    """The weights of the labels of the people that a rule accepts, by group."""

    sums: Floats
    squares: Floats
    accepted: Floats
    unsupported: Floats  # accepted people whom no weight stands for
    never: float  # those of them who could not be accepted
    heaviest: float

    extremes: ClassVar = {"heaviest": max}

    @property
    def effective_size(self) -> float:
        """How many equally weighted labels say as much."""
        squares = float(self.squares.sum())
        return float(self.sums.sum()) ** 2 / squares if squares > 0.0 else 0.0

    @property
    def effective_sizes(self) -> Floats:
        """The same by group."""
        return ratio(self.sums**2, self.squares)

    @property
    def unsupported_share(self) -> float:
        """The share of acceptances that falls on people no weight stands for."""
        return float(ratio(self.unsupported.sum(), self.accepted.sum()))

    def notes(self, *between: str) -> tuple[str, ...]:
        """Return notes on people without labels, and on labels that are few or weigh too much."""
        notes = list(between)
        never, total = float(ratio(self.never, self.accepted.sum())), float(self.sums.sum())
        if never > 0.0:
            notes.insert(
                0,
                f"{never:.1%} of the people this rule accepts could not be accepted by the rule in "
                "force: nothing is known of their labels, and intervals cover whatever these are",
            )
        if total > 0.0 and self.effective_size < FEW:
            notes.append(
                f"labels stand for {self.effective_size:.0f} people in effect; intervals need "
                f"{FEW:.0f} or more"
            )
        if self.heaviest > _MUCH * total > 0.0 and self.effective_size >= 2.0:
            notes.append(f"one person carries {self.heaviest / total:.0%} of all weight")
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A rule on a log: utility, acceptance and benefits, and what their estimates rest on."""

    utility: Range
    acceptance: Range
    benefits: tuple[Range, ...]
    weights: LabelWeights
    groups: tuple[Hashable, ...]
    sizes: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many rows there are."""
        return sum(self.sizes)

    def estimate(self, intervals: Intervals, found: Interval, *, labelled: bool) -> Estimate:
        """Return an estimate for all people; labels carry it, or everybody does."""
        if not labelled:
            return intervals.estimate(found, self.n, self.n)
        weights = self.weights
        return intervals.estimate(found, self.n, weights.effective_size, weights.unsupported_share)

    def by_group(self, intervals: Intervals, found: Range) -> dict[Hashable, Estimate]:
        """Return an estimate for each group."""
        effective, unsupported = np.array(self.sizes, dtype=np.float64), np.zeros(len(self.sizes))
        if found.labelled:
            effective = self.weights.effective_sizes
            unsupported = ratio(self.weights.unsupported, self.weights.accepted)
        columns = intervals.of(found), self.sizes, effective.tolist(), unsupported.tolist()
        estimates = map(intervals.estimate, *columns)
        return dict(zip(self.groups, estimates, strict=True))


def rate_notes(benefits: Sequence[Range], groups: Sequence[Hashable]) -> tuple[str, ...]:
    """Return notes that name the groups whose rates few people carry."""
    notes: list[str] = []
    for benefit in benefits:
        rates = [side.rates for side in benefit.sides if side.rates is not None]
        if rates:
            effective = np.min([each.effective for each in rates], axis=0)
            notes += few_notes(*rates[0].kind, groups, effective)
    return tuple(notes)


@dataclass(frozen=True)
class WeightedLog:
    """The settled rows of a log with their weights, ready to measure any rule on them.

    `overall` and `within` are the weighted counts for sums over all rows and by group. `extremes`
    are given for intervals that need bounds of a row. A chunk of a log has the `totals` of the
    log; benefits of a chunk leave unknown labels out.
    """

    objective: Objective
    log: DecisionLog
    overall: Tally
    within: Tally
    extremes: Extremes | None = None
    totals: Totals | None = None

    @classmethod
    def of(
        cls,
        objective: Objective,
        log: DecisionLog,
        extremes: Extremes | None = None,
        totals: Totals | None = None,
    ) -> WeightedLog:
        """Weigh the rows of a settled log, or of a chunk of a log with these totals."""
        overall, within = objective.tallies(log)
        if totals is not None:
            sums = totals.sums
            within = replace(within, sizes=sums[0], totals=sums, unsupported=None, missing=None)
        return cls(objective, log, overall, within, extremes, totals)

    def measure(self, propensity: Floats, *notes: str, versus: Floats | None = None) -> Measurement:
        """Measure a rule; `notes` are what else is known of it.

        With `versus` measure how two rules differ, row by row; the weights are then of the people
        on whom they differ.
        """
        change = propensity if versus is None else np.abs(propensity - versus)
        weights = self.label_weights(change)
        if versus is None and self.totals is None:
            notes = (
                *weights.notes(*self.objective.weighting.notes(self.log), *notes),
                *((NO_LABELS,) if self.lacks_labels(propensity) else ()),
                *((BOOKED,) if propensity.any() and self._is_booked(propensity) else ()),
                *(f"{CONTRADICTED}: {doubt}" for doubt in self._doubts),
            )
        return Measurement(
            self._utility_of(propensity) if versus is None else self.utility(propensity, versus),
            self.acceptance(propensity, versus),
            self.benefits(propensity) if versus is None else (),
            weights,
            self.log.groups,
            tuple(self.log.group_counts.tolist()),
            notes,
        )

    def _utility_of(self, propensity: Floats) -> Range:
        """Return the utility; for the past rule it is what the log earned, without a model."""
        weighted = self
        if self._is_booked(propensity):
            plain = replace(self.objective, weighting=InversePropensity())
            weighted = WeightedLog.of(plain, self.log, self.extremes, self.totals)
        return weighted.utility(propensity)

    def _is_booked(self, propensity: Floats) -> bool:
        """Whether they are the past rule's, which cancel the inverse propensity; with a model."""
        if not isinstance(self.objective.weighting, DoublyRobust):
            return False
        chance = np.where(propensity > 0.0, self.log.propensity, 0.0)
        return np.allclose(propensity, chance, 1e-9, 0)

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
        """Whether next to no label is known of the people whose decisions these would change."""
        if self.totals is not None or not np.any(change[self.log.propensity < 1.0]):
            return False
        return effective_sample_size(self._weights * np.abs(change)) < TOO_FEW

    def utility(self, propensity: Floats, versus: Floats | None = None) -> Range:
        """Return the utility of these propensities as a mean over all rows, less that of others."""
        change = propensity if versus is None else propensity - versus
        reach = self._utility_reach(propensity, versus)

        def made(tally: Tally) -> Ratios:
            return Ratios.mean(change * self.objective.worth(self.log, tally), reach=reach)

        tally = without_labels(self.overall) if self.lacks_labels(change) else self.overall
        return self._range(tally, made, propensity)

    def _utility_reach(self, propensity: Floats, versus: Floats | None) -> Reach | None:
        if self.extremes is None:
            return None
        if versus is None:
            return self.extremes.utility(self.objective, self.log)
        rules = zip((1.0, -1.0), (propensity, versus), strict=True)
        logged = [sign for sign, rule in rules if np.allclose(rule, self.log.propensity, 1e-9, 0.0)]
        return self.extremes.difference(self.objective, self.log, logged)

    def acceptance(self, propensity: Floats, versus: Floats | None = None) -> Range:
        """Return the share of people accepted, less that of other propensities."""
        reach = None
        if self.extremes is not None:
            reach = self.extremes.acceptance(paired=versus is not None)
        change = propensity if versus is None else propensity - versus
        shape = Shape(PEOPLE) if versus is None else None
        return Range.exactly(Ratios.mean(change, reach=reach, shape=shape))

    def benefits(self, propensity: Floats) -> tuple[Range, ...]:
        """Return each benefit of the fairness notion, by group."""
        notion = self.objective.fairness
        if notion is None:
            return ()
        shapes = notion.shapes() if isinstance(notion, ShapedFairness) else ()

        def made(tally: Tally, k: int) -> Ratios:
            benefit = tally.benefit(shapes[k]) if shapes else notion.benefits(tally)[k]
            reach = None if self.extremes is None else self.extremes.benefit(benefit.shape)
            return replace(Ratios.of_benefit(benefit, propensity, self.log.group), reach=reach)

        return tuple(
            self._range(self.within, partial(made, k=k), propensity)
            for k in range(len(shapes or notion.benefits(self.within)))
        )

    def _range(self, tally: Tally, made: Callable[[Tally], Ratios], propensity: Floats) -> Range:
        """Return ratios made of a tally, with unknown labels at both extremes if they matter."""
        at = partial(self._filled, tally, made, propensity)
        if tally.unknown is None:
            return Range.exactly(at(False))
        zeros, ones = made(tally.filled(False)), made(tally.filled(True))
        if np.array_equal(zeros.numerator, ones.numerator) and np.array_equal(
            zeros.denominator, ones.denominator
        ):
            return Range.exactly(at(False))
        # labels that change nothing are 1 at the lowest and 0 at the highest
        low = extreme((ones, zeros), highest=False)[1] == 0
        high = extreme((zeros, ones), highest=True)[1] == 1
        clipped = (
            tally.missing is None
            and tally.unsupported is not None
            and bool(((self.log.propensity > 0.0) & (tally.unsupported < 1.0)).all())
        )
        return Range(at(low), at(high), made(tally) if clipped else None)

    def _filled(
        self,
        tally: Tally,
        made: Callable[[Tally], Ratios],
        propensity: Floats,
        mask: NDArray[np.bool_] | bool,
    ) -> Ratios:
        """Return ratios with unknown labels as in the mask, and what normal intervals need."""
        filled = tally.filled(mask)
        ratios = made(filled)
        if tally.normalised is not None:
            more, fewer = (
                made(_scaled(tally, 1.0 + nudge).filled(mask)).values for nudge in (_NUDGE, -_NUDGE)
            )
            slope = np.nan_to_num((more - fewer) / (2.0 * _NUDGE))
            share = np.bincount(ratios.group, minlength=ratios.n_groups).clip(1) / len(ratios)
            moved = -(slope / share)[ratios.group] * (tally.normalised - 1.0)
            return replace(ratios, moved=moved)
        if self.extremes is not None or self.totals is not None or ratios.shape not in RATES:
            return ratios
        sums = self.rate_sums(propensity, filled)
        return ratios if sums is None else replace(ratios, rates=sums.rates(ratios.shape))

    def rate_sums(self, propensity: Floats, tally: Tally | None = None) -> RateSums | None:
        """Return the sums that intervals of rates are made of; None unless rows weigh people."""
        weighting, log, tally = self.objective.weighting, self.log, tally or self.within
        if not weighting.row_by_row:
            return None
        chance = log.label_propensity
        if isinstance(weighting, Clipped):
            chance = np.maximum(chance, 1.0 / weighting.maximum)
        weights = tally.positives + tally.negatives
        # a filled-in label of somebody who was never accepted counts once
        chance = np.where(log.propensity > 0.0, chance, np.minimum(weights, 1.0))
        columns = weights, ratio(tally.positives, weights), chance, propensity, log.group
        n_rows = None if self.totals is None else self.totals.n
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


def _scaled(tally: Tally, factor: float) -> Tally:
    """Multiply what weights count; people whom they do not stand for stay as they are."""
    return replace(
        tally,
        positives=factor * tally.positives,
        negatives=factor * tally.negatives,
        missing=None if tally.missing is None else factor * tally.missing,
    )
