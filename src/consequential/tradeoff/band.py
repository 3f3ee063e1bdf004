"""Bands: the utilities and gaps of several policies, bounded at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Estimate, sup_t_quantile
from consequential.evaluation.offpolicy import Measure
from consequential.evaluation.scanned import Gram

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """One policy on a log: its utility, and the differences between groups, of every benefit.

    Without two groups to measure there are no differences.
    """

    utility: float
    differences: Floats
    acceptance: float
    effective_sample_size: float
    signed: bool

    @classmethod
    def of(cls, measure: Measure, effective_sample_size: float) -> Trace:
        """Read off what was measured."""
        benefits = measure.benefits
        return cls(
            utility=float(measure.utility.values[0]),
            differences=np.array(
                [each.values[one] - each.values[k] for each, one, k in _pairs(benefits)]
            ),
            acceptance=float(measure.acceptance.values[0]),
            effective_sample_size=effective_sample_size,
            signed=len(benefits) == 1 and benefits[0].n_groups == 2,
        )


def influences(measure: Measure) -> Floats:
    """What each row adds to the utility and to the differences, one column each."""
    columns = [measure.utility.influence]  # type: ignore[attr-defined]  # rows in memory have it
    for benefit, one, other in _pairs(measure.benefits):
        columns.append(benefit.influence * _sides(benefit, one, other)[benefit.group])
    return np.column_stack(columns)


def combinations_of(measure: Measure) -> Floats:
    """The same for rows that were summed: how columns of sums are combined, group by group."""
    found = [measure.utility.combination]  # type: ignore[attr-defined]  # those of scans have it
    for benefit, one, other in _pairs(measure.benefits):
        found.append(benefit.combination * _sides(benefit, one, other)[:, None])
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
        own = errors[start : start + 1 + len(trace.differences)]
        start += len(own)

        def made(
            value: float, low: float, high: float, error: float, trace: Trace = trace
        ) -> Estimate:
            size = trace.effective_sample_size
            return Estimate(value, low, high, error, n, size, confidence, "simultaneous")

        utility = made(
            trace.utility, trace.utility - q * own[0], trace.utility + q * own[0], float(own[0])
        )
        found.append((utility, made(*_gap(trace, q * own[1:], own[1:]))))
    return found


def _gap(trace: Trace, reach: Floats, errors: Floats) -> tuple[float, float, float, float]:
    """`b0 - b1` for two groups and one benefit, else the largest difference there is."""
    if len(errors) == 0:
        unknown = float("nan")
        return unknown, unknown, unknown, unknown
    if trace.signed:
        value = float(trace.differences[0])
        return value, value - float(reach[0]), value + float(reach[0]), float(errors[0])
    size = np.abs(trace.differences)
    widest = int(size.argmax())
    low = max(float((size - reach).max()), 0.0)
    return float(size[widest]), low, float((size + reach).max()), float(errors[widest])


def _pairs(benefits: tuple[Any, ...]) -> list[tuple[Any, int, int]]:
    return [
        (benefit, one, other)
        for benefit in benefits
        for one, other in combinations(benefit.known, 2)
    ]


def _sides(benefit: Any, one: int, other: int) -> Floats:
    side = np.zeros(benefit.n_groups)
    side[one], side[other] = 1.0, -1.0
    return side
