"""Confidence sequences: bounds that hold at every look, however often one looks.

The empirical Bernstein bound with predictable plug-ins. For `xi >= -1` and `0 <= l < 1`,
`exp(l xi - xi^2 psi(l)) <= 1 + l xi` with `psi(l) = -log(1 - l) - l`. With `xi = X - m`, m
any guess from earlier rows, the product over rows of `exp(l (X - mu) - psi(l) (X - m)^2)` is a
supermartingale of mean at most one, for weights l and guesses m that may depend on all earlier
rows. By Ville's inequality it ever exceeds 1/a with probability at most a, so that

    mu >= [sum l X - log(1/a) - sum psi(l) (X - m)^2] / sum l      at all times at once.

Only `X - m >= -1` is needed: X is bounded below, and the guess above; X itself may be as large
as it likes. Rows need not be independent, only of the same mean given the past: the policy in
force may have been learned from earlier rows.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.quantiles import checked_confidence

Floats = NDArray[np.float64]

TUNED_FOR = 1000
# before any row is seen
GUESSED_VARIANCE = 0.05
LARGEST_BET = 0.5


def mean_sequence(
    values: Floats,
    *,
    low: float,
    high: float,
    mean_low: float | None = None,
    mean_high: float | None = None,
    confidence: float = 0.95,
    tuned_for: int = TUNED_FOR,
) -> tuple[Floats, Floats]:
    """Return bounds of a mean after each row that hold at all times at once.

    Parameters
    ----------
    values
        One a row, in the order in which they came.
    low, high
        What no row can lie below or above.
    mean_low, mean_high
        The same of the mean, which may be known to lie closer; by default as for rows.
    confidence
        The probability that no bound, early or late, is wrong.
    tuned_for
        The number of rows at which bounds are to be narrowest. Choose it before looking.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.evaluation import mean_sequence
    >>> coins = np.random.default_rng(0).integers(2, size=2000).astype(float)
    >>> lower, upper = mean_sequence(coins, low=0.0, high=1.0)
    >>> [(round(float(lower[t]), 2), round(float(upper[t]), 2)) for t in (9, 99, 1999)]
    [(0.0, 1.0), (0.34, 0.79), (0.49, 0.55)]
    """
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 1 or not np.isfinite(rows).all():
        raise ValueError(f"values are finite, one a row, not of shape {rows.shape}")
    least = low if mean_low is None else mean_low
    most = high if mean_high is None else mean_high
    if not low <= least <= most <= high:
        raise ValueError(
            f"bounds must be in order, low <= mean_low <= mean_high <= high: "
            f"{low!r}, {least!r}, {most!r}, {high!r}"
        )
    slack = 1e-9 * max(abs(low), abs(high), 1.0)
    if rows.size and not (low - slack <= rows.min() and rows.max() <= high + slack):
        raise ValueError(f"a value lies outside [{low:g}, {high:g}]: these bounds are not bounds")
    if tuned_for < 1:
        raise ValueError(f"tuned_for counts rows; it cannot be {tuned_for!r}")
    checked_confidence(confidence)
    lower = lower_bounds(rows, low, most, confidence, tuned_for)
    upper = -lower_bounds(-rows, -high, -least, confidence, tuned_for)
    return np.clip(lower, least, most), np.clip(upper, least, most)


def lower_bounds(
    values: Floats, low: float, most: float, confidence: float, tuned_for: int = TUNED_FOR
) -> Floats:
    """Lower bounds of a mean at most `most` of rows not below `low`; each side errs half."""
    level = log(2.0 / (1.0 - confidence))
    scale = most - low
    if scale <= 0.0:  # rows cannot lie below what the mean cannot exceed: it is known
        return np.full(len(values), low)
    x = values / scale
    count = np.arange(1, len(x) + 1)
    guess = np.minimum(np.cumsum(x) / (count + 1.0), most / scale)
    earlier = np.concatenate([[min(0.0, most / scale)], guess[:-1]])
    variance = (GUESSED_VARIANCE + np.cumsum((x - guess) ** 2)) / (count + 1.0)
    known = np.concatenate([[GUESSED_VARIANCE], variance[:-1]])
    horizon = np.maximum(tuned_for, count * np.log1p(count) / np.log1p(tuned_for))
    bet = np.minimum(LARGEST_BET, np.sqrt(2.0 * level / (known * horizon)))
    toll = (-np.log1p(-bet) - bet) * (x - earlier) ** 2
    bound = (np.cumsum(bet * x - toll) - level) / np.cumsum(bet)
    running: Floats = np.maximum.accumulate(bound) * scale
    return running
