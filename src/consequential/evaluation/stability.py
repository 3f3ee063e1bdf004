"""Stability: whether policies learned from other parts of a log decide alike."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from consequential.evaluation.estimate import Result
from consequential.evaluation.rules import CrossFitted
from consequential.log import DecisionLog


@dataclass(frozen=True, slots=True)
class Stability(Result):
    """How much the policies of a cross-fitted learner differ on the people of a log.

    Two policies of K folds share a part `(K - 2) / (K - 1)` of their rows, so they are more alike
    than policies of two logs would be.

    Attributes
    ----------
    acceptance
        The share of people that each fold's policy accepts.
    by_group
        The same for each group.
    spread
        By how much two folds' propensities of a person differ, on average.
    split
        The share of people whom one fold's policy would rather accept (a propensity of at least
        one half) and another one rather reject.
    """

    acceptance: list[float]
    by_group: dict[Hashable, list[float]]
    spread: float
    split: float

    @classmethod
    def of(cls, crossed: CrossFitted, log: DecisionLog) -> Stability:
        """Return how alike the policies are on the settled rows that they were found for."""
        found, rows = crossed.by_fold, log.settled()
        accepts = found >= 0.5
        # sorted, the k-th of K values is the larger one in k pairs and the smaller in K - 1 - k
        sign = 2.0 * np.arange(crossed.folds) - (crossed.folds - 1)
        pairs = crossed.folds * (crossed.folds - 1) / 2
        apart = sign @ np.sort(found, axis=0) / pairs
        return cls(
            acceptance=found.mean(axis=1).tolist(),
            by_group={
                group: found[:, rows.group == k].mean(axis=1).tolist()
                for k, group in enumerate(rows.groups)
                if rows.group_counts[k]
            },
            spread=float(apart.mean()),
            split=float((accepts.any(axis=0) & ~accepts.all(axis=0)).mean()),
        )

    @property
    def sentence(self) -> str:
        """What it means, in words."""
        low, high = min(self.acceptance), max(self.acceptance)
        return (
            f"Policies learned from other parts of the log accept {low:.1%} to {high:.1%} of the "
            f"same people; two of them differ on a person's probability by {self.spread:.3f} on "
            f"average, and {self.split:.1%} of people one would rather accept and another reject."
        )
