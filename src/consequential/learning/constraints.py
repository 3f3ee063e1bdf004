"""Constraints on groups' benefits and on acceptance: linear inequalities the solver satisfies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consequential.functionals import Sums

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Constraint:
    """`b_z - ratio b_z' <= slack` for every benefit and every ordered pair of groups, and capacity.

    `max_gap` is ratio 1 with the gap as slack; `min_ratio`, the four-fifths screen, is
    `min_ratio b_z' - b_z <= 0`: here in the same form, with nothing to spare. `most` are the
    largest acceptance rates allowed, of each group and then of all applicants, infinite where there
    is no bound; see `acceptance_bounds`.
    """

    max_gap: float | None = None
    min_ratio: float | None = None
    most: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.max_gap is not None and not 0.0 <= self.max_gap <= 1.0:
            raise ValueError(f"max_gap lies between 0 and 1, not {self.max_gap!r}")
        if self.min_ratio is not None and not 0.0 < self.min_ratio <= 1.0:
            raise ValueError(f"min_ratio lies in (0, 1], not {self.min_ratio!r}")
        if self.max_gap is not None and self.min_ratio is not None:
            raise ValueError("give max_gap or min_ratio, not both: each says what is fair enough")

    @property
    def binds(self) -> bool:
        """Whether there is anything to satisfy."""
        return self.compares or bool(self.most)

    @property
    def compares(self) -> bool:
        """Whether groups' benefits are compared."""
        return self.max_gap is not None or self.min_ratio is not None

    def excess(self, sums: Sums) -> Floats:
        """By how much each inequality is broken, at most 0 if kept, as one vector.

        First come the pairs of groups, benefits x groups x groups, then acceptance rates. Pairs
        with a group whose benefit is undefined bind nobody.
        """
        broken = [np.zeros(0)]
        if self.compares:
            benefits = sums.benefits
            up = 1.0 if self.min_ratio is None else self.min_ratio
            pairs = up * benefits[:, :, None] - benefits[:, None, :] - (self.max_gap or 0.0)
            pairs[:, np.eye(benefits.shape[1], dtype=bool)] = -np.inf
            broken.append(pairs.ravel())
        if self.most:
            assert sums.acceptance is not None  # it is counted where there is a bound
            broken.append(sums.acceptance - np.array(self.most))
        found = np.concatenate(broken)
        return np.where(np.isfinite(found), found, -1.0)

    def pulled_back(self, pressure: Floats, sums: Sums) -> tuple[Floats, Floats]:
        """Return the derivative of `pressure @ excess` in the benefits and in acceptance rates."""
        n_benefits, n_groups = sums.numerators.shape
        by_benefit, by_rate = np.zeros((n_benefits, n_groups)), np.zeros(n_groups + 1)
        if self.compares:
            n_pairs = n_benefits * n_groups * n_groups
            pairs = pressure[:n_pairs].reshape(n_benefits, n_groups, n_groups)
            up = 1.0 if self.min_ratio is None else self.min_ratio
            by_benefit = up * pairs.sum(axis=2) - pairs.sum(axis=1)
        if self.most:
            by_rate = pressure[-len(self.most) :]
        return by_benefit, by_rate

    def violation(self, sums: Sums) -> float:
        """Return the largest excess, at least 0."""
        return max(0.0, float(self.excess(sums).max(initial=0.0)))

    def relaxed(self, by: float) -> Constraint:
        """Return a looser constraint, to come from: continuation in the bounds."""
        looser = replace(self, most=tuple(rate + by for rate in self.most))
        if self.min_ratio is not None:
            return replace(looser, min_ratio=max(self.min_ratio - by, 1e-3))
        if self.max_gap is not None:
            return replace(looser, max_gap=min(self.max_gap + by, 1.0))
        return looser


def acceptance_bounds(
    max_acceptance: float | Mapping[Hashable, float] | None, groups: Sequence[Hashable]
) -> tuple[float, ...]:
    """Return the largest acceptance rate of each group and of all applicants; () without a bound.

    `max_acceptance` is one rate for all applicants, or rates by group, some of the groups or all.
    """
    if max_acceptance is None:
        return ()
    most = dict.fromkeys(range(len(groups) + 1), np.inf)
    if isinstance(max_acceptance, Mapping):
        codes = {group: code for code, group in enumerate(groups)}
        for group, rate in max_acceptance.items():
            if group not in codes:
                known = ", ".join(map(repr, groups))
                raise ValueError(f"max_acceptance has a group {group!r}; the log has {known}")
            most[codes[group]] = rate
    else:
        most[len(groups)] = max_acceptance
    for rate in most.values():
        if rate != np.inf and not 0.0 < rate <= 1.0:
            raise ValueError(f"max_acceptance is a share of people in (0, 1], not {rate!r}")
    return tuple(float(rate) for rate in most.values())
