"""Bounds when propensities are off, against every corner there is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest

import consequential as cq
from consequential.objective.objective import Weighting
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])
NOTIONS = {
    "demographic_parity": cq.fairness.DemographicParity(),
    "equal_opportunity": cq.fairness.EqualOpportunity(),
    "equalised_odds": cq.fairness.EqualisedOdds(),
    "predictive_parity": cq.fairness.PredictiveParity(),
    "judged rightly": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}


def small_log() -> cq.DecisionLog:
    """Twelve people, eight accepted, four times over: copies agree, so there are 256 corners."""
    rng = np.random.default_rng(3)
    decision = np.array([1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1], dtype=bool)
    label = np.where(decision, np.array([1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0]), np.nan)
    columns = rng.normal(size=(12, 2)), decision, rng.uniform(0.2, 0.8, 12), label
    return cq.DecisionLog.from_arrays(
        *(np.concatenate([column] * 4) for column in columns), np.arange(48) % 2
    )


def corners(log: cq.DecisionLog, gamma: float):
    """Every way to set each accepted row's weight to one of its two ends, copies alike."""
    accepted = np.flatnonzero(log.decision[:12])
    excess = 1 / log.propensity[accepted] - 1
    ends = np.stack([1 + excess / gamma, 1 + excess * gamma])
    for choice in product((0, 1), repeat=len(accepted)):
        weights = np.zeros(12)
        weights[accepted] = ends[list(choice), np.arange(len(accepted))]
        yield np.tile(weights, 4)


def figures(log: cq.DecisionLog, weights: np.ndarray, notion: cq.fairness.Fairness):
    """Utility and benefits with weights as given."""

    class Given(Weighting):
        def weights(self, log):
            return weights

    objective = cq.Objective(0.4, notion, weighting=Given())
    sums = objective.coefficients(log).sums(log.propensity_of(POLICY))
    return sums.utility, sums.benefits


@pytest.mark.parametrize("notion", list(NOTIONS))
@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_bounds_are_the_extremes_over_all_corners(notion, gamma):
    """A linear function, and a ratio of two, is extreme at a corner of the box."""
    log = small_log()
    found = cq.sensitivity(POLICY, log, cost=0.4, fairness=NOTIONS[notion], gammas=[gamma])
    everything = [figures(log, weights, NOTIONS[notion]) for weights in corners(log, gamma)]
    utilities = np.array([each[0] for each in everything])
    benefits = np.array([each[1] for each in everything])
    bounds = found.utility[0]
    assert (bounds.smallest, bounds.largest) == pytest.approx((utilities.min(), utilities.max()))
    for z in (0, 1):
        ends = found.benefits[z][0]
        here = benefits[:, 0, z]
        assert (ends.smallest, ends.largest) == pytest.approx((here.min(), here.max()))
    gaps = benefits[:, :, 0] - benefits[:, :, 1]
    if notion != "equalised_odds":
        ends = found.benefit_gap[0]
        assert (ends.smallest, ends.largest) == pytest.approx((gaps.min(), gaps.max()))
    else:
        assert found.benefit_gap[0].largest == pytest.approx(np.abs(gaps).max())


def test_the_gap_of_three_groups_is_between_two_different_ones():
    """A group's own smallest and largest benefit may be further apart, but that is no gap."""
    sensitive = np.repeat(["a", "b", "c"], 40)
    unsure = sensitive == "a"
    decision = ~unsure | (np.arange(120) % 2 == 0)
    label = np.where(decision, np.arange(120) // 2 % 2, np.nan)
    log = cq.DecisionLog.from_arrays(
        np.zeros((120, 2)), decision, np.where(unsure, 0.5, 1.0), label, sensitive
    )
    accepted_positive = cq.fairness.BenefitParity(lambda d, y: float(d and y))
    found = cq.sensitivity(cq.AcceptAll(), log, cost=0.4, fairness=accepted_positive, gammas=[3.0])
    # 10 of the 40 are known positives, with weights from 1 + 1/3 to 1 + 3
    ends = found.benefits["a"][0]
    assert (ends.smallest, ends.largest) == pytest.approx((1 / 3, 1.0))
    assert found.benefits["b"][0].smallest == found.benefits["c"][0].largest == 0.5
    assert found.benefit_gap[0].largest == pytest.approx(0.5)


def test_at_a_factor_of_one_bounds_are_the_evaluation():
    log = exploring_log(500, 2)
    for notion in NOTIONS.values():
        bounds = cq.sensitivity(POLICY, log, cost=0.4, fairness=notion, gammas=[1.0])
        found = cq.evaluate(POLICY, log, cost=0.4, fairness=notion)
        one = bounds.utility[0]
        assert one.smallest == one.largest == pytest.approx(found.utility.value)
        assert (one.low, one.high) == pytest.approx((found.utility.low, found.utility.high))
        for z in (0, 1):
            ends, each = bounds.benefits[z][0], found.benefits[z]
            # intervals of rates are not quite symmetric, those of bounds are
            assert (ends.low, ends.high) == pytest.approx((each.low, each.high), abs=0.01)
        if notion.name != "equalised_odds":
            gap = bounds.benefit_gap[0]
            assert (gap.low, gap.high) == pytest.approx(
                (found.benefit_gap.low, found.benefit_gap.high), abs=0.01
            )


@pytest.mark.parametrize("notion", ["equal_opportunity", "predictive_parity"])
@pytest.mark.parametrize("unknown", ["never accepted", "missing"])
def test_unknown_labels_widen_bounds_as_they_widen_intervals(unknown, notion):
    log = exploring_log(600, 2)
    some = np.arange(600) % 20 == 0
    p, decision, label = log.propensity.copy(), log.decision.copy(), log.label.copy()
    missing = "refuse"
    if unknown == "missing":
        label[some], missing = np.nan, "against"
    else:
        p[some], decision[some], label[some] = 0.0, False, np.nan
    log = cq.DecisionLog.from_arrays(
        log.features, decision, p, label, log.sensitive, missing=missing
    )
    question = {"cost": 0.4, "fairness": notion}
    bounds = cq.sensitivity(POLICY, log, gammas=[1.0, 2.0], **question)
    found = cq.evaluate(POLICY, log, **question)
    one = bounds.utility[0]
    assert one.smallest < one.largest
    assert (one.low, one.high) == pytest.approx((found.utility.low, found.utility.high))
    for z in (0, 1):
        ends, each = bounds.benefits[z][0], found.benefits[z]
        assert (ends.low, ends.high) == pytest.approx((each.low, each.high), abs=0.02)
    apart = cq.sensitivity(POLICY, log, gammas=[1.0], versus=cq.Logged(), **question).utility[0]
    gain = cq.compare(POLICY, cq.Logged(), log, **question).utility
    assert (apart.low, apart.high) == pytest.approx((gain.low, gain.high))


def test_labels_missing_at_random_are_weighed_by_the_probability_of_being_seen():
    log = exploring_log(400, 2)
    label = np.where(np.arange(400) % 4 == 0, np.nan, log.label)
    log = cq.DecisionLog.from_arrays(
        log.features,
        log.decision,
        log.propensity,
        label,
        missing="at_random",
        observed=np.full(400, 0.75),
    )
    seen = log.labelled / 0.75
    low, high = (seen * (1 + (1 / log.propensity - 1) * factor) for factor in (0.5, 2.0))
    gain = log.propensity_of(POLICY) * (log.outcome - 0.4)
    bounds = cq.sensitivity(POLICY, log, cost=0.4, gammas=[2.0], versus=cq.Logged()).utility[0]
    logged = np.mean(seen * (log.outcome - 0.4))
    assert bounds.smallest == pytest.approx(np.mean(np.where(gain > 0, low, high) * gain) - logged)
    assert bounds.largest == pytest.approx(np.mean(np.where(gain > 0, high, low) * gain) - logged)


def test_bounds_widen_with_gamma_and_sampling_error_widens_them_more():
    found = cq.sensitivity(POLICY, exploring_log(500, 3), cost=0.4, fairness="equal_opportunity")
    assert found.gammas == (1.0, 1.25, 1.5, 2.0, 3.0)
    for rows in (found.utility, found.benefit_gap, *found.benefits.values()):
        for before, after in pairwise(rows):
            assert after.smallest <= before.smallest <= before.largest <= after.largest
        assert all(each.low <= each.smallest <= each.largest <= each.high for each in rows)


def test_acceptance_rates_need_no_weights_and_do_not_move():
    found = cq.sensitivity(POLICY, exploring_log(300), cost=0.4, gammas=[1.0, 5.0])
    for rows in (found.benefit_gap, *found.benefits.values()):
        assert rows[0] == rows[1]


def test_the_sign_turns_at_the_factor_that_is_given():
    log = exploring_log(800, seed=1)
    found = cq.sensitivity(POLICY, log, cost=0.3)
    assert 1.0 < found.doubtful_at < found.flips_at < np.inf
    at, below = (
        cq.sensitivity(POLICY, log, cost=0.3, gammas=[gamma]).utility[0]
        for gamma in (found.flips_at * 1.0001, found.flips_at * 0.9999)
    )
    assert at.smallest <= 0.0 <= at.largest
    assert below.smallest > 0.0
    doubtful = cq.sensitivity(POLICY, log, cost=0.3, gammas=[found.doubtful_at * 1.0001])
    assert doubtful.utility[0].low <= 0.0
    assert f"{found.flips_at:.2g}" in repr(found)


def test_a_sign_that_nothing_can_turn_is_said_to_be_so():
    """Accepted for sure, nobody's weight can be off."""
    n = 50
    log = cq.DecisionLog.from_arrays(
        np.zeros((n, 2)), np.ones(n), np.ones(n), np.r_[np.ones(45), np.zeros(5)]
    )
    found = cq.sensitivity(cq.AcceptAll(), log, cost=0.5)
    assert found.flips_at == np.inf
    assert "no such error can turn" in repr(found)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["flips_at"] is None


def test_a_difference_of_two_rules_has_bounds_of_its_own():
    log = small_log()
    other = cq.Policy([-0.5, 0.2, 0.1])
    found = cq.sensitivity(POLICY, log, cost=0.4, versus=other, gammas=[2.0]).utility[0]
    change = log.propensity_of(POLICY) - log.propensity_of(other)
    values = [np.mean(w * change * (log.outcome - 0.4)) for w in corners(log, 2.0)]
    assert (found.smallest, found.largest) == pytest.approx((min(values), max(values)))


# --- what the log did is known


def test_only_the_other_rule_is_uncertain_against_what_the_log_did():
    log = small_log()
    bounds = cq.sensitivity(POLICY, log, cost=0.4, versus=cq.Logged(), gammas=[2.0]).utility[0]
    logged = np.mean(log.decision * (log.outcome - 0.4))
    change = log.propensity_of(POLICY)
    values = [np.mean(change * w * (log.outcome - 0.4)) - logged for w in corners(log, 2.0)]
    assert (bounds.smallest, bounds.largest) == pytest.approx((min(values), max(values)))


def test_the_log_itself_is_worth_what_it_gained():
    n = 60
    rng = np.random.default_rng(2)
    columns = {"amount": rng.uniform(1, 3, n), "cost": rng.uniform(0.2, 0.6, n)}
    log = exploring_log(n, seed=2, **columns)
    gained = log.amount * np.where(log.decision, log.outcome - log.cost, 0.0)
    found = cq.sensitivity(cq.Logged(), log, gammas=[1.0, 5.0])
    for bounds in found.utility:
        assert bounds.smallest == bounds.largest == pytest.approx(gained.mean())
        assert bounds.high - bounds.low == pytest.approx(
            2 * 1.959964 * gained.std(ddof=1) / np.sqrt(n)
        )


def test_of_the_logs_own_true_positive_rate_only_the_denominator_is_uncertain():
    log = small_log()
    found = cq.sensitivity(
        cq.Logged(), log, cost=0.4, fairness="equal_opportunity", gammas=[3.0]
    ).benefits
    for z in (0, 1):
        inside = log.group == z
        positive = log.outcome * inside
        rates = [positive.sum() / (w * positive).sum() for w in corners(log, 3.0)]
        bounds = found[z][0]
        assert (bounds.smallest, bounds.largest) == pytest.approx((min(rates), max(rates)))


def test_a_policy_with_the_logged_propensities_would_not_know_the_hidden_reason():
    world = cq.worlds.first_setting()
    policy = world.initial_policy()
    log = world.collect(policy, 300, np.random.default_rng(0))
    found = cq.sensitivity(policy, log, cost=0.4, versus=cq.Logged(), gammas=[1.0, 2.0]).utility
    assert found[0].smallest == pytest.approx(0.0, abs=1e-12)
    assert found[1].smallest < 0.0 < found[1].largest


def test_at_a_factor_of_one_bounds_of_a_difference_are_the_comparison():
    log = exploring_log(500, 2)
    bounds = cq.sensitivity(POLICY, log, cost=0.4, versus=cq.Logged(), gammas=[1.0]).utility[0]
    found = cq.compare(POLICY, cq.Logged(), log, cost=0.4).utility
    assert (bounds.low, bounds.smallest, bounds.high) == pytest.approx(
        (found.low, found.value, found.high)
    )


# --- against a hidden reason of known strength


@dataclass(frozen=True)
class HiddenReason:
    """People with an unrecorded u that multiplies the odds of acceptance by gamma or 1 / gamma.

    The recorded propensity is the average over u, `p(x)`, so u = 1 has the share that makes it so
    and every true weight lies exactly at one end of its bounds. `pull` is how far u moves the
    label; with None the label is u itself, and the truth is the lower bound's expectation.
    """

    gamma: float
    pull: float | None
    cost: float = 0.4

    def chances(self, x):
        """Propensity recorded, propensities at u = 0 and 1, share of u = 1, and labels' rates."""
        p = 0.1 + 0.5 * x
        odds = p / (1 - p)
        low, high = (odds * factor / (1 + odds * factor) for factor in (1 / self.gamma, self.gamma))
        share = (p - low) / (high - low)
        if self.pull is None:
            return p, low, high, share, np.zeros_like(x), np.ones_like(x)
        rate = 0.3 + 0.4 * x
        return p, low, high, share, rate - self.pull * share, rate + self.pull * (1 - share)

    def advantage(self, rule):
        """The truth, by the midpoint rule: what the rule gains less what the log's rule gained."""
        x = (np.arange(20_000) + 0.5) / 20_000
        _, low, high, share, zero, one = self.chances(x)
        gain = share * one + (1 - share) * zero - self.cost
        logged = share * high * (one - self.cost) + (1 - share) * low * (zero - self.cost)
        return float(np.mean(rule.propensity(x) * gain - logged))

    def collect(self, n, rng):
        x = rng.random(n)
        p, low, high, share, zero, one = self.chances(x)
        u = rng.random(n) < share
        decision = rng.random(n) < np.where(u, high, low)
        label = rng.random(n) < np.where(u, one, zero)
        return cq.DecisionLog.from_arrays(x, decision, p, np.where(decision, label, np.nan))


@pytest.mark.parametrize(
    ("gamma", "repeats", "n"),
    [
        (2.0, 40, 500),
        pytest.param(1.5, 400, 2000, marks=pytest.mark.slow),
        pytest.param(2.0, 400, 2000, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("pull", [0.3, None])
def test_the_truth_lies_within_bounds_of_the_right_strength(gamma, pull, repeats, n):
    world, rule = HiddenReason(gamma, pull), cq.ThresholdPolicy(cq.logistic_model([-0.4, 1.0]), 0.5)
    truth = world.advantage(rule)
    rng = np.random.default_rng(3)
    found = [
        cq.sensitivity(
            rule, world.collect(n, rng), cost=world.cost, versus=cq.Logged(), gammas=[1.0, gamma]
        ).utility
        for _ in range(repeats)
    ]
    covered = np.mean([each[1].low <= truth <= each[1].high for each in found])
    assert covered >= 0.95
    if pull is None:
        # bounds are sharp: the worst case is this world, and propensities as recorded mislead
        smallest = np.array([each[1].smallest for each in found])
        error = smallest.std() / np.sqrt(repeats)
        assert smallest.mean() == pytest.approx(truth, abs=3 * error)
        assert np.mean([each[0].low <= truth <= each[0].high for each in found]) < 0.5


def test_a_group_that_cannot_be_measured_stays_so():
    log = cq.DecisionLog.from_arrays(
        np.zeros((4, 2)), [1, 1, 0, 0], [0.5] * 4, [1, 0, None, None], [0, 0, 1, 1]
    )
    found = cq.sensitivity(POLICY, log, cost=0.4, fairness="equal_opportunity", gammas=[2.0])
    assert repr(found.benefits[1][0]) == "not measurable"
    json.dumps(found.to_dict(), allow_nan=False)


# --- next to no information


def test_fewer_than_ten_effective_labels_say_nothing_as_in_evaluate_and_compare():
    """Nine accepted people out of 400, all with label 1: no reason to be sure of a high utility."""
    decision = np.arange(400) < 9
    log = cq.DecisionLog.from_arrays(
        np.zeros((400, 2)), decision, np.full(400, 0.02), np.where(decision, 1.0, np.nan)
    )
    alone = cq.sensitivity(cq.AcceptAll(), log, cost=0.4, gammas=[1.0, 2.0])
    value = cq.evaluate(cq.AcceptAll(), log, cost=0.4).utility
    for bounds in alone.utility:
        assert (bounds.smallest, bounds.largest) == pytest.approx((-0.4, 0.6))
        assert (bounds.low, bounds.high) == pytest.approx((value.low, value.high))
    assert alone.flips_at == alone.doubtful_at == 1.0
    assert any("next to no label" in note for note in alone.notes)
    paired = cq.sensitivity(
        cq.AcceptAll(), log, cost=0.4, versus=cq.RejectAll(), gammas=[1.0, 2.0]
    ).utility
    change = cq.compare(cq.AcceptAll(), cq.RejectAll(), log, cost=0.4).utility
    for bounds in paired:
        assert (bounds.low, bounds.high) == pytest.approx((change.low, change.high))
    # what the log itself did needs no weights: it is known
    logged = cq.sensitivity(cq.Logged(), log, cost=0.4, gammas=[2.0])
    assert logged.utility[0].smallest == logged.utility[0].largest == pytest.approx(9 * 0.6 / 400)
    assert not any("next to no label" in note for note in logged.notes)
