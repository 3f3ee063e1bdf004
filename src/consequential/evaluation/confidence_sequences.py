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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contrasts import checked_confidence
from consequential.evaluation.inputs import apply_rule, checked_log, objective_of
from consequential.evaluation.reach import Extremes, known_floor
from consequential.evaluation.weighted_log import WeightedLog
from consequential.log import DecisionLog
from consequential.weightings import Weighting

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
    >>> from consequential.statistics import mean_sequence
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
    penalty = (-np.log1p(-bet) - bet) * (x - earlier) ** 2
    bound = (np.cumsum(bet * x - penalty) - level) / np.cumsum(bet)
    running: Floats = np.maximum.accumulate(bound) * scale
    return running


def utility_sequence(
    rule: Any,
    log: DecisionLog,
    *,
    cost: float | None = None,
    versus: Any = None,
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    rejection_utility: tuple[float, float] = (0.0, 0.0),
    floor: float | None = None,
    tuned_for: int = TUNED_FOR,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of a rule's utility after each decision of a log.

    All bounds hold at once with the stated confidence: one may look after every decision, and
    stop when satisfied. An ordinary interval looked at again and again is wrong far more often
    than it says. Decisions count in the order of the log; their rule may have been learned from
    earlier ones.

    Parameters
    ----------
    rule, log, cost, weighting, confidence, rejection_utility, floor
        As in `evaluate`.
    versus
        Another rule, `Logged()` say: bounds are then of the difference of utilities.
    tuned_for
        The number of decisions at which bounds are to be narrowest. Choose it before looking.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 9000, np.random.default_rng(0))
    >>> lower, upper = cq.statistics.utility_sequence(
    ...     cq.Policy([1.5, 5.0]), log, cost=world.cost, versus=cq.Logged())
    >>> int(np.argmax(lower > 0))  # the first decision after which the policy is known better
    514
    """
    checked_log(log)
    objective = objective_of(log, cost, None, weighting, rejection_utility)
    applied = apply_rule(rule, log)
    other = None if versus is None else apply_rule(versus, log).propensity
    lowest, _ = known_floor(applied.log, floor)
    extremes = Extremes.of(objective.weighting, lowest)
    found = WeightedLog.of(objective, applied.log, extremes).utility(applied.propensity, other)
    sides: tuple[Any, Any] = found.low, found.high
    (lower, _), (_, upper) = (
        mean_sequence(
            ratios.numerator,
            **ratios.reach.at(0.0)._asdict(),
            confidence=confidence,
            tuned_for=tuned_for,
        )
        for ratios in sides
    )
    return lower, upper
