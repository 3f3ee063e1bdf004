"""Studies: what is run, how large, and in which blocks."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.paper import tasks
from consequential.paper.studies import (
    COLUMNS,
    FULL,
    MORE,
    NAMES,
    OF_PAPER,
    QUICK,
    STUDIES,
    Scale,
    blocks,
    studies_named,
)
from consequential.paper.tasks import LendingExample, Simulation, task_of
from consequential.simulation.simulate import planned, stream


def test_every_study_of_the_paper_is_there_in_both_columns():
    places = ("first", "second", "compas", "compas-rearrest")
    expected = {f"{place}-{kind}" for place in places for kind in ("time", "penalty")}
    assert set(OF_PAPER) == expected | {"lending"}
    for name in expected:
        assert tuple(study.column for study in studies_named(name)) == COLUMNS
    assert [study.column for study in studies_named("lending")] == ["paper"]
    assert not set(OF_PAPER) & set(MORE)
    assert len(NAMES) == len(OF_PAPER) + len(MORE)


def test_files_have_names_of_their_own():
    assert len({study.file for study in STUDIES}) == len(STUDIES)


@pytest.mark.parametrize(
    ("column", "normalisation"), [("paper", "paper"), ("corrected", "applicants")]
)
def test_columns_differ_in_their_estimators(column, normalisation):
    for name in ("first-time", "compas-penalty"):
        (study,) = (study for study in studies_named(name) if study.column == column)
        deciding = [s for s in study.strategies() if isinstance(s, cq.LearnToDecide)]
        assert {strategy.normalisation for strategy in deciding} == {normalisation}
        assert len(deciding) == 4
        assert len(study.strategies()) == (6 if study.kind == "time" else 4)


def test_penalties_span_the_papers_range_evenly_on_a_log_scale():
    values = FULL.penalty_values
    assert len(values) == 19
    np.testing.assert_allclose([values[0], values[-1]], [10**-0.5, 1e4])
    np.testing.assert_allclose(np.diff(np.log10(values)), 0.25)
    assert studies_named("first-time")[0].penalties(FULL) == (0.0,)
    assert studies_named("first-penalty")[0].penalties(FULL) == values


@pytest.mark.parametrize("scale", [FULL, QUICK, Scale(seeds=1), Scale(seeds=7, penalties=1)])
@pytest.mark.parametrize("name", NAMES)
def test_blocks_hold_every_seed_once_in_order(name, scale):
    found = blocks(studies_named(name), scale)
    seeds = [seed for block in found for seed in block]
    expected = min(scale.seeds, 10) if name == "lending" else scale.seeds
    assert seeds == list(range(expected))
    assert all(found)


def test_blocks_of_the_papers_size_are_short_or_a_single_pair_and_all_even():
    for name in NAMES:
        columns = studies_named(name)
        seconds = sum(study.seconds_per_seed(FULL) for study in columns)
        for block in blocks(columns, FULL):
            assert len(block) == 2 or seconds * len(block) <= 20.0
            assert len(block) % 2 == 0


def test_compas_has_both_orientations_of_its_label():
    plain, turned = (
        studies_named(name)[0].world() for name in ("compas-time", "compas-rearrest-time")
    )
    np.testing.assert_array_equal(plain.table.label, 1.0 - turned.table.label)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("first-time", Simulation), ("first-penalty", Simulation), ("lending", LendingExample)],
)
def test_a_study_becomes_a_task_of_its_kind(name, kind):
    columns = studies_named(name)
    task = task_of(columns, QUICK)
    assert type(task) is kind
    assert getattr(task, "last_only", False) is (name == "first-penalty")
    assert task.name == name
    assert task.files == [study.file for study in columns]


@pytest.mark.parametrize(("column", "n_iterations"), [("paper", 2560), ("corrected", 128)])
def test_the_corrected_column_passes_over_compas_twice_a_step(column, n_iterations):
    study = next(s for s in studies_named("compas-penalty") if s.column == column)
    world = study.world()
    for strategy in study.strategies():
        learner = strategy.learner(world, cq.DemographicParity(), 1.0)
        assert (learner.n_iterations, learner.batch_size) == (n_iterations, 64)
    assert world.parameters.n_proposals == 4096


@pytest.mark.parametrize("name", ["first-time", "second-time"])
def test_both_columns_pass_once_over_the_people_of_a_setting(name):
    for study in studies_named(name):
        world = study.world()
        deciding = [s for s in study.strategies() if isinstance(s, cq.LearnToDecide)]
        assert len(deciding) == 4
        for strategy in deciding:
            learner = strategy.learner(world, cq.DemographicParity(), 0.0)
            assert learner.n_iterations * learner.batch_size == world.parameters.n_proposals


def test_columns_that_run_together_are_what_each_would_be_alone():
    columns, scale = studies_named("second-time"), Scale(seeds=8, time_steps=3)
    ticks = []
    task = task_of(columns, scale)
    found = dict(task.run(range(len(task.blocks)), 2, ticks.append))
    assert sum(ticks) == pytest.approx(8.0)  # seeds
    assert len(found) == len(task.blocks) > 1
    for at, study in enumerate(columns):
        alone = cq.simulate(
            study.world(), study.strategies(), seeds=8, time_steps=3, progress=False
        )
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
        return planned(world, strategies, **options)

    monkeypatch.setattr(tasks, "planned", spied)
    task = task_of(studies_named("second-time"), Scale(seeds=1, time_steps=1))
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
    strategies = [cq.LearnToPredict(fair=fair), cq.LearnToDecide("logistic")]
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
