"""Weightings: how accepted people stand in for the rejected ones they resemble."""

from consequential.objective.weightings.balance import BalanceHeuristic
from consequential.objective.weightings.weights import (
    Clipped,
    DoublyRobust,
    InversePropensity,
    SelfNormalised,
    Unweighted,
    Weighting,
    effective_sample_size,
)

__all__ = [
    "BalanceHeuristic",
    "Clipped",
    "DoublyRobust",
    "InversePropensity",
    "SelfNormalised",
    "Unweighted",
    "Weighting",
    "effective_sample_size",
]
