"""Learning from and evaluating on logs of values, against truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import consequential as cq
from valued_logs import chances, expected, two_valued, valued_columns, valued_log

PEOPLE = np.random.default_rng(99).normal(size=(100_000, 2))
WORTH = expected(PEOPLE)
RULE = cq.Policy([-0.5, 1.0, 1.0])


def true_utility(policy):
    return float((WORTH * policy.propensity(PEOPLE)).mean())


@pytest.fixture(scope="module")
def learner():
    return cq.FairPolicyLearner().fit_log(valued_log(4000, seed=5))


def test_the_learner_comes_close_to_the_best_there_is(learner):
    best = np.maximum(WORTH, 0.0).mean()
    assert true_utility(learner.policy_) > 0.95 * best
    assert learner.value_.utility.low < best
    # no threshold on the chance of a gain comes near
    cuts = [float((WORTH * (chances(PEOPLE) > cut)).mean()) for cut in np.linspace(0.3, 0.95, 14)]
    assert true_utility(learner.policy_) > 1.1 * max(cuts)


def test_a_policy_learned_from_values_can_be_monotone():
    # signs must bind somewhere: of noise alone, half of all slopes have the wrong one
    columns = valued_columns(2000, seed=5)
    columns["features"] = np.c_[columns["features"], np.random.default_rng(0).normal(size=2000)]
    log = cq.DecisionLog.from_arrays(**columns)
    people = np.c_[PEOPLE, np.random.default_rng(1).normal(size=len(PEOPLE))]
    for sign in (1, -1):
        monotone = {"x0": 1, "x1": 1, "x2": sign}
        policy = cq.FairPolicyLearner(method="model", monotone=monotone).fit_log(log).policy_
        propensity = policy.propensity(people)
        assert (
            policy.propensity(people + np.array([0.5, 0.5, 0.5 * sign])) >= propensity - 1e-9
        ).all()
        assert float((WORTH * propensity).mean()) > 0.9 * np.maximum(WORTH, 0.0).mean()


def test_the_cost_of_the_learner_plays_no_part():
    one, other = (
        cq.FairPolicyLearner(cost=cost, method="model", outcome_model=LogisticRegression()).fit_log(
            valued_log(2000, seed=5)
        )
        for cost in (0.5, 0.2)
    )
    assert_allclose(other.policy_.theta, one.policy_.theta)
    candidates = {entry.name: entry.value.utility.value for entry in one.result_.candidates.entries}
    again = {entry.name: entry.value.utility.value for entry in other.result_.candidates.entries}
    assert candidates == again
    assert candidates["plain regression"] > candidates["past rule"]


@pytest.mark.parametrize(
    ("method", "weighting"),
    [
        ("normal", None),
        ("normal", cq.weightings.DoublyRobust(LogisticRegression(), folds=2)),
        ("any_time", None),
    ],
)
def test_intervals_of_a_policys_value_cover_the_truth(method, weighting):
    truth, covered = true_utility(RULE), 0
    for seed in range(20):
        log = valued_log(1500, seed=seed, value_range=(-8000.0, 3000.0))
        covered += truth in cq.evaluate(RULE, log, weighting=weighting, method=method).utility
    assert covered >= 17  # 19 are expected of 95%, and fewer than 17 with a chance of 2%


def test_unknown_values_are_bounded_by_the_range():
    columns = valued_columns(800)
    late = np.flatnonzero(columns["decision"])[:80]
    columns["value"][late] = np.nan
    found = []
    for ends in ((-4000.0, 1500.0), (-8000.0, 3000.0)):
        log = cq.DecisionLog.from_arrays(**columns, missing="against", value_range=ends)
        found.append(cq.evaluate(cq.AcceptAll(), log).utility)
        share = (1.0 / columns["propensity"][late]).sum() / 800
        width = found[-1].high - found[-1].low
        assert width > share * (ends[1] - ends[0])
    assert found[1].low < found[0].low < found[0].high < found[1].high


def test_two_values_are_a_label_and_a_cost():
    world = cq.worlds.second_setting()
    start = world.initial_policy().with_floor(0.1)
    log = world.collect(start, 1200, np.random.default_rng(3))
    cost = 0.375
    valued = two_valued(log, cost)
    for weighting in (None, cq.weightings.DoublyRobust(folds=2), cq.weightings.Clipped(5.0)):
        one = cq.evaluate(cq.Policy([0.3, 1.0]), log, cost=cost, weighting=weighting)
        other = cq.evaluate(cq.Policy([0.3, 1.0]), valued, weighting=weighting)
        assert_allclose(other.utility.value, one.utility.value, rtol=1e-9)
        assert_allclose(other.utility.low, one.utility.low, rtol=1e-9)
    fits = [
        cq.FairPolicyLearner(cost=cost, max_gap=0.1).fit_log(each, folds=2)
        for each in (log, valued)
    ]
    one, other = (fit.policy_.propensity(log.features) for fit in fits)
    assert_allclose(other, one, atol=1e-9)
    assert_allclose(fits[1].value_.utility.value, fits[0].value_.utility.value, rtol=1e-9)


@pytest.mark.parametrize("fairness", ["equal_opportunity", "equalised_odds", "predictive_parity"])
def test_notions_that_count_labels_are_refused(fairness):
    log = valued_log(200)
    words = f"{fairness} counts people with label 1 or 0, and this log has values"
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.evaluate(cq.AcceptAll(), log, fairness=fairness)
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.FairPolicyLearner(fairness=fairness, max_gap=0.1).fit_log(log)


def test_what_needs_labels_is_refused_or_left_out():
    log = valued_log(300)
    assert list(cq.group_metrics(RULE, log).overall) == ["selection_rate"]
    with pytest.raises(cq.DecisionLogError, match="fitted to labels of 0 and 1"):
        cq.lab.FitPredictor(0.5)(cq.AcceptAll(), log, rng=np.random.default_rng(0))
    with pytest.raises(cq.DecisionLogError, match="success_rate is a share of label 1"):
        cq.plan(log, improvement=5.0, success_rate=0.5)
    with pytest.raises(ValueError, match="values, which are money already"):
        cq.statistics.earnings(RULE, log, gain=1.0, loss=1.0)
    with pytest.raises(cq.DecisionLogError, match="KNeighborsClassifier takes no sample_weight"):
        cq.FairPolicyLearner(outcome_model=KNeighborsClassifier()).fit_log(log)


def test_a_bound_on_the_gap_holds_with_values():
    columns = valued_columns(1500, seed=2)
    columns["sensitive"] = np.where(columns["features"][:, 1] > 0, "a", "b")
    log = cq.DecisionLog.from_arrays(**columns)
    fair = cq.FairPolicyLearner(max_gap=0.05, method="model").fit_log(log, folds=2)
    assert abs(fair.result_.benefit_gap) < 0.06


def test_earnings_plans_and_baselines_count_in_values():
    log = valued_log(2000, seed=1)
    earned = cq.statistics.earnings(RULE, log, unit="EUR").overall
    assert_allclose(earned.new.value, cq.evaluate(RULE, log).utility.value)
    assert cq.plan(log, improvement=5.0, floors=[0.05]).options[0].loss > 0.1
    found = cq.baselines(log)
    usual = found["accepted only"].evaluation.utility.value
    assert usual > found["accept all"].evaluation.utility.value
    assert found["FairPolicyLearner"].evaluation.utility.value > 0.8 * usual
    assert "need labels of 0 and 1" in found["fairlearn reduction"].note


def test_the_solver_learns_where_all_values_are_gains():
    columns = valued_columns(600)
    columns["value"] = np.abs(columns["value"])
    log = cq.DecisionLog.from_arrays(**columns)
    for method in ("model", "direct"):
        policy = cq.FairPolicyLearner(method=method).fit_log(log).policy_
        assert policy.propensity(log.features).mean() > 0.9
