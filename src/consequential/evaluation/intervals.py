"""Intervals: what every way to make them has in common, and the normal way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from itertools import combinations, permutations
from math import inf, sqrt
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Measured, Range
from consequential.evaluation.contrasts import (
    Pairs,
    contrast_bounds,
    largest_bounds,
    largest_difference,
    normal_quantile,
    skewness_corrected,
    sup_t_quantile,
    two_sided,
)
from consequential.evaluation.estimate import UNKNOWN, Estimate, Interval
from consequential.evaluation.rates import FEW, ratio

Floats = NDArray[np.float64]

# ratios, each with the sign that every group's value enters a contrast with
Terms = Sequence[tuple[Any, Floats]]


class Intervals(ABC):
    """A way to make intervals; it is given all ratios first, so that they can share draws.

    Where unknown labels matter, an interval reaches from the lower end of the lowest ratios to the
    upper end of the highest.
    """

    name: ClassVar[str]
    needs_reach: ClassVar[bool] = False
    from_sums: ClassVar[bool] = False

    def __init__(self, ratios: Sequence[Any], confidence: float, seed: int) -> None:
        self.confidence, self.seed = confidence, seed

    @abstractmethod
    def _of(self, ratios: Any) -> list[Interval]:
        """Return an interval for each group's ratio."""

    @abstractmethod
    def _contrast(self, terms: Terms) -> Interval:
        """Return an interval for a signed sum of ratios over groups."""

    @abstractmethod
    def _largest(self, benefits: tuple[Any, ...], pairs: Pairs) -> Interval:
        """Return an interval for the largest difference of all pairs."""

    def _difference(self, ratios: Any) -> Interval:
        return self._of(ratios)[0]

    def of(self, found: Measured) -> list[Interval]:
        """Return an interval for each group's ratio, whatever the unknown labels are."""
        if not isinstance(found, Range):
            return self._of(found)
        ends = zip(self._of(found.low), self._of(found.high), strict=True)
        plain = [None] * found.low.n_groups if found.plain is None else found.plain.values.tolist()
        return [_hull(low, high, value) for (low, high), value in zip(ends, plain, strict=True)]

    def difference(self, found: Measured) -> Interval:
        """Return an interval for the one ratio that two rules differ by."""
        if not isinstance(found, Range):
            return self._difference(found)
        value = None if found.plain is None else float(found.plain.values[0])
        return _hull(self._difference(found.low), self._difference(found.high), value)

    def contrast(self, terms: Sequence[tuple[Measured, Floats]]) -> Interval:
        """Return an interval for a signed sum of ratios over groups.

        Different terms are taken at their own extremes, so the interval can only be too wide.
        """
        if all(found.exact for found, _ in terms):
            return self._contrast(terms)
        low, high = (self._contrast(_at_extreme(terms, highest)) for highest in (False, True))
        plain = [
            (found.plain if isinstance(found, Range) else found, signs) for found, signs in terms
        ]
        value = sum(float(signs @ each.values) for each, signs in plain if each is not None)
        return _hull(low, high, value if all(each is not None for each, _ in plain) else None)

    def pairwise(self, benefit: Measured, one: int, other: int) -> Interval:
        """Return an interval for the difference between two groups."""
        signs = np.zeros(benefit.low.n_groups)
        signs[one], signs[other] = 1.0, -1.0
        return self.contrast([(benefit, signs)])

    def gap(self, benefits: tuple[Measured, ...]) -> Interval:
        """Return `b0 - b1` for two groups and one benefit, else the largest difference there is."""
        if len(benefits) > 1 or benefits[0].low.n_groups != 2:
            return self.largest(benefits)
        return self.pairwise(benefits[0], 0, 1) if len(benefits[0].known) == 2 else UNKNOWN

    def largest(self, benefits: tuple[Measured, ...]) -> Interval:
        """Return the largest difference between two groups, over all benefits.

        With unknown labels every pair's difference is bounded at once, sharing the error among
        them.
        """
        if all(benefit.exact for benefit in benefits):
            places = Pairs(benefits)  # type: ignore[arg-type]
            return self._largest(benefits, places) if len(places) else UNKNOWN
        pairs = [
            (benefit, one, other)
            for benefit in benefits
            for one, other in combinations(benefit.known, 2)
        ]
        if not pairs:
            return UNKNOWN
        shared = self.sharing(len(pairs))
        found = [shared.pairwise(*pair) for pair in pairs]
        widest = max(found, key=lambda each: abs(each.value))
        return Interval(
            abs(widest.value),
            max(0.0, *(max(each.low, -each.high) for each in found)),
            max(max(each.high, -each.low) for each in found),
            widest.standard_error,
        )

    def furthest_end(self, benefits: tuple[Measured, ...]) -> float:
        """Return the furthest end of any pair's interval; infinite where a group is not measured.

        No difference exceeds a bound if each is shown not to, so the pairs share no error: if one
        difference does exceed it, its own interval must have missed it.
        """
        ends = [0.0]
        for benefit in benefits:
            if len(benefit.known) < benefit.low.n_groups:
                return inf
            for pair in combinations(benefit.known, 2):
                found = self.pairwise(benefit, *pair)
                ends += [found.high, -found.low]
        return max(ends)

    def sharing(self, count: int) -> Self:
        """Return intervals of which so many hold at once with the confidence of one of these."""
        other = copy(self)
        other.confidence = 1.0 - (1.0 - self.confidence) / max(count, 1)
        return other

    def estimate(
        self, found: Interval, n: int, effective: float, unsupported: float = 0.0
    ) -> Estimate:
        """Return an interval as an estimate from n decisions."""
        return Estimate(
            found.value,
            found.low,
            found.high,
            found.standard_error,
            n,
            float(effective),
            self.confidence,
            self.name,
            unsupported,
        )


def _hull(low: Interval, high: Interval, value: float | None) -> Interval:
    """Return what reaches from the lower end of one interval to the upper end of another."""
    if not np.isfinite([low.value, high.value]).all():
        return UNKNOWN
    return Interval(
        (low.value + high.value) / 2.0 if value is None else value,
        low.low,
        high.high,
        max(low.standard_error, high.standard_error),
    )


def _at_extreme(terms: Sequence[tuple[Measured, Floats]], highest: bool) -> Terms:
    parts = []
    for found, signs in terms:
        for side, chosen in ((found.low, signs < 0.0), (found.high, signs > 0.0)):
            mask = chosen if highest else (signs != 0.0) & ~chosen
            if mask.any():
                parts.append((side, np.where(mask, signs, 0.0)))
    return parts


class Normal(Intervals):
    """As if estimates were normal around the truth, with influence values for their errors."""

    name = "normal"
    from_sums = True

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

    def _largest(self, benefits: tuple[Any, ...], pairs: Pairs) -> Interval:
        if any(each.rates is None for each in benefits):
            values = pairs.differences(np.stack([each.values for each in benefits]))
            return largest_difference(values, pairs.covariance(), self.confidence, self.seed)
        errors = np.concatenate([each.rates.standard_errors for each in benefits])
        covariance = pairs.contrast @ np.diag(np.nan_to_num(errors) ** 2) @ pairs.contrast.T
        level = two_sided(sup_t_quantile(covariance, self.confidence, seed=self.seed))
        size = np.abs(pairs.differences(np.stack([each.values for each in benefits])))
        widest = int(size.argmax())
        value, ends = float(size[widest]), []
        for each in benefits:
            alone, together = (
                each.rates.bounds(at)[:, each.known] for at in (self.confidence, level)
            )
            ends.append(largest_bounds(each.values[each.known], alone, together))
        low = min(value, max(low for low, _ in ends))
        high = max(value, max(high for _, high in ends))
        return Interval(value, low, high, float(np.sqrt(covariance[widest, widest])))

    def _difference(self, ratios: Any) -> Interval:
        """Correct for skewness: differences of similar rules rest on few rows."""
        below, above = skewness_corrected(ratios.skewness, len(ratios), self.confidence)
        return _around(float(ratios.values[0]), float(ratios.standard_errors[0]), below, above)


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
