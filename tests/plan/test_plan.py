"""Plans: costs that come true, and proofs that arrive as often as promised."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import norm

import consequential as cq
from consequential.planning.stakes import Stakes, worst_second_moment

FIRST, SECOND = cq.worlds.first_setting(), cq.worlds.second_setting()


def cut_at(x):
    """Accept where the only feature is at least x."""
    return cq.ThresholdPolicy(cq.logistic_model([-x, 1.0]), 0.5)


# world, incumbent, candidate
SETTINGS = {
    "first": (FIRST, cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), FIRST.cost), cut_at(-0.3)),
    "second": (
        SECOND,
        cq.ThresholdPolicy(cq.logistic_model([-3.5, 0.6]), SECOND.cost),
        cut_at(-1.6978),
    ),
}


def advantage(world, incumbent, candidate):
    return world.exact(candidate).utility - world.exact(incumbent).utility


def share_proven(world, incumbent, candidate, floor, decisions, repeats, seed):
    """How often the two-sided 95 % interval of the improvement lies above zero."""
    rng = np.random.default_rng(seed)
    proven = 0
    for _ in range(repeats):
        log = world.collect(incumbent.with_floor(floor), decisions, rng)
        change = log.propensity_of(candidate) - log.propensity_of(incumbent)
        v = cq.InversePropensity().weights(log) * (log.outcome - world.cost) * change
        proven += v.mean() - norm.ppf(0.975) * v.std() / np.sqrt(decisions) > 0
    return proven / repeats


# --- proofs arrive as promised


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("floor", "repeats"),
    [(0.2, 250), pytest.param(0.05, 2000, marks=pytest.mark.slow)],
)
def test_the_promised_power_is_reached(name, floor, repeats):
    world, incumbent, candidate = SETTINGS[name]
    known = world.collect(incumbent.with_floor(0.2), 100_000, np.random.default_rng(0))
    found = cq.plan(
        known,
        cost=world.cost,
        improvement=advantage(world, incumbent, candidate),
        incumbent=incumbent,
        candidate=candidate,
        floors=[floor],
    )
    power = share_proven(
        world, incumbent, candidate, floor, found.options[0].decisions, repeats, seed=1
    )
    # three binomial standard errors, and a little for the plan's own estimate of the variance
    assert power == pytest.approx(0.8, abs=3 * np.sqrt(0.16 / repeats) + 0.01)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_plan_without_labels_asks_for_too_many_decisions_rather_than_too_few(name):
    world, incumbent, candidate = SETTINGS[name]
    log = world.collect(incumbent, 20_000, np.random.default_rng(0))
    gain = advantage(world, incumbent, candidate)
    found = cq.plan(log, cost=world.cost, improvement=gain, candidate=candidate, floors=[0.2])
    # the first setting's labels vary far less than they might: its plan is four times too long
    decisions = min(found.options[0].decisions, 8000)
    assert share_proven(world, incumbent, candidate, 0.2, decisions, 100, seed=2) > 0.75


def test_an_assumed_success_rate_that_is_true_gives_the_true_plan():
    world, incumbent, candidate = SETTINGS["first"]
    gain = advantage(world, incumbent, candidate)
    arguments = {"cost": world.cost, "improvement": gain, "candidate": candidate, "floors": [0.1]}
    unexplored = world.collect(incumbent, 50_000, np.random.default_rng(0))
    explored = world.collect(incumbent.with_floor(0.3), 50_000, np.random.default_rng(0))
    # the candidate accepts people of whom this share has label 1
    accepted = explored.propensity_of(candidate) * (1 - explored.propensity_of(incumbent))
    weights = cq.InversePropensity().weights(explored)
    rate = (weights * explored.outcome * accepted).sum() / (weights * accepted).sum()
    assumed = cq.plan(unexplored, success_rate=rate, **arguments).options[0]
    known = cq.plan(explored, incumbent=incumbent, **arguments).options[0]
    assert assumed.decisions == pytest.approx(known.decisions, rel=0.05)


# --- costs come true


@pytest.mark.parametrize("name", SETTINGS)
def test_the_loss_is_what_the_world_loses(name):
    world, incumbent, _ = SETTINGS[name]
    log = world.collect(incumbent.with_floor(0.1), 100_000, np.random.default_rng(0))
    found = cq.plan(log, cost=world.cost, improvement=0.01, incumbent=incumbent, floors=[0.02, 0.1])
    for option in found.options:
        there, before = world.exact(incumbent.with_floor(option.floor)), world.exact(incumbent)
        assert option.loss_low < 1000 * (before.utility - there.utility) < option.loss_high
        more = 1000 * (there.acceptance - before.acceptance)
        assert option.extra_acceptances == pytest.approx(more, rel=0.02)
        assert option.worst_loss == pytest.approx(option.extra_acceptances * world.cost)


def test_what_nobody_knows_stays_unknown():
    world, incumbent, _ = SETTINGS["first"]
    log = world.collect(incumbent, 2000, np.random.default_rng(0))
    found = cq.plan(log, cost=world.cost, improvement=0.01)
    option = found.options[0]
    assert (option.loss, option.loss_low, option.loss_high) == (None, None, None)
    assert option.total_loss == pytest.approx(option.worst_loss * option.decisions / 1000)
    assert "of their labels nothing is known" in found.notes[0]


def test_an_assumed_loss_has_no_interval_and_vanishes_at_the_break_even_rate():
    world, incumbent, _ = SETTINGS["first"]
    log = world.collect(incumbent, 2000, np.random.default_rng(0))
    found = cq.plan(log, cost=world.cost, improvement=0.01, success_rate=world.cost)
    assert found.break_even == pytest.approx(world.cost)
    assert found.options[0].loss == pytest.approx(0.0, abs=1e-12)
    assert found.options[0].loss_low is None


def test_months_are_decisions_over_their_rate_and_the_wait_for_outcomes():
    world, incumbent, _ = SETTINGS["first"]
    log = world.collect(incumbent, 500, np.random.default_rng(0))
    option = cq.plan(log, cost=0.4, improvement=0.02, rate=1000, horizon=6).options[0]
    assert option.months == pytest.approx(option.decisions / 1000 + 6)


def test_amounts_and_costs_of_rows_count():
    rng = np.random.default_rng(0)
    n = 4000
    decision = rng.random(n) < 0.5
    label = np.where(decision, rng.random(n) < 0.6, np.nan)
    columns = {"features": rng.normal(size=n), "decision": decision, "propensity": np.full(n, 0.5)}
    plain = cq.DecisionLog.from_arrays(**columns, label=label)
    scaled = cq.DecisionLog.from_arrays(
        **columns, label=label, amount=np.full(n, 10.0), cost=np.full(n, 0.3)
    )
    one = cq.plan(plain, cost=0.3, improvement=0.02, candidate=cq.AcceptAll()).options[0]
    ten = cq.plan(scaled, cost=0.9, improvement=0.2, candidate=cq.AcceptAll()).options[0]
    assert ten.decisions == one.decisions
    assert ten.loss == pytest.approx(10 * one.loss)
    assert ten.worst_loss == pytest.approx(10 * one.worst_loss)


# --- the bound over all rules


@pytest.mark.parametrize("seed", range(5))
def test_no_rule_that_changes_as_much_has_a_larger_second_moment(seed):
    rng = np.random.default_rng(seed)
    n, changed = 40, 0.2
    before = rng.random(n) * (rng.random(n) < 0.6)
    decision = (rng.random(n) < before) & (before > 0)
    log = cq.DecisionLog.from_arrays(
        np.zeros(n), decision, before, np.where(decision, 1.0, np.nan), amount=1 + rng.random(n)
    )
    stakes = Stakes.of(log, 0.3, None)
    after = 0.05 + 0.95 * before
    bound = worst_second_moment(stakes, before, after, changed)
    closest = 0.0
    for k in range(3000):
        target = (rng.random(n) < 0.5).astype(float)
        # greedy starts too, so that the bound is seen to be nearly reached
        order = rng.permutation(n) if k else np.argsort(-(stakes.largest**2) / after)
        if k == 0:
            target = (before < 0.5).astype(float)
        change, left = np.zeros(n), changed * n
        for i in order:
            step = target[i] - before[i]
            change[i] = np.sign(step) * min(abs(step), left)
            left -= abs(change[i])
        second = float((stakes.largest**2 * change**2 / after).mean())
        assert second <= bound + 1e-12
        closest = max(closest, second)
    assert closest > 0.8 * bound


# --- shown and stored


def test_it_prints_a_row_a_floor():
    world, incumbent, _ = SETTINGS["first"]
    log = world.collect(incumbent, 500, np.random.default_rng(0))
    lines = str(cq.plan(log, cost=0.4, improvement=0.02, floors=[0.02, 0.3])).splitlines()
    assert lines[0].split("  ")[-1].strip() == "until +0.02 is proven"
    assert [line.split()[0] for line in lines[2:4]] == ["0.02", "0.3"]
    assert "unknown" in lines[2]


def test_it_goes_into_json():
    world, incumbent, _ = SETTINGS["first"]
    log = world.collect(incumbent, 500, np.random.default_rng(0))
    back = json.loads(json.dumps(cq.plan(log, cost=0.4, improvement=0.02).to_dict()))
    assert [option["floor"] for option in back["options"]] == [0.01, 0.02, 0.05, 0.1]
    assert back["options"][0]["months"] is None


def test_few_acceptances_that_matter_are_noted():
    world, incumbent, _ = SETTINGS["first"]
    log = world.collect(incumbent.with_floor(0.5), 5000, np.random.default_rng(0))
    found = cq.plan(log, cost=0.14, improvement=0.2, floors=[0.02], candidate=cq.AcceptAll())
    assert "take the number of decisions for a rough guess" in found.notes[-1]


def test_estimated_propensities_are_noted():
    rng = np.random.default_rng(0)
    decision = rng.random(500) < 0.5
    log = cq.DecisionLog.from_arrays(
        rng.normal(size=500), decision, cq.EstimatedPropensity(), np.where(decision, 1.0, np.nan)
    )
    assert "propensities are estimates" in cq.plan(log, cost=0.5, improvement=0.02).notes[0]


WRONG = {
    "cost": ({"cost": 1.0}, "cost lies strictly between 0 and 1, not 1.0"),
    "power": ({"power": 80}, "power lies strictly between 0 and 1, not 80"),
    "confidence": ({"confidence": 1.0}, "confidence lies strictly between 0 and 1"),
    "no improvement": ({"improvement": 0.0}, "improvement is a gain in utility above 0, not 0.0"),
    "NaN improvement": ({"improvement": np.nan}, "a gain in utility above 0, not nan"),
    "no floors": ({"floors": ()}, "floors is empty: give at least one exploration floor"),
    "a floor of 0": ({"floors": [0.0]}, "exploration floor lies strictly between 0 and 1, not 0.0"),
    "nobody changed": ({"changed": 0.0}, "changed is a share of people above 0, not 0.0"),
    "success in percent": ({"success_rate": 40}, "success_rate is a share between 0 and 1, not 40"),
    "no rate": ({"rate": 0}, "rate is the number of decisions a month, not 0"),
    "horizon before": ({"horizon": -1}, "horizon is the number of months an outcome takes, not -1"),
    "out of reach": ({"improvement": 0.3}, r"0.3 is out of reach: .* 0.06 at most. Give a larger"),
    "candidate out of reach": (
        {"improvement": 0.9, "candidate": cq.AcceptAll()},
        "out of reach: .* Ask for less",
    ),
    "the incumbent again": (
        {"candidate": cq.AcceptAll(), "incumbent": cq.AcceptAll()},
        "the candidate decides as the incumbent does: nothing can be proven",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named(arguments, message):
    log = cq.DecisionLog.from_arrays([0.0, 1.0, 2.0], [1, 0, 1], [0.5, 0.5, 1.0], [1, None, 0])
    with pytest.raises(ValueError, match=message):
        cq.plan(log, **{"cost": 0.4, "improvement": 0.01} | arguments)
