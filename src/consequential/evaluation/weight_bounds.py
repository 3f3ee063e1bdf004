"""The values a log can give when each row's weight may lie anywhere between two ends.

A mean is largest where each weight is at the end its own sign asks for; a ratio
`sum w a / sum w b` at the fixed point `r` where weights are high exactly if `a > r b`.

What the log itself did needs no weights: it accepted a person or it did not, whatever the reason,
so its value is the mean of `d (y - c) + (1 - d) g(y)`. Only where rejecting is worth more for one
label than for the other do the labels of rejected people need weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.estimate import finite_or_none
from consequential.evaluation.influence import Ratios, benefit_ratios
from consequential.evaluation.intervals import Interval, Intervals
from consequential.evaluation.judged import Judged
from consequential.log import DecisionLog
from consequential.objective import Benefit, InversePropensity, Objective, Tally
from consequential.policies import Logged

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False)
class Bounds:
    """The smallest and largest value there can be; `low` and `high` include sampling error."""

    smallest: float
    largest: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Return the four numbers, ready for JSON."""
        names = ("smallest", "largest", "low", "high")
        return {name: finite_or_none(getattr(self, name)) for name in names}

    def __repr__(self) -> str:
        if not np.isfinite(self.smallest):
            return "not measurable"
        return f"{self.smallest:.4f} to {self.largest:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, slots=True)
class Side:
    """How likely a rule is to accept each person; for what the log did, 1 where it accepted."""

    propensity: Floats
    logged: bool

    @classmethod
    def of(cls, rule: Any, judged: Judged) -> Side:
        """Return a rule that was judged as one of the sides of a comparison."""
        logged = isinstance(rule, Logged)
        return cls(judged.log.decision.astype(np.float64) if logged else judged.propensity, logged)

    def accepts(self, weighted: Floats, known: Floats) -> Floats:
        """Each row's gain from acceptance: with its weight, or as the log knows it."""
        return self.propensity * (known if self.logged else weighted)


@dataclass(frozen=True)
class Box:
    """A rule on a log whose weights may lie anywhere between two bounds each."""

    objective: Objective
    log: DecisionLog
    rule: Side
    other: Side | None
    intervals: Intervals

    def ends(self, gamma: float) -> tuple[Floats, Floats]:
        """The smallest and largest weight of each row; 0 for the rejected."""
        accepted, excess = self.log.decision, self._plain - 1.0
        return (
            np.where(accepted, 1.0 + excess / gamma, 0.0),
            np.where(accepted, 1.0 + excess * gamma, 0.0),
        )

    def utility(self, gamma: float) -> Bounds:
        """Each row's weight at the end that its own gain asks for."""
        low, high = self.ends(gamma)
        fixed, slope = self._affine
        n = len(fixed)
        found = []
        for up in (False, True):
            gained = fixed + np.where((slope > 0) == up, high, low) * slope
            found.append(Ratios(gained, np.ones(n), np.zeros(n, dtype=np.intp), 1))
        made = self.intervals.of if self.other is None else self._difference
        return _bounds(*(made(each) for each in found))[0]

    def benefits(self, gamma: float) -> list[list[Bounds]]:
        """Bounds of each benefit and group."""
        assert self.objective.fairness is not None
        n = len(self.objective.fairness.benefits(self._tally(np.ones(len(self.log)))))
        return [
            _bounds(*(self.intervals.of(self._extreme(k, gamma, up)) for up in (False, True)))
            for k in range(n)
        ]

    def _difference(self, ratios: Ratios) -> list[Interval]:
        return [self.intervals.difference(ratios)]

    @cached_property
    def _affine(self) -> tuple[Floats, Floats]:
        """What each row gains with weight 0, and by how much more with each unit of weight."""
        nothing, one = (np.full(len(self.log), weight) for weight in (0.0, 1.0))
        fixed = self._gained(nothing)
        return fixed, self._gained(one) - fixed

    def _gained(self, weights: Floats) -> Floats:
        accepting, rejecting = self.objective.worth(self.log, self._tally(weights))
        accepted, rejected = self.objective.worth(self.log, self._tally(np.ones(len(self.log))))
        changes = accepting - rejecting, accepted - rejected
        gained = self.rule.accepts(*changes)
        return gained + rejecting if self.other is None else gained - self.other.accepts(*changes)

    def _tally(self, weights: Floats) -> Tally:
        positives = weights * self.log.outcome
        return Tally(
            np.ones(len(self.log)),
            positives,
            weights - positives,
            self.log.group,
            self.log.group_counts.astype(np.float64),
        )

    def _ratios(self, k: int, weights: Floats) -> Ratios:
        benefit = self._benefit(k, weights)
        if self.rule.logged:
            known = self._benefit(k, np.ones(len(self.log)))
            benefit = replace(benefit, values=known.values, denominator=known.denominator)
        return benefit_ratios(benefit, self.rule.propensity, self.log.group)

    def _benefit(self, k: int, weights: Floats) -> Benefit:
        """Return a benefit without its scale, which weights change too: linear in each weight."""
        assert self.objective.fairness is not None
        benefit = self.objective.fairness.benefits(self._tally(weights))[k]
        if benefit.scale is None:
            return benefit
        undo = np.divide(
            1.0, benefit.scale, out=np.zeros_like(benefit.scale), where=benefit.scale > 0
        )[self.log.group]

        def unscaled(column: Floats | None) -> Floats | None:
            return None if column is None else column * undo

        return replace(
            benefit,
            values=benefit.values * undo,
            constants=unscaled(benefit.constants),
            denominator=unscaled(benefit.denominator),
            counted=unscaled(benefit.counted),
        )

    def _extreme(self, k: int, gamma: float, up: bool) -> Ratios:
        """Dinkelbach's iteration: each round's weights are best for the last round's ratios."""
        low, high = self.ends(gamma)
        here, there = self._ratios(k, low), self._ratios(k, high)
        wide = high > low
        found = self._ratios(k, self._plain)
        for _ in range(100):
            ratio = np.nan_to_num(found.values)[self.log.group]
            gain = (there.numerator - here.numerator) - ratio * (
                there.denominator - here.denominator
            )
            better = self._ratios(k, np.where(wide & ((gain > 0) == up), high, low))
            change = np.nan_to_num(better.values - found.values)
            found = better
            if np.abs(change).max() < 1e-13:
                break
        return found

    @cached_property
    def _plain(self) -> Floats:
        return InversePropensity().weights(self.log)


def _bounds(smallest: list[Interval], largest: list[Interval]) -> list[Bounds]:
    """Return the values at both extremes, and the outer ends of their intervals."""
    return [
        Bounds(least.value, most.value, least.low, most.high)
        for least, most in zip(smallest, largest, strict=True)
    ]


def gap_bounds(benefits: list[list[Bounds]]) -> Bounds:
    """Groups share no rows, so each can be at its own worst: exact for points.

    With more than two groups errors are added up and not only their squares, which for a handful
    of groups makes up for looking at the largest difference.
    """
    if len(benefits) == 1 and len(benefits[0]) == 2:
        one, other = benefits[0]
        ends = (one.low - one.smallest, other.high - other.largest)
        tops = (one.high - one.largest, other.low - other.smallest)
        smallest, largest = one.smallest - other.largest, one.largest - other.smallest
        return Bounds(
            smallest, largest, smallest - float(np.hypot(*ends)), largest + float(np.hypot(*tops))
        )
    smallest = largest = low = high = 0.0
    for groups in benefits:
        known = [each for each in groups if np.isfinite(each.smallest)]
        if len(known) < 2:
            continue
        smallest = max(
            smallest, max(one.smallest for one in known) - min(one.largest for one in known)
        )
        largest = max(
            largest, max(one.largest for one in known) - min(one.smallest for one in known)
        )
        low = max(low, max(one.low for one in known) - min(one.high for one in known))
        high = max(high, max(one.high for one in known) - min(one.low for one in known))
    return Bounds(smallest, largest, low, high)
