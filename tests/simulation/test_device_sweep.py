"""Runs on a device: what it can take, and the same results as compiled code.

Few programs of few iterations: compiling one takes seconds.
"""

from __future__ import annotations

import pytest
from sklearn.preprocessing import StandardScaler
from tiny_worlds import Districts, FewOfAKind, OwnStart, Unpunished, assert_alike, tiny

import consequential as cq
from consequential.simulation import compiled_sweep, device_sweep


@pytest.fixture
def taken(monkeypatch, quick_jax):
    """Record which runs the device takes, the CPU takes, and the CPU repeats."""
    taken = {"device": [], "cpu": [], "again": []}
    advance, runs_of = device_sweep.DeviceSweep.advance, compiled_sweep.runs_of
    advance_seed = device_sweep.advance_seed

    def on_device(self):
        taken["device"].append(self.all_runs)
        yield from advance(self)

    def on_cpu(*arguments, **options):
        taken["cpu"] += runs_of(*arguments, **options)
        return runs_of(*arguments, **options)

    def repeated(experiment, all_runs):
        taken["again"] += all_runs
        advance_seed(experiment, all_runs)

    monkeypatch.setattr(device_sweep.DeviceSweep, "advance", on_device)
    monkeypatch.setattr(compiled_sweep, "runs_of", on_cpu)
    monkeypatch.setattr(device_sweep, "advance_seed", repeated)
    return taken


def on_both(world, strategies, taken, **options):
    """Compare with compiled code; leave recorded what the device's engine did."""
    usual = {"seeds": (3, 8), "penalties": (0.0, 3.0), "time_steps": 3, "n_proposals": 300}
    options = usual | {"progress": False} | options
    compiled = cq.simulate(world, strategies, **options)
    for recorded in taken.values():
        recorded.clear()
    runs = cq.simulate(world, strategies, engine="jax", **options)
    assert_alike(runs, compiled)
    return runs


def test_a_device_runs_several_links_in_one_program_and_leaves_out_missing_groups(taken):
    # tests/accelerated has the functionals of every notion
    step = cq.steps.GradientStep(0.4, max_step=0.2)
    strategies = [
        cq.LearnToDecide("logistic", step=step),
        cq.LearnToDecide("semi_logistic", step=step),
        cq.LearnToDecide("smooth_semi_logistic", step=step),
        cq.LearnToDecide("logistic", step=step, floor=0.1, named="floor"),
        cq.LearnToPredict(),
    ]
    options = {"seeds": 30, "n_proposals": 30, "time_steps": 2, "fairness": "equalised_odds"}
    runs = on_both(FewOfAKind(), strategies, taken, **options)
    (together,) = taken["device"]
    assert len(together) == 4
    assert {runs.name for runs in taken["cpu"]} == {"deterministic, iterative"}
    assert sum("no row to measure the benefit" in note for note in runs.notes) > 100


def test_a_device_keeps_a_reservoir_of_people_seen_through_a_feature_map(taken):
    strategy = OwnStart(
        lambda world, rng: world.initial_policy("semi_logistic"),
        # it grows once and then overflows
        cq.LearnToDecide(
            sequence=cq.sequences.Aggregated(800), weighting=cq.weightings.SelfNormalised()
        ),
    )
    world = tiny(cq.worlds.lending(), batch_size=50)
    assert world.initial_policy().feature_map is not None
    options = {"fairness": "predictive_parity", "n_proposals": 500, "time_steps": 2}
    on_both(world, strategy, taken, **options)
    assert len(taken["device"]) == 1
    assert not taken["cpu"]


def test_a_device_repeats_thin_runs_on_the_cpu(taken):
    world = tiny(cq.worlds.second_setting(), batch_size=50, n_iterations=5)
    strategy = OwnStart(
        # some seeds begin harshly, others mildly
        lambda world, rng: cq.Policy([rng.choice([-2.0, 5.0]), 0.1]),
        cq.LearnToDecide(
            normalisation="paper", decisions="sampled", weighting=cq.weightings.Clipped(4.0)
        ),
    )
    seeds, n = range(4), 500
    runs = on_both(world, strategy, taken, seeds=seeds, n_proposals=n)
    assert len(taken["device"]) == 1
    fewest = dict.fromkeys(seeds, n)
    for run in runs.runs:
        fewest[run.seed] = min(fewest[run.seed], n * run.metrics["acceptance"][:3].min())
    # a minibatch and two windows of a hundred, or three windows
    thin = [seed for seed in seeds if fewest[seed] < 300]
    assert 0 < len(thin) < len(seeds)
    assert all(abs(fewest[seed] - 300) > 50 for seed in seeds)  # chance does not decide
    assert sorted(seed for runs in taken["again"] for seed in runs.seeds) == thin


def test_a_device_runs_a_strategy_without_a_notion_of_fairness(taken):
    world = tiny(cq.worlds.second_setting(), n_iterations=8)
    on_both(world, Unpunished(), taken, penalties=[0.0], time_steps=1)
    assert len(taken["device"]) == 1


def test_a_world_without_an_alias_table_stays_on_the_cpu(taken):
    on_both(Districts(), cq.LearnToDecide(), taken)
    assert not taken["device"]
    assert {runs.name for runs in taken["cpu"]} == {"logistic, iterative"}


def test_a_strategy_that_a_device_can_take_for_some_seeds_only_stays_on_the_cpu(taken):
    # So large a reservoir that each seed has a program of its own: the first one would fit.
    scaler = StandardScaler().fit([[-1.0], [1.0]])
    strategy = OwnStart(
        lambda world, rng: cq.Policy([0.1, 0.2], feature_map=next(maps)),
        cq.LearnToDecide(sequence=cq.sequences.Aggregated(2**29)),
    )
    world = tiny(cq.worlds.second_setting())
    maps = iter([None, scaler] * 2)
    on_both(world, strategy, taken)
    assert not taken["device"]
    assert {seed for runs in taken["cpu"] for seed in runs.seeds} == {3, 8}
