"""Inputs as people have them: understood and stated, or refused with what to do."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import consequential as cq

NAMED = {"features": ["x"], "decision": "d", "propensity": "p", "label": "y"}
X, P = [0.5, 1.5, 2.5, 3.5], [0.4, 0.8, 0.9, 0.3]


def table(**columns) -> dict:
    return {"x": X, "d": [0, 1, 1, 0], "p": P, "y": [None, 1, 0, None]} | columns


def log_of(make=pd.DataFrame, **columns) -> cq.DecisionLog:
    return cq.DecisionLog.from_frame(make(table(**columns)), **NAMED)


# --- decisions and labels in words

DECISIONS = [
    ("yes", "no"),
    ("Y", "N"),
    ("True", "False"),
    ("t", "f"),
    ("approved", "declined"),
    ("Approved", "Rejected"),
    ("approved", "denied"),
    ("accepted", "rejected"),
    ("granted", "refused"),
]
LABELS = [
    ("repaid", "defaulted"),
    ("paid", "default"),
    ("good", "bad"),
    ("Fully Paid", "Charged-Off"),
]


LIBRARIES = [pd.DataFrame, pl.DataFrame, pa.table]


@pytest.mark.parametrize(
    ("make", "accepted", "rejected"),
    [(LIBRARIES[k % 3], *words) for k, words in enumerate(DECISIONS)],
)
def test_decisions_in_words_are_understood_and_stated(make, accepted, rejected):
    log = log_of(make, d=[rejected, accepted, accepted, rejected])
    assert_array_equal(log.decision, [False, True, True, False])
    assert log.notes == (f"decision: '{accepted}' is 1, '{rejected}' is 0",)


@pytest.mark.parametrize(("hoped", "other"), [*DECISIONS[:4], *LABELS])
def test_labels_in_words_are_understood_and_stated(hoped, other):
    log = log_of(y=[None, hoped, other, None])
    assert_array_equal(log.label, [np.nan, 1.0, 0.0, np.nan])
    assert log.notes == (f"label: '{hoped}' is 1, '{other}' is 0",)


def test_several_words_may_mean_the_same():
    log = log_of(d=["denied", "approved", "approved", "declined"])
    assert log.notes == ("decision: 'approved' is 1, 'declined' is 0, 'denied' is 0",)


def test_words_in_arrays_are_understood_too():
    log = cq.DecisionLog.from_arrays(X, ["no", "yes", "yes", "no"], P, [None, "good", "bad", None])
    assert_array_equal(log.decision, [False, True, True, False])
    assert log.notes == ("decision: 'yes' is 1, 'no' is 0", "label: 'good' is 1, 'bad' is 0")


@pytest.mark.parametrize("values", [["0", "1", "1", "0"], ["0.0", "1.0", "1", "0"]])
def test_digits_in_text_are_numbers_and_need_no_statement(values):
    log = log_of(d=values)
    assert_array_equal(log.decision, [False, True, True, False])
    assert log.notes == ()


def test_booleans_are_decisions_and_labels():
    log = log_of(d=[False, True, True, False], y=[None, True, False, None])
    assert_array_equal(log.label, [np.nan, 1.0, 0.0, np.nan])
    assert log.notes == ()


def test_a_rule_without_chance_may_give_its_decisions_in_words_as_propensities():
    frame = pd.DataFrame(table(d=["no", "yes", "yes", "no"]))
    log = cq.DecisionLog.from_frame(frame, **(NAMED | {"propensity": "d"}))
    assert_array_equal(log.propensity, [0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("name", ["default", "charged_off", "is_fraud", "Defaulted"])
def test_yes_to_a_bad_outcome_is_ambiguous(name):
    frame = pd.DataFrame(table() | {name: [None, "yes", "no", None]})
    with pytest.raises(cq.DecisionLogError, match=r"is yes the outcome hoped for\? Code it as 1"):
        cq.DecisionLog.from_frame(frame, **(NAMED | {"label": name}))
    clear = pd.DataFrame(table() | {name: [None, "repaid", "default", None]})
    log = cq.DecisionLog.from_frame(clear, **(NAMED | {"label": name}))
    assert_array_equal(log.label, [np.nan, 1.0, 0.0, np.nan])
    numbers = pd.DataFrame(table() | {name: [None, 1, 0, None]})
    with pytest.raises(cq.DecisionLogError, match=f"{name!r} has numbers: is 1 the outcome hoped"):
        cq.DecisionLog.from_frame(numbers, **(NAMED | {"label": name}))
    for hoped_for, label in ((0, [np.nan, 0.0, 1.0, np.nan]), (1, [np.nan, 1.0, 0.0, np.nan])):
        named = NAMED | {"label": name}
        log = cq.DecisionLog.from_frame(numbers, **named, positive_label=hoped_for)
        assert_array_equal(log.label, label)


@pytest.mark.parametrize("name", ["translated", "latest", "badge", "plate"])
def test_names_that_contain_such_a_word_by_chance_are_no_bad_outcomes(name):
    frame = pd.DataFrame(table() | {name: [None, 1, 0, None]})
    log = cq.DecisionLog.from_frame(frame, **(NAMED | {"label": name}))
    assert_array_equal(log.label, [np.nan, 1.0, 0.0, np.nan])


def test_notes_stay_with_a_log_and_its_parts():
    log = log_of(d=["no", "yes", "yes", "no"])
    assert log.take(slice(0, 2)).notes == log.notes
    one, other = log.split(0.5, by="random", rng=np.random.default_rng(0))
    assert cq.DecisionLog.concatenate([one, other]).notes == log.notes
    assert pickle.loads(pickle.dumps(log)).notes == log.notes
    assert log.settled().notes == log.notes
    assert log_of().fingerprint == log.fingerprint


# --- dates

DAYS = [dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 3, 31), dt.date(2024, 4, 1)]
STEPS = {
    "day": ([0, 1, 91, 92], "2023-12-31"),
    "week": ([0, 1, 13, 14], "the week from 2023-12-25"),
    "month": ([0, 1, 3, 4], "2023-12"),
    "quarter": ([0, 1, 1, 2], "the quarter from 2023-10"),
    "year": ([0, 1, 1, 1], "2023"),
}
NOON = [dt.datetime.combine(day, dt.time(12, 30)) for day in DAYS]
ISO = [str(day) for day in DAYS]
DATES = {
    "pandas days": (pd.DataFrame, pd.to_datetime(ISO)),
    "pandas objects": (pd.DataFrame, pd.Series(DAYS, dtype=object)),
    "pandas text": (pd.DataFrame, ISO),
    "text with time": (pd.DataFrame, [f"{day}T09:00:00Z" for day in ISO]),
    "pandas with a time zone": (pd.DataFrame, pd.to_datetime(NOON).tz_localize("Asia/Tokyo")),
    "polars days": (pl.DataFrame, DAYS),
    "polars times": (pl.DataFrame, NOON),
    "polars text": (pl.DataFrame, ISO),
    "pyarrow days": (pa.table, DAYS),
    "pyarrow times": (pa.table, NOON),
    "pyarrow with a time zone": (pa.table, pa.array(NOON, pa.timestamp("s", tz="UTC"))),
}


@pytest.mark.parametrize(("period", "truth"), STEPS.items())
def test_time_steps_number_the_periods_from_the_first(period, truth):
    frame = pd.DataFrame(table(day=pd.to_datetime(ISO)))
    log = cq.DecisionLog.from_frame(frame, **NAMED, time_step="day", period=period)
    assert_array_equal(log.time_step, truth[0])
    assert log.notes == (f"time_step: one step per {period}, step 0 is {truth[1]}",)


@pytest.mark.parametrize(("make", "dates"), DATES.values(), ids=DATES)
def test_dates_of_every_kind_become_months(make, dates):
    log = cq.DecisionLog.from_frame(
        make(table(day=dates)), **NAMED, time_step="day", period="month"
    )
    assert_array_equal(log.time_step, [0, 1, 3, 4])


def test_months_in_text_and_dates_in_arrays_are_dates():
    for dates in (["2023-12", "2024-01", "2024-03", "2024-04"], np.array(ISO, "datetime64[s]")):
        log = cq.DecisionLog.from_arrays(
            X, [0, 1, 1, 0], P, [None, 1, 0, None], time_step=dates, period="month"
        )
        assert_array_equal(log.time_step, [0, 1, 3, 4])


def test_a_scan_counts_periods_from_the_first_date_of_all_files(tmp_path):
    whole = pa.table(table(day=DAYS, d=["no", "yes", "yes", "no"]))
    for k in range(4):  # the first date is in the last file
        pq.write_table(whole.slice(3 - k, 1), tmp_path / f"{k}.parquet")
    scan = cq.DecisionLog.scan(tmp_path, **NAMED, time_step="day", period="month")
    steps = np.concatenate(list(scan.map(lambda piece: piece.time_step)))
    assert_array_equal(steps, [4, 3, 1, 0])
    assert scan.notes == (
        "decision: 'no' is 0",
        "decision: 'yes' is 1",
        "time_step: one step per month, step 0 is 2023-12",
    )
    old = cq.DecisionLog.scan(tmp_path, **NAMED, time_step="day", period="month", horizon=2)
    assert sum(old.map(len)) == 2
    with pytest.raises(cq.DecisionLogError, match="name the column with time_step="):
        cq.DecisionLog.scan(tmp_path, **NAMED, period="month")
    with pytest.raises(cq.DecisionLogError, match=r"0\.parquet, row group 0.*say period='month'"):
        len(cq.DecisionLog.scan(tmp_path, **NAMED, time_step="day").groups)


# --- CSV files

EUROPEAN = "x;d;p;y;town\n0,5;0;0,4;;Ulm\n1,5;1;0,8;1;Bonn\n2;1;0,9;0;Ulm\n"
CSV = {
    "semicolons and decimal commas": (
        EUROPEAN,
        "the file was read with semicolons between columns, with decimal commas",
    ),
    "semicolons and points": (
        EUROPEAN.replace(",", "."),
        "the file was read with semicolons between columns",
    ),
    "tabs": (
        EUROPEAN.replace(",", ".").replace(";", "\t"),
        "the file was read with tabs between columns",
    ),
    "quoted names": (
        EUROPEAN.replace("x;d;p;y;town", '"x";"d";"p";"y";"town, or city"'),
        "the file was read with semicolons between columns, with decimal commas",
    ),
    "a mark at the beginning": ("\ufeff" + EUROPEAN.replace(",", ".").replace(";", ","), None),
}


@pytest.mark.parametrize(("text", "note"), CSV.values(), ids=CSV)
def test_how_a_csv_file_is_written_is_recognised_and_stated(text, note, tmp_path):
    (tmp_path / "log.csv").write_text(text, encoding="utf-8")
    log = cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED)
    assert_array_equal(log.features[:, 0], [0.5, 1.5, 2.0])
    assert_array_equal(log.propensity, [0.4, 0.8, 0.9])
    assert log.notes == (() if note is None else (note,))


def test_text_as_windows_writes_it_is_read_and_that_is_stated(tmp_path):
    text = EUROPEAN.replace("Ulm", "Köln").replace("town", "größe")
    (tmp_path / "log.csv").write_bytes(text.encode("cp1252"))
    log = cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED, sensitive="größe")
    assert log.groups == ("Bonn", "Köln")
    assert log.notes[1] == "the file was read as text in cp1252, since it is not UTF-8"


def test_dates_with_points_have_the_day_first(tmp_path):
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=13 * (k % 20)) for k in range(40)]
    rows = [f"{day.day}.{day:%m.%Y};{k % 2};0,5;{k % 2 or ''}" for k, day in enumerate(days)]
    (tmp_path / "log.csv").write_text("\n".join(["x;d;p;y", *rows]))
    log = cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED, time_step="x", period="month")
    assert_array_equal(log.features[:, 0], [(day - dt.date(1970, 1, 1)).days for day in days])
    assert_array_equal(log.time_step, [day.month - 1 for day in days])


@pytest.mark.parametrize(
    "form", ["%d.%m.%y", "%m.%d.%Y", "%m/%d/%Y", "%d-%m-%y", "%Y/%m/%d", "%d %b %Y"]
)
def test_dates_in_another_notation_are_neither_words_nor_numbers(form, tmp_path):
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=13 * (k % 20)) for k in range(40)]
    rows = [f"{day.strftime(form)},{k % 2},.5,{1 if k % 2 else ''}" for k, day in enumerate(days)]
    (tmp_path / "log.csv").write_text("\n".join(["x,d,p,y", *rows]))
    with pytest.raises(cq.DecisionLogError, match=r"'x' has dates .* write dates as 2024-03-01"):
        cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED)


def test_a_late_word_in_a_long_file_is_named_as_an_early_one_is(tmp_path):
    # far enough that the reader has settled on a type, first a whole number and then any number
    rows = [f"{k},1,0.5,1" for k in range(150_000)]
    rows[120_000] = "120000.5,1,0.5,1"
    (tmp_path / "log.csv").write_text("\n".join(["x,d,p,y", *rows]))
    log = cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED)
    assert log.features[120_000, 0] == 120000.5
    rows[140_000] = "12k,1,0.5,1"
    (tmp_path / "log.csv").write_text("\n".join(["x,d,p,y", *rows]))
    with pytest.raises(cq.DecisionLogError, match="'x' must be numbers, but row 140000 has '12k'"):
        cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED)


def test_categories_may_have_numbers_among_them():
    children = {k: v * 5 for k, v in table(x=["0", "1", "3+", "1"]).items()}
    log = cq.DecisionLog.from_frame(pd.DataFrame(children), **NAMED)
    assert log.feature_names == ("x=0", "x=1", "x=3+")


def test_na_in_a_csv_file_is_a_missing_value(tmp_path):
    rows = [f"{'n/a' if k == 7 else k},{k % 2},0.5,{k % 2 or ''}" for k in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(["x,d,p,y", *rows]))
    log = cq.DecisionLog.from_file(tmp_path / "log.csv", **NAMED)
    assert log.feature_names == ("x", "x missing")
    assert log.features[7, 1] == 1.0
