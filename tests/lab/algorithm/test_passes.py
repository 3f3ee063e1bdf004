"""Passes: an update that goes over its rows at most so often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import consequential as cq

WORLD = cq.worlds.second_setting()
POLICY = WORLD.initial_policy("logistic")


@pytest.mark.parametrize("passes", [1, 3])
def test_an_update_takes_as_many_minibatches_as_its_passes_have(passes):
    log = WORLD.collect(POLICY, 2000, np.random.default_rng(0))
    objective = cq.Objective(WORLD.cost, normalisation="paper")
    learn = cq.UpdatePolicy(
        objective, 10_000, 32, cq.lab.steps.GradientStep(0.5), max_passes=passes
    )
    fixed = replace(learn, n_iterations=passes * log.n_accepted // 32, max_passes=None)
    few = replace(learn, n_iterations=2)
    one, other = (each(POLICY, log, rng=np.random.default_rng(1)).policy for each in (learn, fixed))
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-9)
    least = few(POLICY, log, rng=np.random.default_rng(1)).policy
    assert not np.allclose(least.theta, one.theta)


def test_engines_agree_over_whole_runs():
    strategies = [
        cq.lab.LearnToDecide("logistic", "iterative", "paper", "sampled", max_passes=1),
        cq.lab.LearnToDecide("semi_logistic", "aggregated", "paper", "sampled", max_passes=1),
    ]
    asked = {"seeds": 2, "time_steps": 4, "n_proposals": 500, "progress": False}
    one, other = (
        cq.simulate(WORLD, strategies, engine=engine, **asked) for engine in ("compiled", "numpy")
    )
    for a, b in zip(one.runs, other.runs, strict=True):
        np.testing.assert_allclose(a.thetas, b.thetas, rtol=1e-8)


def test_no_pass_is_refused():
    with pytest.raises(ValueError, match="max_passes is at least 1, not 0"):
        cq.UpdatePolicy(cq.Objective(0.5), 1, 1, max_passes=0)
