"""Quantiles of the normal distribution, plain and corrected for skewness."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np


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

    Examples
    --------
    >>> from consequential.evaluation.quantiles import skewness_corrected
    >>> below, above = skewness_corrected(2.0, 100, 0.95)
    >>> bool(above > 1.96 > below)
    True
    """
    z = normal_quantile(confidence)
    a = skewness / (3.0 * n**0.5)
    if abs(a) < 1e-12:
        return z, z

    def inverse(quantile: float) -> float:
        return float((np.cbrt(1.0 + 3.0 * a * (quantile - a / 2.0)) - 1.0) / a)

    return inverse(z), -inverse(-z)
