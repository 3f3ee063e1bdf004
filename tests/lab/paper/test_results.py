"""Results: the last policies of runs, joined in one order, measured as simulations measure."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.lab.paper.results import last_values, quartiles
from consequential.lab.paper.tasks import Simulation
from consequential.lab.simulation import Run
from consequential.lab.worlds import Parameters

TINY = Parameters(time_steps=2, n_proposals=200, n_iterations=3, batch_size=32)
STRATEGIES = [
    cq.lab.LearnToDecide("logistic"),
    cq.lab.LearnToPredict(fair=True),
]  # compiled, and not
PENALTIES = (10.0, 0.5)


def tiny(world):
    world.parameters = TINY
    return world


@pytest.fixture(scope="module")
def world():
    return tiny(cq.worlds.compas())


@pytest.fixture(scope="module")
def runs(world) -> cq.Runs:
    return cq.simulate(world, STRATEGIES, seeds=3, penalties=PENALTIES, progress=False)


def ends(world, tmp_path, blocks, strategies=STRATEGIES) -> cq.Runs:
    task = Simulation(
        name="x",
        files=["x"],
        blocks=blocks,
        world=lambda: world,
        strategies=[strategies],
        penalties=PENALTIES,
        time_steps=2,
        last_only=True,
    )
    parts = [piece for _, (piece,) in task.run(range(len(blocks)), 1, lambda share: None)]
    task.joined(parts).save(tmp_path / "x.parquet")
    return cq.Runs.load(tmp_path / "x.parquet")


def test_the_last_steps_of_runs_are_those_of_whole_runs(world, runs, tmp_path):
    found = ends(world, tmp_path, [[0, 1, 2]])
    for one, other in zip(found.runs, runs.runs, strict=True):
        assert (one.strategy, one.penalty, one.seed) == (other.strategy, other.penalty, other.seed)
        for metric in ("utility", "effective_utility", "benefit_gap", "acceptance"):
            assert_allclose(one.metrics[metric], other.metrics[metric][-1:], rtol=0, atol=1e-14)
        assert_array_equal(one.thetas, other.thetas[-1:])


@pytest.mark.parametrize("make", [cq.worlds.second_setting, cq.worlds.drift])
def test_worlds_that_know_the_truth_measure_the_last_policy_alone_as_among_all(make, tmp_path):
    world, strategies = make(), cq.paper_strategies()[:3]
    found = ends(world, tmp_path, [[4, 7]], strategies)
    asked = {"seeds": [4, 7], "penalties": PENALTIES, "time_steps": 2}
    runs = cq.simulate(world, strategies, **asked, progress=False)
    for one, other in zip(found.runs, runs.runs, strict=True):
        for metric in ("utility", "benefit_gap", "acceptance"):
            assert_allclose(one.metrics[metric], other.metrics[metric][-1:], rtol=0, atol=1e-14)
        assert "table_utility" not in one.metrics


def test_metrics_of_a_table_are_exact_on_all_of_its_rows(world, runs, tmp_path):
    found = ends(world, tmp_path, [[0, 1, 2]])
    rows, table = slice(None), world.table
    for one, run in zip(found.runs, runs.runs, strict=True):
        propensity = run.policy.propensity(table.features[rows])
        utility = np.mean(propensity * (table.label[rows] - world.cost))
        first, second = (propensity[table.group[rows] == z].mean() for z in (0, 1))
        assert one.metrics["table_utility"] == pytest.approx([utility], abs=1e-12)
        assert one.metrics["table_benefit_gap"] == pytest.approx([first - second], abs=1e-12)


def test_how_seeds_are_cut_into_blocks_does_not_change_a_byte(world, tmp_path):
    contents = set()
    for blocks in ([[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2]]):
        ends(world, tmp_path, blocks)
        contents.add((tmp_path / "x.parquet").read_bytes())
    assert len(contents) == 1


def test_quartiles_are_over_seeds_and_one_column_per_penalty():
    utilities = [[0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0, 9.0]]
    runs = tuple(
        Run("s", float(p), seed, {"utility": np.array([np.nan, value])}, cq.AcceptAll(), ())
        for p, row in enumerate(utilities)
        for seed, value in enumerate(row)
    )
    values = last_values(cq.Runs(runs, "w", (0, 1), "demographic_parity"), "utility", "s")
    assert quartiles(values).tolist() == [[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
