"""Weightings: how accepted people stand in for the rejected ones they resemble."""

from consequential.weightings.balance import BalanceHeuristic
from consequential.weightings.weights import (
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
