"""Bands: the utilities and gaps of several policies, bounded at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Estimate, sup_t_quantile
from consequential.evaluation.measurement import Measurement
from consequential.evaluation.out_of_core import Gram

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """One policy on a log: its utility, and the differences between groups, of every benefit.

    `values` has one row, or two where labels that nobody knows matter: everything at its lowest,
    then at its highest. Without two groups to measure there are no differences.
    """

    values: Floats  # (1 or 2, 1 + differences)
    acceptance: float
    effective_sample_size: float
    signed: bool

    @classmethod
    def of(cls, measure: Measurement, effective_sample_size: float) -> Trace:
        """Read off what was measured."""
        benefits = measure.benefits
        return cls(
            values=np.array(
                [
                    [
                        utility.values[0],
                        *(one.values[k] - other.values[m] for one, k, other, m in pairs),
                    ]
                    for utility, pairs in _sides(measure)
                ]
            ),
            acceptance=float(measure.acceptance.values[0]),
            effective_sample_size=effective_sample_size,
            signed=len(benefits) == 1 and benefits[0].low.n_groups == 2,
        )


def _sides(measure: Measurement) -> list[tuple[Any, list[tuple[Any, int, Any, int]]]]:
    """The utility and the pairs of groups, at their lowest and, if that differs, their highest."""
    exact = all(each.exact for each in (measure.utility, *measure.benefits))
    found = []
    for highest in (False,) if exact else (False, True):
        utility = measure.utility.high if highest else measure.utility.low
        pairs = []
        for benefit in measure.benefits:
            one, other = (benefit.high, benefit.low) if highest else (benefit.low, benefit.high)
            groups = combinations(benefit.known, 2)
            pairs += [(one, k, other, m) for k, m in groups]
        found.append((utility, pairs))
    return found


def influences(measure: Measurement) -> Floats:
    """What each row adds to the utility and to the differences, one column each."""
    columns = []
    for utility, pairs in _sides(measure):
        columns.append(utility.influence)
        columns += [
            one.influence * (one.group == k) - other.influence * (other.group == m)
            for one, k, other, m in pairs
        ]
    return np.column_stack(columns)


def combinations_of(measure: Measurement) -> Floats:
    """The same for rows that were summed: how columns of sums are combined, group by group."""
    found = []
    for utility, pairs in _sides(measure):
        found.append(utility.combination)
        for one, k, other, m in pairs:
            codes = np.arange(one.n_groups)[:, None]
            found.append(one.combination * (codes == k) - other.combination * (codes == m))
    return np.stack(found)


def covariance_of_rows(columns: list[Floats]) -> Floats:
    """Return the covariance of estimates with these influences."""
    influence = np.concatenate(columns, axis=1)
    n = len(influence)
    covariance: Floats = influence.T @ influence / (n * max(n - 1, 1))
    return covariance


def covariance_of_sums(combined: list[Floats], gram: Gram) -> Floats:
    """Return the covariance of estimates whose influences are combinations of summed columns."""
    mixed = np.concatenate(combined)
    found: Floats = np.einsum("azc,zcd,bzd->ab", mixed, gram.products, mixed, optimize=True)
    return found / (gram.n * max(gram.n - 1, 1))


def band(
    traces: list[Trace], covariance: Floats, n: int, confidence: float, seed: int
) -> list[tuple[Estimate, Estimate]]:
    """Return utility and gap of each policy with intervals that all hold at once.

    Each is its estimate plus and minus q standard errors; q is the quantile of the largest of all
    standardised errors, of utilities and of differences between groups alike. Policies fitted to
    the same log err together, so q is below what as many separate intervals would need.
    """
    q = sup_t_quantile(covariance, confidence, seed=seed)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    found, start = [], 0
    for trace in traces:
        own = errors[start : start + trace.values.size].reshape(trace.values.shape)
        start += own.size
        lows, highs = trace.values[0] - q * own[0], trace.values[-1] + q * own[-1]
        middle, error = trace.values.mean(axis=0), own.max(axis=0)

        def made(four: tuple[float, float, float, float], trace: Trace = trace) -> Estimate:
            size = trace.effective_sample_size
            return Estimate(*four, n, size, confidence, "simultaneous")

        first = (float(middle[0]), float(lows[0]), float(highs[0]), float(error[0]))
        gap = _gap(trace.signed, *(column[1:] for column in (middle, lows, highs, error)))
        found.append((made(first), made(gap)))
    return found


def _gap(
    signed: bool, middle: Floats, lows: Floats, highs: Floats, errors: Floats
) -> tuple[float, float, float, float]:
    """`b0 - b1` for two groups and one benefit, else the largest difference there is."""
    if len(errors) == 0:
        unknown = float("nan")
        return unknown, unknown, unknown, unknown
    if signed:
        return float(middle[0]), float(lows[0]), float(highs[0]), float(errors[0])
    widest = int(np.abs(middle).argmax())
    low = max(float(np.maximum(lows, -highs).max()), 0.0)
    high = float(np.maximum(highs, -lows).max())
    return float(abs(middle[widest])), low, high, float(errors[widest])
