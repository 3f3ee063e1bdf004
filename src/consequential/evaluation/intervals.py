"""Intervals: four ways from rows to bounds, each with the same three questions answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations, permutations
from math import log, sqrt
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bootstrap import replicates
from consequential.evaluation.contrasts import contrast as rate_contrast
from consequential.evaluation.contrasts import largest as rate_largest
from consequential.evaluation.influence import Ratios
from consequential.evaluation.quantiles import normal_quantile, skewness_corrected, two_sided
from consequential.evaluation.rates import FEW
from consequential.evaluation.reach import Span
from consequential.evaluation.sequences import lower_bounds
from consequential.evaluation.simultaneous import Pairs, largest, sup_t_quantile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its bounds and its standard error."""

    value: float
    low: float
    high: float
    standard_error: float


UNKNOWN = Interval(float("nan"), float("nan"), float("nan"), float("nan"))

# ratios, each with the sign that every group's value enters a contrast with
Terms = Sequence[tuple[Any, Floats]]


class Intervals(ABC):
    """A way to make intervals; it is shown all ratios first, so that they can share draws."""

    name: ClassVar[str]
    needs_reach: ClassVar[bool] = False
    from_sums: ClassVar[bool] = False

    def __init__(self, ratios: Sequence[Ratios], confidence: float, seed: int) -> None:
        self.confidence, self.seed = confidence, seed

    def at(self, confidence: float) -> Self:
        """Return the same way with another confidence."""
        other = copy(self)
        other.confidence = confidence
        return other

    @abstractmethod
    def of(self, ratios: Any) -> list[Interval]:
        """Return an interval for each group's ratio."""

    @abstractmethod
    def contrast(self, terms: Terms) -> Interval:
        """Return an interval for a signed sum of ratios over groups."""

    @abstractmethod
    def largest(self, benefits: tuple[Any, ...]) -> Interval:
        """Return an interval for the largest difference between groups, over all benefits."""

    def difference(self, ratios: Any) -> Interval:
        """Return an interval for the one ratio that two rules differ by."""
        return self.of(ratios)[0]


class Normal(Intervals):
    """As if estimates were normal around the truth, with influence values for their errors."""

    name = "normal"
    from_sums = True

    def of(self, ratios: Any) -> list[Interval]:
        """Return the values, plus and minus z standard errors; rates have bounds of their own."""
        if ratios.rates is not None:
            return _rate_intervals(ratios, self.confidence)
        z = normal_quantile(self.confidence)
        pairs = zip(ratios.values.tolist(), ratios.standard_errors.tolist(), strict=True)
        return [_around(value, error, z, z) for value, error in pairs]

    def contrast(self, terms: Terms) -> Interval:
        """Return the sum, plus and minus z standard errors of the summed influence.

        Rates of one rule are put together by squaring and adding the distances to their own
        bounds. So are those of two rules where few people carry them; otherwise what the rules
        agree on cancels row by row, which only influence knows.
        """
        value = sum(float(signs @ each.values) for each, signs in terms)
        inflation = np.max([each.inflation for each, _ in terms], axis=0)
        squares = (
            sum(
                signs * others * each.products(other)
                for each, signs in terms
                for other, others in terms
            )
            / max(len(terms[0][0]), 1) ** 2
        )
        # rounding may leave less than nothing of a difference that does not vary
        error = float("inf")
        if np.isfinite(inflation).all() and np.isfinite(value):
            error = sqrt(max(float(squares @ inflation), 0.0))
        rates = [each.rates for each, _ in terms if each.rates is not None]
        few = any((each.effective < FEW).any() for each in rates)
        if len(rates) == len(terms) and (few or len({id(each) for each, _ in terms}) == 1):
            return _rate_contrast(terms, value, error, self.confidence)
        if not np.isfinite(error):
            return _around(value, error, 1.0, 1.0)
        z = normal_quantile(self.confidence)
        return _around(value, error, z, z)

    def largest(self, benefits: tuple[Any, ...]) -> Interval:
        """Return simultaneous bounds over all pairs of groups."""
        pairs = Pairs(benefits)
        if len(pairs) == 0:
            return UNKNOWN
        if all(each.rates is not None for each in benefits):
            return _largest_rates(benefits, pairs, self.confidence, self.seed)
        differences = pairs.differences(np.stack([each.values for each in benefits]))
        return Interval(*largest(differences, pairs.covariance(), self.confidence, self.seed))

    def difference(self, ratios: Any) -> Interval:
        """Correct for skewness: differences of similar rules live on few rows."""
        below, above = skewness_corrected(ratios.skewness, len(ratios), self.confidence)
        return _around(float(ratios.values[0]), float(ratios.standard_errors[0]), below, above)


def _rate_intervals(ratios: Any, confidence: float) -> list[Interval]:
    """Return the bounds of rates, which reach to the values where these lie outside."""
    low, high = ratios.rates.bounds(confidence)
    values, errors = ratios.values, ratios.rates.standard_errors
    columns = zip(values, np.fmin(low, values), np.fmax(high, values), errors, strict=True)
    return [Interval(*map(float, four)) if np.isfinite(four[0]) else UNKNOWN for four in columns]


def _rate_contrast(terms: Terms, value: float, error: float, confidence: float) -> Interval:
    """Square and add the distances of rates to their bounds; rates of one group are correlated."""
    if not np.isfinite(value):
        return UNKNOWN
    bounds = [each.rates.bounds(confidence) for each, _ in terms]
    low, high = rate_contrast(
        np.concatenate([each.values for each, _ in terms]),
        (np.concatenate([low for low, _ in bounds]), np.concatenate([high for _, high in bounds])),
        np.concatenate([signs for _, signs in terms]),
        _correlation([each for each, _ in terms]),
    )
    if len(terms) == 1:
        ratios, signs = terms[0]
        error = float(np.linalg.norm(signs * ratios.rates.standard_errors))
    return Interval(value, min(low, value), max(high, value), error)


def _correlation(ratios: list[Any]) -> Floats:
    """Return the correlation of several rules' rates over (ratios times groups)."""
    n_groups = ratios[0].n_groups
    matrix = np.eye(len(ratios) * n_groups)
    rows = np.arange(n_groups)
    for (k, one), (m, other) in permutations(enumerate(ratios), 2):
        spread = np.sqrt(one.products(one) * other.products(other))
        shared = np.divide(one.products(other), spread, out=np.zeros(n_groups), where=spread > 0.0)
        matrix[k * n_groups + rows, m * n_groups + rows] = shared
    return matrix


def _largest_rates(
    benefits: tuple[Any, ...], pairs: Pairs, confidence: float, seed: int
) -> Interval:
    """Bound the largest difference between rates of two groups, over all benefits."""
    errors = np.concatenate([each.rates.standard_errors for each in benefits])
    covariance = pairs.contrast @ np.diag(np.nan_to_num(errors) ** 2) @ pairs.contrast.T
    level = two_sided(sup_t_quantile(covariance, confidence, seed=seed))
    size = np.abs(pairs.differences(np.stack([each.values for each in benefits])))
    widest = int(size.argmax())
    value = float(size[widest])
    ends = []
    for each in benefits:
        alone, together = (
            tuple(end[each.known] for end in each.rates.bounds(at)) for at in (confidence, level)
        )
        ends.append(rate_largest(each.values[each.known], alone, together))
    low = min(value, max(least for least, _ in ends))
    high = max(value, max(most for _, most in ends))
    return Interval(value, low, high, float(np.sqrt(covariance[widest, widest])))


class Bootstrap(Intervals):
    """Percentiles over replicates of the log."""

    name = "bootstrap"

    def __init__(self, ratios: Sequence[Ratios], confidence: float, seed: int) -> None:
        super().__init__(ratios, confidence, seed)
        self._ratios = list(ratios)
        self._replicates = replicates(ratios, seed=seed)

    def of(self, ratios: Any) -> list[Interval]:
        """Return percentiles of each group's replicates."""
        drawn = self._of(ratios)
        return [self._percentiles(value, drawn[:, k]) for k, value in enumerate(ratios.values)]

    def contrast(self, terms: Terms) -> Interval:
        """Return percentiles of the sum's replicates."""
        value = sum(float(signs @ each.values) for each, signs in terms)
        drawn = sum(self._of(each) @ signs for each, signs in terms)
        return self._percentiles(value, np.asarray(drawn))

    def largest(self, benefits: tuple[Any, ...]) -> Interval:
        """Return simultaneous bounds; the quantile is that of the replicates."""
        pairs = Pairs(benefits)
        if len(pairs) == 0:
            return UNKNOWN
        differences = pairs.differences(np.stack([each.values for each in benefits]))
        drawn = pairs.differences(np.stack([self._of(each) for each in benefits], axis=1))
        drawn = drawn[np.isfinite(drawn).all(axis=1)]
        errors = drawn.std(axis=0)
        away = np.abs(drawn - differences)
        scaled = np.divide(away, errors, out=np.zeros_like(away), where=errors > 0)
        q = float(np.quantile(scaled.max(axis=1), self.confidence)) if len(drawn) else np.inf
        size = np.abs(differences)
        widest = int(size.argmax())
        low = max(float((size - q * errors).max()), 0.0)
        return Interval(
            float(size[widest]), low, float((size + q * errors).max()), float(errors[widest])
        )

    def _of(self, ratios: Ratios) -> Floats:
        place = next(k for k, each in enumerate(self._ratios) if each is ratios)
        return self._replicates[place]

    def _percentiles(self, value: float, drawn: Floats) -> Interval:
        drawn = drawn[np.isfinite(drawn)]
        if len(drawn) == 0 or not np.isfinite(value):
            return UNKNOWN
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        return Interval(float(value), float(low), float(high), float(drawn.std()))


class Bounded(Intervals):
    """Bounds for rows of known reach that hold at any size of the log."""

    needs_reach = True

    @abstractmethod
    def lower(self, rows: Floats, reach: Span, confidence: float) -> float:
        """Return the lower end of an interval for the mean of rows that reach so far."""

    def upper(self, rows: Floats, reach: Span, confidence: float) -> float:
        """Return the upper end: the lower one of the negative."""
        low, high, least, most = reach
        return -self.lower(-rows, (-high, -low, -most, -least), confidence)

    def of(self, ratios: Any) -> list[Interval]:
        """Return an interval for each group."""
        return [self._one(ratios, k, self.confidence) for k in range(ratios.n_groups)]

    def contrast(self, terms: Terms) -> Interval:
        """Let each of the parts err a little: together they err no more than allowed."""
        value = sum(float(signs @ each.values) for each, signs in terms)
        parts = [
            (sign, each, k)
            for each, signs in terms
            for k, sign in enumerate(signs.tolist())
            if sign != 0.0
        ]
        shared = self._shared(len(parts))
        low = high = squares = 0.0
        for sign, each, k in parts:
            one = self._one(each, k, shared)
            low += sign * (one.low if sign > 0 else one.high)
            high += sign * (one.high if sign > 0 else one.low)
            squares += (sign * one.standard_error) ** 2
        return Interval(value, low, high, sqrt(squares))

    def largest(self, benefits: tuple[Any, ...]) -> Interval:
        """Return how far apart the groups' intervals certainly, and at most, are."""
        pairs = Pairs(benefits)
        if len(pairs) == 0:
            return UNKNOWN
        shared = self._shared(sum(len(each.known) for each in benefits))
        low = high = value = error = 0.0
        for benefit in benefits:
            found = {k: self._one(benefit, k, shared) for k in benefit.known}
            for one, other in combinations(benefit.known, 2):
                a, b = found[one], found[other]
                low = max(low, a.low - b.high, b.low - a.high)
                high = max(high, a.high - b.low, b.high - a.low)
                if abs(a.value - b.value) >= value:
                    value = abs(a.value - b.value)
                    error = sqrt(a.standard_error**2 + b.standard_error**2)
        return Interval(value, low, high, error)

    def _shared(self, parts: int) -> float:
        return 1.0 - (1.0 - self.confidence) / max(parts, 1)

    def _one(self, ratios: Ratios, code: int, confidence: float) -> Interval:
        value = float(ratios.values[code])
        if not np.isfinite(value):
            return UNKNOWN
        reach = ratios.reach
        assert reach is not None
        rows = ratios.of_group(code)
        scale = 1.0 if rows.scale is None else float(rows.scale[0])
        numerator, denominator = rows.numerator / scale, rows.denominator / scale
        if np.ptp(denominator) == 0.0 and np.ptp(reach.rows[:, 1]) == 0.0:
            span = reach.at(0.0)
            low = self.lower(numerator, span, confidence) / denominator[0]
            high = self.upper(numerator, span, confidence) / denominator[0]
        else:
            # a ratio is too small if, with it, the mean of what is left is certainly above 0
            def too_small(ratio: float) -> bool:
                left = numerator - ratio * denominator
                return self.lower(left, reach.at(ratio), confidence) > 0.0

            def too_large(ratio: float) -> bool:
                left = numerator - ratio * denominator
                return self.upper(left, reach.at(ratio), confidence) < 0.0

            least, most = reach.ratios
            low, high = _crossing(too_small, value, least), _crossing(too_large, value, most)
        return Interval(value, low, high, float(ratios.standard_errors[code]))


class Bernstein(Bounded):
    """The empirical Bernstein bound: right for any number of rows, and wide."""

    name = "bernstein"

    def lower(self, rows: Floats, reach: Span, confidence: float) -> float:
        """`mean - sqrt(2 V t / n) - 7 R t / (3 (n - 1))` with `t = log(4 / (1 - confidence))`."""
        low, high, least, _ = reach
        n = len(rows)
        if n < 2:
            return least
        t = log(4.0 / (1.0 - confidence))
        deviation = sqrt(2.0 * float(rows.var(ddof=1)) * t / n)
        return max(float(rows.mean()) - deviation - 7.0 * (high - low) * t / (3 * (n - 1)), least)


class AnyTime(Bounded):
    """Where a confidence sequence stands after the last row: one may have looked all along."""

    name = "any_time"

    def lower(self, rows: Floats, reach: Span, confidence: float) -> float:
        """Return the best of all bounds so far."""
        low, _, least, most = reach
        return max(float(lower_bounds(rows, low, most, confidence)[-1]), least)


METHODS: dict[str, type[Intervals]] = {
    method.name: method for method in (Normal, Bootstrap, Bernstein, AnyTime)
}


def _around(value: float, error: float, below: float, above: float) -> Interval:
    return Interval(value, value - below * error, value + above * error, error)


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
