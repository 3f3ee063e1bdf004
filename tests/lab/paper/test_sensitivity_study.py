"""Sensitivity: one thing changed at a time, compared with the right rival."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.lab.paper.sensitivity import PRINTED, Moved, leads, strategies

WORLD = cq.worlds.second_setting()


@pytest.fixture(scope="module")
def runs():
    every = list(strategies(WORLD))
    return cq.simulate(WORLD, every, seeds=2, time_steps=2, n_proposals=500, progress=False)


def test_every_change_has_a_lead_over_its_own_rival_or_the_printed_one(runs):
    found = leads(runs)
    assert len(found) == 9

    def last(name):
        return runs.metric("utility", name)[:, -1]

    rival = last(f"{PRINTED}, predicting")
    np.testing.assert_array_equal(found["M × 4"], last("M × 4, exploring") - rival)
    printed = last(f"{PRINTED}, exploring")
    np.testing.assert_array_equal(found["ridge 1"], printed - last("ridge 1, predicting"))
    moved = last("start +1, exploring") - last("start +1, predicting")
    np.testing.assert_array_equal(found["start +1"], moved)


def test_a_moved_start_cuts_where_the_moved_model_predicts_the_cost():
    rng = np.random.default_rng(0)
    plain = WORLD.initial_theta(rng)
    policy, rule = (
        Moved(strategy, 0.5, "moved").start(WORLD, rng)
        for strategy in (cq.lab.LearnToDecide("logistic"), cq.lab.LearnToPredict())
    )
    cut = (np.log(WORLD.cost / (1 - WORLD.cost)) - plain[0] - 0.5) / plain[1]
    assert policy.propensity(np.array([[cut]])) == pytest.approx(0.5)
    sides = np.array([[cut - 1e-6], [cut + 1e-6]])
    assert rule.propensity(sides).tolist() == [0.0, 1.0]
