"""simulate: the whole grid, the same people for all, and a run that depends on its seed alone."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits
from tiny_worlds import (
    Districts,
    OwnStart,
    Stay,
    TwoMethods,
    Watched,
    assert_same_run,
    assert_same_runs,
    tiny,
    watched,
)

import consequential as cq

STRATEGIES = (
    cq.lab.LearnToPredict("aggregated"),
    cq.lab.LearnToDecide("logistic", "iterative"),
    cq.lab.LearnToDecide("semi_logistic", "aggregated"),
)
PENALTIES = (0.0, 2.0)
SEEDS = (4, 1, 7)


def simulated(strategies=STRATEGIES, *, world=None, **options) -> cq.Runs:
    options = {"seeds": SEEDS, "penalties": PENALTIES, "progress": False} | options
    return cq.simulate(world or Districts(), strategies, **options)


def by_key(runs: cq.Runs) -> dict:
    return {(run.strategy, run.penalty, run.seed): run for run in runs.runs}


@pytest.fixture(scope="module")
def everything() -> cq.Runs:
    return simulated()


# --- the grid


def test_every_strategy_meets_every_penalty_and_seed_once(everything):
    wanted = [(s.name, p, k) for s in STRATEGIES for p in PENALTIES for k in SEEDS]
    assert [(r.strategy, r.penalty, r.seed) for r in everything.runs] == wanted


def test_the_runs_say_where_they_come_from(everything):
    assert everything.world == "districts"
    assert everything.groups == ("north", "south", "west")
    assert everything.fairness == "demographic_parity"
    assert not everything.interrupted


def test_a_strategy_can_be_given_by_itself():
    runs = simulated(Stay("idle"), seeds=1, penalties=[0])
    assert runs.strategies == ("idle",)
    assert runs.penalties == (0.0,)


def test_a_number_of_seeds_means_the_first_so_many():
    assert simulated(Stay("idle"), seeds=3, penalties=[0.0]).seeds == (0, 1, 2)


def test_time_steps_and_proposals_come_from_the_world_by_default():
    world = Districts()
    seen = watched(world)
    simulated(Stay("idle"), world=world, seeds=1, penalties=[0.0])
    assert [(s.time_step, len(s.log)) for s in seen] == [(0, 150), (1, 150), (2, 150)]


def test_time_steps_and_proposals_can_be_given():
    world = Districts()
    seen = watched(world)
    runs = simulated(
        Stay("idle"), world=world, seeds=1, penalties=[0.0], time_steps=2, n_proposals=31
    )
    assert [(s.time_step, len(s.log)) for s in seen] == [(0, 31), (1, 31)]
    assert runs.summary().n_steps == 2


def test_a_world_of_two_methods_is_enough():
    runs = simulated(STRATEGIES[1], world=TwoMethods(), seeds=2)
    assert runs.groups == ("north", "south", "west")
    utility = runs.metric("utility", "logistic, iterative", 0.0)
    assert (utility > 0.02).all()  # it starts from a model fitted in that world
    assert len(np.unique(utility[:, 0])) == 2


# --- the same people


@pytest.fixture(scope="module")
def steps() -> dict:
    """People of each step, by seed, as met by (strategy, penalty) after (strategy, penalty)."""
    world = Districts()
    seen = iter(watched(world))
    simulated(world=world)
    n_runs = len(STRATEGIES) * len(PENALTIES)
    return {seed: [[next(seen) for _ in range(3)] for _ in range(n_runs)] for seed in SEEDS}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_runs_of_a_seed_see_the_same_people_at_each_step(steps, seed):
    first, *others = steps[seed]
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert a.time_step == b.time_step
            assert_array_equal(a.people.features, b.people.features)
            assert_array_equal(a.people.group, b.people.group)
            assert_array_equal(a.people.label, b.people.label)


def test_other_steps_and_other_seeds_bring_other_people(steps):
    met = {step.people.features.tobytes() for runs in steps.values() for step in runs[0]}
    assert len(met) == 3 * len(SEEDS)


def test_people_are_drawn_once_for_all_runs_of_a_seed():
    world = Districts()
    drawn = []
    draw = world.people
    world.people = lambda n, rng: drawn.append(n) or draw(n, rng)
    simulated([Stay("a"), Stay("b")], world=world)
    assert drawn == [150] * 3 * len(SEEDS)


def test_runs_of_a_seed_start_from_the_same_model(steps):
    for runs in steps.values():
        predictor = runs[0][0].rule.predictor
        for run in runs[len(PENALTIES) :]:
            assert_array_equal(run[0].rule.theta[1:], predictor.coef_[0])


def test_the_same_rule_under_another_name_decides_the_same():
    half = cq.RejectAll().with_floor(0.5)
    runs = simulated([Stay("a", half), Stay("b", half)], seeds=2, penalties=[0.0])
    a, b = (runs.metric("effective_utility", name) for name in "ab")
    assert_array_equal(a, b)
    assert len(np.unique(a)) > 3  # chance differs by step and seed


# --- a run depends on its seed alone


def test_the_order_of_strategies_penalties_and_seeds_changes_no_run(everything):
    turned = simulated(STRATEGIES[::-1], penalties=PENALTIES[::-1], seeds=SEEDS[::-1])
    assert turned.strategies == everything.strategies[::-1]
    expected = by_key(everything)
    for key, run in by_key(turned).items():
        assert_same_run(run, expected[key])


def test_another_seed_makes_another_run(everything):
    for strategy in everything.strategies:
        utilities = everything.metric("utility", strategy, 0.0)
        assert len(np.unique(utilities[:, -1])) == len(SEEDS)


@pytest.fixture(scope="module")
def one_and_two_processes() -> list[cq.Runs]:
    world = tiny(cq.worlds.lending(), n_proposals=400)
    # the first and the last strategy go through Python, which takes processes
    strategies = [
        cq.lab.LearnToDecide("logistic", cq.lab.sequences.LastSteps(2)),
        cq.lab.LearnToDecide("semi_logistic", "aggregated"),
        cq.lab.LearnToPredict(classifier=DecisionTreeClassifier(max_depth=2, random_state=0)),
    ]
    options = {"world": world, "seeds": [3, 0], "penalties": [0.0, 1.0], "time_steps": 2}
    return [simulated(strategies, n_jobs=n, **options) for n in (1, 2)]


def test_processes_give_the_same_runs_in_the_same_order(one_and_two_processes):
    one, two = one_and_two_processes
    assert len(one.runs) == 12
    assert_same_runs(two, one)


def test_policies_learned_in_processes_are_saved(one_and_two_processes, tmp_path):
    _, two = one_and_two_processes
    two.save(tmp_path / "runs.parquet")
    loaded = cq.Runs.load(tmp_path / "runs.parquet")
    for name in two.strategies[:2]:  # trees are more than numbers
        for penalty in two.penalties:
            for run, other in zip(
                loaded.select(name, penalty), two.select(name, penalty), strict=True
            ):
                assert_same_run(run, other)


def test_threads_of_linear_algebra_do_not_matter():
    # policies by group are measured by the world itself
    strategy = OwnStart(
        lambda world, rng: cq.Policy([0.1, 0.3, 0.1, 0.2], groups=world.groups), STRATEGIES[1]
    )
    world = tiny(cq.worlds.second_setting())
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(limits=n_threads, user_api="blas"):
            found.append(simulated(strategy, world=world))
    assert_same_runs(*found)


def test_one_process_per_core_can_be_asked_for(everything, monkeypatch):
    monkeypatch.setitem(os.environ, "LOKY_MAX_CPU_COUNT", "1")
    all_cores = simulated(STRATEGIES[1], n_jobs=-1)
    expected = by_key(everything)
    for key, run in by_key(all_cores).items():
        assert_same_run(run, expected[key])


def test_global_random_state_neither_matters_nor_changes(everything):
    np.random.seed(5)  # noqa: NPY002 - the global state that nothing may touch
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    (run,) = simulated(STRATEGIES[1], seeds=[1], penalties=[0.0]).runs
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert_same_run(run, by_key(everything)[run.strategy, 0.0, 1])


# --- sequences


@pytest.mark.parametrize(
    ("sequence", "steps_learned_from"),
    [
        ("iterative", [{0}, {1}, {2}, {3}]),
        (cq.lab.sequences.Iterative(), [{0}, {1}, {2}, {3}]),
        ("aggregated", [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]),
        (cq.lab.sequences.LastSteps(2), [{0}, {0, 1}, {1, 2}, {2, 3}]),
    ],
    ids=["iterative", "Iterative", "aggregated", "last two"],
)
@pytest.mark.parametrize("kind", [cq.lab.LearnToDecide, cq.lab.LearnToPredict])
def test_a_strategy_learns_from_the_steps_of_its_sequence(kind, sequence, steps_learned_from):
    strategy = Watched(kind(sequence=sequence))
    simulated(strategy, seeds=1, penalties=[0.0], time_steps=4)
    assert [set(log.time_step.tolist()) for log in strategy.logs] == steps_learned_from
    for log, steps in zip(strategy.logs, steps_learned_from, strict=True):
        assert len(log) == 150 * len(steps)


def test_an_aggregated_sequence_stays_within_its_rows():
    strategy = Watched(cq.lab.LearnToDecide("logistic", cq.lab.sequences.Aggregated(max_rows=200)))
    simulated(strategy, seeds=1, penalties=[0.0], time_steps=4)
    assert [len(log) for log in strategy.logs] == [150, 200, 200, 200]


def test_nothing_is_kept_from_one_run_to_the_next():
    strategy = Watched(cq.lab.LearnToDecide("logistic", "aggregated"))
    simulated(strategy, seeds=2, penalties=[0.0, 1.0])
    assert [len(log) for log in strategy.logs] == [150, 300, 450] * 4
