"""Contrasts: differences between several estimates, and bounds that hold for all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np
from scipy.sparse import csr_array

from consequential.evaluation.estimate import Interval
from consequential.evaluation.rates import Floats
from consequential.evaluation.ratios import RatioSums
from consequential.shares import checked_share

_DRAWS = 20_000
_AT_ONCE = 100  # contrasts for which draws are held in memory
MOST_GROUPS = 100  # that are compared with one another: the pairs grow with the square


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


def sup_t_quantile(
    covariance: Floats,
    confidence: float = 0.95,
    *,
    contrasts: Floats | None = None,
    seed: int = 0,
) -> float:
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
    contrasts
        For estimates that are `contrasts @ values`, such as the differences between groups: the
        covariance is then that of the values, which are fewer.
    seed
        Of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.evaluation.statistics import sup_t_quantile
    >>> round(sup_t_quantile(np.eye(1)), 2), round(sup_t_quantile(np.eye(10)), 1)
    (1.96, 2.8)
    """
    checked_share("the confidence", confidence)
    matrix = np.atleast_2d(np.asarray(covariance, dtype=np.float64))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a covariance is a square matrix, not of shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("a covariance must be finite: leave out estimates without an error")
    deviation = np.sqrt(np.diag(matrix))
    varies = deviation > 0.0
    matrix, deviation = matrix[np.ix_(varies, varies)], deviation[varies]
    values, vectors = np.linalg.eigh(matrix / np.outer(deviation, deviation))
    # the symmetric root: unlike the vectors it does not depend on rounding where values are equal
    root = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    estimated = np.eye(len(varies)) if contrasts is None else np.asarray(contrasts)
    estimated = estimated[:, varies] * deviation
    errors = np.linalg.norm(estimated @ root, axis=1)
    estimated, errors = estimated[errors > 0.0], errors[errors > 0.0]
    if len(errors) <= 1:
        return normal_quantile(confidence)
    draws = root @ np.random.default_rng(seed).standard_normal((_DRAWS, len(matrix))).T
    largest = np.zeros(_DRAWS)
    # a difference has two coefficients that are not 0, of as many as there are groups
    scaled = csr_array(estimated / errors[:, None])
    for start in range(0, len(errors), _AT_ONCE):
        sizes = np.abs(scaled[start : start + _AT_ONCE] @ draws)
        largest = np.maximum(largest, sizes.max(axis=0))
    simulated = float(np.quantile(largest, confidence))
    return max(simulated, normal_quantile(confidence))


class Pairs:
    """Differences between groups, within each of one or several benefits.

    `contrasts` has one row per pair and one column per group that has a value, of each benefit:
    1 and -1 at the two groups.
    """

    def __init__(self, benefits: Sequence[RatioSums]) -> None:
        self.benefits = benefits
        places = [
            [k * each.n_groups + code for code in each.known] for k, each in enumerate(benefits)
        ]
        self._columns = np.concatenate(places).astype(np.intp)
        pairs = [pair for known in places for pair in combinations(known, 2)]
        self.contrasts = np.array(
            [1.0 * (self._columns == one) - (self._columns == other) for one, other in pairs]
        )

    def __len__(self) -> int:
        return len(self.contrasts)

    def columns(self, by_benefit: Iterable[Floats]) -> Floats:
        """Return the columns that have a value from arrays over groups, one array per benefit."""
        return np.concatenate(list(by_benefit), axis=-1)[..., self._columns]

    def covariance(self) -> Floats:
        """Of the columns; infinite on the diagonal where a group rests on a single row."""
        inflation = np.stack([each.inflation for each in self.benefits])
        factor = np.sqrt(inflation[:, None] * inflation)
        products = np.array(
            [[one.products(other) for other in self.benefits] for one in self.benefits]
        )
        entries = (
            products
            / max(len(self.benefits[0]), 1) ** 2
            * np.where(np.isfinite(factor), factor, 0.0)
        )
        # groups share no rows
        spread = np.einsum("bcg,gh->bgch", entries, np.eye(inflation.shape[1]))
        spread = spread.reshape(inflation.size, -1)
        covariance: Floats = spread[np.ix_(self._columns, self._columns)]
        single = ~np.isfinite(self.columns(inflation))
        covariance[single, single] = np.inf
        return covariance


def widest(differences: Floats, errors: Floats, q: float) -> Interval:
    """Return the largest absolute difference if all lie within q of their errors.

    The plug-in maximum is too large where groups are equal, so the interval is
    `[max(|D| - q s)+, max(|D| + q s)]`.
    """
    size = np.abs(differences)
    low, high = float((size - q * errors).max()), float((size + q * errors).max())
    place = int(size.argmax())
    return Interval(float(size[place]), max(low, 0.0), high, float(errors[place]))
