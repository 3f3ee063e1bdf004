"""Every way a log can be wrong, and the words that say so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import consequential as cq

NAN, INF = np.nan, np.inf
RIGHT = {
    "features": [[0.5], [1.5], [2.5], [3.5]],
    "decision": [0, 1, 1, 0],
    "propensity": [0.4, 0.8, 1.0, 0.0],
    "label": [None, 1, 0, None],
    "sensitive": ["a", "b", "a", "b"],
}
WRONG = {
    "features shorter than the rest": ("features", [[1.0]], "decision has 4 values .* 1 rows"),
    "decision too short": ("decision", [1], "decision has 1 values but features has 4 rows"),
    "propensity too short": ("propensity", [0.5], "propensity has 1 values .* 4 rows"),
    "label too long": ("label", [None] * 5, "label has 5 values but features has 4 rows"),
    "sensitive too short": ("sensitive", ["a"], r"sensitive has shape \(1,\) .* 4 rows"),
    "time step too short": ("time_step", [0, 1], "time_step has 2 values .* 4 rows"),
    "amount too short": ("amount", [1.0], "amount has 1 values .* 4 rows"),
    "cost for all": ("cost", 0.5, "cost has shape .* one value per row"),
    "decision as a matrix": ("decision", [[0], [1], [1], [0]], r"decision has shape \(4, 1\)"),
    "sensitive as a matrix": ("sensitive", [["a"]] * 4, r"sensitive has shape \(4, 1\)"),
    "NaN feature": (
        "features",
        [[1.0], [NAN], [1.0], [NAN]],
        r"2 rows have a feature that is missing or infinite \(first: row 1\). By column: 'x0' in 2 "
        r"\(first: row 1\). Build the log of a data frame",
    ),
    "infinite feature": ("features", [1.0, 1.0, INF, 1.0], r"1 row has a feature .*row 2\)"),
    "None among features": ("features", [[None], [1.0], [1.0], [1.0]], "missing or infinite"),
    "text feature": (
        "features",
        [["a"], ["b"], ["c"], ["d"]],
        "numbers, but row 0 has 'a': encode",
    ),
    "ragged features": ("features", [[1.0], [1.0, 2.0], [1.0], [1.0]], "rows differ in length"),
    "objects for features": (
        "features",
        [[object()]] * 4,
        "must be numbers, but row 0 has <object",
    ),
    "features in a cube": ("features", np.zeros((4, 1, 1)), r"not of shape \(4, 1, 1\)"),
    "a number for features": ("features", 1.0, r"one row per person, not of shape \(\)"),
    "decision of 2": (
        "decision",
        [0, 1, 2, 0],
        r"1 row has a decision that is not 0 or 1 \(first: row 2\). 1 is accepted, 0 is rejected",
    ),
    "half a decision": ("decision", [0, 1, 0.5, 0], "a decision that is not 0 or 1"),
    "NaN decision": ("decision", [0, NAN, 1, NAN], "2 rows have a decision that is not 0 or 1"),
    "None decision": ("decision", [None, 1, 1, 0], r"decision that is not .*row 0\)"),
    "decisions coded 1 and 2": ("decision", [2, 1, 1, 2], "not 0 or 1 .*Found: 1.0, 2.0."),
    "no propensity": (
        "propensity",
        None,
        "propensity is missing: the probability with which each person would be accepted",
    ),
    "NaN propensity": ("propensity", [0.4, NAN, 1.0, 0.0], r"1 row has no propensity .*row 1\)"),
    "None propensity": ("propensity", [None, 0.8, 1.0, 0.0], r"has no propensity .*row 0\)"),
    "propensity in percent": (
        "propensity",
        [40, 80, 100, 0],
        r"3 rows have a propensity outside \[0, 1\] \(first: row 0\). It is a probability",
    ),
    "negative propensity": ("propensity", [-0.1, 0.8, 1.0, 0.0], r"outside \[0, 1\]"),
    "accepted without a chance": (
        "propensity",
        [0.4, 0.0, 1.0, 0.0],
        r"propensity 0 although decision is 1 \(first: row 1\).*\*acceptance\*",
    ),
    "rejected though certain": (
        "propensity",
        [1.0, 0.8, 1.0, 0.0],
        r"propensity 1 although decision is 0 \(first: row 0\).*\*acceptance\*",
    ),
    "label on a rejected row": (
        "label",
        [None, 1, 0, 0],
        r"1 row has a label although decision is 0 \(first: row 3\). Rejected people have no",
    ),
    "label of 2": ("label", [None, 2, 0, None], r"a label that is not 0 or 1 \(first: row 1\)"),
    "infinite label": ("label", [None, 1, INF, None], "a label that is not 0 or 1"),
    "labels coded -1 and 1": ("label", [None, 1, -1, None], "not 0 or 1 .*Found: -1.0, 1.0."),
    "no labels at all": ("label", None, "outcomes are missing: give label="),
    "group None": (
        "sensitive",
        ["a", None, "b", None],
        r"2 rows have no sensitive group \(first: row 1\). Name a group for people",
    ),
    "group NaN among numbers": ("sensitive", [0, 1, NAN, 1], r"no sensitive group .*row 2\)"),
    "group NaN among words": ("sensitive", ["a", "b", NAN, "b"], r"no sensitive group .*row 2\)"),
    "group NA": ("sensitive", pd.Series(["a", pd.NA, "a", "b"]), r"no sensitive group .*row 1\)"),
    "group NA in categories": (
        "sensitive",
        pd.Categorical(["a", None, "a", "b"]),
        r"no sensitive group .*row 1\)",
    ),
    "half a time step": (
        "time_step",
        [0, 0.5, 1, 1],
        r"1 row has a time step that is not a whole number \(first: row 1\). Number the periods",
    ),
    "half a time step for all": ("time_step", 0.5, "4 rows have a time step that is not a whole"),
    "NaN time step": ("time_step", [0, NAN, 1, 1], "time step that is not a whole number"),
    "infinite time step": ("time_step", [0, INF, 1, 1], "time step that is not a whole number"),
    "a month for a time step": (
        "time_step",
        "May",
        "time_step must be numbers, but row 0 has 'May'",
    ),
    "amount of zero": ("amount", [1, 0, 1, 1], r"an amount that is not above 0 \(first: row 1\)"),
    "NaN amount": ("amount", [1, 1, NAN, 1], r"an amount that is not above 0 \(first: row 2\)"),
    "infinite amount": ("amount", [1, 1, INF, 1], "an amount that is not above 0"),
    "cost of one": ("cost", [0.5, 0.5, 1, 0.5], r"a cost outside \(0, 1\) \(first: row 2\)"),
    "cost of zero": ("cost", [0, 0.5, 0.5, 0.5], r"a cost outside \(0, 1\) \(first: row 0\)"),
    "NaN cost": ("cost", [NAN, 0.5, 0.5, 0.5], r"a cost outside \(0, 1\)"),
    "negative horizon": ("horizon", -1, "a horizon counts time steps; it cannot be -1"),
    "too many names": ("feature_names", ["x", "y"], "2 feature names were given for 1 features"),
    "unknown group": ("groups", ["a", "c"], r"unknown sensitive group .*'b'.*\['a', 'c'\]"),
    "a group twice": ("groups", ["a", "b", "a"], "group"),
}


def test_the_log_that_all_wrong_ones_start_from_is_right():
    assert len(cq.DecisionLog.from_arrays(**RIGHT)) == 4


@pytest.mark.parametrize(("column", "value", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_column_is_refused_in_words_that_teach(column, value, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_arrays(**(RIGHT | {column: value}))


@pytest.mark.parametrize("nobody", [[], np.empty((0, 2))], ids=["list", "matrix"])
def test_an_empty_log_is_refused(nobody):
    with pytest.raises(cq.DecisionLogError, match="the log is empty"):
        cq.DecisionLog.from_arrays(nobody, [], [], [])


FRAME = pa.table(
    {
        "x": [0.1, 0.2],
        "town": ["Ulm", "Köln"],
        "day": pa.array([0, 1], pa.date32()),
        "d": [0, 1],
        "p": [0.4, 0.5],
        "y": [None, 1],
        "z": ["a", None],
        "n": pa.nulls(2, pa.float64()),
        "list": [[1.0], [2.0]],
        "far": [1.0, -np.inf],
    }
)
NAMED = {"features": ["x"], "decision": "d", "propensity": "p", "label": "y"}
WRONG_FRAMES = {
    "unknown column": ({"decision": "approved"}, "no column 'approved' in the frame; it has .*'x'"),
    "unknown feature": ({"features": ["x", "income"]}, "no column 'income' in the frame"),
    "unknown group column": ({"sensitive": "sex"}, "no column 'sex'"),
    "features as a string": ({"features": "x"}, r"list of columns: write features=\['x'\]"),
    "no features": ({"features": []}, "features is empty: name at least one column"),
    "list feature": (
        {"features": ["x", "list"]},
        "column 'list' has type List.*, not numbers, words, dates or booleans",
    ),
    "infinite feature": (
        {"features": ["x", "far"]},
        "column 'far' must be finite numbers, but row 1 has -inf",
    ),
    "a feature twice": ({"features": ["x", "x"]}, "two features have the name 'x'"),
    "decisions in other words": ({"decision": "town"}, "decision has the values 'Köln', 'Ulm'"),
    "dates for time steps": (
        {"time_step": "day"},
        r"time_step \(column 'day'\) has dates, such as 1970-01-01: say period='month'",
    ),
    "missing group": ({"sensitive": "z"}, r"1 row has no sensitive group \(first: row 1\)"),
    "missing propensity": ({"propensity": "n"}, "2 rows have no propensity"),
    "missing amount": ({"amount": "n"}, "2 rows have an amount that is not above 0"),
    "missing cost": ({"cost": "n"}, r"2 rows have a cost outside \(0, 1\)"),
    "missing time step": ({"time_step": "n"}, "2 rows have a time step that is not"),
    "negative horizon": ({"horizon": -3}, "cannot be -3"),
}


@pytest.mark.parametrize(("changes", "words"), WRONG_FRAMES.values(), ids=WRONG_FRAMES)
def test_a_wrong_frame_is_refused_in_words_that_teach(changes, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_frame(FRAME, **(NAMED | changes))


@pytest.mark.parametrize("frame", [{"x": [1.0]}, np.zeros((2, 2)), None, "log.csv"], ids=repr)
def test_what_is_no_frame_is_named(frame):
    words = f"{type(frame).__name__} is not a data frame .*pandas, polars, pyarrow"
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_frame(frame, **NAMED)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file '.*nothing\.csv'"):
        cq.DecisionLog.from_file(tmp_path / "nothing.csv", **NAMED)


def parquet(damage) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(FRAME, sink)
    return damage(sink.getvalue().to_pybytes())


FILES = {
    "text in Parquet's place": ("log.parquet", b"x,d,p,y\n"),
    "half a Parquet file": ("log.parquet", parquet(lambda data: data[: len(data) // 2])),
    "Parquet with damaged rows": (
        "log.parquet",
        parquet(lambda data: data[:4] + b"\xff" * 56 + data[60:]),
    ),
    "an empty Parquet file": ("log.parquet", b""),
    "an empty CSV file": ("log.csv", b""),
    "a ragged CSV file": ("log.csv", b"x,d,p,y\n1,0,0.5,\n1,0\n"),
}


@pytest.mark.parametrize(("name", "content"), FILES.values(), ids=FILES)
def test_a_damaged_file_is_named(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(cq.DecisionLogError, match=rf"{name} cannot be read: "):
        cq.DecisionLog.from_file(tmp_path / name, **NAMED)


def test_a_blank_group_in_a_csv_file_is_a_missing_group(tmp_path):
    (tmp_path / "log.csv").write_text("x,d,p,y,z\n1,0,0.5,,a\n1,1,0.5,1,\n")
    with pytest.raises(cq.DecisionLogError, match=r"no sensitive group \(first: row 1\)"):
        cq.DecisionLog.from_file(tmp_path / "log.csv", sensitive="z", **NAMED)


@pytest.mark.parametrize("names", [["x", "x"], ["x", "label"]], ids=["twice", "a column's name"])
def test_no_frame_leaves_a_feature_out_because_of_its_name(names):
    # refused at the door or on the way out, but never lost
    with pytest.raises(cq.DecisionLogError, match=rf"'{names[1]}'"):
        cq.DecisionLog.from_arrays([[0.5, 1.0]], [1], [0.5], [1], feature_names=names).to_frame()
