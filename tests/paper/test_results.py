"""Finals: the ends of runs, joined in one order, measured as simulations measure."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.files import UnreadableFileError
from consequential.paper.results import Finals
from consequential.paper.tasks import Simulation
from consequential.simulation import Run, RunsError
from consequential.worlds import Parameters

TINY = Parameters(time_steps=2, n_proposals=200, n_iterations=3, batch_size=32)
STRATEGIES = [cq.LearnToDecide("logistic"), cq.LearnToPredict(fair=True)]  # compiled, and not
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


def ends(world, tmp_path, blocks, strategies=STRATEGIES) -> Finals:
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
    parts = []
    for k, (piece,) in task.run(range(len(blocks)), 1, lambda share: None):
        parts.append(tmp_path / f"{k}.parquet")
        piece.save(parts[-1])
    task.join(parts, tmp_path / "x.parquet")
    return Finals.load(tmp_path / "x.parquet")


def test_the_ends_of_runs_are_those_of_whole_runs(world, runs, tmp_path):
    finals = ends(world, tmp_path, [[0, 1, 2]])
    assert finals.strategy.tolist() == [run.strategy for run in runs.runs]
    assert finals.penalty.tolist() == [run.penalty for run in runs.runs]
    assert finals.seed.tolist() == [run.seed for run in runs.runs]
    for metric in ("utility", "effective_utility", "benefit_gap", "acceptance"):
        expected = [run.metrics[metric][-1] for run in runs.runs]
        assert_allclose(getattr(finals, metric), expected, rtol=0, atol=1e-14)
    assert_array_equal(finals.theta, [run.thetas[-1] for run in runs.runs])


@pytest.mark.parametrize("make", [cq.worlds.second_setting, cq.worlds.drift])
def test_worlds_that_know_the_truth_measure_the_last_policy_alone_as_among_all(make, tmp_path):
    world, strategies = make(), cq.paper_strategies()[:3]
    finals = ends(world, tmp_path, [[4, 7]], strategies)
    asked = {"seeds": [4, 7], "penalties": PENALTIES, "time_steps": 2}
    runs = cq.simulate(world, strategies, **asked, progress=False)
    for metric in ("utility", "benefit_gap", "acceptance"):
        expected = [run.metrics[metric][-1] for run in runs.runs]
        assert_allclose(getattr(finals, metric), expected, rtol=0, atol=1e-14)
    assert np.isnan(finals.train_utility).all()


def test_training_metrics_are_exact_on_the_rows_people_are_drawn_from(world, runs, tmp_path):
    finals = ends(world, tmp_path, [[0, 1, 2]])
    rows, table = world.training_rows, world.table
    for k, run in enumerate(runs.runs):
        propensity = run.policy.propensity(table.features[rows])
        utility = np.mean(propensity * (table.label[rows] - world.cost))
        first, second = (propensity[table.group[rows] == z].mean() for z in (0, 1))
        assert finals.train_utility[k] == pytest.approx(utility, abs=1e-12)
        assert finals.train_benefit_gap[k] == pytest.approx(first - second, abs=1e-12)


def test_how_seeds_are_cut_into_blocks_does_not_change_a_byte(world, tmp_path):
    contents = set()
    for blocks in ([[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2]]):
        ends(world, tmp_path, blocks)
        contents.add((tmp_path / "x.parquet").read_bytes())
    assert len(contents) == 1


def handmade(utility) -> Finals:
    """One strategy, as many penalties as rows, as many seeds as columns."""
    runs = []
    for p, row in enumerate(utility):
        for seed, value in enumerate(row):
            metrics = {
                name: np.array([np.nan, value])
                for name in ("utility", "effective_utility", "benefit_gap", "acceptance")
            }
            runs.append(Run("s", float(p), seed, metrics, cq.AcceptAll(), ()))
    return Finals.of(runs, cq.worlds.second_setting())


def test_quartiles_are_over_seeds_a_penalty_each():
    finals = handmade([[0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0, 9.0]])
    assert finals.penalties == (0.0, 1.0)
    assert finals.quartiles("utility", "s").tolist() == [[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]


def test_an_unknown_strategy_is_named():
    with pytest.raises(RunsError, match=r"no strategy 'other'; there are \['s'\]"):
        handmade([[1.0]]).quartiles("utility", "other")


def test_policies_without_theta_leave_none(tmp_path):
    finals = handmade([[1.0, 2.0]])
    assert finals.theta.shape == (2, 0)
    finals.save(tmp_path / "x.parquet")
    assert Finals.load(tmp_path / "x.parquet").theta.shape == (2, 0)
    assert len(finals) == 2


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(UnreadableFileError, match=r"x\.parquet is damaged"):
        Finals.load(tmp_path / "x.parquet")
