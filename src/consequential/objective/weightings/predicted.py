"""Predictions as a weighting, from a model of the label that is fitted already."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.objective.weightings.weights import DoublyRobust, Weighting

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Predicted(DoublyRobust):
    """The doubly robust count with given predictions, one per row of the log it is used on.

    With `weighting=ModelOnly()` the model counts alone.
    """

    values: Floats = field(default_factory=lambda: np.zeros(0), repr=False)

    def predicted(self, log: DecisionLog) -> Floats:
        """Return the predictions."""
        if len(self.values) != len(log):
            raise ValueError(f"{len(self.values)} predictions for a log of {len(log)} rows")
        return self.values


@dataclass(frozen=True, slots=True)
class ModelOnly(Weighting):
    """Weights of 0: labels do not correct the predictions of a model."""

    def weights(self, log: DecisionLog) -> Floats:
        """Return zeros."""
        return np.zeros(len(log))
