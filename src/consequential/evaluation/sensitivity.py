"""Sensitivity: what could change if propensities are not quite the true ones.

If the odds of acceptance behind a row's propensity p may be off by a factor of at most Gamma,
because decisions followed something that was not recorded, its weight lies in

    1 + (1/p - 1) / Gamma <= w <= 1 + (1/p - 1) Gamma.

A mean is largest where each weight is at the end its own sign asks for; a ratio
`sum w a / sum w b` at the fixed point `r` where weights are high exactly if `a > r b`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.estimate import finite_or_none
from consequential.evaluation.influence import Ratios, benefit_ratios
from consequential.evaluation.judged import checked_log, judge, needs_folds, question
from consequential.evaluation.quantiles import checked_confidence, normal_quantile
from consequential.log import DecisionLog
from consequential.objective import Fairness, InversePropensity, Objective, Tally

Floats = NDArray[np.float64]

# beyond this factor nothing is left to say
_ENDLESS = 1e6


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


@dataclass(frozen=True, slots=True, repr=False)
class Sensitivity:
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; an endless Gamma becomes None."""
        return {
            "gammas": list(self.gammas),
            "utility": [each.to_dict() for each in self.utility],
            "benefits": {
                str(group): [each.to_dict() for each in bounds]
                for group, bounds in self.benefits.items()
            },
            "benefit_gap": [each.to_dict() for each in self.benefit_gap],
            "flips_at": finite_or_none(self.flips_at),
            "doubtful_at": finite_or_none(self.doubtful_at),
            "notes": list(self.notes),
        }

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
    rejection_utility: tuple[float, float] = (0.0, 0.0),
    seed: int = 0,
) -> Sensitivity:
    """Bound utility and benefits when the odds behind each weight may be off by a factor.

    Every row may be off on its own, in the worst way for the figure in question: bounds hold
    whatever the hidden reason for decisions was, as long as it moved odds by no more.

    Parameters
    ----------
    rule, log, cost, fairness, confidence, folds, rejection_utility, seed
        As in `evaluate`; weights are inverse propensities.
    gammas
        Factors of at least 1; 1 takes propensities as they are.
    versus
        Another rule: `utility` and the Gamma that turns its sign are then of the difference.

    Examples
    --------
    Where everybody is accepted for sure, weights are 1 and nothing can be hidden:

    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.0], [1.0], [2.0]], [1, 1, 1], [1.0, 1.0, 0.25], [0, 1, 1])
    >>> found = cq.sensitivity(cq.AcceptAll(), log, cost=0.5, gammas=[1.0, 3.0])
    >>> [(round(each.smallest, 3), round(each.largest, 3)) for each in found.utility]
    [(0.667, 0.667), (0.333, 1.667)]
    """
    checked_log(log)
    needs_folds((rule, versus), folds)
    level = checked_confidence(confidence)
    factors = _checked_gammas(gammas)
    objective = question(log, cost, fairness, None, rejection_utility)
    assert objective.fairness is not None
    judged = judge(rule, log, folds=folds, seed=seed)
    other = None if versus is None else judge(versus, log, folds=folds, seed=seed).propensity
    box = _Box(objective, judged.log, judged.propensity, other, normal_quantile(level))
    utility = tuple(box.utility(gamma) for gamma in factors)
    benefits = [box.benefits(gamma) for gamma in factors]
    shown = {group: tuple(found[0][k] for found in benefits) for k, group in enumerate(log.groups)}
    return Sensitivity(
        factors,
        utility,
        shown,
        tuple(_gap(found) for found in benefits),
        _turning(lambda gamma: _spans_zero(box.utility(gamma), sampling=False)),
        _turning(lambda gamma: _spans_zero(box.utility(gamma), sampling=True)),
        judged.notes,
    )


@dataclass(frozen=True, slots=True)
class _Box:
    """A rule on a log whose weights may lie anywhere between two bounds each."""

    objective: Objective
    log: DecisionLog
    propensity: Floats
    other: Floats | None
    z: float

    def ends(self, gamma: float) -> tuple[Floats, Floats]:
        """The smallest and largest weight of each row; 0 for the rejected."""
        excess = InversePropensity().weights(self.log) - 1.0
        accepted = self.log.decision
        return (
            np.where(accepted, 1.0 + excess / gamma, 0.0),
            np.where(accepted, 1.0 + excess * gamma, 0.0),
        )

    def utility(self, gamma: float) -> Bounds:
        """Each row's weight at the end that its own gain asks for."""
        low, high = self.ends(gamma)
        gained, fixed = self._gained(np.ones(len(self.log))), self._gained(np.zeros(len(self.log)))
        slope = gained - fixed
        found = []
        for up in (False, True):
            weights = np.where((slope > 0) == up, high, low)
            mean = fixed + weights * slope
            n = len(mean)
            found.append(Ratios(mean, np.ones(n), np.zeros(n, dtype=np.intp), 1))
        return self._bounds(*found)[0]

    def benefits(self, gamma: float) -> list[list[Bounds]]:
        """Bounds of each benefit and group."""
        assert self.objective.fairness is not None
        n = len(self.objective.fairness.benefits(self._tally(np.ones(len(self.log)))))
        return [
            self._bounds(*(self._extreme(k, gamma, up) for up in (False, True))) for k in range(n)
        ]

    def _gained(self, weights: Floats) -> Floats:
        accepting, rejecting = self.objective.worth(self.log, self._tally(weights))
        if self.other is not None:
            return (self.propensity - self.other) * (accepting - rejecting)
        return self.propensity * (accepting - rejecting) + rejecting

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
        assert self.objective.fairness is not None
        benefit = self.objective.fairness.benefits(self._tally(weights))[k]
        scaled = benefit_ratios(benefit, self.propensity, self.log.group)
        if benefit.scale is None:
            return scaled
        # without the scale, which weights change too, sums are linear in each row's weight
        undo = np.divide(
            1.0, benefit.scale, out=np.zeros_like(benefit.scale), where=benefit.scale > 0
        )[self.log.group]
        return Ratios(
            scaled.numerator * undo, scaled.denominator * undo, scaled.group, scaled.n_groups
        )

    def _extreme(self, k: int, gamma: float, up: bool) -> Ratios:
        """Dinkelbach's iteration: each round's weights are best for the last round's ratios."""
        low, high = self.ends(gamma)
        here, there = self._ratios(k, low), self._ratios(k, high)
        wide = high > low
        found = self._ratios(k, self._plain())
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

    def _plain(self) -> Floats:
        return InversePropensity().weights(self.log)

    def _bounds(self, smallest: Ratios, largest: Ratios) -> list[Bounds]:
        low = smallest.values - self.z * smallest.standard_errors
        high = largest.values + self.z * largest.standard_errors
        return [
            Bounds(*(float(number) for number in four))
            for four in zip(smallest.values, largest.values, low, high, strict=True)
        ]


def _gap(benefits: list[list[Bounds]]) -> Bounds:
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


def _spans_zero(bounds: Bounds, *, sampling: bool) -> bool:
    if sampling:
        return bounds.low <= 0.0 <= bounds.high
    return bounds.smallest <= 0.0 <= bounds.largest


def _turning(turned: Callable[[float], bool]) -> float:
    """Return the smallest Gamma at which something that stays true becomes true."""
    if turned(1.0):
        return 1.0
    if not turned(_ENDLESS):
        return float("inf")
    low, high = 0.0, float(np.log(_ENDLESS))
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if turned(float(np.exp(middle))) else (middle, high)
    return float(np.exp(high))


def _checked_gammas(gammas: Any) -> tuple[float, ...]:
    factors = np.atleast_1d(np.asarray(gammas, dtype=np.float64))
    if factors.ndim != 1 or factors.size == 0 or not (np.isfinite(factors) & (factors >= 1)).all():
        raise ValueError(
            f"gammas are factors of at least 1 by which odds may be off, not {gammas!r}"
        )
    return tuple(sorted(set(factors.tolist())))
