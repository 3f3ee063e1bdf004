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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np

from consequential.evaluation.contrasts import Pairs
from consequential.evaluation.estimate import UNKNOWN, Interval
from consequential.evaluation.intervals import Intervals, Terms
from consequential.evaluation.rates import Floats
from consequential.log import DecisionLog
from consequential.objective.functionals import Shape
from consequential.objective.objective import Objective
from consequential.objective.weightings import Clipped, InversePropensity, Weighting
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


# positives and negatives that a row can stand for
Corners = tuple[tuple[float, float], ...]


class Span(NamedTuple):
    """What no row can lie below or above, and the same of the mean of rows."""

    low: float
    high: float
    mean_low: float
    mean_high: float

    def __neg__(self) -> Span:
        return Span(-self.high, -self.low, -self.mean_high, -self.mean_low)


@dataclass(frozen=True, slots=True)
class Reach:
    """The extreme pairs (numerator, denominator) of a row, and of the means over rows."""

    rows: Floats
    means: Floats

    def at(self, ratio: float) -> Span:
        """Return the bounds of `num - ratio den` for a row, and those of its mean."""
        weigh = np.array([1.0, -ratio])
        rows, means = self.rows @ weigh, self.means @ weigh
        return Span(*map(float, (rows.min(), rows.max(), means.min(), means.max())))

    @property
    def ratios(self) -> tuple[float, float]:
        """The smallest and largest ratio of means there can be."""
        counted = self.means[self.means[:, 1] > 0]
        found = counted[:, 0] / counted[:, 1]
        return float(found.min()), float(found.max())


@dataclass(frozen=True, slots=True)
class Extremes:
    """What rows and means can stand for where the largest possible weight is known.

    `unit_corners` are those of a row once it is multiplied by its own propensity.
    """

    row_corners: Corners
    unit_corners: Corners
    mean_corners: Corners

    @classmethod
    def of(cls, weighting: Weighting, floor: float) -> Extremes:
        """Return what rows can stand for when nobody's propensity is below a floor."""
        most, units = 1.0 / floor, ((1.0, 0.0), (0.0, 1.0))
        if isinstance(weighting, InversePropensity):
            return cls(((0.0, 0.0), (most, 0.0), (0.0, most)), ((0.0, 0.0), *units), units)
        if isinstance(weighting, Clipped):
            most = min(most, weighting.maximum)
            if weighting.pessimistic:
                # a propensity next to nothing makes one positive, and no person, of a weight
                return cls(((0.0, 1.0), (most, 1.0 - most)), (*units, (1.0, -1.0)), units)
            ends = ((0.0, 0.0), *units)  # clipped weights average to less than one
            most += 1.0  # with the part of a person that clipping leaves out
            return cls(((0.0, 0.0), (most, 0.0), (0.0, most)), ends, ends)
        raise ValueError(
            f"the largest weight of {weighting!r} is not known, and bounded intervals need it: "
            'use weightings.InversePropensity() or weightings.Clipped(maximum), or method="normal"'
        )

    def utility(self, objective: Objective, log: DecisionLog) -> Reach:
        """Of a row's utility."""

        def reached(corners: Corners) -> Floats:
            return np.array([(worth, 1.0) for worth in (0.0, *_worths(objective, log, corners))])

        return Reach(reached(self.row_corners), reached(self.mean_corners))

    def difference(self, objective: Objective, log: DecisionLog, logged: Sequence[float]) -> Reach:
        """Of the difference between two rules' utilities in a row.

        `logged` holds the signs of the rules, 1 and -1, that are what the log did: such a rule's
        propensity times a weight is 1 at most.
        """

        def reached(sign: float, corners: Corners) -> list[tuple[float, float]]:
            return [(sign * worth, 1.0) for worth in _worths(objective, log, corners)]

        rows, means = [], []
        for sign in (-1.0, 1.0):
            rows += reached(sign, self.unit_corners if sign in logged else self.row_corners)
            means += reached(sign, self.mean_corners)
        return Reach(np.array(rows), np.array(means))

    def acceptance(self, *, paired: bool) -> Reach:
        """Of a propensity, or of the difference between two."""
        ends = np.array([[-1.0 if paired else 0.0, 1.0], [1.0, 1.0]])
        return Reach(ends, ends)

    def benefit(self, shape: Shape | None) -> Reach:
        """Of what a row adds to a benefit's two sums, before they are scaled."""
        if shape is None:
            raise ValueError(
                "bounded intervals need to know how a benefit weighs people: build it with "
                'tally.mean or tally.benefit, or use method="normal"'
            )

        def reached(corners: Corners) -> Floats:
            pairs = []
            for accepted, (ones, zeros) in product((0.0, 1.0), corners):
                person = np.array([1.0, ones, zeros])
                counted = person @ shape.counted
                if shape.denominator is not None:
                    counted = accepted * (person @ shape.denominator)
                gained = accepted * (person @ shape.values) + person @ shape.constant
                pairs.append((gained, counted))
            return np.array(pairs)

        return Reach(reached(self.row_corners), reached(self.mean_corners))


def known_floor(log: DecisionLog, floor: float | None) -> tuple[float, tuple[str, ...]]:
    """Return the smallest propensity anybody can have had, and a note where it is only observed."""
    lowest = float(log.label_propensity[log.propensity > 0].min(initial=1.0))
    if floor is not None:
        if not 0.0 < floor <= 1.0:
            raise ValueError(f"the floor is a propensity above 0, not {floor!r}")
        if lowest < floor * (1.0 - 1e-9):
            raise ValueError(
                f"the floor is {floor:g} but the log has a propensity of {lowest:g}: "
                "nobody's propensity may lie below the floor"
            )
        return float(floor), ()
    rules = (log.policies.get(int(step)) for step in np.unique(log.time_step))
    known = min(float(getattr(rule, "floor", 0.0) or 0.0) for rule in rules)
    if 0.0 < known <= lowest * (1.0 + 1e-9):
        return known, ()
    note = (
        f"bounds rest on the smallest propensity of this log, {lowest:.3g}; if people could have "
        "been accepted with less, give floor="
    )
    return lowest, (note,)


def _worths(objective: Objective, log: DecisionLog, corners: Corners) -> Iterator[float]:
    """Yield what accepting is worth, at the smallest and largest of all."""

    def ends(column: Floats | None, otherwise: float) -> tuple[float, ...]:
        return (otherwise,) if column is None else (float(column.min()), float(column.max()))

    amounts, costs = ends(log.amount, 1.0), ends(log.cost, objective.cost)
    for amount, cost, (ones, zeros) in product(amounts, costs, corners):
        yield amount * ((1.0 - cost) * ones - cost * zeros)
