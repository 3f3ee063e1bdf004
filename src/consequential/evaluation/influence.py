"""Influence: how much each row moves an estimate, and so how uncertain the estimate is.

Utility, acceptance and every benefit are ratios of two means over the rows of a log,
`b = sum num / sum den`. Row i moves such a ratio by `psi_i / N` with

    psi_i = N (num_i - b den_i) / sum den,

and the estimate's variance is that of the mean of the psi. Groups share no rows, so different
groups' estimates of one benefit are uncorrelated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.reach import Extremes, Reach
from consequential.log import DecisionLog
from consequential.objective import (
    NOBODY,
    Benefit,
    Objective,
    Tally,
    Whole,
    effective_sample_size,
)

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

# how far a sum is moved to see what follows it; the error is of the order of its square
_NUDGE = 1e-4


class RatioSums(ABC):
    """One ratio of means for each group, and how the rows' influence on them varies together."""

    n_groups: int
    labelled: bool

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
        endless = np.full(self.n_groups, np.inf)
        m = self.counted
        factor: Floats = np.divide(m, m - 1.0, out=endless, where=m > 1.0)
        return factor

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

    Attributes
    ----------
    numerator, denominator
        What each row adds to the two sums of its group.
    group, n_groups
        Which group that is.
    moved
        What each row adds to the influence by way of weights that were scaled to average one.
    reach, scale
        How far a row can go, and what was then multiplied into it; None where nobody asked.
    labelled
        Whether labels matter.
    """

    numerator: Floats
    denominator: Floats
    group: Codes
    n_groups: int
    moved: Floats | None = None
    reach: Reach | None = None
    scale: Floats | None = None
    labelled: bool = True

    def __len__(self) -> int:
        return len(self.numerator)

    @cached_property
    def totals(self) -> Floats:
        """The denominators' sums."""
        return self.by_group(self.denominator)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """For which groups there is anybody to divide by."""
        return np.abs(self.totals) > NOBODY

    @cached_property
    def values(self) -> Floats:
        """The ratios; NaN where there is nobody to divide by."""
        undefined = np.full(self.n_groups, np.nan)
        sums = self.by_group(self.numerator)
        values: Floats = np.divide(sums, self.totals, out=undefined, where=self.usable)
        return values

    @cached_property
    def influence(self) -> Floats:
        """`psi`: what each row adds to its group's ratio, times the number of rows."""
        value = np.where(self.usable, self.values, 0.0)
        per_unit = np.zeros(self.n_groups)
        np.divide(len(self), self.totals, out=per_unit, where=self.usable)
        psi: Floats = self.numerator - value[self.group] * self.denominator
        psi *= per_unit[self.group]
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
        """Sum of one value a row, group by group."""
        if self.n_groups == 1:
            return np.array([column.sum()])
        return np.bincount(self.group, column, self.n_groups).astype(np.float64)

    def of_group(self, code: int) -> Ratios:
        """Return the rows of one group alone, in their order."""
        rows = self.group == code
        return Ratios(
            self.numerator[rows],
            self.denominator[rows],
            np.zeros(int(rows.sum()), dtype=np.intp),
            1,
            None if self.moved is None else self.moved[rows],
            self.reach,
            None if self.scale is None else self.scale[code : code + 1],
        )


@dataclass(frozen=True)
class Yardstick:
    """What the rows of a settled log stand for, ready to measure any rule on them."""

    objective: Objective
    log: DecisionLog
    overall: Tally
    within: Tally
    extremes: Extremes | None = None

    @classmethod
    def of(
        cls,
        objective: Objective,
        log: DecisionLog,
        extremes: Extremes | None = None,
        whole: Whole | None = None,
    ) -> Yardstick:
        """Weigh the rows of a settled log once; `extremes` where intervals need their reach.

        With `whole` the log is a piece of a larger one, whose totals these are.
        """
        overall, within = objective.weighting.tallies(log)
        if whole is not None:
            within = replace(within, sizes=whole.sums[0], whole=whole.sums)
        return cls(objective, log, overall, within, extremes)

    def utility(self, propensity: Floats, less: Floats | None = None) -> Ratios:
        """Return the utility of these propensities, as a mean over all rows.

        `less` that of others, where they are given: rows are then compared one by one.
        """
        gained = self._gained(propensity, less, self.overall)
        moved = reach = None
        if self.overall.normalised is not None:
            doubled = self._gained(propensity, less, _scaled(self.overall, 2.0))
            moved = -(doubled.mean() - gained.mean()) * (self.overall.normalised - 1.0)
        if self.extremes is not None:
            reach = self._reach(self.extremes, propensity, less)
        return self._mean(gained, moved, reach)

    def acceptance(self, propensity: Floats, less: Floats | None = None) -> Ratios:
        """Return the share of people accepted, `less` that of other propensities."""
        reach = None
        if self.extremes is not None:
            reach = self.extremes.acceptance(paired=less is not None)
        return self._mean(propensity if less is None else propensity - less, None, reach)

    def benefits(self, propensity: Floats) -> tuple[Ratios, ...]:
        """Return each benefit of the fairness notion, by group."""
        notion = self.objective.fairness
        if notion is None:
            return ()
        return tuple(
            self._ratios(benefit, propensity, k)
            for k, benefit in enumerate(notion.benefits(self.within))
        )

    def weighted(self, propensity: Floats) -> Floats:
        """Return how much each row counts where labels matter: weight times propensity."""
        return self.weights * propensity

    @cached_property
    def weights(self) -> Floats:
        """The weight of each row's label."""
        return self.objective.weighting.weights(self.log)

    def effective_sizes(self, propensity: Floats) -> tuple[float, Floats]:
        """Return the effective sample size of all accepted people, and of each group's."""
        counted = self.weighted(propensity)
        group, n_groups = self.log.group, len(self.log.groups)
        sums = np.bincount(group, counted, n_groups)
        squares = np.bincount(group, counted**2, n_groups)
        by_group = np.divide(sums**2, squares, out=np.zeros(n_groups), where=squares > 0)
        return effective_sample_size(counted), by_group

    def _gained(self, propensity: Floats, less: Floats | None, tally: Tally) -> Floats:
        accepting, rejecting = self.objective.worth(self.log, tally)
        if less is not None:
            return (propensity - less) * (accepting - rejecting)
        return propensity * (accepting - rejecting) + rejecting

    def _reach(self, extremes: Extremes, propensity: Floats, less: Floats | None) -> Reach:
        if less is None:
            return extremes.utility(self.objective, self.log)
        rules = zip((1.0, -1.0), (propensity, less), strict=True)
        logged = [sign for sign, rule in rules if np.array_equal(rule, self.log.propensity)]
        return extremes.difference(self.objective, self.log, np.array(logged))

    def _mean(
        self, values: Floats, moved: Floats | None = None, reach: Reach | None = None
    ) -> Ratios:
        n = len(values)
        return Ratios(values, np.ones(n), np.zeros(n, dtype=np.intp), 1, moved, reach)

    def _ratios(self, benefit: Benefit, propensity: Floats, k: int) -> Ratios:
        ratios = benefit_ratios(benefit, propensity, self.log.group)
        if self.extremes is not None:
            reach = self.extremes.benefit(benefit.shape)
            return replace(ratios, reach=reach, scale=benefit.scale)
        if self.within.normalised is None:
            return ratios
        notion = self.objective.fairness
        assert notion is not None
        more, fewer = (
            benefit_ratios(
                notion.benefits(_scaled(self.within, 1.0 + nudge))[k], propensity, self.log.group
            ).values
            for nudge in (_NUDGE, -_NUDGE)
        )
        slope = np.nan_to_num((more - fewer) / (2.0 * _NUDGE))
        share = np.maximum(self.log.group_counts, 1) / len(self.log)
        moved = -(slope / share)[self.log.group] * (self.within.normalised - 1.0)
        return replace(ratios, moved=moved)


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


def _scaled(tally: Tally, factor: float) -> Tally:
    return replace(tally, positives=factor * tally.positives, negatives=factor * tally.negatives)
