"""Steps: from a gradient to a change of theta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["GradientStep", "PreconditionedStep", "StepRule"]

Floats = NDArray[np.float64]
Step = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What reference rows say about the neighbourhood of `theta`."""

    theta: Floats
    curvature: Floats  # mean(s phi phi') with s the logistic function's derivative
    steepness: float  # mean(s)
    scale: Floats  # mean(phi phi')
    residual_slopes: Floats  # one row per residual of the penalty
    acceptance: float  # mean propensity, and its slope in theta
    acceptance_slope: Floats


class StepRule(ABC):
    """How far to go along a gradient.

    Examples
    --------
    A rule that follows the gradient by a fixed distance:

    >>> import numpy as np, consequential as cq
    >>> class FixedLength(cq.lab.steps.StepRule):
    ...     looks_around = False
    ...     def rate(self, time_step, effective_rows=float("inf")):
    ...         return 0.1 / (1 + time_step)
    ...     def prepare(self, around, penalty, rate):
    ...         return lambda gradient, theta: rate * gradient / np.linalg.norm(gradient)
    >>> world = cq.worlds.first_setting()
    >>> start = world.initial_policy()
    >>> log = world.collect(start, 2000, np.random.default_rng(0))
    >>> learn = cq.UpdatePolicy(cq.Objective(world.cost), 1, batch_size=500, step=FixedLength())
    >>> learned = learn(start, log, rng=np.random.default_rng(1)).policy
    >>> round(float(np.linalg.norm(learned.theta - start.theta)), 6)
    0.1
    """

    looks_around: ClassVar[bool] = True  # whether `prepare` reads its surroundings

    @abstractmethod
    def rate(self, time_step: int, effective_rows: float = float("inf")) -> float:
        """Return the learning rate at a time step, from data worth so many rows."""

    @abstractmethod
    def prepare(self, around: Surroundings, penalty: float, rate: float) -> Step:
        """Return the map from (gradient, theta) to a change of theta, near `around`."""


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
    >>> round(cq.lab.steps.GradientStep(0.5, decay=0.8, decay_every=30).rate(time_step=65), 4)
    0.32
    """

    learning_rate: float
    decay: float = 1.0
    decay_every: int = 1
    max_step: float = float("inf")
    looks_around = False

    def __post_init__(self) -> None:
        _positive(self, "learning_rate", "decay", "decay_every", "max_step")

    def rate(self, time_step: int, effective_rows: float = float("inf")) -> float:
        """Return `alpha decay^(t // decay_every)`, whatever the data are worth."""
        return float(self.learning_rate * self.decay ** (time_step // self.decay_every))

    def prepare(self, around: Surroundings, penalty: float, rate: float) -> Step:
        """Return `alpha gradient`, shortened where a parameter would move too far."""

        def step(gradient: Floats, theta: Floats) -> Floats:
            change = rate * gradient
            return _shortened(change, float(np.abs(change).max()), self.max_step)

        return step


@dataclass(frozen=True, slots=True)
class PreconditionedStep(StepRule):
    """A step that needs no tuning and survives any penalty.

    `a (H + lambda J'J)^-1 gradient`. J has the slopes of the penalty's residuals (the benefits'
    deviations from their mean), which makes it a Gauss-Newton step for the penalty: the penalty's
    size cancels out. H is how fast propensities change with theta,
    `H = (mean(s phi phi') + mean(s) mean(phi phi')) / 2`, with s the derivative of the logistic
    function at the score, for every link: the scale of features cancels out, and H does not vanish
    where a semi-logistic link is flat. The first half alone is the natural metric, which sharpens
    a policy faster than it moves its boundary, and so stops exploring too soon; the second half
    alone moves slowly once a policy is sharp.

    Two bounds limit it. An iteration changes scores by at most `max_step` (root mean
    square). And it changes acceptance by at most `max_share` of what separates it from accept-all
    and from reject-all, so that it does not fall into the flat region of a semi-logistic link,
    from which no gradient leads back.

    Parameters
    ----------
    learning_rate, decay
        The rate is `learning_rate / sqrt(1 + decay t)`.
    enough_rows
        Data with a smaller effective sample size are trusted less: the rate is multiplied by
        `sqrt(effective / enough_rows)`. An early, harsh policy accepts a few people with weights
        of hundreds; full steps on what they say can end exploration in the wrong place.
    ridge
        Keeps H invertible, relative to `mean(phi phi')`.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.lab.steps.PreconditionedStep().rate(time_step=60)
    0.15
    """

    learning_rate: float = 0.3
    decay: float = 0.05
    enough_rows: float = 300.0
    ridge: float = 1e-3
    max_step: float = 0.1
    max_share: float = 0.5

    def __post_init__(self) -> None:
        _positive(self, "learning_rate", "enough_rows", "ridge", "max_step", "max_share")

    def rate(self, time_step: int, effective_rows: float = float("inf")) -> float:
        """Return `learning_rate / sqrt(1 + decay t)`, less where the data are thin."""
        trust = min(1.0, np.sqrt(effective_rows / self.enough_rows))
        return float(self.learning_rate * trust / np.sqrt(1.0 + self.decay * time_step))

    def prepare(self, around: Surroundings, penalty: float, rate: float) -> Step:
        """Return the preconditioned, bounded step."""
        slopes = around.residual_slopes
        scale = around.scale
        ridge = self.ridge * (scale + np.trace(scale) / len(scale) * np.eye(len(scale)))
        metric = (around.curvature + around.steepness * scale) / 2.0 + ridge
        inverse = rate * np.linalg.inv(metric + penalty * slopes.T @ slopes)

        def step(gradient: Floats, theta: Floats) -> Floats:
            change = inverse @ gradient
            moved = np.sqrt(
                max(float(change @ scale @ change), 0.0)
            )  # root mean square change of scores
            change = _shortened(change, moved, self.max_step)
            accepted = around.acceptance + float(around.acceptance_slope @ (theta - around.theta))
            drift = float(around.acceptance_slope @ change)
            distance = max(min(accepted, 1.0 - accepted), 0.0)
            return _shortened(change, abs(drift), self.max_share * distance)

        return step


def _shortened(change: Floats, length: float, longest: float) -> Floats:
    return change * (longest / length) if length > longest else change


def _positive(rule: StepRule, *names: str) -> None:
    for name in names:
        if not getattr(rule, name) > 0:
            raise ValueError(f"{type(rule).__name__}: {name} must be above 0")
