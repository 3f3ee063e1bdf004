"""Sampling: what measuring on a few held-out people does to a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths

if TYPE_CHECKING:
    from consequential.paper.finals import Finals

Floats = NDArray[np.float64]


def held_out_deviation(finals: Finals, name: str, strategy: str, penalty: float) -> float:
    """Return the gap's standard deviation over draws of the held-out people.

    That of the difference of two groups' mean propensities, the median over runs.
    """
    people = truths.table(name).held_out
    group = people.mass.argmax(axis=1)

    def deviation(theta: Floats) -> float:
        propensity = truths.policy_of(strategy, theta).propensity(people.points)
        parts = [propensity[group == z] for z in range(len(people.groups))]
        return float(np.sqrt(sum(part.var() / len(part) for part in parts)))

    rows = finals.select(strategy, penalty)
    return float(np.median([deviation(finals.theta[row]) for row in rows]))
