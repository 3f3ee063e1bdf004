"""A learner under bounds on acceptance, against the best policies of a capacity."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq

WORLDS = {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}


def collected(world, n=6_000):
    return world.collect(cq.Policy([0.0, 0.1]).with_floor(0.1), n, np.random.default_rng(0))


def accepted(policy, log):
    """Return the acceptance rates of the groups, and that of everybody."""
    propensity = log.propensity_of(policy)
    return [propensity[log.group == z].mean() for z in (0, 1)], propensity.mean()


def best_of(world, share):
    """Return what accepting the share with the highest chance of label 1 is worth."""
    features, group = world.propose(200_000, np.random.default_rng(1))
    chance = world.label_probability(features, group)
    chosen = chance >= max(np.quantile(chance, 1.0 - share), world.cost)
    return ((chance - world.cost) * chosen).mean()


@pytest.mark.parametrize(("world", "share"), [("first", 0.1), ("second", 0.3)])
def test_whom_there_is_capacity_for_are_those_with_the_best_chances(world, share):
    world = WORLDS[world]()
    log = collected(world)
    learner = cq.FairPolicyLearner(cost=world.cost, max_acceptance=share, method="model")
    policy = learner.fit_log(log).policy_
    assert accepted(policy, log)[1] == pytest.approx(share, abs=1e-3)
    assert world.exact(policy).utility > best_of(world, share) - 0.006


@pytest.mark.parametrize("method", ["scores", "direct"])
def test_a_search_keeps_the_capacity_too(method):
    world = cq.worlds.first_setting()
    log = collected(world)
    learner = cq.FairPolicyLearner(cost=world.cost, max_acceptance=0.3, method=method)
    policy = learner.fit_log(log).policy_
    assert accepted(policy, log)[1] <= 0.3 + 1e-4
    assert world.exact(policy).utility > best_of(world, 0.3) - 0.006


@pytest.mark.parametrize(("method", "uses_sensitive"), [("model", True), ("direct", False)])
def test_each_group_has_a_capacity_of_its_own(method, uses_sensitive):
    world = cq.worlds.first_setting()
    log = collected(world)
    learner = cq.FairPolicyLearner(
        cost=world.cost,
        max_acceptance={0: 0.4, 1: 0.3},
        method=method,
        uses_sensitive=uses_sensitive,
    )
    rates, _ = accepted(learner.fit_log(log).policy_, log)
    assert rates[0] <= 0.4 + 1e-4
    assert rates[1] <= 0.3 + 1e-4
    assert rates[0] > 0.38 or rates[1] > 0.28  # what there is room for is used


def test_a_capacity_and_a_gap_are_kept_at_once():
    world = cq.worlds.first_setting()
    log = collected(world)
    learner = cq.FairPolicyLearner(
        cost=world.cost, max_acceptance=0.3, max_gap=0.02, method="direct", uses_sensitive=True
    )
    rates, everybody = accepted(learner.fit_log(log).policy_, log)
    assert 0.28 < everybody <= 0.3 + 1e-4
    assert abs(rates[0] - rates[1]) <= 0.02 + 1e-4


def test_capacity_that_is_not_needed_changes_nothing():
    world = cq.worlds.first_setting()
    log = collected(world, 2_000)
    free, wide = (
        cq.FairPolicyLearner(cost=world.cost, max_acceptance=share, method="model").fit_log(log)
        for share in (None, 0.95)
    )
    assert accepted(free.policy_, log)[1] < 0.9
    assert accepted(wide.policy_, log)[1] == pytest.approx(accepted(free.policy_, log)[1], abs=0.01)
    assert wide.result_.violation == 0.0


def test_a_candidate_beyond_the_capacity_is_not_chosen():
    # nearly everybody has label 1: without a capacity nothing is better than accepting all
    rng = np.random.default_rng(0)
    n = 1_000
    features, decision = rng.normal(size=(n, 2)), rng.random(n) < 0.5
    label = np.where(decision, rng.random(n) < 0.9, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, np.full(n, 0.5), label)
    learner = cq.FairPolicyLearner(cost=0.2, max_acceptance=0.4).fit_log(log)
    candidates = learner.result_.candidates
    assert not candidates["accept all"].within_bound
    assert candidates.chosen.within_bound
    assert "breaks a bound" in repr(candidates)
    assert log.propensity_of(learner.policy_).mean() <= 0.4 + 1e-4


def test_a_floor_above_the_capacity_is_refused():
    world = cq.worlds.first_setting()
    log = collected(world, 500)
    with pytest.raises(ValueError, match="accepts more people than max_acceptance"):
        cq.FairPolicyLearner(cost=world.cost, floor=0.2, max_acceptance=0.1).fit_log(log)


def test_a_frontier_is_traced_within_the_capacity():
    world = cq.worlds.first_setting()
    log = collected(world, 3_000)
    found = cq.frontier(
        log, cost=world.cost, max_acceptance=0.25, max_gaps=[0.05, None], folds=2, progress=False
    )
    assert all(point.acceptance < 0.29 for point in found.points)
