"""Studies: what is run, how large, and in which blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import consequential as cq
from consequential.lab.paper.studies import COLUMNS, FULL, MORE, NAMES, OF_PAPER, STUDIES, Scale


def test_every_study_of_the_paper_is_there_in_its_columns():
    places = ("first", "second", "compas", "compas-rearrest")
    expected = {f"{place}-{kind}" for place in places for kind in ("time", "penalty")}
    own = {"lending", "first-sensitivity", "second-sensitivity"}
    assert set(OF_PAPER) == expected | own
    for name in expected:
        over_time = name.endswith("-time")
        assert STUDIES[name].columns == (COLUMNS if over_time else ("paper", "corrected"))
    beyond = {name for name in MORE if name.startswith("beyond")}
    assert {STUDIES[name].columns for name in beyond} == {("paper",)}
    assert {STUDIES[name].columns for name in set(MORE) - beyond} == {("paper", "corrected")}
    assert {STUDIES[name].columns for name in own} == {("paper",)}
    assert not set(OF_PAPER) & set(MORE)
    assert len(NAMES) == len(OF_PAPER) + len(MORE)


def test_files_have_names_of_their_own():
    files = [file for study in STUDIES.values() for file in study.files]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(
    ("column", "normalisation"),
    [("paper", "paper"), ("authors", "paper"), ("corrected", "applicants")],
)
def test_columns_differ_in_their_estimators(column, normalisation):
    for name in ("first-time", "compas-time", "compas-penalty"):
        study = STUDIES[name]
        if column not in study.columns:
            continue
        deciding = [s for s in study.strategies(column) if isinstance(s, cq.lab.LearnToDecide)]
        assert {strategy.normalisation for strategy in deciding} == {normalisation}
        assert len(deciding) == 4
        assert len(study.strategies(column)) == (6 if study.kind == "time" else 4)


def test_penalties_span_the_papers_range_evenly_on_a_log_scale():
    values = FULL.penalty_values
    assert len(values) == 19
    np.testing.assert_allclose([values[0], values[-1]], [10**-0.5, 1e4])
    np.testing.assert_allclose(np.diff(np.log10(values)), 0.25)
    assert STUDIES["first-time"].penalties(FULL) == (0.0,)
    assert STUDIES["first-penalty"].penalties(FULL) == values


@given(
    st.sampled_from(NAMES),
    st.builds(Scale, st.integers(1, 40), st.integers(1, 20), st.integers(1, 300)),
)
def test_blocks_hold_every_seed_once_in_order(name, scale):
    found = STUDIES[name].blocks(scale)
    seeds = [seed for block in found for seed in block]
    few = name == "lending" or name.endswith("-sensitivity")
    expected = min(scale.seeds, 10) if few else scale.seeds
    assert seeds == list(range(expected))
    assert all(found)


def test_blocks_of_the_papers_size_are_short_or_a_single_pair_and_all_even():
    for study in STUDIES.values():
        for block in study.blocks(FULL):
            assert len(block) == 2 or study.seconds_per_seed(FULL) * len(block) <= 20.0
            assert len(block) % 2 == 0


@pytest.mark.parametrize(("name", "passes"), [("first", 1), ("second", 1), ("compas", 40)])
def test_the_authors_column_passes_over_accepted_people_as_their_code_does(name, passes):
    study = STUDIES[f"{name}-time"]
    world = study.authors()
    learners = [
        strategy.learner(world, cq.fairness.DemographicParity(), 0.0)
        for strategy in study.strategies("authors")
        if isinstance(strategy, cq.lab.LearnToDecide)
    ]
    assert {learner.max_passes for learner in learners} == {passes}


def test_the_authors_compas_is_standardised_and_every_seed_has_a_split_of_its_own():
    study = STUDIES["compas-rearrest-time"]
    plain, theirs = study.world(), study.authors()
    np.testing.assert_allclose(theirs.table.features.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(theirs.table.features.std(axis=0), 1.0)
    np.testing.assert_array_equal(plain.table.label, theirs.table.label)
    for world in (plain, theirs):
        assert set(world.for_seed(1).held_out_rows) != set(world.for_seed(2).held_out_rows)


def test_compas_has_both_orientations_of_its_label():
    plain, turned = (STUDIES[name].world() for name in ("compas-time", "compas-rearrest-time"))
    np.testing.assert_array_equal(plain.table.label, 1.0 - turned.table.label)


@pytest.mark.parametrize(("column", "n_iterations"), [("paper", 2560), ("corrected", 128)])
def test_the_corrected_column_passes_over_compas_twice_a_step(column, n_iterations):
    study = STUDIES["compas-penalty"]
    world = study.world()
    for strategy in study.strategies(column):
        learner = strategy.learner(world, cq.fairness.DemographicParity(), 1.0)
        assert (learner.n_iterations, learner.batch_size) == (n_iterations, 64)
    assert world.parameters.n_proposals == 4096


@pytest.mark.parametrize("name", ["first-time", "second-time"])
def test_both_columns_pass_once_over_the_people_of_a_setting(name):
    study = STUDIES[name]
    world = study.world()
    for column in COLUMNS:
        deciding = [s for s in study.strategies(column) if isinstance(s, cq.lab.LearnToDecide)]
        assert len(deciding) == 4
        for strategy in deciding:
            learner = strategy.learner(world, cq.fairness.DemographicParity(), 0.0)
            assert learner.n_iterations * learner.batch_size == world.parameters.n_proposals
