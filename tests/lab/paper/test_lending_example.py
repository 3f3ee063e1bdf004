"""The lending example: counted scores give the model that rows would, and harsh starts hurt."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit

import consequential as cq
from consequential.lab.paper.lending_example import (
    SCORINGS,
    THRESHOLDS,
    LendingTable,
    lending_example,
)
from consequential.lab.paper.results import Results
from consequential.lab.paper.studies import STUDIES, Scale
from consequential.lab.paper.tasks import tasks_of
from consequential.lab.results_folder import ResultsFolder


@pytest.fixture(scope="module")
def world():
    return cq.worlds.lending()


@pytest.fixture(scope="module")
def table(world) -> LendingTable:
    return lending_example(world, [0, 1], [520, 560, 760])


@pytest.mark.parametrize("threshold", [520, 560, 760])
def test_the_model_is_the_one_a_search_over_rows_finds(world, table, threshold):
    people = world.people(10_000, np.random.default_rng([1, threshold]))
    lent = people.features[:, 0] > threshold
    score, label = people.features[lent, 0], people.label[lent]
    fold = np.empty(len(label), dtype=int)
    for outcome in (0.0, 1.0):
        fold[label == outcome] = np.arange((label == outcome).sum()) % 5
    model = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    search = GridSearchCV(
        model,
        {"C": np.logspace(-4, 4, 10)},
        cv=PredefinedSplit(fold),
        scoring={"accuracy": "accuracy", "likelihood": "neg_log_loss"},
        refit=False,
    )
    scaled = ((score - score.mean()) / score.std())[:, None]
    for scoring in SCORINGS:
        # a slope per point is found in scores of standard deviation 1 too, with a smaller penalty
        raw = scoring.endswith("raw scores")
        search.param_grid = {"C": np.logspace(-4, 4, 10) * (score.var() if raw else 1.0)}
        found = search.fit(scaled, label).cv_results_
        best = found["params"][found[f"rank_test_{scoring.split(',')[0]}"].argmin()]
        fitted = model.set_params(**best).fit(scaled, label)
        row = np.flatnonzero(
            (table.scoring == scoring) & (table.threshold == threshold) & (table.seed == 1)
        )
        slope = fitted.coef_[0, 0] / score.std()
        assert table.slope[row] == pytest.approx(slope, rel=1e-4)
        intercept = fitted.intercept_[0] - slope * score.mean()
        assert table.intercept[row] == pytest.approx(intercept, rel=1e-4)


def test_metrics_are_the_worlds_own(world, table):
    for k in range(len(table.utility)):
        model = cq.logistic_model([table.intercept[k], table.slope[k]])
        truth = world.exact(cq.ThresholdPolicy(model, world.cost))
        assert (table.utility[k], table.benefit_gap[k]) == (truth.utility, truth.benefit_gap)


def test_a_lenient_start_is_nearly_optimal_and_a_harsh_one_useless_and_equal(world, table):
    by_accuracy = table.scored_by("accuracy")
    lenient, harsh = by_accuracy.threshold == 520, by_accuracy.threshold == 760
    assert (by_accuracy.utility[lenient] > world.optimal().utility - 0.001).all()
    assert (by_accuracy.utility[harsh] < 0.0).all()
    assert (by_accuracy.benefit_gap[harsh] == 0.0).all()


def test_a_score_has_a_row_a_threshold_and_seed(table):
    for scoring in SCORINGS:
        some = table.scored_by(scoring)
        assert list(zip(some.threshold, some.seed, strict=True)) == [
            (t, s) for s in (0, 1) for t in (520, 560, 760)
        ]


def test_joining_puts_rows_in_one_order_whatever_the_pieces(world, table, tmp_path):
    pieces = [lending_example(world, [seed], [520, 560, 760]) for seed in (1, 0)]
    LendingTable.joined(pieces).save(tmp_path / "a")
    LendingTable.joined([table]).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = LendingTable.load(tmp_path / "a")
    assert loaded.scoring.tolist() == [scoring for scoring in sorted(SCORINGS) for _ in range(6)]
    assert loaded.threshold.tolist() == 3 * [520.0, 520.0, 560.0, 560.0, 760.0, 760.0]


def test_where_all_repay_the_model_is_their_share():
    class Good(type(cq.worlds.lending())):
        def label_probability(self, features, sensitive):
            return np.ones(len(features))

    table = lending_example(Good({"white": 1.0}, 0.7, 650.0), [0], [700])
    assert table.slope.tolist() == [0.0, 0.0, 0.0]
    assert (table.intercept > 5.0).all()
    assert table.utility == pytest.approx(
        cq.worlds.lending({"white": 1.0}).exact(cq.AcceptAll()).utility
    )


def test_the_task_keeps_both_scores_for_results_to_read(world, tmp_path):
    (task,) = tasks_of(STUDIES["lending"], Scale(seeds=2))
    (file,) = task.files
    shares, store = [], ResultsFolder.opened(tmp_path, "reproduce", {})
    store.result(file).parent.mkdir()
    parts = [part for _, (part,) in task.run(range(len(task.blocks)), None, shares.append)]
    task.joined(parts).save(store.result(file))
    assert shares == [1.0, 1.0]
    by_accuracy = Results(tmp_path).lending()
    by_likelihood = Results(tmp_path).lending("likelihood")
    assert sorted(set(by_accuracy.threshold)) == list(map(float, THRESHOLDS))
    assert sorted(set(by_accuracy.seed)) == [0, 1]
    harsh = by_accuracy.threshold >= 650
    assert (by_accuracy.utility[harsh] < 0.0).all()
    assert by_likelihood.utility[harsh].mean() > by_accuracy.utility[harsh].mean()


def test_thresholds_are_the_papers_range():
    assert (THRESHOLDS[0], THRESHOLDS[-1]) == (500, 800)
