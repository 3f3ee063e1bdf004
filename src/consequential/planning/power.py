"""Power: after how many decisions a candidate's advantage is proven as often as promised.

Under an exploration floor people are accepted with `p'`, and a decision adds
`v = d/p' (y - cost) (pi - p)` to the candidate's advantage over the incumbent. The present log
estimates the distribution of v: a label that stands for w people is an atom of mass `w p' / N`, and
v is 0 for people who are rejected. Future logs are simulated from that distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.any_time import GUESSED_VARIANCE, LARGEST_BET, TUNED_FOR
from consequential.evaluation.contrasts import skewness_corrected
from consequential.evaluation.reach import Span
from consequential.evaluation.weighted_log import FEW
from consequential.log import DecisionLog
from consequential.objective.weightings import InversePropensity

Floats = NDArray[np.float64]

_BINS = 24
_LOGS = 10_000  # simulated for each number of decisions tried
_SEQUENCES = 1000
_PRECISION = 1.01
_STEP = 0.02  # a sequence is simulated in steps of this share of the rows so far
_MOST = 1e12
_NEVER = f"the improvement would not be proven in {_MOST:.0e} decisions: ask for a larger one"


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


@dataclass(frozen=True, slots=True)
class Bins:
    """Probabilities of a row's bins; in each the means of v, v^2, v^3, weight and weight^2."""

    masses: Floats
    moments: Floats  # (5, bins)

    @classmethod
    def of(cls, advantage: Advantage) -> Bins:
        """Put atoms of similar value together; each bin holds a like share of E[v^2]."""
        values, masses, weights = advantage.values, advantage.masses, advantage.weights
        levels, level = np.unique(values, return_inverse=True)
        share = np.cumsum(np.bincount(level, masses * values**2))
        bin_of = 2 * np.ceil(share / share[-1] * _BINS) + (levels > 0.0)  # gains and losses apart
        code = np.unique(bin_of, return_inverse=True)[1][level]
        mass = np.bincount(code, masses).astype(np.float64)
        powers = (values, values**2, values**3, weights, weights**2)
        return cls(mass, np.stack([np.bincount(code, masses * each) / mass for each in powers]))

    def sums(self, n: int, repeats: int, rng: np.random.Generator) -> Floats:
        """Draw logs of n rows; return the sums of the five columns, one column per log."""
        rest = max(0.0, 1.0 - float(self.masses.sum()))
        counts = rng.multinomial(n, [*self.masses, rest], size=repeats)
        drawn: Floats = self.moments @ counts[:, :-1].T
        return drawn


def decisions_to_normal_proof(bins: Bins, power: float, confidence: float) -> int:
    """Return after how many decisions the interval of `compare` lies above zero so often.

    That is Hall's interval, corrected for skewness, with a hundred people in effect or more on whom
    the rules differ.
    """
    mean, square = bins.moments[:2] @ bins.masses
    if 8.0 * square > _MOST * mean**2:
        raise ValueError(_NEVER)
    return _smallest(
        lambda n: share_proven(bins, n, confidence) >= power, max(8.0 * square / mean**2, 4.0)
    )


def share_proven(bins: Bins, n: int, confidence: float) -> float:
    """Return the share of simulated logs of n rows whose interval lies above zero."""
    sums = bins.sums(n, _LOGS, np.random.default_rng(0))
    mean, square, cube = sums[:3] / n
    variance = square - mean**2
    varied = (variance > 0.0) & (mean > 0.0)
    mean, square, cube, variance = (each[varied] for each in (mean, square, cube, variance))
    if len(mean) == 0:
        return 0.0
    skewness = (cube - 3.0 * mean * square + 2.0 * mean**3) / variance**1.5
    grid = np.linspace(skewness.min(), skewness.max(), 100)
    quantiles = [skewness_corrected(each, n, confidence)[0] for each in grid.tolist()]
    below = np.interp(skewness, grid, quantiles)
    weights, squares = sums[3:, varied]
    proven = (mean > below * np.sqrt(variance / (n - 1.0))) & (weights**2 >= FEW * squares)
    return float(proven.sum()) / _LOGS


def decisions_to_any_time_proof(
    bins: Bins, power: float, confidence: float, reach: Span, tuned_for: int = TUNED_FOR
) -> int:
    """Return after how many decisions a confidence sequence has been above zero so often.

    The sequence is that of `utility_sequence` for rows of this reach; rows come in small steps,
    within which its guesses and bets stay as they are.
    """
    low, _, _, most = reach
    scale, level = most - low, math.log(2.0 / (1.0 - confidence))
    rng = np.random.default_rng(0)
    total, spread, capital = np.zeros((3, _SEQUENCES))
    weights = np.zeros((2, _SEQUENCES))  # and their squares
    guess = np.full(_SEQUENCES, min(0.0, most / scale))
    variance = np.full(_SEQUENCES, GUESSED_VARIANCE)
    above = np.zeros(_SEQUENCES, dtype=np.bool_)
    t, middle = 0, 0.0
    while (above & (weights[0] ** 2 >= FEW * weights[1])).mean() < power:
        count = max(1, round(_STEP * t))
        middle, t = t + (count + 1) / 2.0, t + count
        if t > _MOST:
            raise ValueError(_NEVER)
        sums = bins.sums(count, _SEQUENCES, rng)
        x, square = sums[0] / scale, sums[1] / scale**2
        horizon = max(tuned_for, middle * math.log1p(middle) / math.log1p(tuned_for))
        bet = np.minimum(LARGEST_BET, np.sqrt(2.0 * level / (variance * horizon)))
        toll = -np.log1p(-bet) - bet
        capital += bet * x - toll * (square - 2.0 * guess * x + count * guess**2)
        above |= capital > level
        total += x
        guess = np.minimum(total / (t + 1.0), most / scale)
        spread += square - 2.0 * guess * x + count * guess**2
        variance = (GUESSED_VARIANCE + spread) / (t + 1.0)
        weights += sums[3:]
    return math.ceil(middle)


def _smallest(enough: Callable[[int], bool], guess: float) -> int:
    """Return the smallest number that is enough, to a hundredth, near a first guess."""
    low, high = guess / 2.0, guess
    while not enough(math.ceil(high)):
        low, high = high, 2.0 * high
        if high > _MOST:
            raise ValueError(_NEVER)
    while low >= 2.0 and enough(math.ceil(low)):
        low, high = low / 2.0, low
    while high > low * _PRECISION and math.ceil(high) > math.ceil(low) + 1:
        middle = math.exp((math.log(low) + math.log(high)) / 2.0)
        low, high = (low, middle) if enough(math.ceil(middle)) else (middle, high)
    return math.ceil(high)
