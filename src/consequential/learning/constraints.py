"""Constraints on groups' benefits and on acceptance: linear inequalities the solver satisfies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log.attributes import in_order
from consequential.objective.functionals import Sums

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GapBound:
    """`b_z - b_z' <= max_gap` for every ordered pair of groups, and some of the benefits.

    `rows` are the positions of these benefits, and `whom` the people they count; None for all of
    them. `merged` has for each group of the log the name of the group that it is part of, where
    coarser groups are compared than those of the log. `shares` says how much of these each of the
    log's groups is, (benefits, groups, groups of the log): see `weighed`.
    """

    max_gap: float
    rows: tuple[int, ...] | None = None
    whom: tuple[str, ...] | None = None
    merged: tuple[Hashable, ...] | None = None
    shares: Floats | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.max_gap <= 1.0:
            raise ValueError(f"max_gap lies between 0 and 1, not {self.max_gap!r}")

    @property
    def at(self) -> list[int] | slice:
        """The benefits, as an index."""
        return slice(None) if self.rows is None else list(self.rows)

    def names(self, groups: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        """Return the groups that are compared, in a log with these groups."""
        return groups if self.merged is None else in_order(self.merged)

    def united(self, by_group: Floats) -> Floats:
        """Add up what the log's groups have, along the first axis, to that of merged groups."""
        return by_group if self.merged is None else self._union @ by_group

    def weighed(self, totals: Floats) -> GapBound:
        """Return the bound with the shares of a log, from what its benefits are means over.

        That is the number of people, or of those with label 1, say: (benefits, groups of the log).
        """
        if self.merged is None:
            return self
        parts = self._union * totals[self.at][:, None, :]
        whole = parts.sum(axis=2, keepdims=True)
        shares = np.divide(parts, whole, out=np.zeros_like(parts), where=whole > 0.0)
        return replace(self, shares=shares)

    def benefits(self, sums: Sums) -> Floats:
        """Return the benefits that are compared, by group; NaN where nobody is there."""
        benefits = sums.benefits[self.at]
        if self.shares is None:
            return benefits
        known = np.where(np.isfinite(benefits), benefits, 0.0)
        means = (self.shares @ known[:, :, None])[:, :, 0]
        return np.where(self.shares.any(axis=2), means, np.nan)

    @property
    def _union(self) -> Floats:
        """1 where a group of the log (column) is part of a merged group (row)."""
        merged = self.merged or ()
        return np.array([[part == name for part in merged] for name in self.names(())], np.float64)


@dataclass(frozen=True)
class Constraint:
    """`b_z - ratio b_z' <= slack` for benefits and ordered pairs of groups, and acceptance rates.

    `max_gap` is ratio 1 with the gap as slack, for every benefit and every pair; `bounds` are
    several such bounds. `min_ratio`, the four-fifths screen, is `min_ratio b_z' - b_z <= 0`: here
    in the same form, with nothing to spare. `most` and `least` are the largest and the smallest
    acceptance rates allowed, of each group and then of all applicants, infinite where there is no
    bound; see `acceptance_bounds`.
    """

    max_gap: float | None = None
    min_ratio: float | None = None
    most: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    bounds: tuple[GapBound, ...] = ()

    def __post_init__(self) -> None:
        if self.min_ratio is not None and not 0.0 < self.min_ratio <= 1.0:
            raise ValueError(f"min_ratio lies in (0, 1], not {self.min_ratio!r}")
        if (self.max_gap is not None) + (self.min_ratio is not None) + bool(self.bounds) > 1:
            raise ValueError("give max_gap or min_ratio, not both: each says what is fair enough")
        if self.max_gap is not None:
            GapBound(self.max_gap)  # checks it

    @property
    def binds(self) -> bool:
        """Whether there is anything to satisfy."""
        return self.compares or self.counts

    @property
    def compares(self) -> bool:
        """Whether groups' benefits are compared."""
        return bool(self.gaps)

    @property
    def counts(self) -> bool:
        """Whether acceptance rates are bounded."""
        return bool(self.most or self.least)

    @cached_property
    def gaps(self) -> tuple[GapBound, ...]:
        """What is compared: all bounds, or the one that `max_gap` or `min_ratio` stands for."""
        if self.max_gap is None and self.min_ratio is None:
            return self.bounds
        return (GapBound(self.max_gap or 0.0),)

    def excess(self, sums: Sums) -> Floats:
        """By how much each inequality is broken, at most 0 if kept, as one vector.

        First come the pairs of groups of each bound, benefits x groups x groups, then acceptance
        rates. Pairs with a group whose benefit is undefined bind nobody.
        """
        broken = [np.zeros(0)]
        for bound in self.gaps:
            benefits = bound.benefits(sums)
            pairs = self._up * benefits[:, :, None] - benefits[:, None, :] - bound.max_gap
            np.einsum("kzz->kz", pairs)[:] = -np.inf  # a view of each group with itself
            broken.append(pairs.ravel())
        for sign, rates in self._rates:
            assert sums.acceptance is not None  # it is counted where there is a bound
            broken.append(sign * (sums.acceptance - rates))
        found = np.concatenate(broken)
        return np.where(np.isfinite(found), found, -1.0)

    def pulled_back(self, pressure: Floats, sums: Sums) -> tuple[Floats, Floats]:
        """Return the derivative of `pressure @ excess` in the benefits and in acceptance rates."""
        n_benefits, n_groups = sums.numerators.shape
        by_benefit, by_rate = np.zeros((n_benefits, n_groups)), np.zeros(n_groups + 1)
        for bound in self.gaps:
            k = n_benefits if bound.rows is None else len(bound.rows)
            z = n_groups if bound.shares is None else bound.shares.shape[1]
            pairs, pressure = pressure[: k * z * z].reshape(k, z, z), pressure[k * z * z :]
            slopes = self._up * pairs.sum(axis=2) - pairs.sum(axis=1)
            if bound.shares is not None:
                slopes = (slopes[:, None, :] @ bound.shares)[:, 0]
            by_benefit[bound.at] += slopes
        for sign, rates in self._rates:
            by_rate, pressure = by_rate + sign * pressure[: len(rates)], pressure[len(rates) :]
        return by_benefit, by_rate

    def weighed(self, totals: Floats) -> Constraint:
        """Return the constraint on one log: see `GapBound.weighed`."""
        return replace(self, bounds=tuple(bound.weighed(totals) for bound in self.bounds))

    @property
    def _up(self) -> float:
        return 1.0 if self.min_ratio is None else self.min_ratio

    @cached_property
    def _rates(self) -> list[tuple[float, Floats]]:
        """The bounds on acceptance there are, with the sign of an excess."""
        bounds = ((1.0, self.most), (-1.0, self.least))
        return [(sign, np.array(rates)) for sign, rates in bounds if rates]

    def violation(self, sums: Sums) -> float:
        """Return the largest excess, at least 0."""
        return max(0.0, float(self.excess(sums).max(initial=0.0)))

    def relaxed(self, by: float) -> Constraint:
        """Return a looser constraint, to come from: continuation in the bounds."""
        looser = replace(
            self,
            most=tuple(rate + by for rate in self.most),
            least=tuple(rate - by for rate in self.least),
            bounds=tuple(
                replace(each, max_gap=min(each.max_gap + by, 1.0)) for each in self.bounds
            ),
        )
        if self.min_ratio is not None:
            return replace(looser, min_ratio=max(self.min_ratio - by, 1e-3))
        if self.max_gap is not None:
            return replace(looser, max_gap=min(self.max_gap + by, 1.0))
        return looser


def acceptance_bounds(
    shares: float | Mapping[Hashable, float] | None,
    groups: Sequence[Hashable],
    *,
    option: Literal["max_acceptance", "min_acceptance"] = "max_acceptance",
) -> tuple[float, ...]:
    """Return the bound on the acceptance rate of each group and of all applicants; () without one.

    `shares` is what the option was given: one rate for all applicants, or rates by group, some of
    the groups or all.
    """
    if shares is None:
        return ()
    unbounded = np.inf if option == "max_acceptance" else -np.inf
    bounds = dict.fromkeys(range(len(groups) + 1), unbounded)
    if isinstance(shares, Mapping):
        codes = {group: code for code, group in enumerate(groups)}
        for group, rate in shares.items():
            if group not in codes:
                known = ", ".join(map(repr, groups))
                raise ValueError(f"{option} has a group {group!r}; the log has {known}")
            bounds[codes[group]] = rate
    else:
        bounds[len(groups)] = shares
    for rate in bounds.values():
        if rate != unbounded and not 0.0 < rate <= 1.0:
            raise ValueError(f"{option} is a share of people in (0, 1], not {rate!r}")
    return tuple(float(rate) for rate in bounds.values())
