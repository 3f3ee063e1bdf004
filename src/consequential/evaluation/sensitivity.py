"""Sensitivity: what could change if propensities are not quite the true ones.

If the odds of acceptance behind a row's propensity p may be off by a factor of at most Gamma,
because decisions followed something that was not recorded, its weight lies in

    1 + (1/p - 1) / Gamma <= w <= 1 + (1/p - 1) Gamma.

Every figure is then between its values with each row at the worst and at the best corner: one end
of its weight and, where nobody knows its label, one of the two labels (see `ratios`).

What the log itself did needs no weights: it accepted a person or it did not, whatever the reason,
so its value is the mean of `d (y - c)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any

import numpy as np

from consequential.evaluation.any_time import crossing
from consequential.evaluation.cross_fitting import (
    AppliedRule,
    apply_rule,
    checked_log,
    needs_folds,
    objective_of,
)
from consequential.evaluation.estimate import Interval, Result
from consequential.evaluation.intervals import Normal
from consequential.evaluation.rates import Codes, Floats, ratio
from consequential.evaluation.ratios import Range, Ratios, extreme
from consequential.evaluation.weighted_log import NO_LABELS, WeightedLog, without_labels
from consequential.log import DecisionLog
from consequential.objective.fairness import Fairness
from consequential.objective.functionals import Benefit, Tally
from consequential.objective.weightings import Weighting
from consequential.shares import checked_share

# beyond this factor nothing is left to say
_ENDLESS = 1e6


@dataclass(frozen=True, slots=True, repr=False)
class Bounds(Result):
    """The smallest and largest value there can be; `low` and `high` include sampling error."""

    smallest: float
    largest: float
    low: float
    high: float

    @property
    def may_be_zero(self) -> bool:
        """Whether 0 is between the smallest and the largest value."""
        return self.smallest <= 0.0 <= self.largest

    @property
    def is_doubtful(self) -> bool:
        """Whether 0 is within sampling error of these values."""
        return self.low <= 0.0 <= self.high

    def __repr__(self) -> str:
        if not np.isfinite(self.smallest):
            return "not measurable"
        return f"{self.smallest:.4f} to {self.largest:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, slots=True, repr=False)
class Sensitivity(Result):
    """Bounds for each Gamma, the factor by which odds of acceptance may be off.

    Attributes
    ----------
    gammas
        The factors, from small to large.
    utility
        Bounds of the utility, or of a difference of utilities, for each Gamma.
    benefits, benefit_gap
        Bounds of each group's (first) benefit and of the gap between groups.
    flips_at
        The Gamma at which the sign of the utility can turn, infinite where none up to a million
        can turn it.
    doubtful_at
        The same with sampling error: from here on the interval includes 0.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 5000, np.random.default_rng(1))
    >>> found = cq.sensitivity(cq.Policy([1.5, 5.0]), log, cost=world.cost, gammas=[1.0, 2.0])
    >>> found
    if odds of acceptance are off by up to
      1      utility 0.1554 to 0.1554 [0.1412, 0.1697]   gap 0.1284 to 0.1284 [0.1113, 0.1455]
      2      utility 0.0918 to 0.2304 [0.0785, 0.2496]   gap 0.1284 to 0.1284 [0.1113, 0.1455]
    utility may be 0 from 4.2 on, within its sampling error from 3.8 on
    """

    gammas: tuple[float, ...]
    utility: tuple[Bounds, ...]
    benefits: dict[Hashable, tuple[Bounds, ...]]
    benefit_gap: tuple[Bounds, ...]
    flips_at: float
    doubtful_at: float
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        lines = ["if odds of acceptance are off by up to"]
        for gamma, utility, gap in zip(self.gammas, self.utility, self.benefit_gap, strict=True):
            lines.append(f"  {gamma:<6g} utility {utility!r}   gap {gap!r}")
        if np.isfinite(self.flips_at):
            lines.append(
                f"utility may be 0 from {self.flips_at:.2g} on, within its sampling error from "
                f"{self.doubtful_at:.2g} on"
            )
        else:
            lines.append("no such error can turn the sign of the utility")
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def sensitivity(
    rule: Any,
    log: DecisionLog,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    gammas: Sequence[float] = (1.0, 1.25, 1.5, 2.0, 3.0),
    versus: Any = None,
    confidence: float = 0.95,
    folds: int | None = None,
    seed: int = 0,
) -> Sensitivity:
    """Bound utility and benefits when the odds behind each weight may be off by a factor.

    Every row may be off on its own, in the worst way for the figure in question: bounds hold
    whatever the hidden reason for decisions was, as long as it moved odds by no more. Sampling
    error is that of the intervals of `evaluate`, and of `compare` where there is `versus`. As
    there, fewer than ten effective labels say nothing, and bounds cover every label.

    Parameters
    ----------
    rule, log, cost, fairness, confidence, folds, seed
        As in `evaluate`; weights are inverse propensities.
    gammas
        Factors of at least 1; 1 takes propensities as they are.
    versus
        Another rule: `utility` and the Gamma that turns its sign are then of the difference.
        What `Logged()` did is known and does not move with Gamma, here and as `rule`; a policy
        with the same propensities would decide without the hidden reason, and is bounded.

    Examples
    --------
    Where everybody is accepted for sure, weights are 1 and nothing can be hidden:

    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.0], [1.0], [2.0]] * 10, [1] * 30, [1.0, 1.0, 0.25] * 10, [0, 1, 1] * 10)
    >>> found = cq.sensitivity(cq.AcceptAll(), log, cost=0.5, gammas=[1.0, 3.0])
    >>> [(round(each.smallest, 3), round(each.largest, 3)) for each in found.utility]
    [(0.667, 0.667), (0.333, 1.667)]
    """
    checked_log(log)
    needs_folds((rule, versus), folds)
    intervals = Normal(checked_share("the confidence", confidence), seed)
    factors = _checked_gammas(gammas)
    objective = objective_of(log, cost, fairness)
    applied = apply_rule(rule, log, folds=folds, seed=seed)
    other = None if versus is None else apply_rule(versus, log, folds=folds, seed=seed)
    model = _Model(WeightedLog.of(objective, applied.log), applied, other, intervals)
    benefits = [model.benefits(gamma) for gamma in factors]
    return Sensitivity(
        factors,
        tuple(model.utility(gamma) for gamma in factors),
        {group: tuple(found[0][k] for found in benefits) for k, group in enumerate(log.groups)},
        tuple(_gap_bounds(found) for found in benefits),
        _turning(lambda gamma: model.utility(gamma).may_be_zero),
        _turning(lambda gamma: model.utility(gamma).is_doubtful),
        (*applied.notes, *((NO_LABELS,) if model.lacks_labels else ())),
    )


@dataclass(frozen=True, slots=True)
class _GivenWeights(Weighting):
    """Weights that are given as numbers."""

    rows: Floats
    row_by_row = True

    def weights(self, log: DecisionLog) -> Floats:
        return self.rows


@dataclass(frozen=True)
class _Model:
    """A rule, and maybe another one, on a log whose weights may lie between two ends each."""

    weighted: WeightedLog
    rule: AppliedRule
    other: AppliedRule | None
    intervals: Normal

    @cached_property
    def lacks_labels(self) -> bool:
        """Whether next to no label is known of the people in question, as in `evaluate`."""
        if self.other is not None:
            return self.weighted.lacks_labels(self.rule.propensity - self.other.propensity)
        return not self.rule.logged and self.weighted.lacks_labels(self.rule.propensity)

    def utility(self, gamma: float) -> Bounds:
        """Return the bounds of the utility, or of the difference to the other rule's."""
        ratios = [
            Ratios.mean(fixed + weights * slope)
            for fixed, slope in self._affine
            for weights in self._ends(gamma)
        ]
        if self.other is None:
            return _bounds(ratios, self.intervals.of)[0]
        return _bounds(ratios, lambda found: [self.intervals.difference(found)])[0]

    @cached_property
    def _affine(self) -> list[tuple[Floats, Floats]]:
        """What each row gains without weight, and more per unit of it; for each unknown label."""
        n, labels = len(self.weighted.log), not self.lacks_labels
        none, one = (
            [self._gained(*each) for each in self._tallies(np.full(n, weight), labels=labels)]
            for weight in (0.0, 1.0)
        )
        return [(fixed, gained - fixed) for fixed, gained in zip(none, one, strict=True)]

    def _gained(self, tally: Tally, own: Tally) -> Floats:
        """What each row gains, or gains more than by the other rule."""
        objective, log = self.weighted.objective, self.weighted.log

        def gained(rule: AppliedRule) -> Floats:
            return rule.accepts * objective.worth(log, own if rule.logged else tally)

        return gained(self.rule) if self.other is None else gained(self.rule) - gained(self.other)

    def benefits(self, gamma: float) -> list[list[Bounds]]:
        """Return the bounds of each benefit and group."""
        by_corner = [
            self._benefits(*each) for ends in self._ends(gamma) for each in self._tallies(ends)
        ]
        return [_bounds(corners, self.intervals.of) for corners in zip(*by_corner, strict=True)]

    def _benefits(self, tally: Tally, own: Tally) -> list[Ratios]:
        notion, group = self.weighted.objective.fairness, self.weighted.log.group
        assert notion is not None
        benefits = notion.benefits(tally)
        if self.rule.logged:
            known = notion.benefits(own)
            benefits = tuple(map(partial(_among_accepted, group), benefits, known))
        return [Ratios.of_benefit(each, self.rule.accepts, group) for each in benefits]

    @cached_property
    def _own(self) -> Floats:
        """How many people each row's label stands for among accepted people."""
        log = self.weighted.log
        return self.weighted.objective.weighting.weights(log) * log.propensity

    def _ends(self, gamma: float) -> tuple[Floats, Floats]:
        """The smallest and largest weight of each row; 0 where there is no label."""
        log = self.weighted.log
        p = log.propensity
        odds = np.divide(1.0 - p, p, out=np.zeros(len(p)), where=log.decision)
        return self._own * (1.0 + odds / gamma), self._own * (1.0 + odds * gamma)

    def _tallies(self, weights: Floats, *, labels: bool = True) -> list[tuple[Tally, Tally]]:
        """Whom rows stand for with weights and among accepted people; for each unknown label."""
        log = self.weighted.log
        tally, own = (_GivenWeights(each).tallies(log)[0] for each in (weights, self._own))
        tally = tally if labels else without_labels(tally)
        if tally.unknown is None:
            return [(tally, own)]
        return [(tally.filled(label), own.filled(label)) for label in (False, True)]


def _among_accepted(group: Codes, benefit: Benefit, known: Benefit) -> Benefit:
    """Return a benefit whose sums over accepted people are those of another, at its own scale."""
    factor: Any = 1.0
    if benefit.scale is not None and known.scale is not None:
        factor = ratio(benefit.scale, known.scale)[group]
    denominator = None if known.denominator is None else known.denominator * factor
    return replace(benefit, values=known.values * factor, denominator=denominator)


def _bounds(
    corners: Sequence[Ratios], intervals: Callable[[Range], list[Interval]]
) -> list[Bounds]:
    """Return the values at both extremes, and the outer ends of their intervals."""
    smallest, largest = (
        intervals(Range.exactly(extreme(corners, highest=highest)[0])) for highest in (False, True)
    )
    return [
        Bounds(least.value, most.value, least.low, most.high)
        for least, most in zip(smallest, largest, strict=True)
    ]


def _gap_bounds(benefits: list[list[Bounds]]) -> Bounds:
    """Groups share no rows, so each can be at its own worst: exact for points.

    With more than two groups errors are added up and not only their squares, which for a handful
    of groups makes up for looking at the largest difference.
    """
    if len(benefits) == 1 and len(benefits[0]) == 2:
        one, other = benefits[0]
        smallest, largest = one.smallest - other.largest, one.largest - other.smallest
        below = np.hypot(one.low - one.smallest, other.high - other.largest)
        above = np.hypot(one.high - one.largest, other.low - other.smallest)
        return Bounds(smallest, largest, smallest - float(below), largest + float(above))
    ends = [(0.0, 0.0, 0.0, 0.0)]
    for groups in benefits:
        known = [each for each in groups if np.isfinite(each.smallest)]
        ends += [
            (
                one.smallest - other.largest,
                one.largest - other.smallest,
                one.low - other.high,
                one.high - other.low,
            )
            for one, other in permutations(known, 2)
        ]
    return Bounds(*map(max, zip(*ends, strict=True)))


def _turning(turned: Callable[[float], bool]) -> float:
    """Return the smallest Gamma at which something that stays true becomes true."""
    if turned(1.0):
        return 1.0
    if not turned(_ENDLESS):
        return float("inf")
    end = math.log(_ENDLESS)
    return math.exp(crossing(lambda power: turned(math.exp(power)), 0.0, end))


def _checked_gammas(gammas: Any) -> tuple[float, ...]:
    factors = np.atleast_1d(np.asarray(gammas, dtype=np.float64))
    if factors.ndim != 1 or factors.size == 0 or not (np.isfinite(factors) & (factors >= 1)).all():
        raise ValueError(
            f"gammas are factors of at least 1 by which odds may be off, not {gammas!r}"
        )
    return tuple(sorted(set(factors.tolist())))
