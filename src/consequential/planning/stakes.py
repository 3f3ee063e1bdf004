"""Stakes: what accepting people brings, as far as a log can tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stakes:
    """What accepting each person brings and how widely it varies, as far as the log can tell.

    `gains` and `squares` average to `E[y - cost]` and `E[(y - cost)^2]`, times the amount and its
    square: weighted where a person had a chance of acceptance, assumed or bounded where not.
    """

    gains: Floats  # NaN where nothing is known
    squares: Floats
    largest: Floats
    possible: NDArray[np.bool_]
    cost: Floats
    amount: Floats
    notes: tuple[str, ...]

    @classmethod
    def of(cls, log: DecisionLog, cost: float, success_rate: float | None) -> Stakes:
        """Read the stakes off a settled log."""
        amount = np.ones(len(log)) if log.amount is None else log.amount
        costs = np.full(len(log), float(cost)) if log.cost is None else log.cost
        possible = log.propensity > 0
        weights = np.divide(1.0, log.propensity, out=np.zeros(len(log)), where=log.decision)
        gain = amount * (log.outcome - costs)
        largest = amount * np.maximum(costs, 1.0 - costs)
        notes = []
        if success_rate is None:
            unseen_gain, unseen_square = np.full(len(log), np.nan), largest**2
        else:
            unseen_gain = amount * (success_rate - costs)
            unseen_square = amount**2 * (
                success_rate * (1.0 - costs) ** 2 + (1.0 - success_rate) * costs**2
            )
        if not possible.all():
            known = "nothing is known" if success_rate is None else f"{success_rate:.0%} assumed"
            share = 1.0 - possible.mean()
            notes.append(
                f"{share:.1%} of people never had a chance of acceptance: of their labels {known}"
            )
        if log.estimated_propensity:
            notes.append("propensities are estimates, and so is everything made from them")
        return cls(
            gains=np.where(possible, weights * gain, unseen_gain),
            squares=np.where(possible, weights * gain**2, unseen_square),
            largest=largest,
            possible=possible,
            cost=costs,
            amount=amount,
            notes=tuple(notes),
        )


def worst_second_moment(stakes: Stakes, before: Floats, after: Floats, changed: float) -> float:
    """Bound `E[v^2]` over all rules with `E|pi - p| <= changed`.

    `|pi - p|` is at most `u = max(p, 1 - p)`, and a square lies below its chord, so the share to
    be changed goes where `bound u / p'` is largest until it is used up.
    """
    bound = np.where(stakes.possible, stakes.largest**2, stakes.squares)
    room = np.maximum(before, 1.0 - before)
    per_change = bound * room / after
    order = np.argsort(-per_change)
    left = changed * len(room) - np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    used = np.clip(left, 0.0, room[order])
    return float(per_change[order] @ used) / len(room)


def losses_per_thousand(
    floor: float, before: Floats, stakes: Stakes, confidence: float
) -> tuple[float, float, float] | None:
    """Loss per thousand decisions with its interval; None where labels are all unknown."""
    from scipy.stats import norm

    more = floor * (1.0 - before)
    told = more > 0
    losses = np.where(told, -more * np.where(told, stakes.gains, 0.0), 0.0)
    if not np.isfinite(losses).all():
        return None
    loss = 1000.0 * float(losses.mean())
    error = 1000.0 * float(losses[stakes.possible].std()) * stakes.possible.sum() ** 0.5
    half = float(norm.ppf(0.5 + confidence / 2.0)) * error / len(losses)
    return loss, loss - half, loss + half
