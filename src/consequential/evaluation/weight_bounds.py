"""The values a log can give when each row's weight may lie anywhere between two ends.

A mean is largest where each row is at its best, a ratio `sum a / sum b` at the fixed point `r`
where each row has the largest `a - r b` (Dinkelbach's iteration). A row's best is at one end of its
weight and, where nobody knows its label, at one of the two labels.

What the log itself did needs no weights: it accepted a person or it did not, whatever the reason,
so its value is the mean of `d (y - c) + (1 - d) g(y)`. Only where rejecting is worth more for one
label than for the other do the labels of rejected people need weights.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from consequential.objective import Benefit, InversePropensity, Objective, Tally, Weighting
from consequential.policies import Logged

Floats = NDArray[np.float64]

_MOST_ROUNDS = 100


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


@dataclass(frozen=True, slots=True)
class _Given(Weighting):
    """Weights that are what they are."""

    rows: Floats
    row_by_row = True

    def weights(self, log: DecisionLog) -> Floats:
        """Return them."""
        return self.rows


@dataclass(frozen=True)
class Box:
    """A rule on a log whose weights may lie anywhere between two ends each."""

    objective: Objective
    log: DecisionLog
    rule: Side
    other: Side | None
    intervals: Intervals

    def utility(self, gamma: float) -> Bounds:
        """Return the bounds of the utility, or of the difference to the other rule's."""
        n = len(self.log)
        corners = [
            Ratios(fixed + weights * slope, np.ones(n), np.zeros(n, dtype=np.intp), 1)
            for fixed, slope in self._affine
            for weights in self._ends(gamma)
        ]
        made = self.intervals.of if self.other is None else self._difference
        return _bounds(*(made(_extreme(corners, highest)) for highest in (False, True)))[0]

    def benefits(self, gamma: float) -> list[list[Bounds]]:
        """Return the bounds of each benefit and group."""
        by_corner = [
            [benefit_ratios(benefit, self.rule.propensity, self.log.group) for benefit in each]
            for weights in self._ends(gamma)
            for each in self._benefits(weights)
        ]
        return [
            _bounds(*(self.intervals.of(_extreme(each, highest)) for highest in (False, True)))
            for each in zip(*by_corner, strict=True)
        ]

    @cached_property
    def _own(self) -> Floats:
        """How many people each row's label stands for among accepted people."""
        return InversePropensity().weights(self.log) * self.log.propensity

    def _ends(self, gamma: float) -> tuple[Floats, Floats]:
        """The smallest and largest weight of each row; 0 where there is no label."""
        p = self.log.propensity
        odds = np.divide(1.0 - p, p, out=np.zeros(len(p)), where=self.log.decision)
        return self._own * (1.0 + odds / gamma), self._own * (1.0 + odds * gamma)

    @cached_property
    def _affine(self) -> list[tuple[Floats, Floats]]:
        """What each row gains without weight, and more per unit of it; for each unknown label."""
        none, one = (self._gained(np.full(len(self.log), weight)) for weight in (0.0, 1.0))
        return [(fixed, gained - fixed) for fixed, gained in zip(none, one, strict=True)]

    def _gained(self, weights: Floats) -> list[Floats]:
        found = []
        for tally, own in zip(self._tallies(weights), self._tallies(self._own), strict=True):
            accepting, rejecting = self.objective.worth(self.log, tally)
            accepted, rejected = self.objective.worth(self.log, own)
            changes = accepting - rejecting, accepted - rejected
            gained = self.rule.accepts(*changes)
            less = -rejecting if self.other is None else self.other.accepts(*changes)
            found.append(gained - less)
        return found

    def _benefits(self, weights: Floats) -> list[list[Benefit]]:
        """Return all benefits at these weights, for each way to fill in unknown labels."""
        notion = self.objective.fairness
        assert notion is not None
        found = []
        for tally, own in zip(self._tallies(weights), self._tallies(self._own), strict=True):
            benefits = [_unscaled(each, self.log.group) for each in notion.benefits(tally)]
            if self.rule.logged:
                known = [_unscaled(each, self.log.group) for each in notion.benefits(own)]
                benefits = [
                    replace(each, values=its.values, denominator=its.denominator)
                    for each, its in zip(benefits, known, strict=True)
                ]
            found.append(benefits)
        return found

    def _tallies(self, weights: Floats) -> list[Tally]:
        """Whom rows stand for, with unknown labels 0 and 1 where there are any."""
        tally = _Given(weights).tallies(self.log)[0]
        if tally.unknown is None:
            return [tally]
        return [tally.filled(False), tally.filled(True)]

    def _difference(self, ratios: Ratios) -> list[Interval]:
        return [self.intervals.difference(ratios)]


def _unscaled(benefit: Benefit, group: NDArray[np.intp]) -> Benefit:
    """Undo what sums were divided by, which weights change too: then rows do not share it."""
    if benefit.scale is None:
        return benefit
    undo = np.divide(1.0, benefit.scale, out=np.zeros_like(benefit.scale), where=benefit.scale > 0)

    def unscaled(column: Floats | None) -> Floats | None:
        return None if column is None else column * undo[group]

    return replace(
        benefit,
        values=benefit.values * undo[group],
        constants=unscaled(benefit.constants),
        denominator=unscaled(benefit.denominator),
        counted=unscaled(benefit.counted),
    )


def _extreme(corners: Sequence[Ratios], highest: bool) -> Ratios:
    """Return the ratios with each row at the corner that makes its group's ratio most extreme."""
    found = corners[0]
    numerators = np.stack([each.numerator for each in corners])
    denominators = np.stack([each.denominator for each in corners])
    picked = None
    for _ in range(_MOST_ROUNDS):
        left = numerators - np.nan_to_num(found.values)[found.group] * denominators
        best = left.argmax(axis=0) if highest else left.argmin(axis=0)
        if picked is not None and np.array_equal(best, picked):
            break
        picked, columns = best, np.arange(len(found))
        found = replace(
            found, numerator=numerators[best, columns], denominator=denominators[best, columns]
        )
    return found


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
