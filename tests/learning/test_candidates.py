"""A learner that compares methods on rows they did not see, and takes the right one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import consequential as cq
from consequential.learning.candidates import _Contest
from consequential.learning.modelled import Modelled

COST = 0.55


def people(n, rng):
    """Return features, groups, chances of label 1 and the past rule's propensities.

    The past rule is all but random where it matters, so that weights have little variance.
    """
    features = rng.normal(size=(n, 3))
    group = (rng.random(n) < expit(features[:, 2])).astype(int)
    chance = expit(1.5 * features[:, 0] * features[:, 1] + 0.5 * features[:, 2])
    return features, group, chance, 0.2 + 0.6 * expit(features[:, 0])


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(20_200_626)
    features, group, chance, propensity = people(3_000, rng)
    decision = rng.random(3_000) < propensity
    label = np.where(decision, rng.random(3_000) < chance, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, propensity, label, group)


@pytest.fixture(scope="module")
def learner(log):
    """What is learned by default, with everything it was compared with."""
    return cq.FairPolicyLearner(cost=COST).fit_log(log)


def true_value(policy):
    features, group, chance, _ = people(50_000, np.random.default_rng(1))
    sensitive = group if policy.uses_sensitive else None
    propensity = policy.propensity(features, sensitive)
    rates = [propensity[group == z].mean() for z in (0, 1)]
    return ((chance - COST) * propensity).mean(), abs(rates[0] - rates[1])


@pytest.fixture(scope="module")
def best():
    chance = people(50_000, np.random.default_rng(1))[2]
    return np.maximum(chance - COST, 0.0).mean()


def test_by_default_the_policy_is_nearly_the_best_there_is(learner, best):
    utility, _ = true_value(learner.policy_)
    assert utility > 0.9 * best
    assert learner.result_.candidates.chosen.name == "model"


def test_the_table_shows_what_other_rules_would_have_done(log, learner):
    candidates = learner.result_.candidates
    names = [entry.name for entry in candidates.entries]
    assert set(names) == {
        *("model", "scores", "direct", "plain regression"),
        *("past rule", "accept all", "reject all"),
    }
    assert candidates["plain regression"].difference.high < 0.0  # labels are not linear
    assert candidates["reject all"].value.utility.value == 0.0
    booked = (log.decision * (log.outcome - COST)).mean()
    assert candidates["past rule"].value.utility.value == pytest.approx(booked)
    assert candidates["past rule"].value.acceptance.value == pytest.approx(
        log.propensity.mean(), abs=0.01
    )
    text = repr(candidates)
    assert all(name in text for name in names)
    assert "-> model" in text


def test_a_wrong_model_gives_way_to_direct_search():
    # of one feature, a regression can say only that more is better: here the middle is best
    world = cq.worlds.second_setting()
    log = world.collect(cq.Policy([0.0, 0.1]), 20_000, np.random.default_rng(1))
    learner = cq.FairPolicyLearner(cost=world.cost, outcome_model=LogisticRegression())
    learner.fit_log(log)
    assert learner.result_.candidates.chosen.name != "model"
    by_model = cq.FairPolicyLearner(
        cost=world.cost, outcome_model=LogisticRegression(), method="model"
    ).fit_log(log)
    assert world.exact(learner.policy_).utility > world.exact(by_model.policy_).utility + 0.01


def test_where_labels_say_nothing_nobody_is_accepted_at_a_loss(rng):
    n = 1_000
    features, propensity = rng.normal(size=(n, 5)), np.full(n, 0.5)
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < 0.3, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, propensity, label)
    learner = cq.FairPolicyLearner(cost=0.6).fit_log(log)
    assert learner.policy_.propensity(rng.normal(size=(2_000, 5))).mean() < 0.02


@pytest.mark.parametrize("method", ["model", "scores"])
@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_a_bound_holds_on_the_log_and_nearly_so_among_other_people(
    method, uses_sensitive, log, best
):
    learner = cq.FairPolicyLearner(
        cost=COST, max_gap=0.02, method=method, uses_sensitive=uses_sensitive
    ).fit_log(log)
    utility, gap = true_value(learner.policy_)
    assert abs(learner.result_.benefit_gap) <= 0.0202
    assert gap <= 0.07  # three standard errors of a gap of 3000 people, and the bound
    assert utility > 0.6 * best


def test_equal_opportunity_is_bounded_too(log):
    learner = cq.FairPolicyLearner(
        cost=COST, max_gap=0.02, fairness="equal_opportunity", method="model"
    ).fit_log(log)
    features, group, chance, _ = people(50_000, np.random.default_rng(1))
    accepted = chance * learner.policy_.propensity(features)
    rates = [accepted[group == z].sum() / chance[group == z].sum() for z in (0, 1)]
    assert abs(rates[0] - rates[1]) < 0.1  # two standard errors of about .04, and the bound


def test_its_value_is_that_of_policies_learned_from_other_rows(learner):
    utility, gap = true_value(learner.policy_)
    assert utility in learner.value_.utility
    assert gap == pytest.approx(abs(learner.policy_gap_.value), abs=0.06)
    assert learner.value_ == learner.result_.candidates.chosen.value or any(
        "cross-fitted" in note for note in learner.value_.notes
    )


def test_methods_and_models_can_be_searched_over():
    rng = np.random.default_rng(5)
    features = rng.normal(size=(300, 2))
    labels = (rng.random(300) < expit(features[:, 0])).astype(int)
    grid = {"method": ["model", "direct"], "outcome_model": [None, LogisticRegression()]}
    search = GridSearchCV(cq.FairPolicyLearner(cost=0.5), grid, cv=2).fit(features, labels)
    assert search.best_score_ > 0.0


def test_a_score_without_decisions_is_refused_after_a_fit_with_them(log):
    given = {"decisions": log.decision, "propensities": log.propensity}
    learner = cq.FairPolicyLearner(cost=COST, method="direct").fit(
        log.features, log.outcome, **given
    )
    assert np.isfinite(learner.score(log.features, log.outcome, **given))
    with pytest.raises(ValueError, match="labels of rejected people would count as known"):
        learner.score(log.features, log.outcome)


def test_a_confidence_is_asked_of_the_method_that_was_chosen(log):
    learner = cq.FairPolicyLearner(cost=COST, max_gap=0.15, confidence=0.9).fit_log(log)
    assert learner.safety_.chosen.most <= 0.15
    assert learner.result_.candidates.chosen.name in ("model", "scores", "direct")


def test_the_frontier_fits_models_once_and_gives_way_as_the_bound_tightens(log):
    found = cq.frontier(log, cost=COST, max_gaps=[0.0, 0.05, None], folds=2)
    gaps = [abs(point.benefit_gap.value) for point in found.points]
    assert gaps[0] < gaps[2]
    assert found.points[0].utility.value <= found.points[2].utility.value + 0.002


def test_where_every_method_breaks_the_bound_the_better_trivial_rule_is_taken(rng):
    # a group that is all but given by a feature which labels hang on: few people, a bound of 0
    n = 1_500
    group = (rng.random(n) < 0.5).astype(int)
    features = np.column_stack([rng.normal(size=n) + 3.0 * group, rng.normal(size=n)])
    propensity = np.full(n, 0.5)
    decision = rng.random(n) < propensity
    chance = expit(2.0 * features[:, 0] - 3.0)
    label = np.where(decision, rng.random(n) < chance, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, propensity, label, group)
    candidates = cq.FairPolicyLearner(cost=0.9, max_gap=0.0).fit_log(log).result_.candidates
    assert candidates.chosen.within_bound
    if candidates.chosen.name in ("accept all", "reject all"):
        assert candidates.chosen.name == "reject all"  # accepting everybody loses money
    assert not candidates["plain regression"].within_bound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "options", "best"),
    [
        (cq.worlds.first_setting, {}, 0.1780),
        (cq.worlds.first_setting, {"max_gap": 0.0, "uses_sensitive": True}, 0.1770),
        (cq.worlds.second_setting, {}, 0.0920),
        (cq.worlds.second_setting, {"max_gap": 0.0}, 0.0649),
    ],
)
def test_200_000_decisions_teach_nearly_the_best_policy_there_is(world, options, best):
    world = world()
    start = world.initial_policy().with_floor(0.05)
    log = world.collect(start, 200_000, np.random.default_rng(0))
    policy = cq.FairPolicyLearner(cost=world.cost, **options).fit_log(log).policy_
    found = world.exact(policy)
    assert found.utility > best - 0.002
    if options:
        assert abs(found.benefit_gap) < 0.005


def test_a_policy_stays_half_a_standard_error_inside_its_bound(log):
    learner = cq.FairPolicyLearner(cost=COST, max_gap=0.05, method="model").fit_log(log)
    error = learner.value_.benefit_gap.standard_error
    assert abs(learner.result_.benefit_gap) < 0.05 - 0.4 * error  # the plain rule's differs a bit


def test_what_replaces_a_candidate_does_not_look_further_off_the_bound():
    """Of a group of 3 % hardly any bound is surely broken, and breaking it brings utility."""
    rng = np.random.default_rng(0)
    group = (rng.random(4_000) < 0.03).astype(int)
    features = rng.normal(size=(4_000, 3))
    features[:, 0] -= 1.2 * group
    chance = expit(0.3 + 1.2 * features[:, 0])
    propensity = 0.05 + 0.9 * expit(features[:, 0])
    decision = rng.random(4_000) < propensity
    label = np.where(decision, rng.random(4_000) < chance, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, propensity, label, group)
    learner = cq.FairPolicyLearner(
        cost=0.5, fairness="equal_opportunity", max_gap=0.02, outcome_model=LogisticRegression()
    ).fit_log(log)
    candidates = learner.result_.candidates
    chosen, scores = candidates.chosen, candidates["scores"]
    assert chosen.name == "model"
    assert scores.within_bound
    assert scores.difference.value > 2.0 * scores.difference.standard_error
    assert scores.value.benefit_gap.value > chosen.value.benefit_gap.value + 0.02
    assert any("cannot tell whether it is kept" in note for note in learner.result_.notes)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_gap_is_the_models_unless_labels_contradict_it(log, is_wrong):
    learner = cq.FairPolicyLearner(cost=COST, fairness="equal_opportunity", max_gap=0.02)
    modelled = Modelled.of(learner.set_params(outcome_model=LogisticRegression()), log, folds=2)
    accepted = np.where(log.group == 1, log.features[:, 2] > -0.5, log.features[:, 2] > 0.0)
    if is_wrong:  # as if only those would repay in group 1 who are rejected
        predicted = np.where((log.group == 1) & accepted, 0.01, modelled.outcome.predicted)
        modelled = replace(modelled, outcome=replace(modelled.outcome, predicted=predicted))
    contest = _Contest.of(modelled, {"rule": accepted.astype(float)})
    (labels,), (model,) = contest.values["rule"], contest.predicted["rule"]
    off = abs(labels.benefit_gap.value - model.benefit_gap.value)
    assert (off > 2.0 * labels.benefit_gap.standard_error) == is_wrong
    stands = labels if is_wrong else model
    assert contest.excess("rule") == pytest.approx(abs(stands.benefit_gap.value) - 0.02)
