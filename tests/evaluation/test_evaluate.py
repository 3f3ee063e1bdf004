"""Evaluating a rule from a log: values, notes, and whose rows may judge it."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

import consequential as cq
from consequential.objective.fairness import benefit_gap
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])


class AcceptanceRate:
    """A learner that accepts everybody at the rate it saw; remembers what it was fitted on."""

    def __init__(self, floor: float = 0.0) -> None:
        self.floor = floor

    def fit_log(self, log):
        rate = max(self.floor, float(log.decision.mean()))
        self.policy_ = cq.Policy(
            [np.log(rate / (1 - rate)), *np.zeros(log.features.shape[1])],
            learned_from=log.fingerprint,
        )
        return self


class Cuts:
    """A learner that scikit-learn can clone: a threshold on the first feature."""

    def __init__(self, quantile: float = 0.5) -> None:
        self.quantile = quantile

    def get_params(self, deep: bool = True) -> dict[str, float]:
        return {"quantile": self.quantile}

    def set_params(self, **params: float) -> Cuts:
        self.quantile = params["quantile"]
        return self

    def fit_log(self, log):
        cut = np.quantile(log.features[:, 0], self.quantile)
        self.policy_ = cq.Policy([-20 * cut, 20.0, 0.0], learned_from=log.fingerprint)
        return self


# Values


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize(
    "notion", ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]
)
def test_values_are_those_of_the_functionals(notion, n_groups):
    log = exploring_log(500, n_groups)
    found = cq.evaluate(POLICY, log, cost=0.3, fairness=notion)
    objective = cq.Objective(0.3, notion)
    sums = objective.coefficients(log).sums(log.propensity_of(POLICY))
    assert found.utility.value == pytest.approx(sums.utility)
    assert [each.value for each in found.benefits.values()] == pytest.approx(sums.benefits[0])
    gap = benefit_gap(sums.benefits)
    signed = n_groups == 2 and notion != "equalised_odds"
    assert found.benefit_gap.value == pytest.approx(gap if signed else abs(gap))
    assert found.acceptance.value == pytest.approx(log.propensity_of(POLICY).mean())


def test_amounts_and_costs_of_the_log_count():
    rng = np.random.default_rng(0)
    amount, cost = rng.uniform(1, 5, 300), rng.uniform(0.1, 0.9, 300)
    log = exploring_log(300, amount=amount, cost=cost)
    w = np.where(log.decision, 1 / log.propensity, 0.0)
    by_hand = np.mean(amount * w * log.propensity_of(POLICY) * (log.outcome - cost))
    assert cq.evaluate(POLICY, log).utility.value == pytest.approx(by_hand)
    assert cq.evaluate(POLICY, log, cost=0.9).utility.value == pytest.approx(by_hand)


def test_bounded_intervals_reach_as_far_as_amounts_do():
    amount = np.where(np.arange(300) % 2, 1.0, 100.0)
    one = cq.evaluate(POLICY, exploring_log(300), cost=0.4, method="any_time").utility
    large = cq.evaluate(
        POLICY, exploring_log(300, amount=amount), cost=0.4, method="any_time"
    ).utility
    assert large.high - large.low > 20 * (one.high - one.low)


def test_what_the_log_did_is_evaluated_with_its_own_propensities():
    log = exploring_log(400)
    found = cq.evaluate(cq.Logged(), log, cost=0.4)
    assert found.utility.value == pytest.approx(np.sum(log.outcome - 0.4 * log.decision) / 400)
    assert found.acceptance.value == pytest.approx(log.propensity.mean())


def test_a_policy_that_uses_the_sensitive_attribute_is_asked_by_group():
    log = exploring_log(200, 2)
    by_group = cq.Policy([5.0, 0.0, 0.0, -5.0, 0.0, 0.0], groups=[0, 1])
    found = cq.evaluate(by_group, log, cost=0.4)
    assert found.benefits[0].value == pytest.approx(1 / (1 + np.exp(-5)))
    assert found.benefit_gap.value == pytest.approx(2 / (1 + np.exp(-5)) - 1)


@pytest.mark.parametrize("method", ["normal", "any_time"])
def test_everybody_accepted_for_sure_leaves_nothing_to_weigh(method):
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=200)
    log = cq.DecisionLog.from_arrays(
        rng.normal(size=(200, 1)), np.ones(200), np.ones(200), label, rng.integers(2, size=200)
    )
    found = cq.evaluate(cq.AcceptAll(), log, cost=0.5, method=method)
    assert found.utility.value == pytest.approx(label.mean() - 0.5)
    assert found.effective_sample_size == pytest.approx(200)


@pytest.mark.parametrize("method", ["normal", "any_time"])
@pytest.mark.parametrize("notion", ["demographic_parity", "predictive_parity"])
def test_a_rule_that_rejects_everybody_is_worth_nothing(method, notion):
    log = exploring_log(200)
    found = cq.evaluate(cq.RejectAll(), log, cost=0.5, fairness=notion, method=method)
    assert found.utility.value == 0.0
    assert found.benefit_gap.known == (notion == "demographic_parity")
    assert "not measurable" in repr(found) or notion == "demographic_parity"
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "weighting",
    [
        cq.weightings.Clipped(2.0),
        cq.weightings.SelfNormalised(),
        cq.weightings.DoublyRobust(LogisticRegression()),
        cq.weightings.Unweighted(),
    ],
    ids=repr,
)
def test_any_weighting_passes_through(weighting):
    log = exploring_log(400)
    found = cq.evaluate(POLICY, log, cost=0.4, weighting=weighting, fairness="equal_opportunity")
    objective = cq.Objective(0.4, "equal_opportunity", weighting=weighting)
    sums = objective.coefficients(log).sums(log.propensity_of(POLICY))
    assert found.utility.value == pytest.approx(sums.utility)
    assert [each.value for each in found.benefits.values()] == pytest.approx(sums.benefits[0])


def test_clipped_weights_reach_no_further_than_their_clip():
    log = exploring_log(400)
    clipped, plain = (
        cq.evaluate(POLICY, log, cost=0.4, weighting=weighting, method="any_time").utility
        for weighting in (cq.weightings.Clipped(2.0), None)
    )
    assert clipped.high - clipped.low < plain.high - plain.low


# Notes


def test_decisions_younger_than_the_horizon_are_left_out_and_counted():
    step = np.arange(300) // 50
    log = exploring_log(300, time_step=step, horizon=2)
    found = cq.evaluate(POLICY, log, cost=0.4)
    assert found.n == 200
    assert found.utility == cq.evaluate(POLICY, log.take(step <= 3).settled(), cost=0.4).utility
    assert "100 rows younger than the horizon of 2 time steps left out" in found.notes[0]
    assert "100 rows younger" in repr(found)


def test_estimated_propensities_are_flagged():
    log = replace(exploring_log(300), estimated_propensity=True)
    for found in (
        cq.evaluate(POLICY, log, cost=0.4),
        cq.compare(POLICY, cq.Logged(), log, cost=0.4),
        cq.group_metrics(POLICY, log),
        cq.sensitivity(POLICY, log, cost=0.4),
    ):
        assert any("propensities were estimated" in note for note in found.notes)
        assert "propensities were estimated" in repr(found)


def test_few_people_and_heavy_ones_are_pointed_out():
    n = 60
    propensity = np.full(n, 0.9)
    propensity[0] = 0.01
    log = cq.DecisionLog.from_arrays(
        np.zeros((n, 2)), np.ones(n), propensity, np.arange(n) % 2, np.arange(n) % 2
    )
    notes = cq.evaluate(POLICY, log, cost=0.4).notes
    assert any("people in effect" in note for note in notes)
    assert any("one person carries" in note for note in notes)


def test_a_floor_that_is_only_observed_is_pointed_out():
    log = exploring_log(200)
    assert any(
        "give floor=" in n for n in cq.evaluate(POLICY, log, cost=0.4, method="any_time").notes
    )
    told = cq.evaluate(POLICY, log, cost=0.4, method="any_time", floor=0.1)
    assert not any("give floor=" in note for note in told.notes)
    world = cq.worlds.first_setting()
    known = world.collect(world.initial_policy().with_floor(0.1), 2000, np.random.default_rng(0))
    rule = cq.Policy([1.0, 1.0])
    assert cq.evaluate(rule, known, cost=0.4, method="any_time").notes == ()


def test_a_log_without_groups_has_no_gap():
    log = exploring_log(200, 1)
    for method in ("normal", "any_time"):
        found = cq.evaluate(POLICY, log, cost=0.4, method=method)
        assert (found.benefit_gap.value, found.benefit_gap.low, found.benefit_gap.high) == (0, 0, 0)
        assert "one group, so there is no gap" in found.notes


@pytest.mark.parametrize("method", ["normal", "any_time"])
@pytest.mark.parametrize("groups", [2, 3])
def test_a_group_that_cannot_be_measured_is_named_and_left_out(method, groups):
    n = 200
    rng = np.random.default_rng(1)
    group = rng.integers(groups - 1, size=n)
    decision = rng.random(n) < 0.5
    log = cq.DecisionLog.from_arrays(
        rng.normal(size=(n, 2)),
        decision,
        np.full(n, 0.5),
        np.where(decision, rng.integers(2, size=n), np.nan),
        group,
        groups=range(groups),
    )
    found = cq.evaluate(POLICY, log, cost=0.4, fairness="equal_opportunity", method=method)
    assert not found.benefits[groups - 1].known
    assert found.benefit_gap.known == (groups == 3)
    assert f"equal_opportunity cannot be measured for {groups - 1}" in found.notes
    json.dumps(found.to_dict(), allow_nan=False)


def test_everything_can_be_stored_as_json():
    log = exploring_log(200, 3)
    for method in ("normal", "any_time"):
        found = cq.evaluate(POLICY, log, cost=0.4, method=method)
        stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert stored["utility"]["value"] == found.utility.value
        assert stored["group_sizes"] == {str(z): found.group_sizes[z] for z in range(3)}
        assert set(stored["benefits"]) == {"0", "1", "2"}
        assert stored["method"] == method


def test_effective_sample_sizes_are_those_of_weights_times_propensities():
    log = exploring_log(300, 2)
    counted = np.where(log.decision, log.propensity_of(POLICY) / log.propensity, 0.0)
    found = cq.evaluate(POLICY, log, cost=0.4, fairness="equal_opportunity")
    assert found.effective_sample_size == pytest.approx(
        cq.weightings.effective_sample_size(counted)
    )
    for z in range(2):
        here = cq.weightings.effective_sample_size(counted[log.group == z])
        assert found.group_effective_sizes[z] == pytest.approx(here)
        assert found.benefits[z].effective_sample_size == pytest.approx(here)
    parity = cq.evaluate(POLICY, log, cost=0.4)
    assert parity.benefits[0].effective_sample_size == found.group_sizes[0]


# Whose rows


def test_a_policy_judged_on_the_log_it_learned_from_warns_and_says_what_to_do():
    log = exploring_log(200)
    learner = AcceptanceRate().fit_log(log)
    for rule in (
        learner,
        learner.policy_,
        learner.policy_.with_floor(0.1),
        cq.Mixture([learner.policy_, cq.AcceptAll()], [0.5, 0.5]),
    ):
        with pytest.warns(cq.WinnersCurseWarning, match=r"log\.split.*folds=5"):
            cq.evaluate(rule, log, cost=0.4)


def test_the_warning_points_at_the_call():
    log = exploring_log(200)
    policy = AcceptanceRate().fit_log(log).policy_
    calls = [
        lambda: cq.evaluate(policy, log, cost=0.4),
        lambda: cq.compare(policy, cq.Logged(), log, cost=0.4),
        lambda: cq.group_metrics(policy, log),
        lambda: cq.sensitivity(policy, log, cost=0.4),
        lambda: cq.statistics.utility_sequence(policy, log, cost=0.4),
    ]
    for call in calls:
        with pytest.warns(cq.WinnersCurseWarning) as caught:
            call()
        assert caught[0].filename == __file__


def test_other_rows_judge_without_a_warning():
    log = exploring_log(200)
    early, late = log.split(0.5, by="random", rng=np.random.default_rng(0))
    learner = AcceptanceRate().fit_log(early)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cq.evaluate(learner, late, cost=0.4)
        cq.evaluate(cq.Logged(), log, cost=0.4)


def test_learning_from_the_settled_rows_counts_as_the_same_log():
    log = exploring_log(300, time_step=np.arange(300) // 50, horizon=2)
    learner = AcceptanceRate().fit_log(log.settled())
    with pytest.warns(cq.WinnersCurseWarning):
        cq.evaluate(learner, log, cost=0.4)


@pytest.mark.parametrize("learner", [AcceptanceRate(), Cuts(0.3)], ids=["copied", "cloned"])
def test_with_folds_every_row_is_judged_by_a_policy_that_has_not_seen_it(learner):
    log = exploring_log(103)
    found = cq.statistics.cross_fitted_propensities(learner, log, folds=4, seed=9)
    fold = np.random.default_rng(9).permutation(103) % 4
    for k in range(4):
        policy = type(learner)(**vars(learner)).fit_log(log.take(fold != k)).policy_
        assert_allclose(found[fold == k], policy.propensity(log.features[fold == k]))
    assert not hasattr(learner, "policy_")


def test_folds_need_no_fitted_learner_and_are_noted():
    log = exploring_log(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cq.evaluate(Cuts(), log, cost=0.4, folds=5)
        fitted = cq.evaluate(Cuts().fit_log(log), log, cost=0.4, folds=5)
    assert found.n == 200
    assert found.utility == fitted.utility
    assert (
        "cross-fitted: every row is decided by a policy learned from the other 4" in found.notes[0]
    )


def test_folds_use_settled_rows_only():
    log = exploring_log(300, time_step=np.arange(300) // 50, horizon=2)
    assert cq.statistics.cross_fitted_propensities(Cuts(), log, folds=3).shape == (200,)
    assert cq.evaluate(Cuts(), log, cost=0.4, folds=3).n == 200


def test_copies_of_rows_are_pointed_out():
    """Every row three times: intervals would cover in three of four logs, and say nothing."""
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 1000, np.random.default_rng(0))
    copied = log.take(np.repeat(np.arange(1000), 3))
    policy = cq.Policy([1.5, 5.0])
    assert any("exact copies" in n for n in cq.evaluate(policy, copied, cost=world.cost).notes)
    assert not any("copies" in n for n in cq.evaluate(policy, log, cost=world.cost).notes)


def test_the_gap_is_between_the_groups_with_the_largest_and_the_smallest_benefit():
    log = exploring_log(600, 4)
    found = cq.evaluate(cq.Policy([0.2, 0.7, -0.4]), log, cost=0.5)
    rates = {group: each.value for group, each in found.benefits.items()}
    most, least = found.furthest_apart
    assert rates[most] == max(rates.values())
    assert rates[least] == min(rates.values())
    assert rates[most] - rates[least] == pytest.approx(found.benefit_gap.value)
    one = cq.evaluate(cq.AcceptAll(), log.take(log.group == 0), cost=0.5)
    assert one.furthest_apart is None
