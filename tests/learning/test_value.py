"""The value of a learned policy: what its interval is for, and how often it covers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import consequential as cq

COST = 0.55


def people(n, rng):
    """Return features, chances of label 1 and the past rule's propensities."""
    features = rng.normal(size=(n, 8))
    score = np.sin(1.5 * features[:, 0]) + features[:, 1] * features[:, 2]
    score += 0.5 * features[:, 3] - 1.5 * ((features[:, 4] > 0.8) & (features[:, 5] < 0.0))
    return features, expit(score + 0.4), 0.1 + 0.8 * expit(features[:, 0])


def drawn_log(n, seed):
    rng = np.random.default_rng(seed)
    features, chance, propensity = people(n, rng)
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < chance, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, propensity, label)


FEATURES, CHANCE, _ = people(30_000, np.random.default_rng(1))


def true_utility(policy):
    return float(((CHANCE - COST) * policy.propensity(FEATURES)).mean())


def test_the_upper_end_is_raised_by_what_the_last_rows_teach():
    """On average over 12 logs, in which the true difference has an error of about 15 %."""
    raised, taught = [], []
    for seed in range(12):
        learner = cq.FairPolicyLearner(
            cost=COST, method="model", outcome_model=LogisticRegression(C=0.1)
        ).fit_log(log := drawn_log(800, seed), folds=3)
        crossed, weighting = learner.cross_fitted_, learner.weighting_
        folds = cq.evaluate(crossed, log, cost=COST, weighting=weighting).utility
        found = learner.value_.utility
        assert found.value == folds.value
        assert 0.0 < folds.low - found.low < 0.2 * (folds.high - folds.low)
        raised.append(found.high + found.low - folds.high - folds.low)  # beyond the lower end
        others = [true_utility(policy) for policy in crossed.policies]
        taught.append(true_utility(learner.policy_) - np.mean(others))
    assert np.mean(raised) == pytest.approx(np.mean(taught), rel=0.4)


def test_nothing_is_taught_where_nobody_need_be_told_apart():
    rng = np.random.default_rng(3)
    features, propensity = rng.normal(size=(600, 2)), np.full(600, 0.5)
    decision = rng.random(600) < propensity
    label = np.where(decision, rng.random(600) < 0.95, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, propensity, label)
    learner = cq.FairPolicyLearner(cost=0.3).fit_log(log)
    folds = cq.evaluate(learner.cross_fitted_, log, cost=0.3, weighting=learner.weighting_)
    assert learner.value_.utility.high == pytest.approx(folds.utility.high, abs=1e-4)


@pytest.mark.slow
def test_the_value_of_the_policy_is_covered_with_the_choice_of_the_method_included():
    """300 logs of 2000 decisions from which more rows would teach much."""
    covered = 0
    for seed in range(300):
        learner = cq.FairPolicyLearner(cost=COST).fit_log(drawn_log(2000, seed))
        covered += true_utility(learner.policy_) in learner.value_.utility
    assert covered >= 0.925 * 300
