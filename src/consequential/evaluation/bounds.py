"""Bounds: estimates with the labels that nobody knows at their worst and at their best.

The labels of people who were never accepted may be anything. A mean is smallest where each of
them has the label that is worse for it; a ratio of sums at the fixed point `r` where a label is 1
exactly if that lowers `numerator - r denominator` (Dinkelbach's iteration). The estimates at the
two extremes enclose the estimate with the true labels, so an interval from the lower end of the
one to the upper end of the other covers whatever these labels are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.influence import Ratios, RatioSums
from consequential.evaluation.intervals import UNKNOWN, Interval, Intervals, Terms

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Range:
    """Ratios with unknown labels at their lowest and their highest; one and the same if exact.

    `plain` are those of clipped weights, an estimate in its own right. Where people were never
    accepted there is no such thing, and the middle of the range is shown instead.
    """

    low: RatioSums
    high: RatioSums
    plain: RatioSums | None = None

    @classmethod
    def exactly(cls, ratios: RatioSums) -> Range:
        """Return the range of ratios that no unknown label can change."""
        return cls(ratios, ratios)

    @property
    def exact(self) -> bool:
        """Whether no unknown label matters."""
        return self.low is self.high

    @property
    def sides(self) -> tuple[RatioSums, ...]:
        """The ratios there are: one where they are exact, else two."""
        return (self.low,) if self.exact else (self.low, self.high)


def extreme_ratios(
    at: Callable[[Mask | bool], tuple[Ratios, Floats]], *, highest: bool
) -> tuple[Ratios, Mask]:
    """Return the ratios with each group's unknown labels at one extreme, and the labels.

    `at` gives the ratios for unknown labels that are 1 where a mask says so, and by group what
    their sums were divided by.
    """
    (zeros, _), (ones, _) = _unscaled(*at(False)), _unscaled(*at(True))
    gained = ones.numerator - zeros.numerator, ones.denominator - zeros.denominator
    mask: Mask = np.zeros(len(zeros), dtype=np.bool_)
    found = zeros
    for _ in range(_MOST_ROUNDS):
        ratio = np.nan_to_num(found.values)[found.group]
        better = (gained[0] - ratio * gained[1] > 0.0) == highest
        found = at(better)[0]
        if np.array_equal(better, mask):
            break
        mask = better
    return found, mask


def _unscaled(ratios: Ratios, scale: Floats) -> tuple[Ratios, Floats]:
    """Undo what sums were divided by, which labels change too: then they are linear in labels."""
    by_row = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)[ratios.group]
    plain = Ratios(
        ratios.numerator * by_row, ratios.denominator * by_row, ratios.group, ratios.n_groups
    )
    return plain, scale


def intervals_of(intervals: Intervals, found: Range) -> list[Interval]:
    """Return an interval for each group's ratio, whatever the unknown labels are."""
    if found.exact:
        return intervals.of(found.low)
    ends = zip(intervals.of(found.low), intervals.of(found.high), strict=True)
    plain = [None] * found.low.n_groups if found.plain is None else found.plain.values.tolist()
    return [hull(low, high, value) for (low, high), value in zip(ends, plain, strict=True)]


def difference_interval(intervals: Intervals, found: Range) -> Interval:
    """Return an interval for the one ratio that two rules differ by."""
    if found.exact:
        return intervals.difference(found.low)
    value = None if found.plain is None else float(found.plain.values[0])
    return hull(intervals.difference(found.low), intervals.difference(found.high), value)


def contrast_interval(intervals: Intervals, terms: list[tuple[Range, Floats]]) -> Interval:
    """Return an interval for a signed sum of ratios over groups.

    Different terms are taken at their own extremes, so the interval can only be too wide.
    """
    if all(found.exact for found, _ in terms):
        return intervals.contrast([(found.low, signs) for found, signs in terms])
    low, high = (intervals.contrast(_at_extreme(terms, highest)) for highest in (False, True))
    plain = [(found.low if found.exact else found.plain, signs) for found, signs in terms]
    value = sum(float(signs @ each.values) for each, signs in plain if each is not None)
    return hull(low, high, value if all(each is not None for each, _ in plain) else None)


def _at_extreme(terms: list[tuple[Range, Floats]], highest: bool) -> Terms:
    parts = []
    for found, signs in terms:
        for side, chosen in ((found.low, signs < 0.0), (found.high, signs > 0.0)):
            mask = chosen if highest else (signs != 0.0) & ~chosen
            if mask.any():
                parts.append((side, np.where(mask, signs, 0.0)))
    return parts


def gap_interval(intervals: Intervals, benefits: tuple[Range, ...]) -> Interval:
    """Return `b0 - b1` for two groups and one benefit, else the largest difference there is."""
    if len(benefits) == 1 and benefits[0].low.n_groups == 2:
        if not np.isfinite([side.values for side in benefits[0].sides]).all():
            return UNKNOWN
        return contrast_interval(intervals, [(benefits[0], np.array([1.0, -1.0]))])
    return largest_interval(intervals, benefits)


def largest_interval(intervals: Intervals, benefits: tuple[Range, ...]) -> Interval:
    """Return the largest difference between two groups, over all benefits.

    With unknown labels every pair's difference is bounded at once, sharing the error among them.
    """
    if all(benefit.exact for benefit in benefits):
        return intervals.largest(tuple(benefit.low for benefit in benefits))
    pairs = [
        (benefit, one, other)
        for benefit in benefits
        for one, other in combinations(measured_groups(benefit), 2)
    ]
    if not pairs:
        return UNKNOWN
    shared = intervals.at(1.0 - (1.0 - intervals.confidence) / len(pairs))
    found = []
    for benefit, one, other in pairs:
        signs = np.zeros(benefit.low.n_groups)
        signs[one], signs[other] = 1.0, -1.0
        found.append(contrast_interval(shared, [(benefit, signs)]))
    widest = max(found, key=lambda each: abs(each.value))
    return Interval(
        abs(widest.value),
        max(0.0, *(max(each.low, -each.high) for each in found)),
        max(max(each.high, -each.low) for each in found),
        widest.standard_error,
    )


def widest_end(intervals: Intervals, benefits: tuple[Range, ...]) -> float:
    """Return the furthest end of any pair's interval; infinite where a group is not measured.

    No difference exceeds a bound if each is shown not to, so the pairs share no error: if one
    difference does exceed it, its own interval must have missed it.
    """
    most = 0.0
    for benefit in benefits:
        n_groups = benefit.low.n_groups
        if len(measured_groups(benefit)) < n_groups:
            return float("inf")
        for one, other in combinations(range(n_groups), 2):
            signs = np.zeros(n_groups)
            signs[one], signs[other] = 1.0, -1.0
            found = contrast_interval(intervals, [(benefit, signs)])
            most = max(most, found.high, -found.low)
    return most


def measured_groups(benefit: Range) -> list[int]:
    """Return the groups that have a value whatever the unknown labels are."""
    return sorted(set(benefit.low.known) & set(benefit.high.known))


def hull(low: Interval, high: Interval, value: float | None = None) -> Interval:
    """Return what reaches from the lower end of one interval to the upper end of another."""
    if not np.isfinite([low.value, high.value]).all():
        return UNKNOWN
    return Interval(
        (low.value + high.value) / 2.0 if value is None else value,
        low.low,
        high.high,
        max(low.standard_error, high.standard_error),
    )
