"""Input that no log can be made of: by each way into a log, what is given and what is said."""

from __future__ import annotations

import os
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import consequential as cq

NAN, INF, NONE = np.nan, np.inf, [None] * 4
NAMED = {"features": ["x"], "decision": "d", "propensity": "p", "label": "y"}
RIGHT = {
    "features": [[0.5], [1.5], [2.5], [3.5]],
    "decision": [0, 1, 1, 0],
    "propensity": [0.4, 0.8, 1.0, 0.0],
    "label": [None, 1, 0, None],
    "sensitive": ["a", "b", "a", "b"],
}


def masked(values) -> np.ma.MaskedArray:
    """The second value is missing."""
    return np.ma.array(values, mask=np.arange(4) == 1)


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, "M8[ns]")


# --- arrays

ARRAYS = [
    *(
        (role, [0.5], f"{role} has 1 values but features has 4 rows: one value per row")
        for role in ("decision", "propensity", "label", "time_step", "amount", "cost")
    ),
    ("features", [[1.0]], "decision has 4 values but features has 1 rows"),
    ("sensitive", ["a"], r"sensitive has shape \(1,\) but features has 4 rows"),
    ("sensitive", [["a"]] * 4, r"sensitive has shape \(4, 1\)"),
    ("decision", [[0], [1], [1], [0]], r"decision has shape \(4, 1\)"),
    ("cost", 0.5, "cost has shape .* one value per row"),
    # features
    ("features", [], "the log is empty"),
    (
        "features",
        np.array([[1.0, 1.0], [NAN, 2.0], [NAN, 3.0], [2.0, INF]]),
        r"3 rows have a feature that is missing or infinite \(first: row 1\). By column: 'x0' in 2 "
        r"\(first: row 1\), 'x1' in 1 \(first: row 3\). Build the log of a data frame",
    ),
    ("features", [[None], [1.0], [1.0], [1.0]], "missing or infinite"),
    ("features", np.ma.array([[1.0]] * 4, mask=[[False], [True], [False], [False]]), "'x0' in 1"),
    ("features", [1.0, 1e300, 1.0, 1.0], r"'x0' in 1 \(first: row 1\).*1e\+38 and more"),
    ("features", [["a"], ["b"], ["c"], ["d"]], "must be numbers, but row 0 has 'a': encode"),
    ("features", [[object()]] * 4, "must be numbers, but row 0 has <object"),
    ("features", [[1.0], [1.0, 2.0], [1.0], [1.0]], "rows differ in length"),
    ("features", np.zeros((4, 1, 1)), r"not of shape \(4, 1, 1\)"),
    ("features", 1.0, r"one row per person, not of shape \(\)"),
    ("features", dates(*["2024-01-01"] * 4), "features must be numbers, not datetime64"),
    ("feature_names", ["x", "y"], "2 feature names were given for 1 features"),
    # decisions
    (
        "decision",
        [0, 1, 2, 0],
        r"1 row has a decision that is not 0 or 1 \(first: row 2\). 1 is accepted, 0 is rejected",
    ),
    ("decision", [2, 1, 1, 2], "not 0 or 1 .*Found: 1.0, 2.0."),
    ("decision", [None, 1, NAN, 0], r"2 rows have a decision that is not 0 or 1 .*row 0\)"),
    ("decision", masked([0, 1, 1, 0]), r"not 0 or 1 \(first: row 1\)"),
    ("decision", np.array([1, 1, 0, 1j]), "decision must be numbers, not complex"),
    (
        "decision",
        ["no", "yes", "maybe", "no"],
        "decision has the values 'maybe', 'no', 'yes', .* 1 for accepted and 0 for rejected",
    ),
    # propensities
    ("propensity", None, "propensity is missing: the probability with which each person would be"),
    ("propensity", [None, NAN, 1.0, 0.0], r"2 rows have no propensity .*row 0\)"),
    ("propensity", masked([0.5] * 4), r"no propensity \(first: row 1\)"),
    ("propensity", [Decimal("sNaN")] * 4, r"row 0 has Decimal\('sNaN'\)"),
    ("propensity", ["40%", "80%", "90%", "30%"], "row 0 has '40%': write numbers as 1234.5"),
    ("propensity", [40, 80, 100, 0], r"3 rows have .* outside \[0, 1\] .*: divide by 100"),
    ("propensity", [400.0, 0.8, 0.9, 0.3], r"It is a probability of acceptance\.$"),
    (
        "propensity",
        [0.4, 0.0, 1.0, 0.0],
        r"propensity 0 although decision is 1 \(first: row 1\).* probabilities of rejection, use 1",
    ),
    ("propensity", [0.5, 1e-300, 0.5, 0.5], "propensity 1e-300 although decision is 1 .*row 1"),
    (
        "propensity",
        [1.0, 0.8, 1.0, 0.0],
        r"propensity 1 although decision is 0 \(first: row 0\).* action taken, use 1 - p for the",
    ),
    # labels
    ("label", None, "outcomes are missing: give label="),
    ("label", [None, 1, 0, 0], r"1 row has a label although decision is 0 \(first: row 3\)"),
    ("label", [None, 2, INF, None], r"2 rows have a label that is not 0 or 1 \(first: row 1\)"),
    ("label", [None, 1, -1, None], "not 0 or 1 .*Found: -1.0, 1.0."),
    (
        "label",
        [None, "up", "down", None],
        "label has the values 'down', 'up', .* 1 for the outcome hoped for and 0 for the other",
    ),
    ("label", [None, "approved", "declined", None], "label has the values 'approved', 'declined'"),
    ("label", ["pending", "yes", "no", None], "leave unknown ones missing"),
    # groups
    ("sensitive", ["a", None, "b", NAN], r"2 rows have no sensitive group \(first: row 1\)"),
    ("sensitive", [0, 1, NAN, 1], r"no sensitive group .*row 2\)"),
    ("sensitive", masked(list("abab")), r"no sensitive group \(first: row 1"),
    ("sensitive", pd.Series(["a", pd.NA, "a", "b"]), r"no sensitive group .*row 1\)"),
    ("sensitive", pd.Categorical(["a", None, "a", "b"]), r"no sensitive group .*row 1\)"),
    ("sensitive", [{"a": 1}] * 4, "cannot be put in order, of type dict"),
    ("sensitive", ["a", 1, "a", 1], "of type int and str"),
    ("groups", ["a", "c"], r"unknown sensitive group .*'b'.*\['a', 'c'\]"),
    ("groups", ["a", "b", "a"], "group"),
    # time
    ("time_step", [0, 0.5, 1, 1], r"1 row has a time step that is not a whole .*row 1\). Number"),
    ("time_step", 0.5, "4 rows have a time step that is not a whole"),
    ("time_step", [0, NAN, INF, 1], "2 rows have a time step that is not a whole number"),
    ("time_step", masked(range(4)), r"whole number \(first: row 1\)"),
    ("time_step", [1, 1e300, 2, 3], r"row 1\).* it is 1e\+300"),
    ("time_step", np.array([1, 2, 3, 2**63], np.uint64), r"row 3\).* it is 9.22337e\+18"),
    ("time_step", [1, 10**400, 2, 3], "but row 1 has 1000"),
    ("time_step", "May", "time_step must be numbers, but row 0 has 'May'"),
    ("time_step", dates(*["2024-01-01"] * 4), "has dates, such as 2024-01-01: say period='month'"),
    ("time_step", np.arange(4).astype("m8[ns]"), r"not timedelta64\[ns\]"),
    *(("horizon", wrong, f"it cannot be {wrong!r}") for wrong in (-1, NAN, "3")),
    # amounts and costs
    ("amount", [1, 0, NAN, INF], r"3 rows have an amount that is not above 0 \(first: row 1\)"),
    ("amount", [1.0, 1e300, 1.0, 1.0], r"an amount .*row 1\). It is 1e\+300"),
    ("cost", [0, 0.5, 1, NAN], r"3 rows have a cost outside \(0, 1\) \(first: row 0\)"),
    ("cost", [60, 60, 50, 60], "cost outside .*percentages: divide by 100"),
]


def test_the_log_that_all_wrong_ones_start_from_is_right():
    assert len(cq.DecisionLog.from_arrays(**RIGHT)) == 4


@pytest.mark.parametrize(
    ("column", "value", "words"), ARRAYS, ids=[f"{row[0]}: {row[2][:40]}" for row in ARRAYS]
)
def test_a_wrong_column_is_refused_in_words_that_teach(column, value, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_arrays(**(RIGHT | {column: value}))


@pytest.mark.parametrize("names", [["x", "x"], ["x", "label"]], ids=["twice", "a column's name"])
def test_no_frame_leaves_a_feature_out_because_of_its_name(names):
    # refused at the door or on the way out, but never lost
    with pytest.raises(cq.DecisionLogError, match=rf"'{names[1]}'"):
        cq.DecisionLog.from_arrays([[0.5, 1.0]], [1], [0.5], [1], feature_names=names).to_frame()


# --- frames

FRAME = {
    "x": [0.1, 0.2, 0.3, 0.4],
    "far": [1.0, -INF, 1.0, 1.0],
    "town": ["Ulm", "Köln", "Ulm", "Köln"],
    "day": ["2023-12-31", "2024-01-01", "2024-03-31", "2024-04-01"],
    "us": ["31/12/2023"] * 4,
    "short": ["31.12.23"] * 4,
    "gap": ["2023-12-31", "2024-01-01", "2024-03-31", None],
    "d": [0, 1, 1, 0],
    "p": [0.4, 0.5, 0.6, 0.7],
    "y": [None, 1, 0, None],
    "default": [None, "yes", "no", None],
    "is_fraud": [None, 1, 0, None],
    "z": ["a", None, "b", "a"],
    "n": pd.array([None] * 4, "Float64"),
    "large": [2**53 + 1, 1, 1, 1],
    "list": [[1.0], [2.0], [3.0], [4.0]],
    "bytes": [b"a", b"b"] * 2,
    "complex": pd.Series([1j] * 4, dtype=object),
    "words=a": ["c", "d"] * 2,
    "words": ["a=b", "e"] * 2,
}
FRAMES = [
    ({"decision": "approved"}, "no column 'approved' in the frame; it has .*'x'"),
    ({"features": ["x", "income"]}, "no column 'income' in the frame"),
    ({"sensitive": "sex"}, "no column 'sex'"),
    ({"features": "x"}, r"list of columns: write features=\['x'\]"),
    ({"features": []}, "features is empty: name at least one column"),
    ({"features": ["x", "x"]}, "two features have the name 'x'"),
    ({"features": ["x", "d"]}, "'d' is the decision, so"),
    ({"features": ["x", "y"]}, "'y' is the label, so"),
    ({"features": ["words", "words=a"]}, "'words=a' could be taken for a word .* 'words': rename"),
    ({"features": ["list"]}, "column 'list' has type .*, not numbers, words, dates or booleans"),
    ({"features": ["bytes"]}, "column 'bytes' has type"),
    ({"features": ["complex"]}, "column 'complex' has type"),
    ({"features": ["far"]}, "column 'far' must be finite numbers, but row 1 has -inf"),
    ({"decision": "town"}, "decision has the values 'Köln', 'Ulm'"),
    ({"label": "default"}, r"'default' .*: is yes the outcome hoped for\? Code it as 1"),
    ({"label": "is_fraud"}, "'is_fraud' has numbers: is 1 the outcome hoped for.*positive_label="),
    ({"sensitive": "z"}, r"1 row has no sensitive group \(first: row 1\)"),
    ({"propensity": "n"}, "4 rows have no propensity"),
    ({"amount": "n"}, "4 rows have an amount that is not above 0"),
    ({"cost": "n"}, r"4 rows have a cost outside \(0, 1\)"),
    ({"time_step": "n"}, "4 rows have a time step that is not"),
    ({"time_step": "day"}, r"\(column 'day'\) has dates, such as 2023-12-31: say period='month'"),
    ({"time_step": "day", "period": "decade"}, "day, week, month, quarter, year, not"),
    ({"time_step": "d", "period": "month"}, r"numbers dates, but time_step \(column 'd'\) has 0"),
    ({"time_step": "us", "period": "month"}, "has '31/12/2023': write dates as 2024-03-01"),
    ({"time_step": "short", "period": "month"}, "has '31.12.23': write dates as 2024-03-01"),
    ({"time_step": "gap", "period": "month"}, r"1 row has no date for a time step .*row 3\)"),
    ({"period": "month"}, "name the column of dates"),
    ({"horizon": -3}, "cannot be -3"),
    ({"features": None, "like": cq.AcceptAll()}, "AcceptAll knows no preparation"),
]


@pytest.mark.parametrize(("changes", "words"), FRAMES, ids=[words[:40] for _, words in FRAMES])
def test_a_wrong_frame_is_refused_in_words_that_teach(changes, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_frame(pd.DataFrame(FRAME), **(NAMED | changes))


@pytest.mark.parametrize("frame", [{"x": [1.0]}, np.zeros((2, 2)), None, "log.csv"], ids=repr)
def test_what_is_no_frame_is_named(frame):
    words = f"{type(frame).__name__} is not a data frame .*pandas, polars, pyarrow"
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.from_frame(frame, **NAMED)


def test_two_columns_of_one_name_are_refused():
    frame = pd.DataFrame({"x": RIGHT["propensity"]})
    twice = pd.concat([frame, frame], axis=1)
    with pytest.raises(cq.DecisionLogError, match=r"have one name.*\n- 'x' 2 times"):
        cq.DecisionLog.from_frame(twice, **NAMED)
    with pytest.raises(cq.PolicyError, match=r"have one name.*\n- 'x' 2 times"):
        cq.Policy([0.0, 1.0], feature_names=["x"]).propensity(twice)


def test_a_whole_number_that_floats_cannot_hold_is_refused_by_its_column():
    table = pa.table({"large": FRAME["large"], "p": FRAME["p"], "d": [0] * 4})
    with pytest.raises(cq.DecisionLogError, match="the column 'large': Integer value 9007"):
        cq.DecisionLog.from_frame(table, **NAMED | {"features": ["large"], "label": None})


# --- files


def parquet(damage) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [0.1, 0.2], "d": [0, 1], "p": [0.4, 0.5]}), sink)
    return damage(sink.getvalue().to_pybytes())


def forty(x: str = "7", p: str = ".5") -> bytes:
    """A CSV file of forty rows, one of which may be unlike the others."""
    rows = [
        f'"{x if k == 7 else 1000 + 10 * k}",{k % 2},"{p if k == 7 else ".5"}",{k % 2 or ""}'
        for k in range(40)
    ]
    return "\n".join(["x,d,p,y", *rows]).encode()


NO_NUMBERS = ("12k", "1,234", "60%", "?", "€1200")
FILES = [
    ("log.parquet", b"x,d,p,y\n", "cannot be read: "),
    ("log.parquet", parquet(lambda data: data[: len(data) // 2]), "cannot be read: "),
    ("log.parquet", parquet(lambda data: data[:4] + b"\xff" * 56 + data[60:]), "cannot be read: "),
    ("log.parquet", b"", "cannot be read: "),
    ("log.csv", b"", "cannot be read: "),
    ("log.csv", b"x,d,p,y\n1,0,0.5,\n1,0\n", "cannot be read: .* Expected 4 columns, got 2"),
    ("log.csv", b"x,d,p,y\n1,5,1,0,5,1\n", "cannot be read: .* Expected 4 columns, got 6: 1,5,1"),
    ("log.csv", b"PK\x03\x04" + b"\0" * 100, "is an Excel workbook.*save it as CSV in UTF-8"),
    ("log.csv", b"\xd0\xcf\x11\xe0" + b"\0" * 100, "is an Excel workbook"),
    ("log.csv", "a,b\n1,2\n".encode("utf-16"), "is text in UTF-16"),
    (
        "log.csv",
        b"x,d,p,y,town\n" + b"1,1,0.5,1,Ulm\n" * 6000 + "1,1,0.5,1,Köln\n".encode("latin-1"),
        r"is not UTF-8 text throughout \(column 'town'\): save it as UTF-8",
    ),
    ("log.csv", b"x,d,p,y,y\n1,0,0.5,,\n", "has two columns 'y': rename one"),
    *(
        (
            "log.csv",
            forty(x=text),
            rf"the column 'x' must be numbers, but row 7 has '{text.replace('?', '.')}': write num",
        )
        for text in NO_NUMBERS
    ),
    (
        "log.csv",
        forty(p="60%"),
        r"propensity \(column 'p'\) must be numbers, but row 7 has '60%': write numbers as 1234.5",
    ),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES, ids=[row[2][:60] for row in FILES])
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    about = "" if "column '" in words and "throughout" not in words else rf"{name} "
    with pytest.raises(cq.DecisionLogError, match=rf"{about}{words}"):
        cq.DecisionLog.from_file(tmp_path / name, **NAMED)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file '.*nothing\.csv'"):
        cq.DecisionLog.from_file(tmp_path / "nothing.csv", **NAMED)


def test_a_blank_group_in_a_csv_file_is_a_missing_group(tmp_path):
    (tmp_path / "log.csv").write_text("x,d,p,y,z\n1,0,0.5,,a\n1,1,0.5,1,\n")
    with pytest.raises(cq.DecisionLogError, match=r"no sensitive group \(first: row 1\)"):
        cq.DecisionLog.from_file(tmp_path / "log.csv", sensitive="z", **NAMED)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "loans.csv")
    with pytest.raises(cq.DecisionLogError, match="is a device or a pipe: save it as a file"):
        cq.DecisionLog.from_file(tmp_path / "loans.csv", **NAMED)


# --- learners


def test_a_learner_does_not_see_through_a_mask():
    X = np.ma.array(np.arange(40.0)[:, None], mask=np.arange(40)[:, None] == 3)
    with pytest.raises(ValueError, match="NaN"):
        cq.FairPolicyLearner(method="direct").fit(X, np.arange(40) % 2)
    with pytest.raises(ValueError, match="y contains NaN"):
        cq.FairPolicyLearner(method="direct").fit(
            X.data, np.ma.array(np.arange(40) % 2, mask=X.mask)
        )
