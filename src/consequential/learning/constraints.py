"""Constraints on the groups' benefits: linear inequalities that the solver satisfies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Constraint:
    """`b_z - ratio b_z' <= slack` for every benefit and every ordered pair of groups.

    `max_gap` is ratio 1 with the gap as slack; `min_ratio`, the four-fifths screen, is
    `min_ratio b_z' - b_z <= 0`: here in the same form, with nothing to spare.
    """

    max_gap: float | None = None
    min_ratio: float | None = None

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
        return self.max_gap is not None or self.min_ratio is not None

    def excess(self, benefits: Floats) -> Floats:
        """By how much each inequality is broken: benefits x groups x groups, at most 0 if kept.

        Pairs with a group whose benefit is undefined bind nobody.
        """
        if self.min_ratio is not None:
            broken = self.min_ratio * benefits[:, :, None] - benefits[:, None, :]
        else:
            broken = benefits[:, :, None] - benefits[:, None, :] - (self.max_gap or 0.0)
        broken[:, np.eye(benefits.shape[1], dtype=bool)] = -np.inf
        return np.where(np.isfinite(broken), broken, -1.0)

    def pulled_back(self, pressure: Floats) -> Floats:
        """Return the derivative of `sum pressure * excess` in the benefits."""
        up = 1.0 if self.min_ratio is None else self.min_ratio
        pulled: Floats = up * pressure.sum(axis=2) - pressure.sum(axis=1)
        return pulled

    def violation(self, benefits: Floats) -> float:
        """Return the largest excess, at least 0."""
        if not self.binds:
            return 0.0
        return max(0.0, float(self.excess(benefits).max(initial=0.0)))

    def relaxed(self, by: float) -> Constraint:
        """Return a looser constraint, to come from: continuation in the gap."""
        if self.min_ratio is not None:
            return Constraint(min_ratio=max(self.min_ratio - by, 1e-3))
        return Constraint(max_gap=min((self.max_gap or 0.0) + by, 1.0))
