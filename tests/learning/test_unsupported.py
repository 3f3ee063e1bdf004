"""Learning from logs that cannot speak about everybody."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import consequential as cq
from consequential.learning import fitting
from exploring_logs import exploring_log

CUT = -1.0


class KnockOut(cq.DecisionRule):
    """Nobody below a cut is accepted, whatever the rule for the others."""

    def __init__(self, rule, cut=CUT):
        self.rule, self.cut = rule, cut

    def propensity(self, features, sensitive=None):
        score = np.asarray(features)[:, 0]
        return np.where(score < self.cut, 0.0, self.rule.propensity(features))


def knocked_out(n=20_000, seed=0):
    world = cq.worlds.second_setting()
    rule = KnockOut(world.initial_policy().with_floor(0.05))
    return world, world.collect(rule, n, np.random.default_rng(seed))


def deterministic(n=20_000, seed=2):
    world = cq.worlds.second_setting()
    rule = cq.ThresholdPolicy(cq.logistic_model([-3.5, 0.6]), world.cost)
    return world, world.collect(rule, n, np.random.default_rng(seed))


def scan_of(log, folder):
    pq.write_table(log.to_frame(), folder / "log.parquet", row_group_size=1_000)
    columns = {name: name for name in ("decision", "propensity", "label", "sensitive")}
    return cq.DecisionLog.scan(folder, features=list(log.feature_names), **columns)


def chance_of(learner, features, sensitive):
    uses = learner.policy_.uses_sensitive
    return learner.policy_.propensity(features, sensitive if uses else None)


# --- logs that left nothing to chance


@pytest.mark.parametrize("mode", ["reject", "as_logged"])
def test_a_log_that_left_nothing_to_chance_is_refused(mode):
    world, log = deterministic()
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost, unsupported=mode)
    with pytest.raises(cq.DecisionLogError, match="left nothing to chance") as raised:
        learner.fit_log(log, folds=5)
    said = str(raised.value)
    assert cq.overlap(log).reasons[0] in said
    for advice in ("rule.with_floor(0.05)", "plan()", "trust_model"):
        assert advice in said
    arrays = {"decisions": log.decision, "propensities": log.propensity}
    with pytest.raises(cq.DecisionLogError, match="left nothing to chance"):
        learner.fit(log.features, log.label, sensitive_features=log.sensitive, **arrays)


def test_a_scan_that_left_nothing_to_chance_is_refused(tmp_path):
    world, log = deterministic(4_000)
    with pytest.raises(cq.DecisionLogError, match="left nothing to chance"):
        cq.FairPolicyLearner(method="direct", cost=world.cost).fit_log(scan_of(log, tmp_path))


def test_extrapolating_from_it_can_be_asked_for_and_is_said():
    world, log = deterministic()
    learner = cq.FairPolicyLearner(
        method="direct", cost=world.cost, unsupported="trust_model"
    ).fit_log(log)
    assert "extrapolates to people whom its log does not support" in repr(learner.policy_)
    assert "The policy extrapolates to them" in learner.result_.notes[-1]
    # which is why it has to be asked for: the log promises a gain where there is a loss
    assert learner.result_.utility > 0.01 > 0.0 > world.exact(learner.policy_).utility


def test_a_log_in_which_everybody_was_accepted_is_not_refused():
    world = cq.worlds.first_setting()
    log = world.collect(cq.AcceptAll(), 4_000, np.random.default_rng(0))
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost).fit(log.features, log.label)
    assert learner.policy_.support is None
    assert world.exact(learner.policy_).utility > 0.17


def test_a_log_that_supports_nobody_in_particular_is_refused():
    # half of all people, whatever they are like, could not be accepted
    log = exploring_log(n=4_000)
    chosen = np.arange(4_000) % 2 == 0
    hidden = cq.DecisionLog.from_arrays(
        log.features,
        log.decision & chosen,
        np.where(chosen, log.propensity, 0.0),
        np.where(chosen, log.label, np.nan),
        log.sensitive,
    )
    with pytest.raises(cq.DecisionLogError, match="people of every kind"):
        cq.FairPolicyLearner(method="direct").fit_log(hidden)


# --- logs with a knock-out rule


@pytest.mark.parametrize(
    "options",
    [{}, {"max_gap": 0.05}, {"max_gap": 0.05, "uses_sensitive": True}, {"penalty": 5.0}],
)
def test_people_who_were_never_accepted_are_not_accepted(options):
    world, log = knocked_out()
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost, floor=0.02, **options).fit_log(
        log
    )
    assert "rejects people whom its log does not support" in repr(learner.policy_)
    for seed in (10, 11):
        new, group = world.propose(20_000, np.random.default_rng(seed))
        chance, out = chance_of(learner, new, group), new[:, 0] < CUT
        assert chance[out].mean() <= 1e-3
        assert chance[~out].min() >= 0.0
        assert np.mean(chance[~out] >= 0.02) >= 0.999  # a floor explores among the others
    extrapolating = cq.FairPolicyLearner(
        method="direct", cost=world.cost, unsupported="trust_model", **options
    )
    chance = chance_of(extrapolating.fit_log(log), new, group)
    assert chance[out].mean() > 0.1


def test_the_log_is_right_about_a_policy_that_keeps_to_its_support():
    world, log = knocked_out(seed=1)
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost, max_gap=0.05).fit_log(
        log, folds=3
    )
    truth = world.exact(learner.policy_)
    assert learner.result_.utility == pytest.approx(truth.utility, abs=0.02)
    assert learner.value_.utility.low < truth.utility < learner.value_.utility.high


@pytest.mark.parametrize("mode", ["reject", "as_logged"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_gap": 0.05},
        {"max_gap": 0.05, "uses_sensitive": True, "floor": 0.01},
        {"penalty": 5.0},
        {"weighting": cq.weightings.DoublyRobust(folds=2), "max_gap": 0.05},
        {"fairness": "equal_opportunity", "max_gap": 0.05},
        {"fairness": "predictive_parity", "max_gap": 0.1},
    ],
)
def test_certificates_are_what_the_log_says_of_the_final_policy(mode, options):
    # propensities of a few in a million beside those of 0: as_logged then accepts a few
    world, log = knocked_out(8_000)
    rare = (log.propensity == 0.0) & (np.arange(len(log)) % 3 == 0)
    log = cq.DecisionLog.from_arrays(
        log.features,
        log.decision,
        np.where(rare, 1e-4, log.propensity),
        log.label,
        log.sensitive,
    )
    learner = cq.FairPolicyLearner(
        method="direct", cost=world.cost, unsupported=mode, **options
    ).fit_log(log)
    found = learner.result_
    objective = cq.Objective(
        world.cost, learner.fairness, learner.penalty, weighting=learner.weighting
    )
    sums = objective.coefficients(log).sums(log.propensity_of(found.policy))
    assert found.utility == pytest.approx(sums.utility, rel=1e-9, abs=1e-12)
    assert list(found.benefits.values()) == pytest.approx(sums.benefits[0], rel=1e-9)
    accepted = log.propensity_of(found.policy)[~accepted_before(log)]
    assert accepted.max() <= (0.0 if mode == "reject" else 1e-3)


def accepted_before(log):
    return log.features[:, 0] >= CUT


@pytest.mark.parametrize("options", [{}, {"max_gap": 0.05}, {"penalty": 5.0}])
def test_evaluating_the_policy_on_the_log_gives_the_certificates(options):
    world, log = knocked_out(8_000)
    found = cq.FairPolicyLearner(method="direct", cost=world.cost, **options).fit_log(log).result_
    with pytest.warns(UserWarning, match="learned from"):
        judged = cq.evaluate(found.policy, log, cost=world.cost, fairness="demographic_parity")
    assert found.utility == pytest.approx(judged.utility.value, rel=1e-9)
    assert found.benefit_gap == pytest.approx(judged.benefit_gap.value, rel=1e-9)


def test_a_bound_counts_people_who_are_rejected_for_want_of_support():
    world, log = knocked_out()
    found = (
        cq.FairPolicyLearner(method="direct", cost=world.cost, max_gap=0.03).fit_log(log).result_
    )
    truth = world.exact(found.policy)
    assert abs(found.benefit_gap) <= 0.0301
    assert abs(truth.benefit_gap) <= 0.03 + 0.02


def test_a_scan_teaches_the_same_support(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLED", 3_000)
    world, log = knocked_out(9_000)
    scan = scan_of(log, tmp_path)
    scanned = cq.FairPolicyLearner(method="direct", cost=world.cost, max_gap=0.05).fit_log(scan)
    whole = cq.FairPolicyLearner(method="direct", cost=world.cost, max_gap=0.05).fit_log(log)
    differ = scanned.policy_.supports(log.features) != whole.policy_.supports(log.features)
    assert differ.mean() <= 5.0 / 3_000
    assert scanned.policy_.support.smallest == whole.policy_.support.smallest
    sums = cq.Objective(world.cost, "demographic_parity").coefficients(log)
    judged = sums.sums(log.propensity_of(scanned.policy_))
    assert scanned.result_.utility == pytest.approx(judged.utility, rel=1e-9)
    assert scanned.result_.utility == pytest.approx(whole.result_.utility, abs=2e-3)


# --- logs that support everybody


@pytest.mark.parametrize("options", [{}, {"max_gap": 0.02}, {"penalty": 2.0}])
def test_nothing_changes_where_the_log_supports_everybody(options):
    log = exploring_log(n=2_000)
    found = [
        cq.FairPolicyLearner(method="direct", unsupported=mode, **options).fit_log(log)
        for mode in ("reject", "as_logged", "trust_model")
    ]
    for learner in found:
        assert learner.policy_.support is None
        assert_array_equal(learner.policy_.theta, found[0].policy_.theta)
        assert learner.result_.notes == ()
