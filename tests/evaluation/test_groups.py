"""Group metrics, against fairlearn's where both know the answer."""

from __future__ import annotations

import json
from math import log, sqrt

import numpy as np
import pytest
from fairlearn.metrics import (
    MetricFrame,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
)
from numpy.testing import assert_allclose
from sklearn.metrics import precision_score, zero_one_loss

import consequential as cq
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])
THEIRS = {
    "selection_rate": selection_rate,
    "true_positive_rate": true_positive_rate,
    "false_positive_rate": false_positive_rate,
    "positive_predictive_value": precision_score,
    "error_rate": zero_one_loss,
}
CUT = cq.ThresholdPolicy(cq.logistic_model([0.1, 1.0, -0.5]), 0.5)


def labelled_log(n: int, n_groups: int) -> cq.DecisionLog:
    """Everybody accepted for sure, so every label is known."""
    rng = np.random.default_rng(n_groups)
    features = rng.normal(size=(n, 2))
    label = rng.random(n) < 1 / (1 + np.exp(-features[:, 0]))
    group = rng.integers(n_groups, size=n)
    return cq.DecisionLog.from_arrays(features, np.ones(n), np.ones(n), label, group)


def frame_of(log: cq.DecisionLog, rows: np.ndarray, weights: np.ndarray | None) -> MetricFrame:
    weights = None if weights is None else weights[rows]
    return MetricFrame(
        metrics=THEIRS,
        y_true=log.label[rows].astype(int),
        y_pred=log.propensity_of(CUT)[rows].astype(int),
        sensitive_features=log.group[rows],
        sample_params=None
        if weights is None
        else {key: {"sample_weight": weights} for key in THEIRS},
    )


@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize("metric", list(THEIRS))
def test_where_every_label_is_known_the_numbers_are_fairlearns(metric, n_groups):
    log = labelled_log(400, n_groups)
    theirs = frame_of(log, np.arange(400), None)
    ours = cq.group_metrics(CUT, log)
    by_group = [ours.by_group[metric][z].value for z in range(n_groups)]
    assert_allclose(by_group, theirs.by_group[metric], rtol=1e-12)
    assert ours.overall[metric].value == pytest.approx(theirs.overall[metric], rel=1e-12)
    assert ours.difference[metric].value == pytest.approx(theirs.difference()[metric], rel=1e-12)
    assert ours.ratio[metric].value == pytest.approx(theirs.ratio()[metric], rel=1e-12)


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("metric", [name for name in THEIRS if name != "selection_rate"])
def test_where_labels_are_selected_the_numbers_are_fairlearns_with_weights(metric, n_groups):
    log = exploring_log(600, n_groups)
    weights = np.where(log.decision, 1 / log.propensity, 0.0)
    theirs = frame_of(log, np.flatnonzero(log.decision), weights)
    ours = cq.group_metrics(CUT, log)
    by_group = [ours.by_group[metric][z].value for z in range(n_groups)]
    assert_allclose(by_group, theirs.by_group[metric], rtol=1e-12)
    assert ours.overall[metric].value == pytest.approx(theirs.overall[metric], rel=1e-12)


def test_selection_rates_count_the_rejected_too():
    log = exploring_log(600, 3)
    pi = log.propensity_of(POLICY)
    ours = cq.group_metrics(POLICY, log)
    for z in range(3):
        assert ours.by_group["selection_rate"][z].value == pytest.approx(pi[log.group == z].mean())
    assert ours.overall["selection_rate"].value == pytest.approx(pi.mean())


def test_rates_are_those_of_the_world_and_not_of_the_accepted():
    """200 000 decisions; labels of the accepted alone would be off by ten times as much."""
    world = cq.worlds.first_setting()
    start = world.initial_policy().with_floor(0.1)
    log = world.collect(start, 200_000, np.random.default_rng(0))
    policy = cq.Policy([1.5, 5.0])
    ours = cq.group_metrics(policy, log)
    naive = cq.group_metrics(policy, log, weighting=cq.weightings.Unweighted())
    for name, notion in (
        ("true_positive_rate", "equal_opportunity"),
        ("positive_predictive_value", "predictive_parity"),
    ):
        truth = world.exact(policy, notion).benefits
        for z in (0, 1):
            assert truth[z] in ours.by_group[name][z]
            assert truth[z] not in naive.by_group[name][z]


def test_errors_are_those_of_the_evaluation():
    log = exploring_log(500)
    ours = cq.group_metrics(POLICY, log)
    theirs = cq.evaluate(POLICY, log, cost=0.4, fairness="equal_opportunity")
    for z in (0, 1):
        assert ours.by_group["true_positive_rate"][z] == theirs.benefits[z]
    gap = theirs.benefit_gap
    assert ours.difference["true_positive_rate"].value == pytest.approx(abs(gap.value))
    assert ours.difference["true_positive_rate"].standard_error == pytest.approx(gap.standard_error)


def test_the_ratio_of_two_groups_has_the_interval_of_its_logarithm():
    log_ = exploring_log(800)
    ours = cq.group_metrics(POLICY, log_)
    a, b = ours.by_group["selection_rate"].values()
    ratio = ours.ratio["selection_rate"]
    away = abs(log(a.value / b.value))
    error = sqrt((a.standard_error / a.value) ** 2 + (b.standard_error / b.value) ** 2)
    assert ratio.value == pytest.approx(np.exp(-away))
    assert ratio.low == pytest.approx(np.exp(-(away + 1.959964 * error)), rel=1e-5)
    assert ratio.high == pytest.approx(np.exp(-max(away - 1.959964 * error, 0.0)), rel=1e-5)


def test_an_empty_rate_makes_a_ratio_of_nothing_that_promises_nothing():
    log_ = labelled_log(300, 2)
    halves = cq.Policy([50.0, 0.0, 0.0, -800.0, 0.0, 0.0], groups=[0, 1])
    found = cq.group_metrics(halves, log_)
    ratio = found.ratio["selection_rate"]
    assert (ratio.value, ratio.low, ratio.high) == (0.0, 0.0, 1.0)
    nobody = cq.group_metrics(cq.RejectAll(), log_)
    assert not nobody.ratio["selection_rate"].known
    assert not nobody.by_group["positive_predictive_value"][0].known
    assert not nobody.difference["positive_predictive_value"].known
    json.dumps(nobody.to_dict(), allow_nan=False)


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
def test_a_frame_has_a_row_for_every_metric_and_group(backend):
    found = cq.group_metrics(POLICY, exploring_log(300, 3))
    frame = found.to_frame(backend)
    rows = (
        frame.to_pylist()
        if backend == "pyarrow"
        else frame.to_dict("records")
        if (backend == "pandas")
        else frame.to_dicts()
    )
    assert len(rows) == 5 * (1 + 3 + 2)
    one = next(row for row in rows if (row["metric"], row["group"]) == ("true_positive_rate", "1"))
    assert one["value"] == found.by_group["true_positive_rate"][1].value
    assert one["n"] == found.group_sizes[1]


def test_group_metrics_show_themselves_and_store_themselves():
    found = cq.group_metrics(POLICY, exploring_log(300, 3))
    shown = repr(found)
    assert all(metric in shown for metric in THEIRS)
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert stored["error_rate"]["by_group"]["2"]["n"] == found.group_sizes[2]


def test_one_group_has_no_difference():
    found = cq.group_metrics(POLICY, exploring_log(100, 1))
    assert not found.difference["selection_rate"].known
    assert not found.ratio["selection_rate"].known


@pytest.mark.parametrize(
    "weighting", [cq.weightings.SelfNormalised(), cq.weightings.Clipped(3.0)], ids=repr
)
def test_other_weights_pass_through(weighting):
    log_ = exploring_log(300)
    found = cq.group_metrics(POLICY, log_, weighting=weighting)
    objective = cq.Objective(0.4, "equal_opportunity", weighting=weighting)
    sums = objective.coefficients(log_).sums(log_.propensity_of(POLICY))
    values = [each.value for each in found.by_group["true_positive_rate"].values()]
    assert_allclose(values, sums.benefits[0])


@pytest.mark.parametrize("metric", ["selection_rate", "true_positive_rate", "error_rate"])
def test_the_error_of_a_ratio_is_that_of_the_two_groups_it_is_made_of(metric):
    log = exploring_log(900, n_groups=3, seed=4)
    found = cq.group_metrics(cq.Policy([0.2, 1.0, -0.4]), log)
    ordered = sorted(found.by_group[metric].values(), key=lambda each: each.value)
    parts = [each.standard_error / each.value for each in (ordered[0], ordered[-1])]
    ratio = found.ratio[metric]
    assert ratio.value == pytest.approx(ordered[0].value / ordered[-1].value)
    assert ratio.standard_error == pytest.approx(ratio.value * np.hypot(*parts))


def test_a_hundred_groups_are_compared_and_more_are_refused(rng):
    n, n_groups = 5000, 100
    features = rng.normal(size=(n, 1))
    group = np.arange(n) % n_groups
    log = cq.DecisionLog.from_arrays(features, np.ones(n), np.ones(n), np.ones(n), group)
    found = cq.evaluate(cq.Policy([0.0, 1.0]), log, cost=0.5)
    rates = [found.benefits[z].value for z in range(n_groups)]
    assert found.benefit_gap.value == pytest.approx(max(rates) - min(rates))
    more = cq.DecisionLog.from_arrays(
        features, np.ones(n), np.ones(n), np.ones(n), np.arange(n) % (n_groups + 1)
    )
    with pytest.raises(ValueError, match="101 groups cannot be compared pair by pair, only 100"):
        cq.evaluate(cq.Policy([0.0, 1.0]), more, cost=0.5)
