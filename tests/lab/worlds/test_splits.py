"""Splits of a table: one for all seeds of a simulation, or one for each."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq

STRATEGIES = [cq.lab.LearnToDecide("semi_logistic", "aggregated"), cq.lab.LearnToPredict()]


def small(split_seed):
    world = cq.worlds.compas(split_seed=split_seed)
    world.parameters = cq.worlds.Parameters(
        time_steps=2, n_proposals=300, n_iterations=4, batch_size=32
    )
    return world


def test_every_seed_has_a_split_of_its_own_where_none_is_given():
    world = small(None)
    one, other = world.for_seed(1), world.for_seed(2)
    assert set(one.held_out_rows) != set(other.held_out_rows)
    for each in (one, other):
        rows = np.concatenate([each.held_out_rows, each.training_rows])
        assert sorted(rows) == list(range(5278))
        assert len(each.held_out_rows) == 1056
        assert each.for_seed(7) is each
    np.testing.assert_array_equal(one.held_out_rows, world.for_seed(1).held_out_rows)


def test_a_split_that_is_given_is_that_of_all_seeds():
    world = small(3)
    assert world.for_seed(5) is world


def test_what_was_computed_of_one_split_is_not_taken_for_another():
    world = small(None)
    before = world.held_out, world.alias_table
    own = world.for_seed(4)
    assert own.held_out is not before[0]
    assert own.alias_table is not before[1]
    assert len(own.population("all").points) == 5278


@pytest.mark.parametrize("engine", ["compiled", "numpy"])
def test_runs_are_those_in_the_world_of_their_seed(engine):
    asked = {"engine": engine, "progress": False}
    together = cq.simulate(small(None), STRATEGIES, seeds=[2, 5], **asked)
    for seed in (2, 5):
        alone = cq.simulate(small(seed), STRATEGIES, seeds=[seed], **asked)
        found = [run for run in together.runs if run.seed == seed]
        for one, other in zip(found, alone.runs, strict=True):
            np.testing.assert_array_equal(one.thetas, other.thetas)
            for name, values in one.metrics.items():
                np.testing.assert_array_equal(values, other.metrics[name])


def test_standardised_features_have_mean_0_and_variance_1():
    plain, found = cq.worlds.compas(), cq.worlds.compas(standardised=True)
    np.testing.assert_allclose(found.table.features.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.table.features.std(axis=0), 1.0)
    np.testing.assert_array_equal(plain.table.label, found.table.label)
    assert plain.feature_names == found.feature_names
