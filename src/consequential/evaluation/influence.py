"""Influence: how much each row moves an estimate, and so how uncertain the estimate is.

Utility, acceptance and every benefit are ratios of two means over the rows of a log,
`b = sum num / sum den`. Row i moves such a ratio by `psi_i / N` with

    psi_i = N (num_i - b den_i) / sum den,

and the estimate's variance is that of the mean of the psi. Groups share no rows, so different
groups' estimates of one benefit are uncorrelated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.rates import Rates, ratio
from consequential.evaluation.reach import Reach
from consequential.functionals import Benefit

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]


class RatioSums(ABC):
    """One ratio of means for each group, and how the rows' influence on them varies together."""

    n_groups: int
    labelled: bool
    rates: Rates | None
    exact: ClassVar[bool] = True
    plain: ClassVar[None] = None  # see `Range`, which has the same properties

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
    def low(self) -> RatioSums:
        """The ratios themselves: no unknown label can change them."""
        return self

    @property
    def high(self) -> RatioSums:
        """The ratios themselves."""
        return self

    @property
    def sides(self) -> tuple[RatioSums, ...]:
        """The ratios themselves."""
        return (self,)

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
    scale: Floats | None = None  # what was then multiplied into the rows of each group
    labelled: bool = True  # whether labels matter
    rates: Rates | None = None

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


def benefit_ratios(benefit: Benefit, propensity: Floats, group: Codes) -> Ratios:
    """Return a benefit at these propensities as ratios of sums, row by row."""
    if benefit.constants is None or benefit.counted is None:
        raise ValueError(
            "this notion makes its Benefit by hand, so it is not known what each row adds to the "
            "totals: build it with tally.mean, tally.share or tally.benefit, and it has intervals"
        )
    denominator = benefit.counted
    if benefit.denominator is not None:
        denominator = benefit.denominator * propensity
    return Ratios(
        benefit.values * propensity + benefit.constants,
        denominator,
        group,
        len(benefit.defined),
        labelled=benefit.shape is None or benefit.shape.labelled,
    )
