"""Contrasts: differences between several estimates, and bounds that hold for all at once.

References
----------
Newcombe (1998), Interval estimation for the difference between independent proportions, Statistics
in Medicine 17. Zou and Donner (2008), Construction of confidence limits about effect measures: a
general approach, Statistics in Medicine 27.
"""

from __future__ import annotations

from itertools import combinations, product
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.estimate import Interval
from consequential.evaluation.influence import RatioSums

Floats = NDArray[np.float64]

_DRAWS = 20_000


def checked_confidence(confidence: Any) -> float:
    """Return a confidence strictly between 0 and 1, or say that it is not."""
    try:
        level = float(confidence)
    except (TypeError, ValueError):
        level = float("nan")
    if not 0.0 < level < 1.0:
        raise ValueError(f"the confidence lies strictly between 0 and 1, not {confidence!r}")
    return level


def normal_quantile(confidence: float) -> float:
    """Return the z for which a standard normal lies in [-z, z] with this probability."""
    return NormalDist().inv_cdf(0.5 + confidence / 2.0)


def two_sided(z: float) -> float:
    """Return the probability with which a standard normal lies in [-z, z]."""
    return 2.0 * NormalDist().cdf(z) - 1.0


def skewness_corrected(skewness: float, n: int, confidence: float) -> tuple[float, float]:
    """Return how many standard errors below and above a mean its interval reaches.

    Hall's transformation. A studentised mean T of n rows of skewness g has, with
    `a = g / (3 sqrt n)`, the monotone cubic `((1 + a T)^3 - 1) / (3 a) + a / 2` normal up to
    order 1/n; the interval is where that lies in [-z, z].
    """
    z = normal_quantile(confidence)
    a = skewness / (3.0 * n**0.5)
    if abs(a) < 1e-12:
        return z, z

    def inverse(quantile: float) -> float:
        return float((np.cbrt(1.0 + 3.0 * a * (quantile - a / 2.0)) - 1.0) / a)

    return inverse(z), -inverse(-z)


def sup_t_quantile(covariance: Floats, confidence: float = 0.95, *, seed: int = 0) -> float:
    """Return the q for which all of several estimates lie within q standard errors at once.

    The quantile of `max_k |Z_k| / s_k` for normal Z of this covariance, by 20 000 seeded draws; for
    a single estimate, and for perfectly correlated ones, the normal quantile.

    Parameters
    ----------
    covariance
        Of the estimates: `psi.T @ psi / n**2` for influence values psi, one column per estimate.
        Its scale does not matter. Estimates without any variance are left out.
    confidence
        How often all of them are to be covered.
    seed
        Of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.statistics import sup_t_quantile
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
        """One row per pair: 1 and -1 at its groups, over benefits times groups."""
        n_groups = self.benefits[0].n_groups
        matrix = np.zeros((len(self), len(self.benefits) * n_groups))
        for row, (k, one, other) in enumerate(self.places):
            matrix[row, k * n_groups + one] = 1.0
            matrix[row, k * n_groups + other] = -1.0
        return matrix

    def covariance(self) -> Floats:
        """Of the differences; infinite entries where a group rests on a single row."""
        matrix, spread = self.contrast, self._spread()
        unknown = ~np.isfinite(np.diag(spread))
        covariance: Floats = matrix @ np.where(np.isfinite(spread), spread, 0.0) @ matrix.T
        touched = np.abs(matrix[:, unknown]).sum(axis=1) > 0
        covariance[np.diag_indices(len(self))] += np.where(touched, np.inf, 0.0)
        return covariance

    def _spread(self) -> Floats:
        """The covariance of benefits over (benefits times groups): groups share no rows."""
        n_groups = self.benefits[0].n_groups
        matrix = np.zeros((len(self.benefits) * n_groups,) * 2)
        rows = np.arange(n_groups)
        for (k, one), (m, other) in product(enumerate(self.benefits), repeat=2):
            factor = np.sqrt(one.inflation * other.inflation)
            with np.errstate(invalid="ignore"):
                entries = one.products(other) / max(len(one), 1) ** 2 * factor
            matrix[k * n_groups + rows, m * n_groups + rows] = np.where(
                np.isfinite(factor), entries, np.inf if k == m else 0.0
            )
        return matrix


def largest_difference(
    differences: Floats, covariance: Floats, confidence: float, seed: int
) -> Interval:
    """Return the largest absolute difference, with bounds that hold for all of them at once.

    The plug-in maximum is too large where groups are equal, so the interval is
    `[max(|D| - q s)+, max(|D| + q s)]` with q of `sup_t_quantile`.
    """
    errors = np.sqrt(np.diag(covariance))
    measured = np.isfinite(errors)
    q = sup_t_quantile(covariance[np.ix_(measured, measured)], confidence, seed=seed)
    return widest(differences, errors, q)


def widest(differences: Floats, errors: Floats, q: float) -> Interval:
    """Return the largest absolute difference if all lie within q of their errors."""
    size = np.abs(differences)
    low, high = float((size - q * errors).max()), float((size + q * errors).max())
    place = int(size.argmax())
    return Interval(float(size[place]), max(low, 0.0), high, float(errors[place]))


def contrast_bounds(
    values: Floats, bounds: Floats, signs: Floats, correlation: Floats | None = None
) -> tuple[float, float]:
    """Return an interval for `sum signs values`, from the intervals of the values.

    The square-and-add method (Newcombe; MOVER): the distance from the sum to its lower end is
    made of the distances from the values to those of their ends that make the sum smaller, as
    a standard error is made of standard errors. A value outside of its bounds is moved to them,
    one that is missing to their middle.

    `bounds` has two rows, lower and upper ends. Without `correlation` the estimates are
    independent, as those of different groups are.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.evaluation.contrasts import contrast_bounds
    >>> ends = np.array([[0.5, 0.4], [0.8, 0.6]])
    >>> low, high = contrast_bounds(np.array([0.7, 0.5]), ends, np.array([1.0, -1.0]))
    >>> round(low, 3), round(high, 3)  # 0.2 - sqrt(0.2^2 + 0.1^2), 0.2 + sqrt(0.1^2 + 0.1^2)
    (-0.024, 0.341)
    """
    low, high = bounds
    inside = np.where(np.isfinite(values), np.clip(values, low, high), (low + high) / 2.0)
    down, up = inside - low, high - inside
    to_low = signs * np.where(signs > 0.0, down, up)
    to_high = signs * np.where(signs > 0.0, up, down)
    matrix = np.eye(len(values)) if correlation is None else correlation
    below, above = (sqrt(max(float(each @ matrix @ each), 0.0)) for each in (to_low, to_high))
    middle = float(signs @ inside)
    return middle - below, middle + above


def largest_bounds(values: Floats, bounds: Floats, together: Floats) -> tuple[float, float]:
    """Return an interval for the largest absolute difference between two of several rates.

    It is at least as large as any difference certainly is, where `together` are bounds that hold
    for all pairs at once (at the confidence of `sup_t_quantile`). It is at most as large as any
    difference may be: only the bounds of the truly largest one need to hold, so `bounds` of each
    rate alone will do.
    """
    low = high = 0.0
    difference = np.array([1.0, -1.0])
    for pair in map(list, combinations(range(len(values)), 2)):
        sure = contrast_bounds(values[pair], together[:, pair], difference)
        wide = contrast_bounds(values[pair], bounds[:, pair], difference)
        low = max(low, sure[0], -sure[1])
        high = max(high, -wide[0], wide[1])
    return low, high
