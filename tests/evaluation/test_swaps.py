"""The swap set: who was accepted and would no longer be, and the reverse."""

from __future__ import annotations

import json

import numpy as np
import pytest

import consequential as cq
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])


@pytest.fixture(scope="module")
def log() -> cq.DecisionLog:
    return exploring_log(600, 3)


def test_counts_are_sums_over_people_of_decisions_and_propensities(log):
    found, now = cq.statistics.swap_set(POLICY, log), log.propensity_of(POLICY)
    for z, group in enumerate(log.groups):
        rows, each = log.group == z, found.by_group[group]
        accepted = log.decision & rows
        assert (each.people, each.accepted) == (rows.sum(), accepted.sum())
        assert each.leaving.value == pytest.approx((1 - now[accepted]).sum())
        assert each.entering.value == pytest.approx(now[rows & ~log.decision].sum())
        assert each.accepted_now.value == pytest.approx(now[rows].sum())
        assert each.by_chance == pytest.approx((1 - log.propensity[accepted]).sum())


def test_whoever_was_accepted_and_does_not_leave_is_accepted_now(log):
    found = cq.statistics.swap_set(POLICY, log)
    for each in (found.overall, *found.by_group.values()):
        kept = each.accepted - each.leaving.value + each.entering.value
        assert each.accepted_now.value == pytest.approx(kept)
    assert found.overall.leaving.value == pytest.approx(
        sum(each.leaving.value for each in found.by_group.values())
    )


def test_nobody_changes_sides_under_what_the_log_did(log):
    found = cq.statistics.swap_set(cq.Logged(), log).overall
    assert found.leaving.value == found.entering.value == 0.0
    assert found.accepted_now.value == found.accepted


def test_no_more_people_leave_or_enter_than_could(log):
    """All who were accepted leave, and all who were rejected enter: nothing is uncertain."""
    accepted, rejected = int(log.decision.sum()), int((~log.decision).sum())
    none = cq.statistics.swap_set(cq.RejectAll(), log).overall
    all_ = cq.statistics.swap_set(cq.AcceptAll(), log).overall
    for found, n in ((none.leaving, accepted), (all_.entering, rejected)):
        assert (found.low, found.value, found.high) == pytest.approx((n, n, n))


def test_intervals_cover_the_expected_number_in_other_logs():
    """Of as many accepted people as each of them has."""
    world, policy = cq.worlds.first_setting(), cq.Policy([1.5, 5.0])
    past = world.initial_policy()
    rng = np.random.default_rng(0)
    many = world.collect(past, 200_000, rng)
    share = np.average(1 - many.propensity_of(policy), weights=many.propensity)
    found = [
        cq.statistics.swap_set(policy, world.collect(past, 500, rng)).overall for _ in range(200)
    ]
    covered = [share * each.accepted in each.leaving for each in found]
    assert 0.9 <= np.mean(covered) <= 0.99


def test_a_group_without_people_has_nobody_to_change(log):
    some = cq.statistics.swap_set(POLICY, log.take(log.group == 0))
    assert some.by_group[1].people == 0
    assert "nobody" in repr(some)
    assert json.loads(json.dumps(some.to_dict()))["by_group"]["1"]["leaving"]["value"] is None


def test_a_learner_is_cross_fitted_by_folds(log):
    learner = cq.FairPolicyLearner(cost=0.5)
    found = cq.statistics.swap_set(learner, log, folds=2)
    values = cq.statistics.cross_fitted_propensities(learner, log, 2)
    assert found.overall.accepted_now.value == pytest.approx(values.sum())
    assert any("cross-fitted" in note for note in found.notes)
