"""Drawing people and deciding on them.

Seeds are fixed; each tolerance is four standard errors, or a p-value of one in a thousand.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, norm, truncnorm

import consequential as cq

SETTINGS = {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}
SCORES = {
    "first": lambda z: truncnorm(-0.8 - (0.5 - z), 0.8 - (0.5 - z), loc=0.5 - z, scale=1.0),
    "second": lambda z: norm(loc=3 * (0.5 - z), scale=3.5),
}


class Streets(cq.worlds.World):
    """A world of one's own: two features, named groups."""

    name = "streets"
    cost = 0.4

    def propose(self, n, rng):
        features = rng.normal(size=(n, 2))
        return features, np.where(rng.random(n) < 0.3, "north", "south")

    def label_probability(self, features, sensitive):
        return 1 / (1 + np.exp(-features[:, 0] - 0.5 * (sensitive == "north")))


WORLDS = {
    **SETTINGS,
    "lending": cq.worlds.lending,
    "compas": cq.worlds.compas,
    "own": Streets,
}


@cache
def world_named(name: str) -> cq.worlds.World:
    return WORLDS[name]()


def rule_for(name: str, kind: str) -> cq.DecisionRule:
    """An exploring rule, a deterministic one, a mixture, or one that uses the groups."""
    world = world_named(name)
    start = world.initial_policy("semi_logistic")
    theta = start.theta
    return {
        "exploring": start,
        "deterministic": cq.ThresholdPolicy(cq.logistic_model(10 * theta), 0.5)
        if start.feature_map is None
        else cq.ThresholdPolicy(cq.logistic_model([-650.0, 1.0]), 0.5),
        "mixture": cq.Mixture([start, cq.AcceptAll()], [0.8, 0.2]),
        "by group": cq.Policy(
            np.concatenate([theta, -theta]),
            "logistic",
            start.feature_map,
            floor=0.1,
            groups=world.groups,
        ),
    }[kind]


KINDS = ["exploring", "deterministic", "mixture", "by group"]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("group", [0, 1])
def test_scores_follow_the_groups_distribution(name, group, rng):
    features, sensitive = world_named(name).propose(50_000, rng)
    scores = features[np.asarray(sensitive) == group, 0]
    assert features.shape == (50_000, 1)
    assert len(scores) / 50_000 == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(50_000))
    assert kstest(scores, SCORES[name](group).cdf).pvalue > 1e-3


def test_scores_of_the_first_setting_stay_within_its_bounds(rng):
    features, _ = world_named("first").propose(50_000, rng)
    assert -0.8 <= features.min() < -0.799
    assert 0.799 < features.max() <= 0.8


@pytest.mark.parametrize("name", ["first", "second", "lending", "own"])
def test_labels_come_up_as_often_as_their_probability_says(name, rng):
    world = world_named(name)
    people = world.people(40_000, rng)
    sensitive = np.array(world.groups, dtype=object)[people.group]
    probability = np.asarray(world.label_probability(people.features, sensitive))
    assert set(np.unique(people.label)) == {0.0, 1.0}
    order = np.argsort(probability, kind="stable")
    for rows in np.array_split(order, 8):
        error = np.sqrt((probability[rows] * (1 - probability[rows])).sum())
        assert abs((people.label - probability)[rows].sum()) < 4 * error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first", "second", "lending"])
def test_what_is_collected_has_the_exact_metrics_in_the_mean(name, kind, rng):
    world, rule = world_named(name), rule_for(name, kind)
    log = world.collect(rule, 40_000, rng)
    truth = world.exact(rule)
    gained = np.where(log.decision, log.outcome - world.cost, 0.0)
    assert gained.mean() == pytest.approx(truth.utility, abs=4 * gained.std() / np.sqrt(len(log)))
    for code, group in enumerate(world.groups):
        decision = log.decision[log.group == code]
        p = truth.benefits[group]
        tolerance = 4 * np.sqrt(p * (1 - p) / len(decision)) + 1e-12
        assert decision.mean() == pytest.approx(p, abs=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORLDS)
def test_the_logged_propensity_is_the_rules_own(name, kind, rng):
    world, rule = world_named(name), rule_for(name, kind)
    log = world.collect(rule, 500, rng)
    sensitive = log.sensitive if rule.uses_sensitive else None
    assert log.propensity.tolist() == rule.propensity(log.features, sensitive).tolist()
    assert not log.decision[log.propensity == 0].any()
    assert log.decision[log.propensity == 1].all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORLDS)
def test_labels_are_known_for_the_accepted_and_for_nobody_else(name, kind, rng):
    log = world_named(name).collect(rule_for(name, kind), 500, rng)
    assert 0 < log.n_accepted < 500
    assert np.isnan(log.label[~log.decision]).all()
    assert np.isin(log.label[log.decision], (0.0, 1.0)).all()
    assert log.n_pending == 0


class Liars(Streets):
    """People in the west never repay; nobody who rejects them all can know."""

    def label_probability(self, features, sensitive):
        honest = super().label_probability(features, sensitive)
        return np.where(features[:, 1] < 0, 0.0, honest)


def test_what_the_rejected_would_have_done_leaves_no_trace_in_a_log():
    only_east = cq.ThresholdPolicy(cq.logistic_model([0.0, 0.0, 1.0]), 0.5)
    logs = [
        world.collect(only_east, 2000, np.random.default_rng(4)) for world in (Streets(), Liars())
    ]
    assert logs[0].fingerprint == logs[1].fingerprint
    everybody = [
        world.collect(cq.AcceptAll(), 2000, np.random.default_rng(4))
        for world in (Streets(), Liars())
    ]
    assert everybody[0].fingerprint != everybody[1].fingerprint


@pytest.mark.parametrize("name", WORLDS)
def test_equal_generators_give_equal_people_whatever_the_rule(name):
    world = world_named(name)
    everybody = world.collect(cq.AcceptAll(), 400, np.random.default_rng(11))
    for kind in KINDS:
        log = world.collect(rule_for(name, kind), 400, np.random.default_rng(11))
        assert np.array_equal(log.features, everybody.features)
        assert np.array_equal(log.group, everybody.group)
        assert np.array_equal(log.label[log.decision], everybody.label[log.decision])


@pytest.mark.parametrize("name", WORLDS)
def test_a_log_is_a_function_of_its_seed(name):
    world, rule = world_named(name), rule_for(name, "exploring")
    one, same, other = (
        world.collect(rule, 300, np.random.default_rng(seed)).fingerprint for seed in (5, 5, 6)
    )
    assert one == same
    assert one != other


def test_a_generator_used_twice_gives_other_people(rng):
    world = world_named("first")
    one, two = (world.collect(cq.AcceptAll(), 100, rng) for _ in range(2))
    assert not np.isin(one.features, two.features).any()


@pytest.mark.parametrize("name", WORLDS)
def test_time_step_rule_and_groups_are_recorded(name, rng):
    world, rule = world_named(name), rule_for(name, "exploring")
    log = world.collect(rule, 50, rng, time_step=7)
    assert log.time_step.tolist() == [7] * 50
    assert dict(log.policies) == {7: rule}
    assert log.groups == world.groups
    assert len(log) == 50
    assert world.collect(rule, 50, rng).time_step.tolist() == [0] * 50


def test_logs_of_several_steps_can_be_put_together(rng):
    world = world_named("second")
    rules = [world.initial_policy(), cq.AcceptAll()]
    logs = [world.collect(rule, 60, rng, time_step=step) for step, rule in enumerate(rules)]
    both = cq.DecisionLog.concatenate(logs)
    assert both.time_step.tolist() == [0] * 60 + [1] * 60
    assert dict(both.policies) == dict(enumerate(rules))


def test_the_same_people_can_be_decided_on_twice(rng):
    world = world_named("first")
    people = world.people(1000, rng)
    start = world.initial_policy()
    logs = [
        world.decided(people, start, np.random.default_rng(seed), time_step=3) for seed in (1, 2)
    ]
    assert np.array_equal(logs[0].features, people.features)
    assert np.array_equal(logs[0].group, people.group)
    both = logs[0].decision & logs[1].decision
    assert np.array_equal(logs[0].label[both], people.label[both])
    assert 0 < (logs[0].decision != logs[1].decision).sum() < 1000
    assert set(logs[0].time_step) == {3}


def test_training_rows_of_a_table_are_drawn_equally_often(rng):
    n = 200
    world = cq.worlds.TableWorld(np.arange(n), np.arange(n) % 2, np.arange(n) % 3 == 0, cost=0.5)
    drawn = world.people(20_000, rng)
    counts = np.bincount(drawn.features[:, 0].astype(int), minlength=n)
    assert counts[world.held_out_rows].tolist() == [0] * len(world.held_out_rows)
    assert chisquare(counts[world.training_rows]).pvalue > 1e-3
    rows = drawn.features[:, 0].astype(int)
    assert np.array_equal(drawn.label, (rows % 3 == 0).astype(float))
    assert np.array_equal(drawn.group, rows % 2)
