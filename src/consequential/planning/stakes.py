"""Stakes: what accepting people brings, as far as a log can tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.objective import InversePropensity

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stakes:
    """What accepting each person brings, as far as the log can tell.

    Accepting person i brings `values[:, i]` with the probabilities `masses[:, i]`. Where a person
    had a chance of acceptance, the label that the log has is weighted by inverse propensity, so
    masses are 0 for rejected people and average to one over people. Where not, both labels are
    possible, with the probabilities assumed; or, nothing being known, the largest gain or loss
    there can be with either sign.
    """

    values: Floats  # (2, n)
    masses: Floats  # (2, n)
    known: NDArray[np.bool_]  # from the log, or by assumption
    possible: NDArray[np.bool_]
    largest: Floats
    cost: Floats
    amount: Floats
    notes: tuple[str, ...]

    @classmethod
    def of(cls, log: DecisionLog, cost: float, success_rate: float | None) -> Stakes:
        """Read the stakes off a settled log."""
        n = len(log)
        amount = np.ones(n) if log.amount is None else log.amount
        costs = np.full(n, float(cost)) if log.cost is None else log.cost
        largest = amount * np.maximum(costs, 1.0 - costs)
        possible = log.propensity > 0
        seen = np.stack([amount * (log.outcome - costs), np.zeros(n)])
        weights = np.stack([InversePropensity().weights(log), np.zeros(n)])
        if success_rate is None:
            unseen, chances = np.stack([largest, -largest]), np.full((2, n), 0.5)
        else:
            unseen = np.stack([amount * (1.0 - costs), -amount * costs])
            chances = np.repeat([[success_rate], [1.0 - success_rate]], n, axis=1)
        return cls(
            values=np.where(possible, seen, unseen),
            masses=np.where(possible, weights, chances),
            known=possible | (success_rate is not None),
            possible=possible,
            largest=largest,
            cost=costs,
            amount=amount,
            notes=_notes(log, float(possible.mean()), success_rate),
        )

    @property
    def gains(self) -> Floats:
        """What accepting each person brings on average; NaN where nothing is known."""
        return np.where(self.known, (self.values * self.masses).sum(axis=0), np.nan)

    def at_worst(self) -> Stakes:
        """Return the stakes with labels from the log replaced by the largest gain and loss."""
        bounds = np.stack([self.largest, -self.largest])
        return Stakes(
            np.where(self.possible, bounds, self.values),
            np.where(self.possible, 0.5, self.masses),
            self.known,
            self.possible,
            self.largest,
            self.cost,
            self.amount,
            self.notes,
        )


def _notes(log: DecisionLog, possible: float, success_rate: float | None) -> tuple[str, ...]:
    notes = []
    if possible < 1.0:
        known = "nothing is known" if success_rate is None else f"{success_rate:.0%} assumed"
        notes.append(
            f"{1.0 - possible:.1%} of people never had a chance of acceptance: of their labels "
            f"{known}"
        )
    if log.estimated_propensity:
        notes.append("propensities are estimates, and so is everything made from them")
    return tuple(notes)


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
