"""Ratios of means: every estimate is one, with the influence that each row has on it.

Utility, acceptance and every benefit are ratios of two means over the rows of a log,
`b = sum num / sum den`. Row i moves such a ratio by `psi_i / N` with

    psi_i = N (num_i - b den_i) / sum den,

and the estimate's variance is that of the mean of the psi. Groups share no rows, so different
groups' estimates of one benefit are uncorrelated.

Where nobody knows a label or a weight, an estimate has a range. A mean is smallest where each row
is at its smallest. A ratio `sum a / sum b` is smallest at the fixed point `r` where each row has
the smallest `a - r b` (Dinkelbach's iteration), and likewise for largest. The estimates at the two
extremes enclose the estimate with the truth, so an interval from the lower end of the one to the
upper end of the other covers, whatever the truth is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from consequential.evaluation.rates import Codes, Floats, Rates, ratio
from consequential.evaluation.reach import Reach
from consequential.objective.functionals import Benefit, Shape

_MOST_ROUNDS = 100


def is_share(shape: Shape | None) -> bool:
    """Whether a ratio is a share of people, so that it lies between 0 and 1."""
    if shape is None:
        return False
    mixes = shape.constant, shape.values, shape.denominator or shape.counted
    # what somebody of either label adds to a group's sums
    return all(
        min(least, least + change) >= 0.0 and max(least, least + change) <= total
        for least, change, total in ([mix[0] + mix[k] for mix in mixes] for k in (1, 2))
    )


class RatioSums(ABC):
    """One ratio of means for each group, with the covariances of the rows' influence."""

    n_groups: int
    shape: Shape | None  # how a benefit weighs people; None for means and where it is not known
    rates: Rates | None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def values(self) -> Floats:
        """The ratios; NaN where there is nobody to divide by."""

    @property
    @abstractmethod
    def counted(self) -> Floats:
        """How many rows each ratio rests on."""

    @abstractmethod
    def products(self, other: Any) -> Floats:
        """By group, the sum of the products of two ratios' influence values."""

    @property
    @abstractmethod
    def skewness(self) -> float:
        """The skewness of the influence values; 0 where they do not vary."""

    @property
    def known(self) -> list[int]:
        """The groups that have a value."""
        return np.flatnonzero(np.isfinite(self.values)).tolist()

    @property
    def inflation(self) -> Floats:
        """`m / (m - 1)` for the m rows a ratio rests on; infinite for a single one."""
        return ratio(self.counted, np.maximum(self.counted - 1.0, 0.0), np.inf)

    @property
    def standard_errors(self) -> Floats:
        """One for each group; infinite where a ratio rests on a single row."""
        squares = np.maximum(self.products(self), 0.0) / max(len(self), 1) ** 2
        with np.errstate(invalid="ignore"):
            errors: Floats = np.sqrt(squares * self.inflation)
        return np.where(self.counted > 1.0, errors, np.inf)


@dataclass(frozen=True)
class Ratios(RatioSums):
    """One ratio of means for each group, row by row.

    `rates` are the same ratios as shares of weighted people, where they are such shares: their
    intervals cover although few people carry them.
    """

    numerator: Floats  # what each row adds to the two sums of its group
    denominator: Floats
    group: Codes
    n_groups: int
    moved: Floats | None = None  # influence by way of weights that were scaled to average one
    reach: Reach | None = None  # how far a row can go, for bounded intervals
    shape: Shape | None = None
    rates: Rates | None = None

    @classmethod
    def mean(cls, values: Floats, **known: Any) -> Ratios:
        """Return the mean over all rows."""
        n = len(values)
        return cls(values, np.ones(n), np.zeros(n, dtype=np.intp), 1, **known)

    @classmethod
    def of_benefit(cls, benefit: Benefit, propensity: Floats, group: Codes) -> Ratios:
        """Return a benefit at these propensities, with sums that were not divided by anything."""
        if benefit.constants is None or benefit.counted is None:
            raise ValueError(
                "this notion makes its Benefit by hand, so it is not known what each row adds to "
                "the totals: build it with tally.mean, tally.share or tally.benefit, and it has "
                "intervals"
            )
        undo: Any = 1.0 if benefit.scale is None else ratio(1.0, benefit.scale)[group]
        counted = benefit.counted
        if benefit.denominator is not None:
            counted = benefit.denominator * propensity
        return cls(
            (benefit.values * propensity + benefit.constants) * undo,
            counted * undo,
            group,
            len(benefit.defined),
            shape=benefit.shape,
        )

    def __len__(self) -> int:
        return len(self.numerator)

    @cached_property
    def totals(self) -> Floats:
        """The sums of the denominators."""
        return self.by_group(self.denominator)

    @cached_property
    def values(self) -> Floats:
        """The ratios; NaN where there is nobody to divide by."""
        return ratio(self.by_group(self.numerator), self.totals, np.nan)

    @cached_property
    def influence(self) -> Floats:
        """`psi`: what each row adds to its group's ratio, times the number of rows."""
        psi: Floats = self.numerator - np.nan_to_num(self.values)[self.group] * self.denominator
        psi *= ratio(len(self), self.totals)[self.group]
        return psi if self.moved is None else psi + self.moved

    @cached_property
    def counted(self) -> Floats:
        """How many rows each ratio rests on."""
        return self.by_group((self.denominator != 0.0).astype(np.float64))

    def products(self, other: Ratios) -> Floats:
        """By group, the sum of the products of two ratios' influence values."""
        return self.by_group(self.influence * other.influence)

    @property
    def skewness(self) -> float:
        """The skewness of the influence values; 0 where they do not vary."""
        centred = self.influence - self.influence.mean()
        second = float((centred**2).mean())
        return float((centred**3).mean()) / second**1.5 if second > 0.0 else 0.0

    def by_group(self, column: Floats) -> Floats:
        """Return the sum of one value per row, group by group."""
        if self.n_groups == 1:
            return np.array([column.sum()])
        return np.bincount(self.group, column, self.n_groups).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Range:
    """Ratios with unknown labels at their lowest and at their highest.

    `plain` is an estimate in its own right: that of clipped weights, or the ratios themselves
    where no unknown label can change them. Where people were never accepted there is no such
    thing, and the middle of the range is shown instead.
    """

    low: RatioSums
    high: RatioSums
    plain: RatioSums | None = None

    @classmethod
    def exactly(cls, ratios: RatioSums) -> Range:
        """Return the range of ratios that no unknown label can change."""
        return cls(ratios, ratios, ratios)

    @property
    def exact(self) -> bool:
        """Whether no unknown label can change the ratios."""
        return self.low is self.high

    @property
    def sides(self) -> tuple[RatioSums, ...]:
        """The lowest and the highest ratios, once where they are the same."""
        return (self.low,) if self.exact else (self.low, self.high)

    @property
    def known(self) -> list[int]:
        """The groups that have a value whatever the unknown labels are."""
        return sorted(set(self.low.known) & set(self.high.known))

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return self.low.n_groups

    @property
    def labelled(self) -> bool:
        """Whether labels matter."""
        return self.low.shape is None or self.low.shape.labelled


def extreme(corners: Sequence[Ratios], *, highest: bool) -> tuple[Ratios, Codes]:
    """Return ratios with each row at the corner that makes its group's ratio most extreme.

    Also returns the corner of each row; the first one where several are equally extreme.
    """
    found, picked = corners[0], None
    for _ in range(_MOST_ROUNDS):
        value = np.nan_to_num(found.values)[found.group]
        left = np.stack([each.numerator - value * each.denominator for each in corners])
        best = left.argmax(axis=0) if highest else left.argmin(axis=0)
        if picked is not None and np.array_equal(best, picked):
            break
        picked = best
        found = replace(
            found,
            numerator=np.choose(best, [each.numerator for each in corners]),
            denominator=np.choose(best, [each.denominator for each in corners]),
        )
    assert picked is not None
    return found, picked
