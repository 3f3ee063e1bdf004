"""Tasks: columns that run together, in blocks of seeds."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.lab.paper import tasks
from consequential.lab.paper.studies import QUICK, STUDIES, Scale
from consequential.lab.paper.tasks import LendingExample, Simulation, tasks_of
from consequential.lab.simulation.simulate import checked_experiment, stream


@pytest.mark.parametrize(
    ("name", "kind"),
    [("first-time", Simulation), ("first-penalty", Simulation), ("lending", LendingExample)],
)
def test_a_study_becomes_a_task_of_its_kind(name, kind):
    task, *others = tasks_of(STUDIES[name], QUICK)
    assert type(task) is kind
    assert getattr(task, "last_only", False) is (name == "first-penalty")
    assert task.name == name
    files = {file for each in (task, *others) for file in each.files}
    assert files == set(STUDIES[name].files)
    assert [each.files for each in others] == [[f"{name}-authors"]] * (name == "first-time")


def test_columns_that_run_together_are_what_each_would_be_alone():
    study = STUDIES["second-time"]
    ticks = []
    task, _ = tasks_of(study, Scale(seeds=8, time_steps=3))
    found = dict(task.run(range(len(task.blocks)), 2, ticks.append))
    assert sum(ticks) == pytest.approx(8.0)  # seeds
    assert len(found) == len(task.blocks) > 1
    for at, column in enumerate(("paper", "corrected")):
        strategies = study.strategies(column)
        alone = cq.simulate(study.world(), strategies, seeds=8, time_steps=3, progress=False)
        for number, pieces in found.items():
            block = task.blocks[number]
            expected = [run for run in alone.runs if run.seed in block]
            for one, other in zip(pieces[at].runs, expected, strict=True):
                assert (one.strategy, one.seed) == (other.strategy, other.seed)
                np.testing.assert_array_equal(one.thetas, other.thetas)
    first, second = ([run.thetas for run in piece.runs] for piece in found[0])
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_two_columns_have_in_common_runs_once(monkeypatch):
    asked = []

    def spied(world, strategies, **options):
        asked.extend(strategies)
        return checked_experiment(world, strategies, **options)

    monkeypatch.setattr(tasks, "checked_experiment", spied)
    task, _ = tasks_of(STUDIES["second-time"], Scale(seeds=1, time_steps=1))
    list(task.run([0], 1, lambda n_seeds: None))
    names = [strategy.name for strategy in asked]
    assert len(names) == len(set(names)) == 2 + 2 * 4
    assert sum(name.startswith("deterministic") for name in names) == 2


@pytest.mark.parametrize(("fair", "blocks_begun"), [(False, 3), (True, 1)])
def test_blocks_run_together_where_seeds_are_done_one_after_the_other(
    fair, blocks_begun, monkeypatch
):
    begun = []

    def spied(plan, seeds, n_jobs):
        begun.append(list(seeds))
        yield from stream(plan, seeds, n_jobs)

    monkeypatch.setattr(tasks, "stream", spied)
    strategies = [cq.lab.LearnToPredict(fair=fair), cq.lab.LearnToDecide("logistic")]
    task = Simulation(
        name="x",
        files=["x"],
        blocks=[[0], [1], [2]],
        world=cq.worlds.second_setting,
        strategies=[strategies],
        penalties=[0.0],
        time_steps=1,
    )
    steps = task.run(range(3), 1, lambda n_seeds: None)
    next(steps)
    assert len(begun[0]) == blocks_begun
    assert [number for number, _ in steps] == [1, 2]
    assert [seed for seeds in begun for seed in seeds] == [0, 1, 2]
