"""Logs in and out of data frames and files, whichever library made them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

import consequential as cq

DATA = {
    "income": [0.1, 0.2, 0.3, 0.4],
    "children": [0, 2, 1, 0],
    "owner": [True, False, True, True],
    "sex": ["w", "m", "w", "x"],
    "approved": [0, 1, 1, 1],
    "p": [0.1, 0.2, 0.3, 0.4],
    "repaid": [None, 1, 0, None],
    "month": [0, 0, 1, 2],
    "loan": [1.0, 2.0, 3.0, 4.0],
    "c": [0.1, 0.2, 0.3, 0.4],
}
NAMED = {
    "features": ["income", "children", "owner"],
    "sensitive": "sex",
    "decision": "approved",
    "propensity": "p",
    "label": "repaid",
    "time_step": "month",
    "amount": "loan",
    "cost": "c",
}
PANDAS, POLARS, ARROW = pd.DataFrame(DATA), pl.DataFrame(DATA), pa.table(DATA)
FRAMES = {
    "pandas": PANDAS,
    "pandas with an index": PANDAS.set_index(pd.Index([5, 5, 1, 0])),
    "pandas, nullable": PANDAS.convert_dtypes(),
    "pandas on arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, Int64 labels": PANDAS.astype({"repaid": "Int64"}),
    "pandas, boolean labels": PANDAS.astype({"repaid": "boolean", "approved": bool}),
    "pandas, NA objects": PANDAS.assign(repaid=pd.Series([pd.NA, 1, 0, pd.NA], dtype=object)),
    "pandas, None objects": PANDAS.assign(repaid=pd.Series([None, 1, 0, None], dtype=object)),
    "pandas, NaT objects": PANDAS.assign(repaid=pd.Series([pd.NaT, 1, 0, None], dtype=object)),
    "pandas, categories": PANDAS.astype({"sex": "category"}),
    "pandas, strings": PANDAS.astype({"sex": "string"}),
    "pandas, objects": PANDAS.astype({"sex": object}),
    "polars": POLARS,
    "polars, NaN labels": POLARS.with_columns(repaid=pl.Series([np.nan, 1.0, 0.0, np.nan])),
    "polars, boolean labels": POLARS.with_columns(pl.col("repaid", "approved").cast(bool)),
    "polars, categories": POLARS.with_columns(pl.col("sex").cast(pl.Categorical)),
    "polars, enum": POLARS.with_columns(pl.col("sex").cast(pl.Enum(["x", "w", "m"]))),
    "pyarrow": ARROW,
    "pyarrow, boolean labels": ARROW.set_column(6, "repaid", pa.array([None, True, False, None])),
    "pyarrow, dictionary": ARROW.set_column(3, "sex", ARROW["sex"].dictionary_encode()),
    "pyarrow, chunks": pa.concat_tables([ARROW.slice(0, 1), ARROW.slice(1)]),
}


@pytest.fixture(scope="module")
def truth() -> cq.DecisionLog:
    return cq.DecisionLog.from_arrays(
        np.column_stack([DATA["income"], DATA["children"], DATA["owner"]]),
        DATA["approved"],
        DATA["p"],
        DATA["repaid"],
        DATA["sex"],
        DATA["month"],
        amount=DATA["loan"],
        cost=DATA["c"],
        feature_names=NAMED["features"],
    )


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_same_rows_make_the_same_log_whatever_the_frame(frame, truth):
    log = cq.DecisionLog.from_frame(frame, **NAMED)
    assert_array_equal(log.label, [np.nan, 1.0, 0.0, np.nan])
    assert log.groups == ("m", "w", "x")
    assert log.fingerprint == truth.fingerprint


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize(
    ("sensitive", "groups"),
    [
        ([7, 3, 7, 11], (3, 7, 11)),
        ([True, False, True, True], (False, True)),
        ([0.5, 0.25, 0.5, 1.0], (0.25, 0.5, 1.0)),
        (["ß", "Ä", "漢", "a"], ("a", "Ä", "ß", "漢")),
    ],
    ids=["integers", "booleans", "floats", "unicode"],
)
def test_groups_keep_their_kind(make, sensitive, groups):
    log = cq.DecisionLog.from_frame(make(DATA | {"sex": sensitive}), **NAMED)
    assert_array_equal(log.sensitive, sensitive)
    assert set(map(type, log.groups)) == {type(groups[0])}
    assert log.groups == tuple(sorted(groups))


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Index], ids=lambda k: k.__name__)
def test_features_may_be_named_in_any_sequence(kind, truth):
    log = cq.DecisionLog.from_frame(PANDAS, **(NAMED | {"features": kind(NAMED["features"])}))
    assert log.fingerprint == truth.fingerprint


def test_columns_that_are_not_named_are_not_read():
    named = {key: NAMED[key] for key in ("decision", "propensity", "label")}
    log = cq.DecisionLog.from_frame(POLARS, features=["income"], horizon=2, **named)
    assert log.groups == ("everyone",)
    assert log.amount is log.cost is None
    assert_array_equal(log.time_step, [0, 0, 0, 0])
    assert (log.feature_names, log.horizon) == (("income",), 2)


WRITERS = {
    "log.csv": lambda path: pyarrow.csv.write_csv(ARROW, path),
    "LOG.CSV": lambda path: PANDAS.to_csv(path, index=False),
    "log.parquet": lambda path: pyarrow.parquet.write_table(ARROW, path),
    "LOG.PARQUET": lambda path: POLARS.write_parquet(path),
}


@pytest.mark.parametrize(("name", "write"), WRITERS.items(), ids=WRITERS)
def test_a_file_makes_the_log_of_its_rows(name, write, tmp_path, truth):
    write(tmp_path / name)
    for path in (tmp_path / name, str(tmp_path / name)):
        assert cq.DecisionLog.from_file(path, **NAMED).fingerprint == truth.fingerprint


TYPES = {"pyarrow": pa.Table, "pandas": pd.DataFrame, "polars": pl.DataFrame}
OWN_NAMES = {name: name for name in ("decision", "propensity", "label", "time_step")}


def back(log: cq.DecisionLog, frame: object) -> cq.DecisionLog:
    names = list(log.feature_names)
    optional = {name: name for name in ("amount", "cost") if getattr(log, name) is not None}
    if len(log.groups) > 1:
        optional["sensitive"] = "sensitive"
    return cq.DecisionLog.from_frame(
        frame, features=names, horizon=log.horizon, **OWN_NAMES, **optional
    )


# one kind of frame each: that frames of any kind give back any log is a property below
@pytest.mark.parametrize(
    ("backend", "changes"),
    [
        ("pyarrow", {}),
        ("pandas", {"sensitive": None}),
        ("polars", {"sensitive": [3, 1, 2, 1]}),
        ("pandas", {"sensitive": [True, False, True, True]}),
        ("polars", {"amount": None, "cost": None}),
        ("pyarrow", {"horizon": 4}),
    ],
    ids=["all columns", "one group", "integer groups", "boolean groups", "no amounts", "horizon"],
)
def test_a_log_comes_back_equal_from_each_kind_of_frame(backend, changes, truth):
    names = ("features", "decision", "propensity", "label", "sensitive", "time_step")
    columns = {name: getattr(truth, name) for name in (*names, "amount", "cost")}
    log = cq.DecisionLog.from_arrays(**(columns | changes))
    frame = log.to_frame(backend)
    assert isinstance(frame, TYPES[backend])
    assert back(log, frame).fingerprint == log.fingerprint


def test_a_frame_is_arrow_unless_asked_otherwise_and_has_unknown_labels_as_nulls(truth):
    frame = truth.to_frame()
    assert isinstance(frame, pa.Table)
    columns = "income children owner sensitive decision propensity label time_step amount cost"
    assert frame.column_names == columns.split()
    assert frame["label"].to_pylist() == [None, 1.0, 0.0, None]
    assert frame["decision"].to_pylist() == [0, 1, 1, 1]
    assert frame["sensitive"].to_pylist() == DATA["sex"]


def test_an_unknown_kind_of_frame_is_answered_with_the_known_ones(truth):
    with pytest.raises(ValueError, match="unknown backend 'spark'; choose pyarrow, pandas or"):
        truth.to_frame("spark")


@st.composite
def logs(draw) -> cq.DecisionLog:
    n = draw(st.integers(1, 8))
    floats = st.floats(-1e37, 1e37)
    chances = st.floats(1e-37, 1.0, exclude_max=True)
    decision = draw(arrays(bool, n))
    label = draw(arrays(float, n, elements=st.sampled_from([0.0, 1.0, np.nan])))
    return cq.DecisionLog.from_arrays(
        draw(arrays(float, (n, draw(st.integers(1, 3))), elements=floats)),
        decision,
        draw(arrays(float, n, elements=chances)),
        np.where(decision, label, np.nan),
        draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)),
        draw(arrays(np.int64, n, elements=st.integers(-(2**53) + 1, 2**53 - 1))),
        cost=draw(st.none() | arrays(float, n, elements=chances)),
        horizon=draw(st.none() | st.integers(0, 10)),
    )


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(logs(), st.sampled_from(list(TYPES)))
def test_any_log_comes_back_from_a_frame_bit_for_bit(log, backend):
    again = back(log, log.to_frame(backend))
    for name in ("features", "decision", "propensity", "label", "time_step"):
        assert_array_equal(getattr(again, name), getattr(log, name))
    if len(log.groups) > 1:
        assert again.fingerprint == log.fingerprint


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_column_of_words_becomes_an_indicator_of_each(library):
    frame = library(
        {
            "town": ["b", "a", "b"],
            "x": [1.0, 2.0, 3.0],
            "d": [1, 0, 1],
            "p": [0.5] * 3,
            "y": [1, None, 0],
        }
    )
    log = cq.DecisionLog.from_frame(
        frame, features=["town", "x"], decision="d", propensity="p", label="y"
    )
    assert log.feature_names == ("town=a", "town=b", "x")
    np.testing.assert_array_equal(log.features, [[0, 1, 1], [1, 0, 2], [0, 1, 3]])
    policy = cq.Policy([0.0, 1.0, -1.0, 0.5], feature_names=log.feature_names)
    people = library({"town": ["b", "a", "b"], "x": [1.0, 2.0, 3.0]})
    np.testing.assert_allclose(policy.propensity(people), policy.propensity(log.features))
    # columns are found by name, in whatever order; a word never seen is none of those known
    others = library({"x": [1.0], "town": ["c"]})
    np.testing.assert_allclose(policy.propensity(others), policy.propensity([[0.0, 0.0, 1.0]]))


def test_words_that_are_no_categories_are_refused():
    streets = [f"street {k}" for k in range(60)]
    frame = pd.DataFrame({"w": streets, "d": 1, "p": 0.5, "y": 1})
    with pytest.raises(cq.DecisionLogError, match="has 60 different values in 60 rows: names"):
        cq.DecisionLog.from_frame(frame, features=["w"], decision="d", propensity="p", label="y")
