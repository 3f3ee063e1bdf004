"""Bounds on the gap that hold among people, and the gap of the policy that is deployed."""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq

import consequential as cq
from consequential.evaluation import CrossFitted
from consequential.evaluation.evaluate import deployed_gap
from consequential.learning.bounds import safely_fitted


@cache
def world():
    return cq.worlds.first_setting()


@cache
def start():
    return world().initial_policy().with_floor(0.1)


def explored(n, seed):
    return world().collect(start(), n, np.random.default_rng(seed))


def steep(cut):
    return cq.Policy([-20.0 * cut, 20.0])


# --- the test of candidates


@pytest.mark.parametrize("n_logs", [80, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_a_policy_just_beyond_the_bound_seldom_passes(notion, n_logs):
    """Its true gap is a hair above the bound: 5 percent of the logs, and three binomial errors."""
    bound = 0.05

    def gap(cut):
        return abs(world().exact(steep(cut), fairness=notion).benefit_gap)

    wide = steep(brentq(lambda cut: gap(cut) - bound - 1e-4, -0.79, -0.1))
    objective = cq.Objective(world().cost, notion)
    passed = 0
    for seed in range(n_logs):
        rng = np.random.default_rng([seed, 1])
        try:
            safely_fitted(
                lambda rows, _: SimpleNamespace(policy=wide),
                explored(2000, seed),
                objective,
                bound,
                0.95,
                rng,
            )
        except cq.BoundNotShownError:
            continue
        passed += 1
    assert passed <= 0.05 * n_logs + 3 * np.sqrt(n_logs * 0.05 * 0.95)


def test_candidates_are_tested_from_the_strictest_on_until_one_fails():
    policies = {0.0: cq.AcceptAll(), 0.025: steep(-0.79), 0.05: steep(0.0)}
    asked = []

    def fit(rows, bound):
        asked.append((len(rows), bound))
        chosen = policies[0.0] if bound == 0.0 else steep(0.0)
        if bound == pytest.approx(0.0125):
            chosen = policies[0.025]
        return SimpleNamespace(policy=chosen)

    log = explored(20_000, 0)
    objective = cq.Objective(world().cost, "demographic_parity")
    found = safely_fitted(fit, log, objective, 0.05, 0.95, np.random.default_rng(0))
    assert asked == [(10_000, 0.0), (10_000, 0.0125), (10_000, 0.025)]
    assert [each.max_gap for each in found.passed] == [0.0, 0.0125]
    assert found.chosen.fitted.policy is policies[0.025]
    assert found.chosen.most <= 0.05
    assert len(found.held_out) == 10_000
    assert "held-out decisions" in str(found)


def test_a_fair_policy_worth_less_than_rejecting_everybody_is_no_answer():
    costly = cq.worlds.second_setting()
    log = costly.collect(cq.AcceptAll(), 4000, np.random.default_rng(0))
    objective = cq.Objective(0.9, "demographic_parity")
    with pytest.raises(cq.BoundNotShownError, match="worth no more than rejecting everybody"):
        safely_fitted(
            lambda rows, _: SimpleNamespace(policy=cq.AcceptAll()),
            log,
            objective,
            0.05,
            0.95,
            np.random.default_rng(0),
        )


# --- the learner


def test_a_bound_that_is_shown_holds_among_people():
    learner = cq.FairPolicyLearner(method="direct", cost=world().cost, max_gap=0.1, confidence=0.95)
    log = explored(8000, 3)
    learner.fit_log(log)
    assert abs(world().exact(learner.policy_).benefit_gap) <= 0.1
    assert learner.value_.n == len(learner.safety_.held_out) == 4000
    assert learner.policy_gap_ == learner.value_.benefit_gap
    assert learner.result_ is learner.safety_.chosen.fitted
    learned = {row.tobytes() for row in learner.safety_.held_out.features}
    assert len(learned) == 4000


def test_where_no_bound_can_be_shown_the_error_says_how_many_decisions_would():
    learner = cq.FairPolicyLearner(
        method="direct",
        cost=world().cost,
        fairness="predictive_parity",
        max_gap=0.01,
        confidence=0.95,
    )
    with pytest.raises(cq.BoundNotShownError, match="held-out decisions the gap") as declined:
        learner.fit_log(explored(1000, 1))
    assert declined.value.decisions > 1000
    assert isinstance(declined.value.policy, cq.Policy)
    assert declined.value.gap.n == 500
    most = float(re.search(r"with that confidence at most (\S+);", str(declined.value))[1])
    gap = declined.value.gap
    assert learner.max_gap < most <= max(gap.high, -gap.low) + 1e-4
    assert not hasattr(learner, "policy_")


def test_folds_and_held_out_rows_do_not_go_together():
    learner = cq.FairPolicyLearner(method="direct", cost=world().cost, max_gap=0.1, confidence=0.95)
    with pytest.raises(ValueError, match="leave folds out"):
        learner.fit_log(explored(200, 0), folds=5)


# --- the gap of the deployed policy


def test_the_deployed_gap_moves_with_the_policy_and_is_widened_by_the_spread_over_folds():
    """Written out: to the cross-fitted gap, the policy's on all rows less the mean of the folds'
    policies there is added; squares of the cross-fitted reach and of the jackknife's are added."""
    log = explored(2000, 5)
    rng = np.random.default_rng(0)
    policies = [steep(cut) for cut in (-0.3, -0.25, -0.35, -0.28)]
    by_fold = np.stack([log.propensity_of(policy) for policy in policies])
    crossed = CrossFitted(by_fold, rng.permutation(2000) % 4)
    plain = cq.evaluate(crossed, log, cost=world().cost).benefit_gap
    deployed = steep(0.1)
    gap, *gaps = (
        cq.evaluate(policy, log, cost=world().cost).benefit_gap.value
        for policy in (deployed, *policies)
    )
    jackknife = 0.75 * np.sum((np.array(gaps) - np.mean(gaps)) ** 2)
    found = deployed_gap(crossed, log, log.propensity_of(deployed), cost=world().cost)
    assert abs(gap - np.mean(gaps)) > 0.01
    assert found.value == pytest.approx(plain.value + gap - np.mean(gaps))
    reach = np.hypot(plain.high - plain.value, 1.959964 * np.sqrt(jackknife))
    assert found.high - found.value == pytest.approx(reach, rel=1e-6)
    assert found.value - found.low == pytest.approx(reach, rel=1e-6)


def test_policies_that_agree_have_the_cross_fitted_gap():
    log = explored(1000, 6)
    same = np.tile(log.propensity_of(steep(-0.3)), (5, 1))
    crossed = CrossFitted(same, np.arange(1000) % 5)
    plain = cq.evaluate(crossed, log, cost=world().cost).benefit_gap
    found = deployed_gap(crossed, log, same[0], cost=world().cost)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high))


def test_the_widest_of_several_gaps_is_never_estimated_to_be_negative():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(900, 1))
    group, decision = np.arange(900) % 3, rng.random(900) < 0.5
    label = np.where(decision, rng.random(900) < 0.5, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, np.full(900, 0.5), label, group)
    # each fold's policy prefers another group, and the policy of all rows none
    by_fold = np.stack([np.where(group == k % 3, 0.6, 0.5) for k in range(6)])
    crossed = CrossFitted(by_fold, rng.permutation(900) % 6)
    found = deployed_gap(crossed, log, np.full(900, 0.5), cost=0.5)
    assert found.low == found.value == 0.0 < found.high


def test_fit_with_folds_says_how_wide_the_gap_of_its_policy_is():
    learner = cq.FairPolicyLearner(method="direct", cost=world().cost, max_gap=0.05)
    learner.fit_log(explored(3000, 7), folds=3)
    average, own = learner.value_.benefit_gap, learner.policy_gap_
    assert own.value == pytest.approx(average.value, abs=0.01)  # learned from the rest, too
    assert own.high - own.low > average.high - average.low


@pytest.mark.parametrize("logs", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_the_gap_of_a_policy_far_from_those_of_the_folds_is_covered(logs):
    """Logs of 2000: the folds' policies alone would say so of two thirds of them."""
    covered = 0
    for seed in range(logs):
        learner = cq.FairPolicyLearner(method="model", cost=world().cost, max_gap=0.05)
        learner.fit_log(explored(2000, seed))
        covered += world().exact(learner.policy_).benefit_gap in learner.policy_gap_
    # 95 percent, less two binomial errors
    assert covered >= 0.95 * logs - 2 * np.sqrt(0.95 * 0.05 * logs)


@pytest.mark.slow
@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_the_gap_of_the_deployed_policy_is_covered(notion):
    """100 logs of 5000: at least 92 percent, less two binomial errors."""
    covered = 0
    for seed in range(100):
        learner = cq.FairPolicyLearner(
            method="direct", cost=world().cost, fairness=notion, max_gap=0.05
        )
        learner.fit_log(explored(5000, seed), folds=5)
        truth = world().exact(learner.policy_, fairness=notion).benefit_gap
        covered += truth in learner.policy_gap_
    assert covered >= 87
