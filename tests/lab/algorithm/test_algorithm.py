from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import consequential as cq


def steps_of(world, policy, learner, seed=0, **options):
    defaults = {"time_steps": 4, "n_proposals": 500, "rng": np.random.default_rng(seed)}
    return list(cq.consequential_learning(world, policy, learner, **(defaults | options)))


@pytest.fixture
def world():
    return cq.worlds.second_setting()


@pytest.fixture
def learner(world):
    return cq.UpdatePolicy(cq.Objective(world.cost), n_iterations=8, batch_size=32)


def test_what_one_step_learns_the_next_deploys(world, learner):
    steps = steps_of(world, world.initial_policy(), learner)
    assert [step.time_step for step in steps] == [0, 1, 2, 3]
    for this, following in pairwise(steps):
        assert following.policy is this.learned
        assert following.log.policies == {following.time_step: following.policy}


def test_runs_with_one_seed_see_the_same_people_whatever_they_decide(world, learner):
    learning = steps_of(world, world.initial_policy(), learner)
    accepting = steps_of(world, cq.AcceptAll(), None)
    for one, other in zip(learning, accepting, strict=True):
        assert_array_equal(one.log.features, other.log.features)
        known = one.log.decision
        assert_array_equal(one.log.label[known], other.log.label[known])


def test_a_rule_without_a_learner_never_changes(world):
    lottery = cq.RejectAll().with_floor(0.3)
    steps = steps_of(world, lottery, None)
    assert all(step.learned is lottery for step in steps)


def test_a_run_that_accepts_nobody_goes_on_and_says_so(world, learner):
    hopeless = cq.Policy([-900.0, 0.0])
    steps = steps_of(world, hopeless, learner)
    assert all("nobody was accepted" in step.notes[0] for step in steps)
    assert all(step.learned is hopeless for step in steps)


def test_steps_come_one_by_one(world, learner):
    run = cq.consequential_learning(
        world,
        world.initial_policy(),
        learner,
        time_steps=10**9,
        n_proposals=100,
        rng=np.random.default_rng(0),
    )
    assert next(run).time_step == 0


@pytest.mark.parametrize("options", [{"time_steps": 0}, {"n_proposals": 0}])
def test_a_run_of_nothing_is_refused(world, learner, options):
    with pytest.raises(ValueError, match="at least 1"):
        steps_of(world, world.initial_policy(), learner, **options)


# --- learners of one's own


def test_a_learner_may_return_the_next_rule_alone(world):
    half = cq.RejectAll().with_floor(0.5)
    steps = steps_of(world, cq.AcceptAll(), lambda policy, log, *, rng, time_step: half)
    assert [step.policy for step in steps] == [cq.AcceptAll(), *[half] * 3]
    assert all(step.notes == () for step in steps)


@pytest.mark.parametrize("notes", [("be careful",), ["be careful"], "be careful"])
def test_notes_of_a_learner_come_with_its_step(world, notes):
    def learn(policy, log, *, rng, time_step):
        return SimpleNamespace(policy=policy, notes=notes)

    assert steps_of(world, cq.AcceptAll(), learn)[0].notes == ("be careful",)


@pytest.mark.parametrize("returned", [None, np.zeros(2), cq.AcceptAll])
def test_a_learner_that_returns_no_rule_is_told_so(world, returned):
    with pytest.raises(TypeError, match=r"what a learner returns must be a rule .* not "):
        steps_of(world, cq.AcceptAll(), lambda policy, log, *, rng, time_step: returned)


@pytest.mark.parametrize("start", [None, np.zeros(2), cq.AcceptAll])
def test_a_start_that_is_no_rule_is_refused(world, learner, start):
    with pytest.raises(TypeError, match=r"the rule to start with must be a rule .* not "):
        steps_of(world, start, learner)


def test_a_learner_that_cannot_be_called_is_told_how_it_would_be(world):
    estimator = cq.FairPolicyLearner(method="direct", cost=world.cost)
    with pytest.raises(TypeError, match=r"learner\(policy, log, .* FairPolicyLearner cannot"):
        steps_of(world, cq.AcceptAll(), estimator)


def test_an_update_of_a_rule_without_parameters_names_one_that_has_some(world, learner):
    with pytest.raises(TypeError, match=r"initial_policy\('logistic'\); AcceptAll has none"):
        steps_of(world, cq.AcceptAll(), learner)


def test_a_predictor_can_be_fitted_after_any_rule(world):
    first, second, *_ = steps_of(world, cq.AcceptAll(), cq.lab.FitPredictor(world.cost))
    assert first.policy == cq.AcceptAll()
    assert isinstance(second.policy, cq.ThresholdPolicy)
