"""A log of values in place of labels: reading, checking, parts and pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from valued_logs import valued_log

THREE = {"features": [[0.1], [0.5], [0.9]], "decision": [1, 0, 1], "propensity": [0.5] * 3}


def log_of(value, **options):
    return cq.DecisionLog.from_arrays(**THREE, value=value, **options)


def test_a_value_is_an_amount_times_a_label_less_a_cost():
    log = valued_log(500)
    value = log.to_frame()["value"].to_numpy(zero_copy_only=False)
    known = log.labelled
    assert_allclose((log.amount * (log.label - log.cost))[known], value[known])
    assert np.isnan(value[~known]).all()
    assert (log.label[known].min(), log.label[known].max()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "ends"),
    [([-3.0, None, 2.0], (-3, 2)), ([1.0, None, 2.0], (0, 2)), ([-1.0, None, None], (-1, 0))],
)
def test_the_range_is_the_smallest_with_all_values_and_zero(value, ends):
    log = log_of(value)
    assert log.value_range == ends
    assert f"values from {ends[0]} to {ends[1]}" in repr(log)


def test_a_log_may_know_no_value_at_all():
    log = log_of([None, None, None])
    assert log.value_range == (0.0, 0.0)
    assert log.n_pending == 2


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": [1.0, 2.0, None]}, r"1 row has a value although decision is 0 \(first: row 1\)"),
        ({"value": [np.inf, None, 1.0]}, "an infinite value"),
        ({"value": ["much", None, 1.0]}, "value must be numbers, but row 0 has 'much'"),
        (
            {"value": [1.0, None, 60.0], "value_range": (-10.0, 50.0)},
            r"outside -10 to 50 \(first: row 2\). It is 60",
        ),
        ({"value": [1.0, None, 2.0], "value_range": (1.0, 50.0)}, "with 0 between them"),
        ({"value": [1.0, None, 2.0], "cost": [0.5] * 3}, "leave label, amount and cost out"),
        ({"value": [1.0, None, 2.0], "label": [1, None, 0]}, "leave label, amount and cost out"),
        ({"label": [1, None, 0], "value_range": (-1.0, 1.0)}, "outcomes are missing"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(columns, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_arrays(**THREE, **columns)


def test_a_log_survives_its_frame_and_its_parts():
    log = valued_log(400, value_range=(-5000.0, 2000.0))
    again = cq.DecisionLog.from_frame(
        log.to_frame("pandas"),
        features=["x0", "x1"],
        decision="decision",
        propensity="propensity",
        sensitive="sensitive",
        value="value",
        value_range=log.value_range,
    )
    assert_allclose(again.label, log.label, rtol=1e-12)
    first, second = log.split(0.5, by="random", rng=np.random.default_rng(0))
    both = cq.DecisionLog.concatenate([first, second])
    assert both.value_range == (-5000.0, 2000.0)
    with pytest.raises(cq.DecisionLogError, match="different value_range"):
        cq.DecisionLog.concatenate([first, valued_log(50)])


def test_a_scan_has_the_range_of_all_its_pieces(tmp_path):
    log = valued_log(600)
    pa.parquet.write_table(log.to_frame(), tmp_path / "log.parquet", row_group_size=150)
    scan = cq.DecisionLog.scan(
        tmp_path / "log.parquet",
        features=["x0", "x1"],
        decision="decision",
        propensity="propensity",
        sensitive="sensitive",
        value="value",
    )
    assert_allclose(scan.value_range, log.value_range)
    assert scan.has_costs
    found, known = cq.evaluate(cq.AcceptAll(), scan), cq.evaluate(cq.AcceptAll(), log)
    assert_allclose(found.utility.value, known.utility.value, rtol=1e-9)
    assert_allclose(found.utility.high, known.utility.high, rtol=1e-9)
