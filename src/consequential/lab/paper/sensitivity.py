"""Sensitivity: what the main finding owes to M, alpha, the predictor's ridge and the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.lab.algorithm.algorithm import Learner
from consequential.lab.algorithm.steps import GradientStep
from consequential.lab.simulation import LearnToDecide, LearnToPredict, Strategy
from consequential.lab.worlds import World
from consequential.objective.fairness import Fairness
from consequential.policy import DecisionRule, ThresholdPolicy, logistic_model, policy_from_model

if TYPE_CHECKING:
    from consequential.lab.simulation import Runs

TIME_STEPS, SEEDS = 50, 10  # at most
PRINTED = "as printed"
_EXPLORING, _PREDICTING = "exploring", "predicting"
_FACTORS, _RIDGES, _SHIFTS = (0.25, 4.0), (1.0, 1e3), (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Moved(Strategy):
    """A strategy that starts from the world's initial model with another intercept."""

    strategy: LearnToDecide | LearnToPredict
    shift: float
    named: str

    @property
    def name(self) -> str:
        """The name given."""
        return self.named

    @property
    def sequence(self) -> str:  # type: ignore[override]
        """The sequence of the strategy."""
        return str(self.strategy.sequence)

    def start(self, world: World, rng: np.random.Generator) -> DecisionRule:
        """Return the first rule, made of the moved model."""
        theta = world.initial_theta(rng) + np.array([self.shift, 0.0])
        if isinstance(self.strategy, LearnToPredict):
            return ThresholdPolicy(logistic_model(theta), world.cost)
        return policy_from_model(theta, world.cost, self.strategy.link)

    def learner(self, world: World, fairness: Fairness, penalty: float) -> Learner:
        """Return the learner of the strategy."""
        return self.strategy.learner(world, fairness, penalty)


def strategies(world: World) -> Iterator[Strategy]:
    """Yield a logistic and a deterministic strategy, iterative, one thing changed at a time."""
    from sklearn.linear_model import LogisticRegression

    p = world.parameters
    exploring = LearnToDecide("logistic", "iterative", "paper", "sampled")
    predicting = LearnToPredict("iterative")
    yield replace(exploring, named=f"{PRINTED}, {_EXPLORING}")
    yield replace(predicting, named=f"{PRINTED}, {_PREDICTING}")
    for factor in _FACTORS:
        n_iterations = max(1, round(factor * p.n_iterations))
        yield replace(exploring, n_iterations=n_iterations, named=f"M × {factor:g}, {_EXPLORING}")
        step = GradientStep(factor * p.learning_rate, p.decay, p.decay_every)
        yield replace(exploring, step=step, named=f"α × {factor:g}, {_EXPLORING}")
    for ridge in _RIDGES:
        model = LogisticRegression(C=1.0 / ridge, max_iter=1000)
        yield replace(predicting, classifier=model, named=f"ridge {ridge:g}, {_PREDICTING}")
    for shift in _SHIFTS:
        for kind, strategy in ((_EXPLORING, exploring), (_PREDICTING, predicting)):
            yield Moved(strategy, shift, f"start {shift:+g}, {kind}")


def leads(runs: Runs) -> dict[str, NDArray[np.float64]]:
    """Return how far the exploring strategy ends ahead in utility, by what was changed and seed."""
    found = {}
    for change in dict.fromkeys(name.rpartition(", ")[0] for name in runs.strategies):
        one, other = (
            f"{change if f'{change}, {kind}' in runs.strategies else PRINTED}, {kind}"
            for kind in (_EXPLORING, _PREDICTING)
        )
        found[change] = runs.metric("utility", one)[:, -1] - runs.metric("utility", other)[:, -1]
    return found
