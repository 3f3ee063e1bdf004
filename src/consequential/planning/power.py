"""Power: after how many decisions an advantage is proven as often as promised, by simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, log, log1p

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.confidence_sequences import GUESSED_VARIANCE, LARGEST_BET, TUNED_FOR
from consequential.evaluation.contrasts import skewness_corrected
from consequential.evaluation.measurement import FEW
from consequential.evaluation.reach import Span
from consequential.planning.advantage import Advantage

Floats = NDArray[np.float64]

_BINS = 24
_LOGS = 10_000  # simulated for each number of decisions tried
_SEQUENCES = 1000
_PRECISION = 1.01
_STEP = 0.02  # a sequence is simulated in steps of this share of the rows so far
_MOST = 1e12
_NEVER = f"the improvement would not be proven in {_MOST:.0e} decisions: ask for a larger one"


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


def decisions_to_any_time_proof(bins: Bins, power: float, confidence: float, reach: Span) -> int:
    """Return after how many decisions a confidence sequence has been above zero so often.

    The sequence is that of `compare` with `method="any_time"` for rows of this reach; rows come in
    small steps, within which its guesses and bets stay as they are.
    """
    low, _, _, most = reach
    scale, level = most - low, log(2.0 / (1.0 - confidence))
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
        horizon = max(TUNED_FOR, middle * log1p(middle) / log1p(TUNED_FOR))
        bet = np.minimum(LARGEST_BET, np.sqrt(2.0 * level / (variance * horizon)))
        toll = -np.log1p(-bet) - bet
        capital += bet * x - toll * (square - 2.0 * guess * x + count * guess**2)
        above |= capital > level
        total += x
        guess = np.minimum(total / (t + 1.0), most / scale)
        spread += square - 2.0 * guess * x + count * guess**2
        variance = (GUESSED_VARIANCE + spread) / (t + 1.0)
        weights += sums[3:]
    return ceil(middle)


def _smallest(enough: Callable[[int], bool], guess: float) -> int:
    """Return the smallest number that is enough, to a hundredth, near a first guess."""
    low, high = guess / 2.0, guess
    while not enough(ceil(high)):
        low, high = high, 2.0 * high
        if high > _MOST:
            raise ValueError(_NEVER)
    while low >= 2.0 and enough(ceil(low)):
        low, high = low / 2.0, low
    while high > low * _PRECISION and ceil(high) > ceil(low) + 1:
        middle = exp((log(low) + log(high)) / 2.0)
        low, high = (low, middle) if enough(ceil(middle)) else (middle, high)
    return ceil(high)
