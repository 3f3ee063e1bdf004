"""Logs with several sensitive columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import consequential as cq

COLUMNS = {"features": ["income"], "decision": "d", "propensity": "p", "label": "y"}


def frame(n=300, seed=0):
    rng = np.random.default_rng(seed)
    decision = rng.integers(0, 2, n)
    label = [int(y) if d else None for y, d in zip(rng.integers(0, 2, n), decision, strict=True)]
    return pa.table(
        {
            "income": rng.normal(size=n),
            "sex": rng.choice(["f", "m"], n),
            "age": rng.choice([30, 60], n),
            "d": decision,
            "p": np.full(n, 0.5),
            "y": pa.array(label),
        }
    )


def several(table):
    return cq.DecisionLog.from_frame(table, sensitive=["sex", "age"], **COLUMNS)


def test_groups_of_several_columns_are_the_intersections_that_occur():
    table = frame()
    some = table.filter(pa.array([s == "f" or a == 30 for s, a in _pairs(table)]))
    log = several(some)
    assert log.groups == ("f & 30", "f & 60", "m & 30")
    assert log.attributes == {"sex": ("f", "f", "m"), "age": (30, 60, 30)}
    assert log.sensitive.tolist() == [f"{sex} & {age}" for sex, age in _pairs(some)]


def _pairs(table):
    return list(zip(table["sex"].to_pylist(), table["age"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", ["sex", "age"])
def test_by_one_attribute_a_log_is_as_if_it_had_that_column_alone(name):
    table = frame()
    log, alone = several(table), cq.DecisionLog.from_frame(table, sensitive=name, **COLUMNS)
    found = log.by(name)
    assert found.groups == alone.groups
    assert found.attributes == alone.attributes == {name: alone.groups}
    np.testing.assert_array_equal(found.group, alone.group)
    assert found.features is log.features
    rule = cq.Policy([0.0, 1.0])
    one, other = (cq.evaluate(rule, each, cost=0.5) for each in (found, alone))
    assert one == other


def test_parts_of_a_log_keep_its_attributes():
    log = several(frame())
    first, second = log.split(0.5, by="random", rng=np.random.default_rng(0))
    assert first.attributes == second.attributes == log.attributes
    assert first.settled().by("age").groups == (30, 60)
    joined = cq.DecisionLog.concatenate([first, second])
    assert joined.attributes == log.attributes
    with pytest.raises(cq.DecisionLogError, match="different groups"):
        cq.DecisionLog.concatenate([first, second.by("sex")])


def test_a_policy_learned_from_a_log_counts_as_learned_from_it_by_attribute():
    log = several(frame())
    policy = cq.Policy([0.0, 1.0], learned_from=log.fingerprint)
    with pytest.warns(cq.WinnersCurseWarning):
        cq.evaluate(policy, log.by("sex"), cost=0.5)


def test_a_scan_has_the_groups_of_the_log(tmp_path):
    table = frame()
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=7)
    scan = cq.DecisionLog.scan(tmp_path, sensitive=["sex", "age"], **COLUMNS)
    log = several(table)
    assert (scan.groups, scan.attributes) == (log.groups, log.attributes)
    sample = scan.sample(len(log), np.random.default_rng(0))
    assert sample.attributes == log.attributes
    np.testing.assert_array_equal(sample.group, log.group)


def test_groups_of_several_columns_can_be_given():
    table = frame()
    groups = [("m", 30), ("m", 60), ("f", 30), ("f", 60), ("x", 30)]
    log = cq.DecisionLog.from_frame(table, sensitive=["sex", "age"], groups=groups, **COLUMNS)
    assert log.groups == ("m & 30", "m & 60", "f & 30", "f & 60", "x & 30")
    assert log.sensitive.tolist() == [f"{sex} & {age}" for sex, age in _pairs(table)]
    with pytest.raises(cq.DecisionLogError, match="unknown sensitive group"):
        cq.DecisionLog.from_frame(table, sensitive=["sex", "age"], groups=groups[:3], **COLUMNS)


def test_an_attribute_that_is_not_there_is_refused():
    log = several(frame())
    with pytest.raises(cq.DecisionLogError, match=r"no sensitive attribute 'race'.*'sex', 'age'"):
        log.by("race")
    with pytest.raises(cq.DecisionLogError, match="no column 'race'"):
        cq.DecisionLog.from_frame(frame(), sensitive=["sex", "race"], **COLUMNS)
