"""Bands: the utilities and gaps of several policies, bounded at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Estimate, sup_t_quantile
from consequential.evaluation.influence import Ratios, Yardstick
from consequential.objective import effective_sample_size

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """One policy on the rows of a log: estimates, and what each row adds to them.

    `differences` are those between groups, of every benefit; without two groups to measure there
    are none. `influence` has a column for the utility and one for each difference.
    """

    utility: float
    differences: Floats
    acceptance: float
    influence: Floats
    effective_sample_size: float
    signed: bool

    @classmethod
    def of(cls, yardstick: Yardstick, propensity: Floats) -> Trace:
        """Measure a policy that has these propensities."""
        utility, benefits = yardstick.utility(propensity), yardstick.benefits(propensity)
        pairs = [
            (benefit, one, other)
            for benefit in benefits
            for one, other in combinations(benefit.known, 2)
        ]
        columns = [utility.influence, *(_between(*pair) for pair in pairs)]
        return cls(
            utility=float(utility.values[0]),
            differences=np.array([each.values[one] - each.values[k] for each, one, k in pairs]),
            acceptance=float(propensity.mean()),
            influence=np.column_stack(columns),
            effective_sample_size=effective_sample_size(yardstick.weighted(propensity)),
            signed=len(benefits) == 1 and benefits[0].n_groups == 2,
        )


def band(traces: list[Trace], confidence: float, seed: int) -> list[tuple[Estimate, Estimate]]:
    """Return utility and gap of each policy with intervals that all hold at once.

    Each is its estimate plus and minus q standard errors; q is the quantile of the largest of all
    standardised errors, of utilities and of differences between groups alike. Policies fitted to
    the same log err together, so q is below what as many separate intervals would need.
    """
    influence = np.concatenate([trace.influence for trace in traces], axis=1)
    n = len(influence)
    covariance = influence.T @ influence / (n * max(n - 1, 1))
    q = sup_t_quantile(covariance, confidence, seed=seed)
    errors = np.sqrt(np.diag(covariance))
    found, start = [], 0
    for trace in traces:
        own = errors[start : start + trace.influence.shape[1]]
        start += trace.influence.shape[1]

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


def _between(benefit: Ratios, one: int, other: int) -> Floats:
    """What each row adds to the difference between two groups' benefits."""
    side = np.zeros(benefit.n_groups)
    side[one], side[other] = 1.0, -1.0
    return benefit.influence * side[benefit.group]
