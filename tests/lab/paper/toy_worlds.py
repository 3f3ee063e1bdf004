"""Worlds made to measure for the theorems, and what a rule gets to see of a world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import consequential as cq
from consequential.evaluation import Metrics, Population


@dataclass(frozen=True)
class Above:
    """A predictor that is sure: label 1 from this score on, label 0 below."""

    score: float

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        yes = features[:, 0] >= self.score
        return np.column_stack([~yes, yes]).astype(float)


def cut_at(score: float) -> cq.ThresholdPolicy:
    """Accept where the score is at least this."""
    return cq.ThresholdPolicy(Above(score), 0.5)


def where_it_cuts(rule: cq.ThresholdPolicy) -> float:
    """The lowest score a thresholded model accepts; a logistic model must rise in the score."""
    model = rule.predictor
    if isinstance(model, Above):
        return model.score
    logit = np.log(rule.threshold / (1.0 - rule.threshold))
    return float((logit - model.intercept_[0]) / model.coef_[0, 0])


def induced(population: Population, rule: cq.DecisionRule) -> Population:
    """The distribution of the people a rule accepts."""
    mass = population.mass * population.propensity(rule)
    return Population(
        population.points, mass / mass.sum(), population.label_probability, population.groups
    )


def value(metrics: Metrics, penalty: float) -> float:
    """The paper's v, `u - lambda/2 (b0 - b1)^2`."""
    return metrics.utility - penalty / 2 * metrics.benefit_gap**2


class Plateaus(cq.worlds.DensityWorld):
    """Scores are uniform; the best quarter always repays, the middle half mostly, the rest rarely.

    A rule that accepts the best quarter only is never wrong about anybody it accepts.
    """

    name = "plateaus"
    cost = 0.5
    bounds = (0.0, 1.0)

    def propose(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.random((n, 1)), rng.integers(2, size=n)

    def density(self, score: np.ndarray) -> np.ndarray:
        return np.ones((len(score), 2))

    def score_probability(self, score: np.ndarray) -> np.ndarray:
        return np.select([score >= 0.75, score >= 0.25], [1.0, 0.8], 0.1)


class Ladder(cq.worlds.World):
    """Five rungs, equally many people on each; from rung 1 up they are worth accepting."""

    name = "ladder"
    cost = 0.5
    repaid = np.array([0.1, 0.6, 0.8, 0.9, 0.95])
    best = 1

    def propose(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(5, size=(n, 1)).astype(float), np.zeros(n, dtype=int)

    def label_probability(self, features: np.ndarray, sensitive: np.ndarray) -> np.ndarray:
        return self.repaid[features[:, 0].astype(int)]

    def no_default(self, rung: int, n: int) -> float:
        """Probability that none of n applicants is accepted from this rung up and defaults."""
        return float((1.0 - (1.0 - self.repaid[rung:]).sum() / 5) ** n)
