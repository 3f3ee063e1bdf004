"""Steps: from a gradient to a change of theta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the reference rows say about the neighbourhood of theta.

    `metric` is `mean(g' phi phi')`, `scale` is `mean(phi phi')`, `residual_slopes` has one row
    a residual of the penalty, and `acceptance` with its slope is the mean propensity.
    """

    theta: Floats
    metric: Floats
    scale: Floats
    residual_slopes: Floats
    acceptance: float
    acceptance_slope: Floats


class StepRule(ABC):
    """How far to go along a gradient."""

    needs_surroundings: bool = False

    @abstractmethod
    def step(
        self, gradient: Floats, theta: Floats, penalty: float, around: Surroundings, rate: float
    ) -> Floats:
        """Return the change of theta."""

    @abstractmethod
    def rate(self, time_step: int) -> float:
        """Return the learning rate at a time step."""


@dataclass(frozen=True, slots=True)
class GradientStep(StepRule):
    """The paper's step: learning rate times gradient, decayed by a factor every so often.

    Parameters
    ----------
    learning_rate
        The paper's alpha.
    decay, decay_every
        The rate is multiplied by `decay` every `decay_every` time steps.
    max_step
        No parameter moves further than this in one iteration.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.GradientStep(0.5, decay=0.8, decay_every=30).rate(time_step=65)
    0.32000000000000006
    """

    learning_rate: float
    decay: float = 1.0
    decay_every: int = 1
    max_step: float = float("inf")
    needs_surroundings = False

    def rate(self, time_step: int) -> float:
        """Return `alpha decay^(t // decay_every)`."""
        return float(self.learning_rate * self.decay ** (time_step // self.decay_every))

    def step(
        self, gradient: Floats, theta: Floats, penalty: float, around: Surroundings, rate: float
    ) -> Floats:
        """Return `alpha gradient`, shortened where a parameter would move too far."""
        change = rate * gradient
        furthest = float(np.abs(change).max())
        return change * (self.max_step / furthest) if furthest > self.max_step else change
