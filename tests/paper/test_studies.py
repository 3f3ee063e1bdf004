"""Studies: what is run, how large, and in which blocks."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.paper.studies import (
    COLUMNS,
    FULL,
    MORE,
    NAMES,
    OF_PAPER,
    QUICK,
    STUDIES,
    Scale,
    studies_named,
)
from consequential.paper.tasks import Ends, LendingExample, Simulation, task_of


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
    study = studies_named(name)[0]
    seeds = [seed for block in study.blocks(scale) for seed in block]
    expected = min(scale.seeds, 10) if name == "lending" else scale.seeds
    assert seeds == list(range(expected))
    assert all(block for block in study.blocks(scale))


def test_blocks_of_the_papers_size_are_short_or_a_single_pair_and_all_even():
    for study in STUDIES:
        for block in study.blocks(FULL):
            assert len(block) == 2 or study.seconds_a_seed(FULL) * len(block) <= 20.0
            assert len(block) % 2 == 0


def test_compas_has_both_orientations_of_its_label():
    plain, turned = (
        studies_named(name)[0].world() for name in ("compas-time", "compas-rearrest-time")
    )
    np.testing.assert_array_equal(plain.table.label, 1.0 - turned.table.label)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("first-time", Simulation), ("first-penalty", Ends), ("lending", LendingExample)],
)
def test_a_study_becomes_a_task_of_its_kind(name, kind):
    study = studies_named(name)[-1]
    task = task_of(study, QUICK)
    assert type(task) is kind
    assert task.file == study.file


@pytest.mark.parametrize(("column", "n_iterations"), [("paper", 2560), ("corrected", 256)])
def test_the_corrected_column_passes_over_compas_four_times_a_step(column, n_iterations):
    study = next(s for s in studies_named("compas-penalty") if s.column == column)
    parameters = study.make_world().parameters
    assert parameters.n_iterations == n_iterations
    assert (parameters.n_proposals, parameters.batch_size) == (4096, 64)


@pytest.mark.parametrize("name", ["first-time", "second-time"])
def test_both_columns_pass_once_over_the_people_of_a_setting(name):
    for study in studies_named(name):
        parameters = study.make_world().parameters
        assert parameters.n_iterations * parameters.batch_size == parameters.n_proposals
