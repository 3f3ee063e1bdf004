"""Sensitivity: what could change if propensities are not quite the true ones.

If the odds of acceptance behind a row's propensity p may be off by a factor of at most Gamma,
because decisions followed something that was not recorded, its weight lies in

    1 + (1/p - 1) / Gamma <= w <= 1 + (1/p - 1) Gamma.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consequential.evaluation.estimate import finite_or_none
from consequential.evaluation.intervals import Normal
from consequential.evaluation.judged import checked_log, judge, needs_folds, question
from consequential.evaluation.quantiles import checked_confidence
from consequential.evaluation.weight_bounds import Bounds, Box, Side, gap_bounds
from consequential.log import DecisionLog
from consequential.objective import Fairness

# beyond this factor nothing is left to say
_ENDLESS = 1e6


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
    whatever the hidden reason for decisions was, as long as it moved odds by no more. Sampling
    error is that of the intervals of `evaluate`, and of `compare` where there is `versus`.

    Parameters
    ----------
    rule, log, cost, fairness, confidence, folds, rejection_utility, seed
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
    other = None
    if versus is not None:
        other = Side.of(versus, judge(versus, log, folds=folds, seed=seed))
    intervals = Normal((), level, seed)
    box = Box(objective, judged.log, Side.of(rule, judged), other, intervals)
    utility = tuple(box.utility(gamma) for gamma in factors)
    benefits = [box.benefits(gamma) for gamma in factors]
    shown = {group: tuple(found[0][k] for found in benefits) for k, group in enumerate(log.groups)}
    return Sensitivity(
        factors,
        utility,
        shown,
        tuple(gap_bounds(found) for found in benefits),
        _turning(lambda gamma: _spans_zero(box.utility(gamma), sampling=False)),
        _turning(lambda gamma: _spans_zero(box.utility(gamma), sampling=True)),
        judged.notes,
    )


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
    for _ in range(24):
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
