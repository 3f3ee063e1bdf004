"""Search: what is found where the solver gets stuck."""

import numpy as np
from scipy.special import expit

import consequential as cq


def test_a_search_that_ends_too_steep_to_move_is_better_than_accepting_all():
    # rejecting the few people of least income keeps the bound, and gains
    rng = np.random.default_rng(0)
    n = 800
    sex = rng.choice(2, n)
    income, home = rng.normal(3.0, 1.0, n) + 0.4 * sex, rng.choice(2, n)
    propensity = 0.2 + 0.6 * expit(income - 3.0)
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < expit(income + 0.5 * home - 2.5), np.nan)
    features = np.column_stack([income, home])
    log = cq.DecisionLog.from_arrays(features, decision, propensity, label, sex)
    learner = cq.FairPolicyLearner(cost=0.6, max_gap=0.05, method="model").fit_log(log, folds=2)
    result = learner.result_
    assert not result.fallback
    assert abs(result.benefit_gap) <= 0.0502
    assert 0.8 < log.propensity_of(learner.policy_).mean() < 0.99
