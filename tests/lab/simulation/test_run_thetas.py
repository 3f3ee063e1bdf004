"""Thetas: the path of parameters that a run took."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from tiny_worlds import Districts, assert_same_run, handmade_run, handmade_runs

import consequential as cq
from consequential.files import load_columns, save_columns
from consequential.lab.simulation.runs import FORMAT, Runs, RunsError, theta_of

STEPS = 4


def simulated(world, strategies, **options) -> Runs:
    usual = {"seeds": (3, 8), "penalties": (0.0, 3.0), "time_steps": STEPS, "n_proposals": 300}
    return cq.simulate(world, strategies, progress=False, **usual | options)


@pytest.fixture(scope="module")
def world():
    return Districts()


@pytest.fixture(scope="module")
def runs(world) -> Runs:
    return simulated(world, cq.paper_strategies())


def test_a_path_begins_at_the_start_and_ends_at_the_final_policy(world, runs):
    for run in runs.runs:
        assert run.thetas.shape == (STEPS + 1, 3)
        assert_array_equal(run.thetas[-1], theta_of(run.policy))
    by_name = {strategy.name: strategy for strategy in cq.paper_strategies()}
    for run in runs.runs:
        rng = np.random.default_rng([run.seed, 3])
        assert_array_equal(run.thetas[0], theta_of(by_name[run.strategy].start(world, rng)))


def test_the_policies_of_a_path_have_the_metrics_of_its_rows(world, runs):
    for run in runs.runs:
        policies = (
            [cq.ThresholdPolicy(cq.logistic_model(theta), world.cost) for theta in run.thetas]
            if run.strategy.startswith("deterministic")
            else [run.policy.at(theta) for theta in run.thetas]
        )
        assert_allclose(
            [world.measure(policy).utility for policy in policies],
            run.metrics["utility"],
            atol=1e-12,
        )


def test_a_rule_that_is_no_linear_model_has_no_path():
    strategies = [cq.lab.LearnToPredict(classifier=GaussianNB()), cq.lab.LearnToPredict(fair=True)]
    bayes, fair = simulated(Districts(), strategies, seeds=1, penalties=[1.0]).runs
    assert bayes.thetas is None
    assert fair.thetas.shape == (STEPS + 1, 3)


def test_a_logistic_model_without_intercept_has_a_zero_first():
    model = LogisticRegression(fit_intercept=False).fit([[0.0], [1.0]], [0, 1])
    assert theta_of(cq.ThresholdPolicy(model, 0.5)).tolist() == [0.0, model.coef_[0, 0]]


def test_models_of_several_classes_and_other_rules_have_no_theta():
    model = LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    assert theta_of(cq.ThresholdPolicy(model, 0.5)) is None
    assert theta_of(cq.AcceptAll()) is None


# --- in files


def test_paths_of_any_width_come_back_from_a_file(tmp_path):
    rng = np.random.default_rng(0)
    paths = [rng.normal(size=(4, 3)), None, rng.normal(size=(4, 1))]
    given = Runs(
        tuple(replace(handmade_run(seed=k), thetas=path) for k, path in enumerate(paths)),
        "w",
        (),
        "x",
    )
    given.save(tmp_path / "runs.parquet")
    for run, other in zip(Runs.load(tmp_path / "runs.parquet").runs, given.runs, strict=True):
        assert_same_run(run, other)


def test_thetas_are_no_metrics(tmp_path, runs):
    runs.save(tmp_path / "runs.parquet")
    loaded = Runs.load(tmp_path / "runs.parquet")
    assert not [name for name in loaded.runs[0].metrics if "theta" in name]
    assert not [name for name in loaded.to_frame().column_names if "theta" in name]


def test_files_of_another_schema_are_refused(tmp_path):
    file = tmp_path / "runs.parquet"
    handmade_runs().save(file)
    columns, about = load_columns(file, FORMAT, 2)
    save_columns(file, columns, about | {"schema": 1})
    with pytest.raises(RunsError, match="has schema 1; this version reads 2"):
        Runs.load(file)
