"""Intervals: their common interface, and normal intervals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import combinations, permutations
from math import inf, sqrt
from typing import Any, ClassVar, Self

import numpy as np

from consequential.evaluation.contrasts import (
    MOST_GROUPS,
    Pairs,
    normal_quantile,
    skewness_corrected,
    sup_t_quantile,
    two_sided,
    widest,
)
from consequential.evaluation.estimate import UNKNOWN, Estimate, Interval
from consequential.evaluation.rates import FEW, Floats, contrast_bounds, largest_bounds, ratio
from consequential.evaluation.ratios import Range, is_share

# ratios, each with the sign that every group's value enters a contrast with
Terms = Sequence[tuple[Any, Floats]]


class Intervals(ABC):
    """A way to make intervals.

    Where unknown labels matter, an interval reaches from the lower end of the lowest ratios to the
    upper end of the highest.
    """

    name: ClassVar[str]
    needs_reach: ClassVar[bool]  # how far a row can go, which sums over rows do not tell

    def __init__(self, confidence: float, seed: int = 0) -> None:
        self.confidence, self.seed = confidence, seed

    @abstractmethod
    def _of(self, ratios: Any) -> list[Interval]:
        """Return an interval for each group's ratio."""

    @abstractmethod
    def _contrast(self, terms: Terms) -> Interval:
        """Return an interval for a signed sum of ratios over groups."""

    @abstractmethod
    def _largest(self, pairs: Pairs) -> Interval:
        """Return an interval for the largest difference of all pairs."""

    def _difference(self, ratios: Any) -> list[Interval]:
        return self._of(ratios)

    def of(self, found: Range) -> list[Interval]:
        """Return an interval for each group's ratio, whatever the unknown labels are."""
        each = _hulls(found, self._of)
        return list(map(_between_0_and_1, each)) if is_share(found.low.shape) else each

    def difference(self, found: Range) -> Interval:
        """Return an interval for the one ratio that two rules differ by."""
        return _hulls(found, self._difference)[0]

    def contrast(self, terms: Sequence[tuple[Range, Floats]]) -> Interval:
        """Return an interval for a signed sum of ratios over groups.

        Different terms are taken at their own extremes, so the interval can only be too wide.
        """
        plain = [(found.plain, signs) for found, signs in terms if found.plain is not None]
        if all(found.exact for found, _ in terms):
            return self._contrast(plain)
        low, high = (self._contrast(_at_extreme(terms, highest)) for highest in (False, True))
        value = sum(float(signs @ each.values) for each, signs in plain)
        return _hull(low, high, value if len(plain) == len(terms) else None)

    def pairwise(self, benefit: Range, one: int, other: int) -> Interval:
        """Return an interval for the difference between two groups."""
        signs = np.zeros(benefit.n_groups)
        signs[one], signs[other] = 1.0, -1.0
        return self.contrast([(benefit, signs)])

    def gap(self, benefits: tuple[Range, ...]) -> Interval:
        """Return `b0 - b1` for two groups and one benefit, else the largest difference there is."""
        if len(benefits) > 1 or benefits[0].n_groups != 2:
            return self.largest(benefits)
        return self.pairwise(benefits[0], 0, 1) if len(benefits[0].known) == 2 else UNKNOWN

    def largest(self, benefits: tuple[Range, ...]) -> Interval:
        """Return the largest difference between two groups, over all benefits.

        With unknown labels every pair's difference is bounded at once, sharing the error among
        them.
        """
        pairs = _pairs(benefits)
        if not pairs:
            return UNKNOWN
        if all(benefit.exact for benefit in benefits):
            return self._largest(Pairs([each.low for each in benefits]))
        shared = self.sharing(len(pairs))
        found = [shared.pairwise(*pair) for pair in pairs]
        furthest = max(found, key=lambda each: abs(each.value))
        return Interval(
            abs(furthest.value),
            max(0.0, *(max(each.low, -each.high) for each in found)),
            max(max(each.high, -each.low) for each in found),
            furthest.standard_error,
        )

    def furthest_end(self, benefits: tuple[Range, ...]) -> float:
        """Return the furthest end of any pair's interval; infinite where a group is not measured.

        No difference exceeds a bound if each is shown not to, so the pairs share no error: if one
        difference does exceed it, its own interval must have missed it.
        """
        if any(len(each.known) < each.n_groups for each in benefits):
            return inf
        found = [self.pairwise(*pair) for pair in _pairs(benefits)]
        return max([0.0, *(max(each.high, -each.low) for each in found)])

    def sharing(self, count: int) -> Self:
        """Return intervals of which so many hold at once with the confidence of one of these."""
        other = copy(self)
        other.confidence = 1.0 - (1.0 - self.confidence) / max(count, 1)
        return other

    def estimate(
        self, found: Interval, n: int, effective: float, unsupported: float = 0.0
    ) -> Estimate:
        """Return an interval as an estimate from n decisions."""
        numbers = found.value, found.low, found.high, found.standard_error
        return Estimate(*numbers, n, float(effective), self.confidence, self.name, unsupported)


def _pairs(benefits: tuple[Range, ...]) -> list[tuple[Range, int, int]]:
    """Return every two groups that have a value, within each benefit."""
    if benefits[0].n_groups > MOST_GROUPS:
        raise ValueError(
            f"{benefits[0].n_groups} groups cannot be compared pair by pair, only {MOST_GROUPS}: "
            "merge small ones in the sensitive column"
        )
    return [(each, *pair) for each in benefits for pair in combinations(each.known, 2)]


def _hulls(found: Range, intervals: Callable[[Any], list[Interval]]) -> list[Interval]:
    """Return intervals that cover whatever the unknown labels are."""
    if found.exact:
        return intervals(found.low)
    plain = [None] * found.n_groups if found.plain is None else found.plain.values.tolist()
    return list(map(_hull, intervals(found.low), intervals(found.high), plain))


def _hull(low: Interval, high: Interval, value: float | None) -> Interval:
    """Return what reaches from the lower end of one interval to the upper end of another."""
    if not (low.known and high.known):
        return UNKNOWN
    return Interval(
        (low.value + high.value) / 2.0 if value is None else value,
        low.low,
        high.high,
        max(low.standard_error, high.standard_error),
    )


def _between_0_and_1(found: Interval) -> Interval:
    """Return the interval of a share without what no share can be; it still has its value."""
    low, high = min(max(found.low, 0.0), found.value), max(min(found.high, 1.0), found.value)
    return replace(found, low=low, high=high)


def _at_extreme(terms: Sequence[tuple[Range, Floats]], highest: bool) -> Terms:
    parts = []
    for found, signs in terms:
        for side, chosen in ((found.low, signs < 0.0), (found.high, signs > 0.0)):
            mask = chosen if highest else (signs != 0.0) & ~chosen
            if mask.any():
                parts.append((side, np.where(mask, signs, 0.0)))
    return parts


class Normal(Intervals):
    """Normal intervals, with standard errors from influence values."""

    name = "normal"
    needs_reach = False

    def _of(self, ratios: Any) -> list[Interval]:
        """Return the values, plus and minus z standard errors; rates have bounds of their own."""
        if ratios.rates is None:
            z = normal_quantile(self.confidence)
            pairs = zip(ratios.values.tolist(), ratios.standard_errors.tolist(), strict=True)
            return [_around(value, error, z, z) for value, error in pairs]
        low, high = ratios.rates.bounds(self.confidence)
        values, errors = ratios.values, ratios.rates.standard_errors
        columns = zip(values, np.fmin(low, values), np.fmax(high, values), errors, strict=True)
        return [
            Interval(*map(float, four)) if np.isfinite(four[0]) else UNKNOWN for four in columns
        ]

    def _contrast(self, terms: Terms) -> Interval:
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
        error = inf
        if np.isfinite(inflation).all() and np.isfinite(value):
            error = sqrt(max(float(squares @ inflation), 0.0))
        rates = [each.rates for each, _ in terms if each.rates is not None]
        few = any((each.effective < FEW).any() for each in rates)
        if len(rates) == len(terms) and (few or len({id(each) for each, _ in terms}) == 1):
            return self._rate_contrast(terms, value, error)
        z = normal_quantile(self.confidence) if np.isfinite(error) else 1.0
        return _around(value, error, z, z)

    def _rate_contrast(self, terms: Terms, value: float, error: float) -> Interval:
        if not np.isfinite(value):
            return UNKNOWN
        ends = [each.rates.bounds(self.confidence) for each, _ in terms]
        low, high = contrast_bounds(
            np.concatenate([each.values for each, _ in terms]),
            np.concatenate(ends, axis=1),
            np.concatenate([signs for _, signs in terms]),
            _correlation([each for each, _ in terms]),
        )
        if len(terms) == 1:
            ratios, signs = terms[0]
            error = float(np.linalg.norm(signs * ratios.rates.standard_errors))
        return Interval(value, min(low, value), max(high, value), error)

    def _largest(self, pairs: Pairs) -> Interval:
        values = pairs.columns(each.values for each in pairs.benefits)
        rates = [each.rates for each in pairs.benefits if each.rates is not None]
        if len(rates) < len(pairs.benefits):
            return self.widest(pairs.contrasts, values, pairs.covariance())
        errors = pairs.columns(each.standard_errors for each in rates)
        return self.widest(
            pairs.contrasts,
            values,
            np.diag(np.nan_to_num(errors) ** 2),
            lambda confidence: pairs.columns(each.bounds(confidence) for each in rates),
        )

    def widest(
        self,
        contrasts: Floats,
        values: Floats,
        covariance: Floats,
        bounds: Callable[[float], Floats] | None = None,
    ) -> Interval:
        """Return the largest absolute contrast, from the covariance of the values.

        Contrasts of values with an infinite variance have no error. `bounds` are the ends of each
        value's interval at a confidence, where values are rates.
        """
        measured = np.isfinite(np.diag(covariance))
        usable = ~contrasts[:, ~measured].any(axis=1)
        known, spread = contrasts[np.ix_(usable, measured)], covariance[np.ix_(measured, measured)]
        errors = np.full(len(contrasts), inf)
        errors[usable] = np.sqrt(np.maximum(((known @ spread) * known).sum(axis=1), 0.0))
        q = sup_t_quantile(spread, self.confidence, contrasts=known, seed=self.seed)
        found = widest(contrasts @ values, errors, q)
        if bounds is None:
            return found
        alone, together = bounds(self.confidence), bounds(two_sided(q))
        low, high = largest_bounds(values, alone, together, contrasts)
        return Interval(
            found.value, min(low, found.value), max(high, found.value), found.standard_error
        )

    def _difference(self, ratios: Any) -> list[Interval]:
        """Correct for skewness: differences of similar rules rest on few rows."""
        below, above = skewness_corrected(ratios.skewness, len(ratios), self.confidence)
        return [_around(float(ratios.values[0]), float(ratios.standard_errors[0]), below, above)]


def _around(value: float, error: float, below: float, above: float) -> Interval:
    return Interval(value, value - below * error, value + above * error, error)


def _correlation(ratios: list[Any]) -> Floats:
    """Return the correlation of several rules' rates over (ratios times groups)."""
    n_groups = ratios[0].n_groups
    matrix = np.eye(len(ratios) * n_groups)
    rows = np.arange(n_groups)
    for (k, one), (m, other) in permutations(enumerate(ratios), 2):
        spread = np.sqrt(one.products(one) * other.products(other))
        matrix[k * n_groups + rows, m * n_groups + rows] = ratio(one.products(other), spread)
    return matrix
