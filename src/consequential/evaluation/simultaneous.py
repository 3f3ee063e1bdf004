"""Simultaneous bounds: several estimates at once, and the largest of several gaps."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.influence import RatioSums
from consequential.evaluation.quantiles import checked_confidence, normal_quantile

Floats = NDArray[np.float64]

_DRAWS = 20_000


def sup_t_quantile(covariance: Floats, confidence: float = 0.95, *, seed: int = 0) -> float:
    """Return the q for which all of several estimates lie within q standard errors at once.

    The quantile of `max_k |Z_k| / s_k` for normal Z of this covariance, by 20 000 seeded draws; for
    a single estimate, and for perfectly correlated ones, the normal quantile.

    Parameters
    ----------
    covariance
        Of the estimates: `psi.T @ psi / n**2` for influence values psi, one column an estimate.
        Its scale does not matter. Estimates without any variance are left out.
    confidence
        How often all of them are to be covered.
    seed
        Of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.evaluation import sup_t_quantile
    >>> round(sup_t_quantile(np.eye(1)), 2), round(sup_t_quantile(np.eye(10)), 1)
    (1.96, 2.8)
    """
    checked_confidence(confidence)
    matrix = np.atleast_2d(np.asarray(covariance, dtype=np.float64))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a covariance is a square matrix, not of shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("a covariance must be finite: leave out estimates without an error")
    varies = np.diag(matrix) > 0
    matrix = matrix[np.ix_(varies, varies)]
    if len(matrix) <= 1:
        return normal_quantile(confidence)
    deviation = np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(deviation, deviation))
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((_DRAWS, len(matrix))) @ root.T
    simulated = float(np.quantile(np.abs(draws).max(axis=1), confidence))
    return max(simulated, normal_quantile(confidence))


class Pairs:
    """Differences between the groups of one or several benefits."""

    def __init__(self, benefits: tuple[RatioSums, ...]) -> None:
        self.benefits = benefits
        self.places = [
            (k, one, other)
            for k, benefit in enumerate(benefits)
            for one, other in combinations(benefit.known, 2)
        ]

    def __len__(self) -> int:
        return len(self.places)

    def differences(self, values: Floats) -> Floats:
        """Return each pair's difference from values over (..., benefits, groups)."""
        columns = [values[..., k, one] - values[..., k, other] for k, one, other in self.places]
        return np.stack(columns, axis=-1)

    @property
    def contrast(self) -> Floats:
        """One row a pair: 1 and -1 at its groups, over benefits times groups."""
        n_groups = self.benefits[0].n_groups
        matrix = np.zeros((len(self), len(self.benefits) * n_groups))
        for row, (k, one, other) in enumerate(self.places):
            matrix[row, k * n_groups + one] = 1.0
            matrix[row, k * n_groups + other] = -1.0
        return matrix

    def covariance(self) -> Floats:
        """Of the differences; infinite entries where a group rests on a single row."""
        matrix = self.contrast
        spread = benefit_covariance(self.benefits)
        endless = ~np.isfinite(np.diag(spread))
        covariance: Floats = matrix @ np.where(np.isfinite(spread), spread, 0.0) @ matrix.T
        hit = np.abs(matrix[:, endless]).sum(axis=1) > 0
        covariance[np.diag_indices(len(self))] += np.where(hit, np.inf, 0.0)
        return covariance


def benefit_covariance(benefits: tuple[RatioSums, ...]) -> Floats:
    """Return the covariance of benefits over (benefits times groups): groups share no rows."""
    n_groups = benefits[0].n_groups
    size = len(benefits) * n_groups
    matrix = np.zeros((size, size))
    rows = np.arange(n_groups)
    for k, one in enumerate(benefits):
        for m, other in enumerate(benefits):
            products = one.products(other) / max(len(one), 1) ** 2
            factor = np.sqrt(one.inflation * other.inflation)
            with np.errstate(invalid="ignore"):
                entries = products * factor
            matrix[k * n_groups + rows, m * n_groups + rows] = np.where(
                np.isfinite(factor), entries, np.inf if k == m else 0.0
            )
    return matrix


def largest(
    differences: Floats, covariance: Floats, confidence: float, seed: int
) -> tuple[float, float, float, float]:
    """Return the largest absolute difference, its interval and its standard error.

    The plug-in maximum is too large where groups are equal, so the interval is
    `[max(|D| - q s)+, max(|D| + q s)]` with q of `sup_t_quantile`.
    """
    size, errors = np.abs(differences), np.sqrt(np.diag(covariance))
    measured = np.isfinite(errors)
    q = sup_t_quantile(covariance[np.ix_(measured, measured)], confidence, seed=seed)
    low = max(float((size - q * errors).max()), 0.0)
    widest = int(size.argmax())
    return float(size[widest]), low, float((size + q * errors).max()), float(errors[widest])
