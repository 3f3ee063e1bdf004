"""Comparing two rules on the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import consequential as cq
from covering import covering
from exploring_logs import exploring_log

NEW, OLD = cq.Policy([0.2, 0.7, -0.4]), cq.Policy([0.1, 0.6, -0.5])
METHODS = ["normal", "any_time"]


@pytest.mark.parametrize(
    ("method", "notion", "n_groups"),
    covering(METHODS, ["demographic_parity", "equalised_odds", "predictive_parity"], [1, 2, 3]),
)
def test_differences_are_those_of_the_two_evaluations(method, n_groups, notion):
    log = exploring_log(400, n_groups)
    found = cq.compare(NEW, OLD, log, cost=0.4, fairness=notion, method=method)
    one, other = (
        cq.evaluate(rule, log, cost=0.4, fairness=notion, method=method) for rule in (NEW, OLD)
    )
    for name in ("utility", "acceptance", "benefit_gap"):
        difference = getattr(one, name).value - getattr(other, name).value
        each = getattr(found, name)
        assert each.value == pytest.approx(difference, abs=1e-12)
        assert each.low <= each.value + 1e-12
        assert each.value <= each.high + 1e-12
    assert found.new.utility.value == one.utility.value
    assert found.old.benefit_gap.value == other.benefit_gap.value


def test_rows_are_paired_so_that_similar_rules_differ_by_little():
    log = exploring_log(400)
    found = cq.compare(NEW, OLD, log, cost=0.4)
    rows = np.where(log.decision, 1 / log.propensity, 0.0) * (log.outcome - 0.4)
    rows = rows * (log.propensity_of(NEW) - log.propensity_of(OLD))
    assert found.utility.standard_error == pytest.approx(rows.std(ddof=1) / sqrt(400))
    assert found.utility.standard_error < found.new.utility.standard_error / 3


@pytest.mark.parametrize("old", [cq.Logged(), cq.RejectAll()], ids=["logged", "reject all"])
def test_beside_a_model_the_past_rule_is_worth_what_was_booked(old):
    """The difference is still taken row by row, with the model's help."""
    log = exploring_log(400)
    found = cq.compare(NEW, old, log, cost=0.4, weighting=cq.weightings.DoublyRobust())
    accepted = log.decision if isinstance(old, cq.Logged) else np.zeros(400)
    assert found.old.utility.value == pytest.approx((accepted * (log.outcome - 0.4)).mean())
    model = cq.weightings.DoublyRobust().predicted(log)
    residual = np.where(log.decision, (log.outcome - model) / log.propensity, 0.0)
    change = log.propensity_of(NEW) - log.propensity_of(old)
    assert found.utility.value == pytest.approx((change * (model - 0.4 + residual)).mean())
    apart = found.new.utility.value - found.old.utility.value - found.utility.value
    noted = any("not quite one value less the other" in note for note in found.notes)
    assert noted == (abs(apart) > 1e-9)


def test_the_utility_of_a_skewed_difference_has_a_lopsided_interval():
    """Gains come seldom and large here, so the truth is more likely above than as far below."""
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.05), 5000, np.random.default_rng(1))
    found = cq.compare(cq.Policy([1.5, 5.0]), cq.Logged(), log, cost=world.cost).utility
    assert found.high - found.value > 1.05 * (found.value - found.low)


def test_paired_gaps_have_the_error_of_the_paired_influence():
    """Against 500 logs of rows drawn again, which know a deviation to 3 percent."""
    log, rng = exploring_log(1500), np.random.default_rng(0)
    rules = [log.propensity_of(rule) for rule in (NEW, OLD)]
    drawn = rng.integers(1500, size=(500, 1500))
    for notion in ("demographic_parity", "equal_opportunity", "predictive_parity"):
        objective, change = cq.Objective(0.4, notion), []
        for rows in drawn:
            coefficients = objective.coefficients(log.take(rows))
            one, other = (coefficients.sums(each[rows]).benefits[0] for each in rules)
            change.append((one[0] - one[1]) - (other[0] - other[1]))
        found = cq.compare(NEW, OLD, log, cost=0.4, fairness=notion).benefit_gap
        assert found.standard_error == pytest.approx(np.std(change), rel=0.12)


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_does_not_differ_from_itself(method):
    found = cq.compare(NEW, NEW, exploring_log(300), cost=0.4, method=method)
    assert found.utility.value == 0.0
    assert 0.0 in found.utility
    assert 0.0 in found.benefit_gap
    assert not found.better
    assert not found.worse
    if method == "normal":
        assert found.verdict.startswith("no difference in utility")
    else:  # bounds know how far rows can go, not that they do not
        assert found.verdict.startswith("cannot tell which has the higher utility")


def labelled(label: list[int], group: list[int]) -> cq.DecisionLog:
    n = len(label)
    return cq.DecisionLog.from_arrays(
        np.array(group, dtype=float), np.ones(n), np.ones(n), label, group
    )


@pytest.mark.parametrize(
    ("good_label", "verdict"), [(1, "better: utility is higher"), (0, "worse: utility is lower")]
)
def test_the_verdict_says_what_the_intervals_allow(good_label, verdict):
    label = [good_label] * 900 + [1 - good_label] * 100
    found = cq.compare(cq.AcceptAll(), cq.RejectAll(), labelled(label, [0, 1] * 500), cost=0.5)
    assert found.verdict.startswith(verdict)
    assert (found.better, found.worse) == (good_label == 1, good_label == 0)
    assert found.verdict in repr(found)


def by_group(one: float, other: float) -> cq.Policy:
    return cq.Policy([*logit(one), *logit(other)], groups=[0, 1])


def logit(rate: float) -> tuple[float, float]:
    return float(np.log(rate / (1 - rate))), 1e-3


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        ((0.5, 0.5), (0.8, 0.4), "the gap is narrower"),
        ((0.5, 0.5), (0.4, 0.8), "the gap is narrower"),
        ((0.5, 0.4), (0.2, 0.7), "the gap is narrower"),  # b0 - b1 grows from -.5 to .1
        ((0.9, 0.4), (0.4, 0.5), "the gap is wider"),
        ((0.2, 0.8), (0.5, 0.4), "the gap is wider"),
        ((0.5, 0.3), (0.3, 0.5), "cannot tell whether the gap is narrower"),  # as wide
    ],
)
def test_the_verdict_on_the_gap_is_about_its_size_and_not_its_sign(new, old, said):
    rng = np.random.default_rng(0)
    group = np.arange(600) % 2
    log = cq.DecisionLog.from_arrays(
        rng.normal(size=600), np.ones(600), np.ones(600), rng.integers(2, size=600), group
    )
    found = cq.compare(by_group(*new), by_group(*old), log, cost=0.5)
    assert found.verdict.endswith(said)


def test_a_gap_that_cannot_be_measured_is_said_to_be_so():
    log = exploring_log(100)
    found = cq.compare(NEW, cq.RejectAll(), log, cost=0.4, fairness="predictive_parity")
    assert found.verdict.endswith("the gap cannot be measured")
    assert not found.benefit_gap.known
    three = exploring_log(100, 3)
    found = cq.compare(NEW, cq.RejectAll(), three, cost=0.4, fairness="predictive_parity")
    assert found.verdict.endswith("the gap cannot be measured")


def test_what_the_log_did_is_a_rule_to_compare_with():
    log = exploring_log(300)
    found = cq.compare(NEW, cq.Logged(), log, cost=0.4)
    assert found.old.acceptance.value == pytest.approx(log.propensity.mean())


def test_a_comparison_can_be_stored_as_json():
    found = cq.compare(NEW, OLD, exploring_log(100), cost=0.4)
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert stored["verdict"] == found.verdict
    assert stored["new"]["utility"]["value"] == found.new.utility.value


def test_notes_about_either_rule_come_once():
    found = cq.compare(NEW, OLD, exploring_log(60), cost=0.4)
    assert len(found.notes) == len(set(found.notes)) > 0
    assert all(f"note: {note}" in repr(found) for note in found.notes)


def test_a_note_about_the_old_rule_alone_says_so():
    few = cq.ThresholdPolicy(cq.logistic_model([-1.2, 1.0, 0.0]), 0.5)
    found = cq.compare(cq.AcceptAll(), few, exploring_log(400), cost=0.4)
    assert found.better
    assert found.notes[0].startswith("old rule: labels stand for 18 people in effect")
    assert cq.compare(few, few, exploring_log(400), cost=0.4).notes == found.old.notes


def test_with_folds_the_learner_is_cross_fitted_and_the_rule_is_not():
    class Learner:
        def fit_log(self, log):
            self.policy_ = cq.Policy([float(log.label[log.decision].mean()), 0.0, 0.0])
            return self

    log = exploring_log(200)
    found = cq.compare(Learner(), cq.Logged(), log, cost=0.4, folds=4)
    assert found.new.utility == cq.evaluate(Learner(), log, cost=0.4, folds=4).utility
    assert any("cross-fitted" in note for note in found.new.notes)
    assert not any("cross-fitted" in note for note in found.old.notes)


# --- no verdict that says more than the log knows


def test_inverted_propensities_give_no_verdict():
    """They gave .6130 of a possible .4, and "better"."""
    world = cq.worlds.second_setting()
    log = world.collect(world.initial_policy().with_floor(0.05), 20_000, np.random.default_rng(0))
    wrong = cq.DecisionLog.from_arrays(
        log.features, log.decision, 1.0 - log.propensity, log.label, log.sensitive
    )
    found = cq.compare(cq.AcceptAll(), cq.Logged(), wrong, cost=world.cost)
    assert found.verdict.startswith("cannot tell: the propensities contradict the decisions")
    assert not found.better
    assert not found.worse
    assert any("contradict" in note for note in found.notes)
    assert cq.compare(cq.AcceptAll(), cq.Logged(), log, cost=world.cost).worse


def test_a_utility_that_no_rule_can_reach_gives_no_verdict():
    """Sixty people stand for ten each although all were accepted: 1.175 where .5 is the most."""
    n = 400
    p = np.ones(n)
    p[:60] = 0.1
    log = cq.DecisionLog.from_arrays(np.zeros((n, 1)), np.ones(n), p, np.ones(n))
    estimated = replace(log, estimated_propensity=True)  # whose weights are known to be off
    found = cq.compare(cq.AcceptAll(), cq.RejectAll(), estimated, cost=0.5)
    assert found.new.utility.value == pytest.approx(1.175)
    assert "which no rule can reach" in found.verdict
    assert not found.better


def test_honest_logs_are_not_doubted():
    world = cq.worlds.first_setting()
    for seed in range(100):
        log = world.collect(
            world.initial_policy().with_floor(0.02), 2000, np.random.default_rng(seed)
        )
        found = cq.compare(cq.AcceptAll(), cq.Logged(), log, cost=world.cost)
        assert "contradict" not in found.verdict


def test_fewer_than_a_hundred_people_in_effect_give_no_verdict():
    rng = np.random.default_rng(0)
    n = 120
    log = cq.DecisionLog.from_arrays(
        np.zeros((n, 1)),
        (decision := rng.random(n) < 0.5),
        np.full(n, 0.5),
        np.where(decision, 1.0, np.nan),
    )
    found = cq.compare(cq.AcceptAll(), cq.RejectAll(), log, cost=0.2)
    assert found.utility.low > 0.0
    assert found.utility.effective_sample_size < 100
    assert not found.better
    assert "people in effect tell the rules apart" in found.verdict


def test_what_rounding_leaves_of_a_difference_is_none():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.05), 3000, np.random.default_rng(1))
    policy = cq.Policy([1.5, 5.0])
    nearly = cq.Mixture([policy, policy], [1 / 3, 2 / 3])
    found = cq.compare(nearly, policy, log, cost=world.cost)
    assert found.verdict == "no difference in utility; no difference in the gap"
