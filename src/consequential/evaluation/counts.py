"""Counts of weighted people: their sums over rows, and how two of them divide a whole.

A count `s = sum w a` of people with weights w, each with a share a of the count, has the variance
`v = sum w^2 a^2`. Where few people are in it, those with large weights are often missing, and then
both sums are too small. So a count is taken to have the mean `m = s + k / 2` and the variance
`u = v + k^2`, where k is what the next person is expected to add, and `n = m^2 / u` equally
weighted people are said to carry it. Given the log, it is like a gamma variable of shape n and
mean m, so that the share `A / (A + B)` of one of two counts follows from a beta variable.

References
----------
Fay and Feuer (1997), Confidence intervals for directly standardized rates: a method based on the
gamma distribution, Statistics in Medicine 16. Tiwari, Clegg and Zou (2006), Efficient interval
estimation for age-adjusted cancer rates, Statistical Methods in Medical Research 15.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_MANY = 1e4  # people in effect whose count is as good as normal


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over people by group: weights and squared weights, times powers of propensities."""

    sums: Floats  # (5, groups): weights times 1 and pi, squared weights times 1, pi and pi^2

    @classmethod
    def of(
        cls, weights: Floats, squares: Floats, propensity: Floats, group: Codes, n_groups: int
    ) -> Moments:
        """Add up the rows of each group."""
        once, twice = weights * propensity, squares * propensity
        columns = (weights, once, squares, twice, twice * propensity)
        return cls(np.stack([np.bincount(group, each, n_groups) for each in columns]))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.sums + other.sums)

    def above(self, low: float) -> tuple[Floats, Floats]:
        """Return the sums of weights times `pi - low`, and of the squares of that."""
        one, pi, square, times_pi, times_square = self.sums
        return pi - low * one, times_square - 2.0 * low * times_pi + low**2 * square

    def below(self, high: float) -> tuple[Floats, Floats]:
        """Return the sums of weights times `high - pi`, and of the squares of that."""
        total, squares = self.above(high)
        return -total, squares

    def overlap(self, low: float, high: float) -> Floats:
        """Return the sum of squared weights times `(pi - low) (high - pi)`."""
        _, _, square, times_pi, times_square = self.sums
        shared: Floats = (low + high) * times_pi - times_square - low * high * square
        return shared


@dataclass(frozen=True, slots=True)
class Count:
    """A weighted count of people in each group, and what the next of them would add.

    `people` is what the count would be if everybody had the label in question.
    """

    total: Floats
    squares: Floats
    weight: Floats
    people: Floats

    @property
    def mean(self) -> Floats:
        """The count with half a person more."""
        return self.total + 0.5 * self.weight

    @property
    def effective(self) -> Floats:
        """How many equally weighted people carry the count; 0 where nobody could."""
        variance = self.squares + self.weight**2
        return np.divide(self.mean**2, variance, out=np.zeros_like(variance), where=variance > 0.0)

    def at_most(self, span: float) -> Count:
        """Return the count if everybody had the label; one person adds no more than `span`."""
        return Count(self.people, span * self.people, np.full_like(self.people, span), self.people)


def log_odds_variance(
    counted: Count, others: Count, shared: Floats | float
) -> tuple[Floats, Floats]:
    """Return the variance of `log(A / B)`, and by how much less that is than without overlap."""
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = 1.0 / counted.effective + 1.0 / others.effective
        variance = apart - 2.0 * shared / (counted.mean * others.mean)
        # rounding may leave nothing where the rule hardly differs between people
        variance = np.maximum(variance, 1e-12 * apart)
        return variance, apart / variance


def share_quantile(counted: Count, others: Count, shared: Floats | float, level: float) -> Floats:
    """Return a quantile of `A / (A + B)` for gamma variables; NaN where both are nothing."""
    variance, gain = log_odds_variance(counted, others, shared)
    a, b = gain * counted.effective, gain * others.effective
    # the inverse of the beta distribution is exact to 1e6 and more
    a_few, b_few = np.minimum(a, 1e6), np.minimum(b, 1e6)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        beta = betaincinv(a_few, b_few, level) / a_few
        beta = beta * b_few / betaincinv(b_few, a_few, 1.0 - level)
        normal = np.exp(ndtri(level) * np.sqrt(variance))
        odds = np.where(np.minimum(a, b) > _MANY, normal, beta) * counted.mean / others.mean
        quantile: Floats = odds / (1.0 + odds)
    return quantile
