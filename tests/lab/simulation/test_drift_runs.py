"""Runs in worlds that drift: every engine, every row in the world of its step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tiny_worlds import TINY, Districts, Stay, assert_alike, assert_same_runs, small_table, tiny

import consequential as cq
from consequential.lab.simulation.strategies import Strategy
from consequential.lab.worlds.synthetic import Drift

STRATEGIES = [
    cq.lab.LearnToPredict("aggregated"),
    cq.lab.LearnToDecide("logistic"),
    cq.lab.LearnToDecide("semi_logistic", "aggregated"),
    cq.lab.LearnToDecide(
        "smooth_semi_logistic", cq.lab.sequences.Aggregated(500), "paper", named="paper, few"
    ),
]


class Quick(Drift):
    """The shipped drift in four steps of few people."""

    parameters = TINY

    def at(self, time_step):
        return tiny(super().at(time_step))


def drifting():
    return Quick(0.4, 0.0, 4)


class Moving(Districts):
    """A drift without an alias table: repaying gets rarer, and people's features move."""

    def __init__(self, gone=0.0):
        self.gone = gone

    def propose(self, n, rng):
        features, district = super().propose(n, rng)
        return features + self.gone, district

    def label_probability(self, features, sensitive):
        return (1.0 - self.gone) * super().label_probability(features, sensitive)

    def at(self, time_step):
        return Moving(time_step / 10)


def alternating():
    """Two tables, one after the other."""
    table, other = small_table(), small_table(60)
    table.at = lambda time_step: table if time_step % 2 == 0 else other
    return table


def simulated(world, strategies=STRATEGIES, **options):
    usual = {"seeds": (3, 8), "penalties": (0.0, 3.0), "time_steps": 4, "n_proposals": 300}
    return cq.simulate(world, strategies, progress=False, **usual | options)


@pytest.mark.parametrize("world", [drifting, Moving, alternating])
def test_compiled_runs_are_the_runs_of_numpy(world):
    compiled, defined = (simulated(world(), seeds=[5], engine=e) for e in ("compiled", "numpy"))
    assert_alike(compiled, defined)


def test_every_row_is_measured_in_the_world_of_its_step():
    world, strategy = drifting(), cq.lab.LearnToDecide("semi_logistic")
    (run,) = simulated(world, strategy, seeds=[2], penalties=[0.0]).runs
    assert len(run.thetas) == 5
    for step, theta in enumerate(run.thetas):
        truth = world.at(step).exact(run.policy.at(theta))
        assert run.metrics["utility"][step] == pytest.approx(truth.utility, abs=1e-9)
        assert run.metrics["benefit_gap"][step] == pytest.approx(truth.benefit_gap, abs=1e-9)


def test_steep_policies_too_are_measured_in_the_world_of_their_step():
    world = drifting()
    strategy = Held(
        cq.Policy([0.0, 500.0]), cq.lab.LearnToDecide(step=cq.lab.steps.GradientStep(1e-9))
    )
    (run,) = simulated(world, strategy, seeds=[2], penalties=[0.0]).runs
    truth = [world.at(step).exact(strategy.rule).utility for step in range(5)]
    assert_allclose(run.metrics["utility"], truth, atol=1e-8)
    assert np.ptp(truth) > 0.05


def test_people_and_what_is_gained_come_from_the_world_of_the_step():
    world = drifting()
    (run,) = simulated(world, Stay("all"), seeds=[0], penalties=[0.0], n_proposals=20_000).runs
    utility = [world.at(step).exact(cq.AcceptAll()).utility for step in range(5)]
    assert_allclose(run.metrics["utility"], utility, atol=1e-9)
    gained = np.cumsum(utility[:4]) / np.arange(1, 5)
    assert_allclose(run.metrics["effective_utility"][:4], gained, atol=0.008)
    assert np.ptp(utility) > 0.1


def standing(world, other):
    world.at = lambda time_step: other()
    return world


@pytest.mark.parametrize(
    ("world", "engine"),
    [
        (lambda: tiny(cq.worlds.second_setting()), "compiled"),
        (Districts, "numpy"),
    ],
    ids=["setting", "districts, numpy"],
)
def test_a_world_that_only_seems_to_drift_gives_the_same_runs_to_the_bit(world, engine):
    options = {"engine": engine, "time_steps": 2}
    still = simulated(world(), **options)
    seeming = simulated(standing(world(), world), **options)
    assert_same_runs(still, seeming)


def test_threads_do_not_matter():
    one, two = (simulated(drifting(), n_jobs=n) for n in (1, 2))
    assert_same_runs(one, two)


def test_a_world_that_cannot_go_so_far_says_so_before_anything_is_run():
    world, ends = small_table(), [small_table()] * 4
    world.at = lambda time_step: ends[time_step]
    with pytest.raises(IndexError):
        simulated(world, Stay("all"))
    assert simulated(world, Stay("all"), time_steps=3).runs


@dataclass
class Held(Strategy):
    """Another strategy from a start of our own."""

    rule: cq.Policy
    inner: Strategy
    name: str = "held"
    sequence: Any = "iterative"

    def start(self, world, rng):
        return self.rule

    def learner(self, world, fairness, penalty):
        return self.inner.learner(world, fairness, penalty)


def test_what_is_learned_from_the_last_step_follows_and_what_is_learned_from_all_lags():
    world = cq.worlds.drift(steps=40)
    kinds = [cq.lab.LearnToDecide("logistic", kind) for kind in ("iterative", "aggregated")]
    runs = cq.simulate(
        world,
        [*kinds, cq.lab.LearnToPredict()],
        seeds=2,
        time_steps=40,
        n_proposals=8192,
        progress=False,
    )
    follows, lags, stuck = (
        runs.metric("utility", name)[:, -1].max()
        for name in ("logistic, iterative", "logistic, aggregated", "deterministic, iterative")
    )
    assert world.at(40).optimal().utility - follows < 0.002
    assert follows - lags > 0.002
    assert lags - stuck > 0.002
