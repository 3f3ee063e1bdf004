from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import consequential as cq
from consequential.lab.algorithm.sequences import sequence_named


def logs(n_steps, n=50):
    world = cq.worlds.second_setting()
    policy = world.initial_policy()
    return [world.collect(policy, n, np.random.default_rng(t), time_step=t) for t in range(n_steps)]


def kept(sequence, n_steps, n=50):
    held = None
    for log in logs(n_steps, n):
        held = sequence.extend(held, log, np.random.default_rng(0))
    return held


def test_the_iterative_sequence_keeps_the_last_step():
    assert_array_equal(np.unique(kept(cq.lab.sequences.Iterative(), 4).time_step), [3])


def test_the_aggregated_sequence_keeps_everything_with_its_own_propensities():
    held = kept(cq.lab.sequences.Aggregated(), 4)
    everything = cq.DecisionLog.concatenate(logs(4))
    # in random order: put back, it is everything
    back = np.lexsort([held.features[:, 0], held.time_step])
    front = np.lexsort([everything.features[:, 0], everything.time_step])
    assert held.take(back).fingerprint == everything.take(front).fingerprint
    assert set(held.policies) == {0, 1, 2, 3}


def test_beyond_its_bound_the_aggregated_sequence_keeps_every_step_evenly():
    held = kept(cq.lab.sequences.Aggregated(max_rows=2000), 40, n=200)
    assert len(held) == 2000
    counts = np.bincount(held.time_step, minlength=40)
    # 8000 rows seen, 2000 kept: 50 a step; a hypergeometric count has a deviation below 6.2
    assert counts.min() > 50 - 4 * 6.2
    assert counts.max() < 50 + 4 * 6.2


def test_the_last_steps_are_kept_and_no_more():
    assert_array_equal(np.unique(kept(cq.lab.sequences.LastSteps(3), 6).time_step), [3, 4, 5])
    assert_array_equal(np.unique(kept(cq.lab.sequences.LastSteps(9), 2).time_step), [0, 1])


def test_sequences_go_by_name():
    assert sequence_named("iterative") == cq.lab.sequences.Iterative()
    assert sequence_named("aggregated") == cq.lab.sequences.Aggregated()
    with pytest.raises(ValueError, match="unknown sequence 'all'"):
        sequence_named("all")


@pytest.mark.parametrize(
    "make", [lambda: cq.lab.sequences.Aggregated(max_rows=0), lambda: cq.lab.sequences.LastSteps(0)]
)
def test_a_sequence_that_keeps_nothing_is_refused(make):
    with pytest.raises(ValueError, match="at least 1"):
        make()


@pytest.mark.parametrize(
    "weighting", [cq.weightings.InversePropensity(), cq.weightings.BalanceHeuristic()]
)
def test_an_update_learns_from_several_past_policies_at_once(weighting):
    world = cq.worlds.first_setting()
    objective = cq.Objective(world.cost, weighting=weighting)
    learner = cq.UpdatePolicy(objective, n_iterations=32, batch_size=128)
    steps = cq.consequential_learning(
        world,
        world.initial_policy(),
        learner,
        sequence=cq.lab.sequences.LastSteps(3),
        time_steps=8,
        n_proposals=4096,
        rng=np.random.default_rng(0),
    )
    last = list(steps)[-1]
    assert world.exact(last.learned).utility > world.exact(world.initial_policy()).utility + 0.02
