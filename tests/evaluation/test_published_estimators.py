"""The same numbers as a published off-policy library, to rounding.

The constants below were computed with the registry package obp 0.5.7 (Open Bandit Pipeline) on the
log of `logged()`: two actions, reject and accept, a reward of `y - c` for accepting and 0 for
rejecting. Names of its estimators stand beside them.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import consequential as cq
from consequential.objective.weightings import Weighting

COST, N = 0.4, 400


def sigma(t):
    return 1 / (1 + np.exp(-t))


class Sloped(cq.DecisionRule):
    """Accept with probability `low + width sigma(a + b x)`."""

    def __init__(self, low: float, width: float, a: float, b: float) -> None:
        self.numbers = low, width, a, b

    def propensity(self, features, sensitive=None):
        low, width, a, b = self.numbers
        return low + width * sigma(a + b * np.asarray(features)[:, 0])


class KnownModel(ClassifierMixin, BaseEstimator):
    """Always predicts `sigma(0.3 + 0.8 x)`, whatever it is fitted on."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        q = sigma(0.3 + 0.8 * X[:, 0])
        return np.column_stack([1 - q, q])


LOGGING = {0: Sloped(0.1, 0.8, 0.0, 1.0), 1: Sloped(0.2, 0.7, 0.0, -1.0)}
POLICY = Sloped(0.05, 0.9, 1.0, 2.0)


def logged() -> cq.DecisionLog:
    rng = np.random.default_rng(2020)
    x = rng.normal(size=N)
    step = np.arange(N) % 2
    one, other = (LOGGING[k].propensity(x[:, None]) for k in (0, 1))
    propensity = np.where(step == 0, one, other)
    decision = rng.random(N) < propensity
    label = np.where(decision, rng.random(N) < sigma(0.5 + x), np.nan)
    return cq.DecisionLog.from_arrays(
        x, decision, propensity, label, time_step=step, policies=LOGGING
    )


def utility(rule: cq.DecisionRule, weighting: Weighting | None = None) -> float:
    return cq.evaluate(rule, logged(), cost=COST, weighting=weighting).utility.value


def test_inverse_propensity_weighting():
    """InverseProbabilityWeighting."""
    assert utility(POLICY) == pytest.approx(0.14268533901571462, rel=1e-12)


def test_clipped_weights():
    """InverseProbabilityWeighting(lambda_=2): it clips pi/p, so the two agree for accept-all."""
    assert utility(cq.AcceptAll(), cq.weightings.Clipped(2.0)) == pytest.approx(
        0.1546134716351519, rel=1e-12
    )


def test_doubly_robust():
    """DoublyRobust, with the same model of the label."""
    found = utility(POLICY, cq.weightings.DoublyRobust(KnownModel()))
    assert found == pytest.approx(0.15505742269310754, rel=1e-12)


def test_balance_heuristic():
    """MultiLoggersBalancedInverseProbabilityWeighting, with the average propensity."""
    found = utility(POLICY, cq.weightings.BalanceHeuristic())
    assert found == pytest.approx(0.15689526973411913, rel=1e-12)


def test_our_self_normalised_weights_are_another_number():
    """SelfNormalizedInverseProbabilityWeighting divides by weights that depend on the policy."""
    log, pi = logged(), POLICY.propensity(logged().features)
    ratio = np.where(log.decision, pi / log.propensity, (1 - pi) / (1 - log.propensity))
    reward = np.where(log.decision, log.outcome - COST, 0.0)
    theirs = (ratio * reward).sum() / ratio.sum()
    assert theirs == pytest.approx(0.14265231463223063, rel=1e-12)
    assert abs(utility(POLICY, cq.weightings.SelfNormalised()) - theirs) > 1e-3
