"""Bounds that hold at any size of the log, and however often one looks.

They rest on how far a row can possibly go. A confidence sequence is the empirical Bernstein bound
with predictable plug-ins. For `xi >= -1` and `0 <= l < 1`,
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

from collections.abc import Callable
from itertools import combinations
from math import log, sqrt
from typing import Any

import numpy as np

from consequential.evaluation.contrasts import Pairs
from consequential.evaluation.estimate import UNKNOWN, Interval
from consequential.evaluation.intervals import Intervals, Terms
from consequential.evaluation.rates import Floats
from consequential.evaluation.reach import Span
from consequential.shares import checked_share

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
        One per row, in the order in which they came.
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
    >>> from consequential.evaluation.statistics import mean_sequence
    >>> coins = np.random.default_rng(0).integers(2, size=2000).astype(float)
    >>> lower, upper = mean_sequence(coins, low=0.0, high=1.0)
    >>> [(round(float(lower[t]), 2), round(float(upper[t]), 2)) for t in (9, 99, 1999)]
    [(0.0, 1.0), (0.34, 0.79), (0.49, 0.55)]
    """
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 1 or not np.isfinite(rows).all():
        raise ValueError(f"values are finite, one per row, not of shape {rows.shape}")
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
    checked_share("the confidence", confidence)
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
    penalty = (-np.log1p(-bet) - bet) * (x - earlier) ** 2
    bound = (np.cumsum(bet * x - penalty) - level) / np.cumsum(bet)
    running: Floats = np.maximum.accumulate(bound) * scale
    return running


class AnyTime(Intervals):
    """Where a confidence sequence stands after the last row: one may have looked all along."""

    name = "any_time"
    needs_reach = True

    def __init__(self, confidence: float, seed: int = 0, tuned_for: int = TUNED_FOR) -> None:
        super().__init__(confidence, seed)
        self.tuned_for = tuned_for

    def lower(self, rows: Floats, reach: Span) -> float:
        """Return the best of all lower bounds so far of the mean of rows that reach so far."""
        bounds = lower_bounds(rows, reach.low, reach.mean_high, self.confidence, self.tuned_for)
        return max(float(bounds[-1]), reach.mean_low)

    def upper(self, rows: Floats, reach: Span) -> float:
        """Return the upper end: the lower one of the negative."""
        return -self.lower(-rows, -reach)

    def _of(self, ratios: Any) -> list[Interval]:
        return [self._of_group(ratios, k) for k in range(ratios.n_groups)]

    def _contrast(self, terms: Terms) -> Interval:
        """Let each of the parts err a little: together they err no more than allowed."""
        value = sum(float(signs @ each.values) for each, signs in terms)
        parts = [
            (sign, each, k)
            for each, signs in terms
            for k, sign in enumerate(signs.tolist())
            if sign != 0.0
        ]
        shared = self.sharing(len(parts))
        low = high = squares = 0.0
        for sign, each, k in parts:
            one = shared._of_group(each, k)
            low += sign * (one.low if sign > 0 else one.high)
            high += sign * (one.high if sign > 0 else one.low)
            squares += (sign * one.standard_error) ** 2
        return Interval(value, low, high, sqrt(squares))

    def _largest(self, pairs: Pairs) -> Interval:
        """Return how far apart the groups' intervals certainly, and at most, are."""
        shared = self.sharing(sum(len(each.known) for each in pairs.benefits))
        low = high = value = error = 0.0
        for benefit in pairs.benefits:
            found = [shared._of_group(benefit, k) for k in benefit.known]
            for a, b in combinations(found, 2):
                low = max(low, a.low - b.high, b.low - a.high)
                high = max(high, a.high - b.low, b.high - a.low)
                if abs(a.value - b.value) >= value:
                    value = abs(a.value - b.value)
                    error = sqrt(a.standard_error**2 + b.standard_error**2)
        return Interval(value, low, high, error)

    def _of_group(self, ratios: Any, code: int) -> Interval:
        value, reach = float(ratios.values[code]), ratios.reach
        if not np.isfinite(value):
            return UNKNOWN
        assert reach is not None
        rows = ratios.group == code
        numerator, denominator = ratios.numerator[rows], ratios.denominator[rows]
        if np.ptp(denominator) == 0.0 and np.ptp(reach.rows[:, 1]) == 0.0:
            span = reach.at(0.0)
            low = self.lower(numerator, span) / denominator[0]
            high = self.upper(numerator, span) / denominator[0]
        else:
            # a ratio is too small if, with it, the mean of what is left is certainly above 0
            def too_small(ratio: float) -> bool:
                return self.lower(numerator - ratio * denominator, reach.at(ratio)) > 0.0

            def too_large(ratio: float) -> bool:
                return self.upper(numerator - ratio * denominator, reach.at(ratio)) < 0.0

            least, most = reach.ratios
            low, high = crossing(too_small, value, least), crossing(too_large, value, most)
        return Interval(value, low, high, float(ratios.standard_errors[code]))


def crossing(refused: Callable[[float], bool], inside: float, end: float) -> float:
    """Return by bisection where values begin to be refused; the end if none is refused."""
    if not refused(end):
        return end
    kept, lost = inside, end
    for _ in range(26):
        middle = (kept + lost) / 2.0
        if refused(middle):
            lost = middle
        else:
            kept = middle
    return lost
