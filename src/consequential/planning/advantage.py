"""Advantage: what one decision of a future log says about a candidate, as a distribution.

Under an exploration floor people are accepted with `p'`, and a decision adds
`v = d/p' (y - cost) (pi - p)` to the candidate's advantage over the incumbent. The present log
estimates the distribution of v: a label that stands for w people is an atom of mass `w p' / N`, and
v is 0 for whoever is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contrasts import normal_quantile
from consequential.log import DecisionLog
from consequential.weightings import InversePropensity

Floats = NDArray[np.float64]

_BINS = 24


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
        )

    @property
    def gains(self) -> Floats:
        """What accepting each person brings on average; NaN where nothing is known."""
        return np.where(self.known, (self.values * self.masses).sum(axis=0), np.nan)

    def at_worst(self) -> Stakes:
        """Return the stakes with labels from the log replaced by the largest gain and loss."""
        bounds = np.stack([self.largest, -self.largest])
        return replace(
            self,
            values=np.where(self.possible, bounds, self.values),
            masses=np.where(self.possible, 0.5, self.masses),
        )

    def losses_per_thousand(
        self, more: Floats, confidence: float
    ) -> tuple[float | None, float | None, float | None]:
        """Return the loss from accepting so many `more` per thousand, with an interval.

        None where labels are unknown, and in place of the interval where nothing is an estimate.
        """
        losses = np.where(more > 0.0, -more * self.gains, 0.0)
        if not np.isfinite(losses).all():
            return None, None, None
        loss = float(losses.mean())
        error = float(losses[self.possible].std()) * self.possible.sum() ** 0.5 / len(losses)
        half = normal_quantile(confidence) * error
        return (loss, loss - half, loss + half) if half > 0.0 else (loss, None, None)


@dataclass(frozen=True, slots=True)
class Advantage:
    """Atoms of v that are not 0, their masses, and the rows' `weights`, `|pi - p| / p'`."""

    values: Floats
    masses: Floats
    weights: Floats

    @classmethod
    def of(
        cls, stakes: Stakes, shift: Floats, after: Floats, part: Floats | float = 1.0
    ) -> Advantage:
        """Return the atoms for a shift of propensities, `part` of each person being shifted."""
        weights = np.abs(shift) / after
        values = stakes.values * shift / after
        masses = stakes.masses * (after * part / len(shift))
        masses /= max(1.0, float(masses.sum()))  # weights add up to one on average only
        kept = (values != 0.0) & (masses > 0.0)  # v is 0 elsewhere
        return cls(values[kept], masses[kept], np.broadcast_to(weights, values.shape)[kept])

    def with_mean(self, mean: float) -> Advantage:
        """Return the distribution with more gains and fewer losses, or fewer and more.

        All gains get one factor and all losses another, so that the mean is as asked and nonzero
        rows are as frequent as before. An error where even gains alone would not bring so much.
        """
        gains = self.values > 0.0
        gained, lost = self.masses[gains].sum(), self.masses[~gains].sum()
        total = float(self.values[gains] @ self.masses[gains])
        missed = -float(self.values[~gains] @ self.masses[~gains])
        if total == 0.0 or mean > total / gained * (gained + lost):
            raise ValueError(
                f"an improvement of {mean!r} is out of reach: the log has too few labels that "
                "speak for the candidate. Ask for less."
            )
        if missed == 0.0:
            more, fewer = mean / total, 0.0
        else:
            more = (gained + lost + mean * lost / missed) / (gained + total * lost / missed)
            fewer = (more * total - mean) / missed
        masses = self.masses * np.where(gains, more, fewer)
        kept = masses > 0.0
        return Advantage(self.values[kept], masses[kept], self.weights[kept])

    def binned(self) -> Bins:
        """Put atoms of similar value together; each bin holds a like share of E[v^2]."""
        levels, level = np.unique(self.values, return_inverse=True)
        share = np.cumsum(np.bincount(level, self.masses * self.values**2))
        bin_of = 2 * np.ceil(share / share[-1] * _BINS) + (levels > 0.0)  # gains and losses apart
        code = np.unique(bin_of, return_inverse=True)[1][level]
        mass = np.bincount(code, self.masses).astype(np.float64)
        powers = (self.values, self.values**2, self.values**3, self.weights, self.weights**2)
        moments = np.stack([np.bincount(code, self.masses * each) / mass for each in powers])
        return Bins(mass, moments)


@dataclass(frozen=True, slots=True)
class Bins:
    """Probabilities of a row's bins; in each the means of v, v^2, v^3, weight and weight^2."""

    masses: Floats
    moments: Floats  # (5, bins)

    def sums(self, n: int, repeats: int, rng: np.random.Generator) -> Floats:
        """Draw logs of n rows; return the sums of the five columns, one column per log."""
        rest = max(0.0, 1.0 - float(self.masses.sum()))
        counts = rng.multinomial(n, [*self.masses, rest], size=repeats)
        drawn: Floats = self.moments @ counts[:, :-1].T
        return drawn


def worst_advantage(stakes: Stakes, before: Floats, after: Floats, changed: float) -> Advantage:
    """Return an advantage with the largest `E[v^2]` of all rules with `E|pi - p| <= changed`.

    `|pi - p|` is at most `u = max(p, 1 - p)`, and a square lies below its chord, so the share to
    be changed goes where `E[gain^2] u / p'` is largest until it is used up.
    """
    worst = stakes.at_worst()
    room = np.maximum(before, 1.0 - before)
    per_change = (worst.values**2 * worst.masses).sum(axis=0) * room / after
    order = np.argsort(-per_change)
    left = changed * len(room) - np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    used = np.empty(len(room))
    used[order] = np.clip(left, 0.0, room[order])
    shift = np.where(before < 0.5, room, -room)
    return Advantage.of(worst, shift, after, used / room)
