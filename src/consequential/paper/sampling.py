"""Sampling: what measuring on a few held-out people does to a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths

if TYPE_CHECKING:
    from consequential.paper.finals import Finals

Floats = NDArray[np.float64]


def held_out_deviation(finals: Finals, name: str) -> Floats:
    """Return the gap's standard deviation over draws of the held-out people.

    That of the difference of two groups' mean propensities, the median over runs; one row a
    strategy and one column a penalty.
    """
    people = truths.table(name).population("held_out")
    group = people.mass.argmax(axis=1)

    def deviation(strategy: str, row: int) -> float:
        propensity = truths.policy_of(strategy, finals.theta[row]).propensity(people.points)
        parts = [propensity[group == z] for z in range(len(people.groups))]
        return float(np.sqrt(sum(part.var() / len(part) for part in parts)))

    return np.array(
        [
            [
                np.median([deviation(strategy, row) for row in finals.select(strategy, penalty)])
                for penalty in finals.penalties
            ]
            for strategy in finals.strategies
        ]
    )
