"""Strange input: every table becomes the right log, or is refused with one clear error."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import consequential as cq

NAMED = {
    "features": ["income", "town"],
    "decision": "approved",
    "propensity": "p",
    "label": "repaid",
    "sensitive": "sex",
    "time_step": "month",
    "amount": "size",
}
N = 24

EXTREME = (1e300, -1e300, 1e-300, 2**63, -(2**63), 10**400, np.inf, -np.inf, np.nan, 2.0**53 + 2)
WORDS = ("", " ", "nan", "yes", "12k", "1,5", "60%", "2024-02-30", "2024-03-01", "é", "\x00", "=x")


def columns(rng) -> dict[str, list]:
    """A plain table, one list per column."""
    p = rng.uniform(0.2, 0.8, N).round(3)
    approved = (rng.random(N) < p).astype(int)
    approved[:2] = 1, 0
    return {
        "income": rng.normal(3.0, 1.0, N).round(2).tolist(),
        "town": rng.choice(["a", "b"], N).tolist(),
        "approved": approved.tolist(),
        "p": p.tolist(),
        "repaid": [int(rng.integers(2)) if d else None for d in approved],
        "sex": rng.choice(["f", "m"], N).tolist(),
        "month": rng.integers(0, 5, N).tolist(),
        "size": rng.uniform(1.0, 2.0, N).round(2).tolist(),
    }


# Mutations: each changes the lists of a table, somewhere


def extreme(rng, table):
    table[rng.choice(list(table))][rng.integers(N)] = EXTREME[rng.integers(len(EXTREME))]


def word(rng, table):
    table[rng.choice(list(table))][rng.integers(N)] = WORDS[rng.integers(len(WORDS))]


def blank(rng, table):
    table[rng.choice(list(table))][rng.integers(N)] = None


def all_blank(rng, table):
    table[rng.choice(list(table))] = [None] * N


def text(rng, table):
    name = rng.choice(list(table))
    table[name] = [None if value is None else str(value) for value in table[name]]


def other_type(rng, table):
    made = (
        lambda k: {"a": k},
        lambda k: [k, k],
        lambda k: bytes([k, 255]),
        lambda k: bool(k % 2),
        lambda k: np.datetime64("2024-01-01") + k,
        lambda k: np.timedelta64(k, "s"),
    )
    make = made[rng.integers(len(made))]
    table[rng.choice(list(table))] = [make(k) for k in range(N)]


def missing_column(rng, table):
    del table[rng.choice(list(table))]


def confusing_name(rng, table):
    table["town=a"] = table.pop(rng.choice(list(table)))


MUTATIONS = (extreme, word, blank, all_blank, text, other_type, missing_column, confusing_name)


def arrow_array(values) -> pa.Array:
    """Values in a type of Arrow's; as text where it has none for them."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError):
        return pa.array([None if value is None else str(value) for value in values])


def damaged(rng, file):
    """Cut a file, or change some of its bytes."""
    content = bytearray(file.read_bytes())
    if rng.random() < 0.5:
        del content[rng.integers(len(content)) :]
    else:
        for place in rng.integers(0, len(content), 3):
            content[place] = rng.integers(256)
    file.write_bytes(bytes(content))


# Doors: the ways into a log, each of which is given a table or makes a file of it


def by_arrays(rng, table, folder):
    given = {role: table.get(name) for role, name in NAMED.items() if role != "features"}
    if rng.random() < 0.3 and all(isinstance(v, int | None) for v in table.get("repaid", "?")):
        labels = np.array([0 if value is None else value for value in table["repaid"]])
        given["label"] = np.ma.array(labels, mask=[value is None for value in table["repaid"]])
    given["time_step"] = 0 if given["time_step"] is None else given["time_step"]
    given["decision"] = table.get("approved", [])
    return cq.DecisionLog.from_arrays(table.get("income", []), **given)


def by_pandas(rng, table, folder):
    return cq.DecisionLog.from_frame(pd.DataFrame(table), **NAMED)


def by_csv(rng, table, folder):
    file = folder / "loans.csv"
    encoding = ("utf-8", "cp1252", "utf-16")[rng.integers(3)] if rng.random() < 0.3 else "utf-8"
    frame = pd.DataFrame(table)
    if rng.random() < 0.1:
        frame = pd.concat([frame, frame.iloc[:, :1]], axis=1)  # a column twice
    separator = ";" if rng.random() < 0.2 else ","
    file.write_bytes(frame.to_csv(index=False, sep=separator).encode(encoding, errors="replace"))
    if rng.random() < 0.2:
        damaged(rng, file)
    return cq.DecisionLog.from_file(file, **NAMED)


def written_parquet(rng, table, folder):
    found = pa.table({name: arrow_array(values) for name, values in table.items()})
    file = folder / "loans.parquet"
    if rng.random() < 0.1:
        found = found.append_column(found.column_names[0], found[0])
    pq.write_table(found, file, row_group_size=10, write_page_checksum=True)
    if rng.random() < 0.3:
        damaged(rng, file)
    return file


def by_parquet(rng, table, folder):
    return cq.DecisionLog.from_file(written_parquet(rng, table, folder), **NAMED)


def by_scan(rng, table, folder):
    return cq.DecisionLog.scan(written_parquet(rng, table, folder), **NAMED, n_threads=1)


DOORS = (by_arrays, by_pandas, by_csv, by_parquet, by_scan)
# what an error is about: a file, a column or role, a row or a value
ABOUT = re.compile(r"loans\.|column|row|'|" + "|".join([*NAMED, *NAMED["features"], "log"]))


def check(seed, folder):
    """Give one mutated table to one door, and use what comes out of it."""
    rng = np.random.default_rng([7, seed])
    plain, table = (columns(np.random.default_rng(seed)) for _ in range(2))
    for _ in range(rng.integers(0, 3)):
        MUTATIONS[rng.integers(len(MUTATIONS))](rng, table)
    door = DOORS[seed % len(DOORS)]
    try:
        log = door(rng, table, folder)
        found = cq.evaluate(cq.AcceptAll(), log, cost=0.5)
    except cq.DecisionLogError as error:
        if ABOUT.search(str(error)):
            return
        raise
    assert np.isfinite(found.utility.value) or not found.utility.known
    if door in (by_arrays, by_pandas):  # files may be damaged
        for role, name in NAMED.items():
            if role != "features" and table.get(name) == plain[name]:
                written = np.array([np.nan if v is None else v for v in plain[name]])
                assert_array_equal(getattr(log, role), written)


@pytest.mark.parametrize("seed", range(200))
def test_a_strange_table_is_read_right_or_refused_with_one_clear_error(seed, tmp_path):
    check(seed, tmp_path)


# --- what tables drawn at random seldom have


def strange_frame(**changes) -> pd.DataFrame:
    frame = pd.DataFrame(columns(np.random.default_rng(0)) | changes)
    return frame.astype({"repaid": object})


def test_a_column_that_could_be_a_word_of_another_is_refused(tmp_path):
    # by its name alone, town=a=b would be the word b of the column "town=a", which nobody has
    frame = strange_frame(**{"town=a": ["c", "d"] * 12, "town": ["a=b", "e"] * 12})
    named = NAMED | {"features": ["town", "town=a"]}
    frame.to_parquet(tmp_path / "loans.parquet")
    message = "'town=a' could be taken for a word of the column 'town': rename"
    for made in (
        lambda: cq.DecisionLog.from_frame(frame, **named),
        lambda: cq.DecisionLog.scan(tmp_path, **named).preparation,
        lambda: cq.FairPolicyLearner().fit(frame[named["features"]], frame["approved"]),
    ):
        with pytest.raises(cq.DecisionLogError, match=message):
            made()
    log = cq.DecisionLog.from_frame(frame, **NAMED | {"features": ["town"]})
    assert (log.features.sum(axis=0) > 0).all()


def test_numbers_stored_as_text_are_understood_and_said(tmp_path):
    frame = strange_frame(income=[f"{k}.5" for k in range(N)])
    frame.to_parquet(tmp_path / "loans.parquet")
    frame.to_csv(tmp_path / "loans.csv", index=False, quoting=2)
    named = NAMED | {"features": ["income"]}
    learner = cq.FairPolicyLearner(method="direct").fit(frame[["income"]], frame["approved"])
    found = {
        "frame": cq.DecisionLog.from_frame(frame, **named).notes,
        "Parquet": cq.DecisionLog.from_file(tmp_path / "loans.parquet", **named).notes,
        "scan": cq.DecisionLog.scan(tmp_path / "loans.parquet", **named).notes,
        "learner": learner.coding_,
    }
    for door, notes in found.items():
        assert any("'income' is text that has only numbers" in note for note in notes), door
    log = cq.DecisionLog.from_file(tmp_path / "loans.csv", **named)  # CSV has no types: no note
    assert_array_equal(log.features[:, 0], np.arange(N) + 0.5)


def test_lines_within_quotes_may_be_anywhere_in_a_file(tmp_path):
    # Arrow reads a file by blocks of a megabyte, and must not begin one within quotes
    frame = strange_frame(remark=["many\nlines " * 10_000] * N)
    frame.to_csv(tmp_path / "loans.csv", index=False)
    log = cq.DecisionLog.from_file(tmp_path / "loans.csv", **NAMED)
    assert log.fingerprint == cq.DecisionLog.from_frame(strange_frame(), **NAMED).fingerprint


# --- labels in words


def test_words_of_ones_own_need_a_positive_label(tmp_path):
    plain = cq.DecisionLog.from_frame(strange_frame(), **NAMED)
    words = {1: "Kept_up", 0: "fell behind"}
    frame = strange_frame()
    frame["repaid"] = frame["repaid"].map(words)
    with pytest.raises(cq.DecisionLogError, match=r"'Kept_up', 'fell behind'.*positive_label="):
        cq.DecisionLog.from_frame(frame, **NAMED)
    log = cq.DecisionLog.from_frame(frame, **NAMED, positive_label="kept up")
    assert log.fingerprint == plain.fingerprint
    assert log.notes == ("label: 'Kept_up' is 1, 'fell behind' is 0",)
    for wrong in ("kept", 1):
        with pytest.raises(cq.DecisionLogError, match=f"positive_label is {wrong!r}, but"):
            cq.DecisionLog.from_frame(frame, **NAMED, positive_label=wrong)
    file = tmp_path / "loans.parquet"
    pq.write_table(pa.Table.from_pandas(frame), file, row_group_size=2)  # some without labels
    scan = cq.DecisionLog.scan(file, **NAMED, positive_label="kept up")
    again = cq.DecisionLog.concatenate(list(scan.map(lambda piece: piece)))
    assert_array_equal(again.label, log.label)
    with pytest.raises(cq.DecisionLogError, match="positive_label is 'kept', but"):
        cq.DecisionLog.scan(file, **NAMED, positive_label="kept").groups  # noqa: B018
    frame.loc[[0, 2], "repaid"] = "who knows"
    with pytest.raises(cq.DecisionLogError, match="it is one of two, and unknown labels are left"):
        cq.DecisionLog.from_frame(frame, **NAMED, positive_label="kept up")


def test_a_positive_label_may_be_the_smaller_number():
    frame = strange_frame()
    turned = frame["repaid"].map({0: 1, 1: 0})  # a column that says who defaulted
    log = cq.DecisionLog.from_frame(frame.assign(repaid=turned), **NAMED, positive_label=0)
    assert_array_equal(log.label, cq.DecisionLog.from_frame(frame, **NAMED).label)


def test_a_learner_asks_which_word_is_hoped_for():
    X = np.random.default_rng(0).normal(size=(200, 1))
    y = np.where(X[:, 0] > 0, "alpha", "beta")
    with pytest.raises(cq.DecisionLogError, match=r"'alpha', 'beta'.*positive_label="):
        cq.FairPolicyLearner(method="direct").fit(X, y)
    learner = cq.FairPolicyLearner(method="direct").fit(X, y, positive_label="alpha")
    assert learner.classes_.tolist() == ["beta", "alpha"]
    assert learner.predict_proba([[3.0]])[0, 1] > 0.9
    assert learner.predict([[3.0]]).tolist() == ["alpha"]
