"""Learners for the theorems: such that never look outside, and such that learn from errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from toy_worlds import cut_at, where_it_cuts

import consequential as cq
from consequential.evaluation import Population


def ridge_with_folds(scoring: str) -> Pipeline:
    """Return the lending example's model: L2 logistic regression, strength by 5-fold CV."""
    ridge = LogisticRegression(solver="newton-cholesky")
    strengths = {"C": np.logspace(-4, 4, 5)}
    return make_pipeline(StandardScaler(), GridSearchCV(ridge, strengths, cv=5, scoring=scoring))


def fit_to_population(seen: Population, cost: float) -> cq.ThresholdPolicy:
    """The threshold rule of logistic regression on unlimited data from a distribution."""
    positives = (seen.mass * seen.label_probability).sum(axis=1)
    weight = np.concatenate([positives, seen.mass.sum(axis=1) - positives])
    label = np.repeat([1, 0], len(seen.points))
    score = np.tile(seen.points[:, 0], 2)
    score, label, weight = score[weight > 0], label[weight > 0], weight[weight > 0]
    centre = np.average(score, weights=weight)
    spread = np.sqrt(np.average((score - centre) ** 2, weights=weight))
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
    model.fit(((score - centre) / spread)[:, None], label, sample_weight=weight)
    slope = model.coef_[0, 0] / spread
    return cq.ThresholdPolicy(
        cq.logistic_model([model.intercept_[0] - slope * centre, slope]), cost
    )


def best_cut_by_inverse_propensity(log: cq.DecisionLog, cost: float) -> cq.ThresholdPolicy:
    """The single cut whose inverse-propensity utility on a log is highest."""
    gain = cq.Objective(cost).coefficients(log).utility
    order = np.argsort(-log.features[:, 0], kind="stable")
    score, total = log.features[order, 0], np.cumsum(gain[order])
    last_of_its_score = np.append(np.diff(score) != 0, True)
    return cut_at(score[np.argmax(np.where(last_of_its_score, total, -np.inf))])


def estimate(
    rule: cq.DecisionRule, log: cq.DecisionLog, cost: float, penalty: float
) -> tuple[float, float]:
    """Inverse-propensity v of a rule, with its standard error by the delta method."""
    objective = cq.Objective(cost, "demographic_parity", penalty)
    coefficients = objective.coefficients(log)
    propensity = rule.propensity(log.features, log.sensitive if rule.uses_sensitive else None)
    sums = coefficients.sums(propensity)
    accepted = sums.benefits[0]
    gap_of = np.array([1.0, -1.0])[log.group] * coefficients.benefits[0].values
    slope = penalty * (accepted[0] - accepted[1])
    by_row = coefficients.utility * propensity - slope * gap_of * (propensity - accepted[log.group])
    return objective.value_at(sums), float(np.std(by_row) * np.sqrt(len(log)))


@dataclass(frozen=True)
class Learned:
    """What a learner returns."""

    policy: cq.DecisionRule
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeepWhatPays:
    """Of the people the rule accepted keep those above the cut that paid best: non-exploring.

    It maximises the utility of the data it has and says nothing about people it never saw.
    """

    cost: float

    def __call__(
        self, policy: Any, log: cq.DecisionLog, *, rng: np.random.Generator, time_step: int
    ) -> Learned:
        score = log.features[log.decision, 0]
        order = np.argsort(score)
        without = np.cumsum((log.label[log.decision] - self.cost)[order])  # dropped from below
        if len(score) == 0 or without.min() >= 0:
            return Learned(policy)
        worst = score[order][np.argmin(without)]
        return Learned(cut_at(float(np.nextafter(worst, np.inf))))


@dataclass(frozen=True)
class Lucky:
    """Stay, but at step t jump to the optimum with probability delta_t: the luckiest accident."""

    optimum: cq.DecisionRule
    chances: Sequence[float]

    def __call__(
        self, policy: Any, log: cq.DecisionLog, *, rng: np.random.Generator, time_step: int
    ) -> Learned:
        return Learned(self.optimum if rng.random() < self.chances[time_step] else policy)


@dataclass(frozen=True)
class Hopeful:
    """Go down one rung when nobody who was accepted defaulted: exploring by accident of data."""

    def __call__(
        self, policy: Any, log: cq.DecisionLog, *, rng: np.random.Generator, time_step: int
    ) -> Learned:
        if (log.label[log.decision] == 0).any():
            return Learned(policy)
        return Learned(cut_at(max(where_it_cuts(policy) - 1.0, 0.0)))


@dataclass(frozen=True)
class Votes:
    """A predictor that is sure: 1 where its model's score is above zero."""

    model: Any

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        yes = (self.model.decision_function(features) > 0).astype(float)
        return np.column_stack([1.0 - yes, yes])


def perceptron_with(slope: float, intercept: float) -> Perceptron:
    """A fitted perceptron with given parameters."""
    model = Perceptron(shuffle=False, eta0=0.01)
    model.partial_fit([[1.0]], [1], classes=[0, 1])  # makes the parameters; now set them
    model.coef_[:], model.intercept_[:] = slope, intercept
    return model


@dataclass(frozen=True)
class LearnByPerceptron:
    """scikit-learn's perceptron, shown the accepted people once a step; errors move it."""

    @staticmethod
    def start(score: float) -> cq.ThresholdPolicy:
        return cq.ThresholdPolicy(Votes(perceptron_with(1.0, -score)), 0.5)

    def __call__(
        self, policy: Any, log: cq.DecisionLog, *, rng: np.random.Generator, time_step: int
    ) -> Learned:
        last = policy.predictor.model
        model = perceptron_with(last.coef_[0, 0], last.intercept_[0])
        accepted = log.take(log.decision)
        model.partial_fit(accepted.features, accepted.label.astype(int))
        return Learned(cq.ThresholdPolicy(Votes(model), 0.5))


@dataclass(frozen=True)
class Boosted:
    """A rule corrected by trees, each fitted to what was wrong with those before."""

    score: float
    trees: tuple[DecisionTreeRegressor, ...] = ()

    def decision_function(self, features: np.ndarray) -> np.ndarray:
        first = np.where(features[:, 0] >= self.score, 0.5, -0.5)
        return first + sum(tree.predict(features) for tree in self.trees)


@dataclass(frozen=True)
class LearnByBoosting:
    """Add a tree fitted to label minus decision among the accepted."""

    @staticmethod
    def start(score: float) -> cq.ThresholdPolicy:
        return cq.ThresholdPolicy(Votes(Boosted(score)), 0.5)

    def __call__(
        self, policy: Any, log: cq.DecisionLog, *, rng: np.random.Generator, time_step: int
    ) -> Learned:
        boosted = policy.predictor.model
        accepted = log.take(log.decision)
        error = accepted.label - policy.propensity(accepted.features)
        tree = DecisionTreeRegressor(max_leaf_nodes=8, random_state=0)
        tree.fit(accepted.features, error)
        return Learned(
            cq.ThresholdPolicy(Votes(Boosted(boosted.score, (*boosted.trees, tree))), 0.5)
        )
