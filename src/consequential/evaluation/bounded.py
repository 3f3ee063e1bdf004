"""Bounded intervals: right at any size of the log, from how far a row can possibly go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import combinations
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.confidence_sequences import lower_bounds
from consequential.evaluation.contrasts import Pairs
from consequential.evaluation.estimate import UNKNOWN, Interval
from consequential.evaluation.influence import Ratios
from consequential.evaluation.intervals import Intervals, Terms
from consequential.evaluation.reach import Span

Floats = NDArray[np.float64]


class Bounded(Intervals):
    """Bounds for rows of known reach that hold at any size of the log."""

    needs_reach = True

    @abstractmethod
    def lower(self, rows: Floats, reach: Span) -> float:
        """Return the lower end of an interval for the mean of rows that reach so far."""

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

    def _largest(self, benefits: tuple[Any, ...], pairs: Pairs) -> Interval:
        """Return how far apart the groups' intervals certainly, and at most, are."""
        shared = self.sharing(sum(len(each.known) for each in benefits))
        low = high = value = error = 0.0
        for benefit in benefits:
            found = [shared._of_group(benefit, k) for k in benefit.known]
            for a, b in combinations(found, 2):
                low = max(low, a.low - b.high, b.low - a.high)
                high = max(high, a.high - b.low, b.high - a.low)
                if abs(a.value - b.value) >= value:
                    value = abs(a.value - b.value)
                    error = sqrt(a.standard_error**2 + b.standard_error**2)
        return Interval(value, low, high, error)

    def _of_group(self, ratios: Ratios, code: int) -> Interval:
        value, reach = float(ratios.values[code]), ratios.reach
        if not np.isfinite(value):
            return UNKNOWN
        assert reach is not None
        rows = ratios.group == code
        scale = 1.0 if ratios.scale is None else float(ratios.scale[code])
        numerator, denominator = ratios.numerator[rows] / scale, ratios.denominator[rows] / scale
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
            low, high = _crossing(too_small, value, least), _crossing(too_large, value, most)
        return Interval(value, low, high, float(ratios.standard_errors[code]))


class Bernstein(Bounded):
    """The empirical Bernstein bound: right for any number of rows, and wide."""

    name = "bernstein"

    def lower(self, rows: Floats, reach: Span) -> float:
        """`mean - sqrt(2 V t / n) - 7 R t / (3 (n - 1))` with `t = log(4 / (1 - confidence))`."""
        n = len(rows)
        if n < 2:
            return reach.mean_low
        t = log(4.0 / (1.0 - self.confidence))
        deviation = sqrt(2.0 * float(rows.var(ddof=1)) * t / n)
        slack = 7.0 * (reach.high - reach.low) * t / (3 * (n - 1))
        return max(float(rows.mean()) - deviation - slack, reach.mean_low)


class AnyTime(Bounded):
    """Where a confidence sequence stands after the last row: one may have looked all along."""

    name = "any_time"

    def lower(self, rows: Floats, reach: Span) -> float:
        """Return the best of all bounds so far."""
        bounds = lower_bounds(rows, reach.low, reach.mean_high, self.confidence)
        return max(float(bounds[-1]), reach.mean_low)


def _crossing(refused: Callable[[float], bool], inside: float, end: float) -> float:
    """Return the ratio furthest from `inside` towards `end` that is not refused, by bisection."""
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
