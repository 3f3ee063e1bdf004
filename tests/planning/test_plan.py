"""Plans: costs that come true, and proofs that arrive as often as promised."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import consequential as cq
from consequential.evaluation.any_time import lower_bounds
from consequential.evaluation.intervals import Normal
from consequential.evaluation.ratios import Range, Ratios
from consequential.planning.option import Option
from consequential.planning.power import (
    Advantage,
    Bins,
    Stakes,
    decisions_to_any_time_proof,
    share_proven,
    worst_advantage,
)


def cut_at(x):
    """Accept where the only feature is at least x."""
    return cq.ThresholdPolicy(cq.logistic_model([-x, 1.0]), 0.5)


SETTINGS = ("first", "second", "costly, accepts more", "costly, rejects more")


@cache
def setting_named(name):
    """Return a world, a cost, an incumbent and a candidate."""
    first, second = cq.worlds.first_setting(), cq.worlds.second_setting()

    def predicting(theta, world):
        return cq.ThresholdPolicy(cq.logistic_model(theta), world.cost)

    return {
        "first": (first, first.cost, predicting([-3.0, 5.0], first), cut_at(-0.3)),
        "second": (second, second.cost, predicting([-3.5, 0.6], second), cut_at(-1.6978)),
        # few large losses beside many small gains, and the other way round
        "costly, accepts more": (first, 0.85, cut_at(0.75), cut_at(0.6)),
        "costly, rejects more": (first, 0.85, cut_at(0.4), cut_at(0.6)),
    }[name]


def advantage(world, cost, incumbent, candidate):
    new, old = (
        found.utility + (world.cost - cost) * found.acceptance
        for found in (world.exact(candidate), world.exact(incumbent))
    )
    return new - old


def share_better(setting, floor, decisions, repeats, *, method="normal", seed=1):
    """How often `compare` says better on later logs."""
    world, cost, incumbent, candidate = setting_named(setting)
    rng = np.random.default_rng(seed)
    better = 0
    for _ in range(repeats):
        log = world.collect(incumbent.with_floor(floor), decisions, rng)
        better += cq.compare(candidate, incumbent, log, cost=cost, method=method).better
    return better / repeats


@cache
def explored(setting):
    """Return a log that explores."""
    world, _, incumbent, _ = setting_named(setting)
    return world.collect(incumbent.with_floor(0.2), 50_000, np.random.default_rng(0))


@cache
def planned(setting, floor, **options):
    """How many decisions a plan asks for, made from a log that explores."""
    world, cost, incumbent, candidate = setting_named(setting)
    found = cq.plan(
        explored(setting),
        cost=cost,
        improvement=advantage(world, cost, incumbent, candidate),
        incumbent=incumbent,
        candidate=candidate,
        floors=[floor],
        **options,
    )
    return found.options[0].decisions


# --- proofs arrive as promised


@pytest.mark.parametrize(
    ("setting", "floor", "method", "repeats"),
    [
        ("second", 0.2, "normal", 40),
        ("costly, rejects more", 0.05, "normal", 60),
        ("costly, rejects more", 0.2, "any_time", 40),
        pytest.param("first", 0.1, "normal", 400, marks=pytest.mark.slow),
        pytest.param("second", 0.1, "normal", 400, marks=pytest.mark.slow),
        pytest.param("costly, accepts more", 0.2, "normal", 400, marks=pytest.mark.slow),
        pytest.param("costly, rejects more", 0.05, "normal", 400, marks=pytest.mark.slow),
        pytest.param("first", 0.2, "any_time", 400, marks=pytest.mark.slow),
        pytest.param("second", 0.2, "any_time", 400, marks=pytest.mark.slow),
        pytest.param("costly, rejects more", 0.05, "any_time", 400, marks=pytest.mark.slow),
    ],
)
def test_the_promised_power_is_reached(setting, floor, method, repeats):
    decisions = planned(setting, floor, method=method)
    found = share_better(setting, floor, decisions, repeats, method=method)
    # 5 points, or three binomial standard errors where there are few logs
    assert found == pytest.approx(0.8, abs=max(0.05, 3 * np.sqrt(0.16 / repeats)))


def test_another_power_is_kept_too():
    decisions = planned("costly, rejects more", 0.05, power=0.5)
    assert decisions < planned("costly, rejects more", 0.05)
    found = share_better("costly, rejects more", 0.05, decisions, 60)
    assert found == pytest.approx(0.5, abs=3 * np.sqrt(0.25 / 60))


@pytest.mark.parametrize("setting", ["first", "second"])
def test_a_plan_without_labels_asks_for_too_many_decisions_rather_than_too_few(setting):
    world, cost, incumbent, candidate = setting_named(setting)
    log = world.collect(incumbent, 20_000, np.random.default_rng(0))
    gain = advantage(world, cost, incumbent, candidate)
    found = cq.plan(log, cost=cost, improvement=gain, candidate=candidate, floors=[0.2])
    # labels vary far less than they might
    assert found.options[0].decisions > 1.05 * planned(setting, 0.2)


def rare_gains():
    """A distribution of few large gains and many small losses."""
    return Advantage(np.array([9.0, -1.0]), np.array([0.02, 0.1]), np.array([10.0, 10.0]))


def drawn_rows(found, n, rng):
    probabilities = np.r_[found.masses, 1.0 - found.masses.sum()]
    return rng.choice(np.r_[found.values, 0.0], size=n, p=probabilities)


def test_simulated_intervals_are_those_of_compare():
    found, n, repeats = rare_gains(), 1200, 300
    rng = np.random.default_rng(0)
    intervals = Normal(0.95)
    above = 0
    for _ in range(repeats):
        rows = Range.exactly(Ratios.mean(drawn_rows(found, n, rng)))
        above += intervals.difference(rows).low > 0.0
    share = share_proven(Bins.of(found), n, 0.95)
    assert 0.2 < share < 0.9
    assert share == pytest.approx(above / repeats, abs=3 * np.sqrt(0.25 / repeats))


def test_simulated_sequences_are_those_of_compare():
    found, repeats, reach = rare_gains(), 100, (-10.0, 10.0, -1.0, 1.0)
    n = decisions_to_any_time_proof(Bins.of(found), 0.6, 0.95, reach)
    rng = np.random.default_rng(0)
    above = sum(
        lower_bounds(drawn_rows(found, n, rng), -10.0, 1.0, 0.95)[-1] > 0.0 for _ in range(repeats)
    )
    assert above / repeats == pytest.approx(0.6, abs=3 * np.sqrt(0.24 / repeats))


def test_fewer_than_a_hundred_people_prove_nothing():
    """An advantage without any variance but that of who is accepted: `compare` wants a hundred."""
    found = Advantage(np.array([5.0]), np.array([0.1]), np.array([10.0]))
    assert share_proven(Bins.of(found), 700, 0.95) == pytest.approx(0.0, abs=0.01)
    assert share_proven(Bins.of(found), 1400, 0.95) == pytest.approx(1.0, abs=0.01)


def test_gains_and_losses_are_tilted_to_the_mean_and_as_frequent_as_before():
    rng = np.random.default_rng(0)
    found = Advantage(rng.normal(size=500), rng.random(500) / 600, rng.random(500))
    tilted = found.with_mean(0.05)
    assert tilted.values @ tilted.masses == pytest.approx(0.05)
    assert tilted.masses.sum() == pytest.approx(found.masses.sum())
    for gains in (found.values > 0, found.values < 0):
        factors = tilted.masses[gains] / found.masses[gains]
        np.testing.assert_allclose(factors, factors[0])
    with pytest.raises(ValueError, match="out of reach"):
        found.with_mean(10.0)


def test_bins_keep_every_sum():
    rng = np.random.default_rng(0)
    found = Advantage(rng.normal(size=2000) ** 3, rng.random(2000) / 2000, rng.random(2000))
    bins = Bins.of(found)
    assert len(bins.masses) < 60
    columns = (found.values, found.values**2, found.values**3, found.weights, found.weights**2)
    expected = [float(each @ found.masses) for each in columns]
    np.testing.assert_allclose(bins.moments @ bins.masses, expected)


def test_an_assumed_success_rate_that_is_true_gives_the_true_plan():
    world, cost, incumbent, candidate = setting_named("first")
    gain = advantage(world, cost, incumbent, candidate)
    arguments = {"cost": cost, "improvement": gain, "candidate": candidate, "floors": [0.1]}
    unexplored = world.collect(incumbent, 50_000, np.random.default_rng(0))
    explored = world.collect(incumbent.with_floor(0.3), 50_000, np.random.default_rng(0))
    # the candidate accepts people of whom this share has label 1
    accepted = explored.propensity_of(candidate) * (1 - explored.propensity_of(incumbent))
    weights = cq.weightings.InversePropensity().weights(explored)
    rate = (weights * explored.outcome * accepted).sum() / (weights * accepted).sum()
    assumed = cq.plan(unexplored, success_rate=rate, **arguments).options[0]
    known = cq.plan(explored, incumbent=incumbent, **arguments).options[0]
    assert assumed.decisions == pytest.approx(known.decisions, rel=0.05)


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_a_candidate_the_plan_is_long_enough_for_any_that_changes_as_much(setting):
    world, cost, incumbent, candidate = setting_named(setting)
    log = world.collect(incumbent.with_floor(0.1), 20_000, np.random.default_rng(0))
    share = float(np.abs(log.propensity_of(candidate) - log.propensity_of(incumbent)).mean())
    question = {
        "cost": cost,
        "improvement": advantage(world, cost, incumbent, candidate),
        "incumbent": incumbent,
        "floors": [0.05],
    }
    worst = cq.plan(log, changed=share, **question).options[0]
    assert worst.decisions >= cq.plan(log, candidate=candidate, **question).options[0].decisions


# --- costs come true


@pytest.mark.parametrize("setting", ["first", "second"])
def test_the_loss_is_what_the_world_loses(setting):
    world, _, incumbent, _ = setting_named(setting)
    log = world.collect(incumbent.with_floor(0.1), 100_000, np.random.default_rng(0))
    found = cq.plan(log, cost=world.cost, improvement=0.01, incumbent=incumbent, floors=[0.02, 0.1])
    for option in found.options:
        there, before = world.exact(incumbent.with_floor(option.floor)), world.exact(incumbent)
        assert option.loss_low < 1000 * (before.utility - there.utility) < option.loss_high
        more = 1000 * (there.acceptance - before.acceptance)
        assert option.extra_acceptances == pytest.approx(more, rel=0.02)
        assert option.worst_loss == pytest.approx(option.extra_acceptances * world.cost)


def test_a_larger_floor_is_dearer_in_all_where_the_candidate_only_rejects_more():
    """People whom the incumbent accepts get labels without any floor."""
    world, cost, incumbent, candidate = setting_named("costly, rejects more")
    log = world.collect(incumbent.with_floor(0.05), 20_000, np.random.default_rng(0))
    gain = advantage(world, cost, incumbent, candidate)
    small, large = cq.plan(
        log,
        cost=cost,
        improvement=gain,
        incumbent=incumbent,
        candidate=candidate,
        floors=[0.01, 0.1],
    ).options
    assert small.decisions == pytest.approx(large.decisions, rel=0.03)
    assert large.total_loss > 8 * small.total_loss > 0


def test_what_nobody_knows_stays_unknown():
    world, _, incumbent, _ = setting_named("first")
    log = world.collect(incumbent, 2000, np.random.default_rng(0))
    found = cq.plan(log, cost=world.cost, improvement=0.01)
    option = found.options[0]
    assert (option.loss, option.loss_low, option.loss_high) == (None, None, None)
    assert option.total_loss == pytest.approx(option.worst_loss * option.decisions / 1000)
    assert "of their labels nothing is known" in found.notes[0]


def test_an_assumed_loss_has_no_interval_and_vanishes_at_the_break_even_rate():
    world, _, incumbent, _ = setting_named("first")
    log = world.collect(incumbent, 2000, np.random.default_rng(0))
    found = cq.plan(log, cost=world.cost, improvement=0.01, success_rate=world.cost)
    assert found.break_even == pytest.approx(world.cost)
    assert found.options[0].loss == pytest.approx(0.0, abs=1e-12)
    assert found.options[0].loss_low is None


def test_months_are_decisions_over_their_rate_and_the_wait_for_outcomes():
    world, _, incumbent, _ = setting_named("first")
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
    worst = worst_advantage(stakes, before, after, changed)
    bound = float(worst.masses @ worst.values**2)
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
    world, _, incumbent, _ = setting_named("first")
    log = world.collect(incumbent, 500, np.random.default_rng(0))
    lines = str(cq.plan(log, cost=0.4, improvement=0.02, floors=[0.02, 0.3])).splitlines()
    assert lines[0].split("  ")[-1].strip() == "until +0.02 is proven"
    assert [line.split()[0] for line in lines[2:4]] == ["0.02", "0.3"]
    assert "unknown" in lines[2]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ((None, None, None), "cannot say: per 1000 at most 9.00 if all of them fail."),
        ((2.0, None, None), "That costs 2.00 per 1000, and 9.00 if all"),
        ((2.0, 1.0, 3.0), "That costs 2.00 (1.00 to 3.00) per 1000, and 9.00 if all"),
        ((2.0, -1.0, 5.0), "cannot be told: between 5.00 lost and 1.00 gained per 1000, and 9.00"),
        ((-2.0, -3.0, -1.0), "That brings 2.00 (1.00 to 3.00) per 1000, and costs 9.00 if all"),
    ],
    ids=["unknown", "assumed", "a loss", "either", "a gain"],
)
def test_a_sentence_says_what_a_floor_costs_or_brings(loss, said):
    total = -4.0 if loss[0] is not None and loss[0] < 0 else 4.0
    option = Option(0.02, 12.4, *loss, 9.0, 5000, 7.5, total)
    found = cq.Plan((option,), 0.01, 0.5, 0.8, 0.95, "normal", ())
    (sentence,) = found.sentences
    assert sentence.startswith("With a floor of 0.02, 12 of 1000 applicants are accepted who")
    assert said in sentence
    assert "after 5000 decisions (7.5 months); exploring " in sentence
    if loss[1] == -1.0:  # 5 and 1 per 1000 of 5000
        assert sentence.endswith("exploring may cost 25.0 or bring 5.0 until then.")
    else:
        assert sentence.endswith(f"{'brings' if total < 0 else 'costs'} 4.0 until then.")


def test_it_goes_into_json():
    world, _, incumbent, _ = setting_named("first")
    log = world.collect(incumbent, 500, np.random.default_rng(0))
    back = json.loads(json.dumps(cq.plan(log, cost=0.4, improvement=0.02).to_dict()))
    assert [option["floor"] for option in back["options"]] == [0.01, 0.02, 0.05, 0.1]
    assert back["options"][0]["months"] is None


def test_few_labels_to_plan_from_are_noted():
    world, _, incumbent, _ = setting_named("first")
    log = world.collect(incumbent.with_floor(0.2), 300, np.random.default_rng(0))
    found = cq.plan(log, cost=0.14, improvement=0.05, floors=[0.02], candidate=cq.AcceptAll())
    assert "take the numbers of decisions for a rough guess" in found.notes[-1]


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
    "method": ({"method": "exact"}, "unknown method 'exact'; choose one of normal, any_time"),
    "tuned for nothing": ({"tuned_for": 0}, "tuned_for is a number of decisions from 1 on, not 0"),
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


def test_a_candidate_for_whom_no_label_speaks_cannot_be_planned_for():
    log = cq.DecisionLog.from_arrays([0.0, 1.0, 2.0], [1, 0, 1], [0.5, 0.5, 0.5], [0, None, 0])
    with pytest.raises(ValueError, match="the log has too few labels that speak for the candidate"):
        cq.plan(log, cost=0.4, improvement=0.1, incumbent=cq.RejectAll(), candidate=cq.AcceptAll())
