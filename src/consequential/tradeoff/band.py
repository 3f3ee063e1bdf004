"""Bands: the utilities and gaps of several policies, bounded at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Estimate
from consequential.evaluation.contrasts import sup_t_quantile
from consequential.evaluation.out_of_core import ScannedRatios
from consequential.evaluation.weighted_log import Measurement

Floats = NDArray[np.float64]
Four = tuple[float, float, float, float]
# a signed sum of ratios, each of one group: a utility, or the difference between two benefits
Contrast = list[tuple[float, Any, int]]


def band(
    measures: Sequence[Measurement], confidence: float, seed: int
) -> list[tuple[Estimate, Estimate]]:
    """Return utility and gap of each policy with intervals that all hold at once.

    Each is its estimate plus and minus q standard errors; q is the quantile of the largest of all
    standardised errors, of utilities and of differences between groups alike. Policies fitted to
    the same log err together, so q is below what as many separate intervals would need.
    """
    contrasts = [_contrasts(measure) for measure in measures]
    covariance = _covariance([each for sides in contrasts for side in sides for each in side])
    q = sup_t_quantile(covariance, confidence, seed=seed)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    found, start = [], 0
    for measure, sides in zip(measures, contrasts, strict=True):
        values = np.array([[_value(each) for each in side] for side in sides])
        own = errors[start : start + values.size].reshape(values.shape)
        start += values.size
        lows, highs = values[0] - q * own[0], values[-1] + q * own[-1]
        columns = np.stack([values.mean(axis=0), lows, highs, own.max(axis=0)])
        signed = len(measure.benefits) == 1 and measure.benefits[0].low.n_groups == 2
        rest = (measure.n, measure.weights.effective_size, confidence, "simultaneous")
        utility, gap = _first(columns), _gap(signed, columns[:, 1:])
        found.append((Estimate(*utility, *rest), Estimate(*gap, *rest)))
    return found


def _contrasts(measure: Measurement) -> list[list[Contrast]]:
    """Return a policy's utility and its differences between groups, of every benefit.

    Once, or twice where labels that nobody knows matter: all at their lowest, then at their
    highest. Without two groups to measure there are no differences.
    """
    exact = all(each.exact for each in (measure.utility, *measure.benefits))
    sides = []
    for highest in (False,) if exact else (False, True):
        utility = measure.utility.high if highest else measure.utility.low
        side: list[Contrast] = [[(1.0, utility, 0)]]
        for benefit in measure.benefits:
            one, other = (benefit.high, benefit.low) if highest else (benefit.low, benefit.high)
            groups = combinations(benefit.known, 2)
            side += [[(1.0, one, k), (-1.0, other, m)] for k, m in groups]
        sides.append(side)
    return sides


def _value(contrast: Contrast) -> float:
    return float(sum(sign * ratios.values[k] for sign, ratios, k in contrast))


def _covariance(contrasts: list[Contrast]) -> Floats:
    """Return the covariance of the contrasts from influences of rows, or from sums of a scan."""
    first = contrasts[0][0][1]
    n = len(first)
    if not isinstance(first, ScannedRatios):
        influence = np.column_stack(
            [
                sum(sign * ratios.influence * (ratios.group == k) for sign, ratios, k in contrast)
                for contrast in contrasts
            ]
        )
        products = influence.T @ influence
    else:
        groups = np.arange(len(first.gram.products))[:, None]
        mixed = np.stack(
            [
                sum(
                    sign * ratios.combination * ((groups == k) | (ratios.n_groups == 1))
                    for sign, ratios, k in contrast
                )
                for contrast in contrasts
            ]
        )
        gram = first.gram.products
        products = np.einsum("azc,zcd,bzd->ab", mixed, gram, mixed, optimize=True)
    covariance: Floats = products / (n * max(n - 1, 1))
    return covariance


def _first(columns: Floats) -> Four:
    value, low, high, error = columns[:, 0].tolist()
    return value, low, high, error


def _gap(signed: bool, columns: Floats) -> Four:
    """Return `b0 - b1` for two groups and one benefit, else the largest difference there is.

    Each column is a difference: its value, low end, high end and standard error.
    """
    if columns.shape[1] == 0:
        return np.nan, np.nan, np.nan, np.nan
    if signed:
        return _first(columns)
    middle, lows, highs, errors = columns
    widest = int(np.abs(middle).argmax())
    low = max(float(np.maximum(lows, -highs).max()), 0.0)
    high = float(np.maximum(highs, -lows).max())
    return float(abs(middle[widest])), low, high, float(errors[widest])
