"""Advantage: what one decision of a future log says about a candidate, as a distribution.

Under an exploration floor people are accepted with `p'`, and a decision adds
`v = d/p' (y - cost) (pi - p)` to the candidate's advantage over the incumbent. The present log
estimates the distribution of v: a label that stands for w people is an atom of mass `w p' / N`, and
v is 0 for people who are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.weightings import InversePropensity

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
    gains: Floats  # on average; NaN where nothing is known
    possible: NDArray[np.bool_]  # who had a chance of acceptance
    largest: Floats
    failure: Floats  # what a failure loses
    break_even: float

    @classmethod
    def of(cls, log: DecisionLog, cost: float, success_rate: float | None) -> Stakes:
        """Read the stakes off a settled log."""
        n, possible = len(log), log.propensity > 0
        amount = np.ones(n) if log.amount is None else log.amount
        costs = np.full(n, float(cost)) if log.cost is None else log.cost
        success, failure = amount * (1.0 - costs), amount * costs
        largest = np.maximum(success, failure)
        if success_rate is None:
            unseen, chances = np.stack([largest, -largest]), np.full((2, n), 0.5)
        else:
            unseen = np.stack([success, -failure])
            chances = np.repeat([[success_rate], [1.0 - success_rate]], n, axis=1)
        # one label is known, so the second value has no mass
        seen, weights = np.zeros((2, 2, n))
        seen[0], weights[0] = amount * (log.outcome - costs), InversePropensity().weights(log)
        values, masses = np.where(possible, seen, unseen), np.where(possible, weights, chances)
        gains = (values * masses).sum(axis=0)
        if success_rate is None:
            gains[~possible] = np.nan
        return cls(values, masses, gains, possible, largest, failure, float(costs.mean()))


@dataclass(frozen=True, slots=True)
class Advantage:
    """Atoms of v that are not 0, their masses, and the rows' `weights`, `|pi - p| / p'`."""

    values: Floats
    masses: Floats
    weights: Floats

    @classmethod
    def of(cls, values: Floats, masses: Floats, shift: Floats, after: Floats) -> Advantage:
        """Return the atoms for a shift of propensities, from the values and masses of stakes."""
        weights = np.abs(shift) / after
        values = values * shift / after
        masses = masses * (after / len(shift))
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


def worst_advantage(stakes: Stakes, before: Floats, after: Floats, changed: float) -> Advantage:
    """Return an advantage with the largest `E[v^2]` of all rules with `E|pi - p| <= changed`.

    `|pi - p|` is at most `u = max(p, 1 - p)`, and a square lies below its chord, so the share to
    be changed goes where `E[gain^2] u / p'` is largest until it is used up.
    """
    bounds = np.stack([stakes.largest, -stakes.largest])
    values = np.where(stakes.possible, bounds, stakes.values)
    masses = np.where(stakes.possible, 0.5, stakes.masses)
    furthest = np.maximum(before, 1.0 - before)
    order = np.argsort(-(values**2 * masses).sum(axis=0) * furthest / after)
    left = changed * len(furthest) - np.concatenate([[0.0], np.cumsum(furthest[order])[:-1]])
    used = np.empty(len(furthest))
    used[order] = np.clip(left, 0.0, furthest[order])
    shift = np.where(before < 0.5, furthest, -furthest)
    return Advantage.of(values, masses * (used / furthest), shift, after)
