"""Logs larger than memory: the same answers as in memory, and errors that say where."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import consequential as cq
from consequential.learning import fitting
from consequential.learning.problem import Columns
from consequential.learning.rows import Rows, ScannedRows, scanned_totals
from consequential.log import pieces
from consequential.policy import link_numbers
from exploring_logs import exploring_log
from scanned_logs import NAMES, written

NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]


@pytest.fixture
def log(request):
    """A log of two groups, or of as many as a test is parametrised with."""
    return exploring_log(n=1000, n_groups=getattr(request, "param", 2))


@pytest.fixture
def scan(log, tmp_path):
    return cq.DecisionLog.scan(written(log, tmp_path), **NAMES)


two_and_three_groups = pytest.mark.parametrize("log", [2, 3], indirect=True)


# --- reading


@two_and_three_groups
def test_a_scan_reads_every_row_once_and_in_order(log, scan):
    again = cq.DecisionLog.concatenate(list(scan.map(lambda piece: piece)))
    assert len(scan) == len(log)
    assert scan.groups == log.groups
    assert scan.feature_names == log.feature_names
    for column in ("features", "decision", "propensity", "label", "group"):
        assert_array_equal(getattr(again, column), getattr(log, column))


def test_few_pieces_are_in_memory_at_a_time(scan):
    alive, most = set(), []

    def look(piece):
        alive.add(id(piece))
        most.append(len(alive))
        return id(piece)

    for done in replace(scan, n_threads=1).map(look):
        alive.discard(done)
    assert max(most) <= 3
    assert len(most) == len(scan.pieces) == 9


def test_large_row_groups_come_in_stretches(log, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 100)
    scan = cq.DecisionLog.scan(written(log, tmp_path, 1, 1000), **NAMES)
    assert [piece.n_rows for piece in scan.pieces] == [100] * 10
    assert sum(scan.map(len)) == 1000


def test_words_become_the_same_indicators_in_every_piece(tmp_path):
    for k, words in enumerate((["a", "b"], ["b", "b"], ["c", "a"])):
        table = pa.table({"w": words, "d": [1, 1], "p": [0.5, 0.5], "y": [0, 1]})
        pq.write_table(table, tmp_path / f"{k}.parquet")
    scan = cq.DecisionLog.scan(tmp_path, features=["w"], decision="d", propensity="p", label="y")
    assert scan.feature_names == ("w=a", "w=b", "w=c")
    rows = np.concatenate(list(scan.map(lambda piece: piece.features)))
    assert_array_equal(rows.argmax(axis=1), [0, 1, 1, 1, 2, 0])


def test_a_horizon_counts_from_the_last_step_of_all_files(log, tmp_path):
    late = cq.DecisionLog.from_arrays(
        log.features,
        log.decision,
        log.propensity,
        np.where(np.arange(1000) < 600, log.label, np.nan),
        log.sensitive,
        np.arange(1000) // 100,
        horizon=4,
    )
    scan = cq.DecisionLog.scan(written(late, tmp_path), **NAMES, time_step="time_step", horizon=4)
    settled = [piece for piece in scan.map(lambda piece: piece) if len(piece)]
    assert sum(len(piece) for piece in settled) == len(late.settled()) == 600
    found = cq.evaluate(cq.AcceptAll(), scan, cost=0.4)
    assert "400 rows younger than the horizon" in found.notes[0]
    assert_allclose(found.utility.value, cq.evaluate(cq.AcceptAll(), late, cost=0.4).utility.value)


def test_a_sample_is_drawn_evenly_and_the_same_whoever_reads(scan):
    one, two = (scan.sample(300, np.random.default_rng(5)) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert abs(len(one) - 300) < 5 * np.sqrt(300 * 0.7)
    everything = scan.sample(5000, np.random.default_rng(5))
    assert len(everything) == 1000


def test_a_scan_has_a_fingerprint_of_its_files(log, scan, tmp_path):
    before = scan.fingerprint
    assert before == cq.DecisionLog.scan(tmp_path, **NAMES).fingerprint
    pq.write_table(log.take(slice(0, 10)).to_frame(), tmp_path / "part-2.parquet")
    assert cq.DecisionLog.scan(tmp_path, **NAMES).fingerprint != before


# --- the same answers as in memory


# every pair of a notion, of theta by group or not, and of a number of groups
@pytest.mark.parametrize(
    ("notion", "apart", "log"),
    [(notion, k % 2 == 1, 2 + (k + j) % 2) for j, notion in enumerate(NOTIONS) for k in (0, 1)],
    indirect=["log"],
)
def test_sums_and_gradients_are_those_in_memory(log, scan, notion, apart):
    objective = cq.Objective(0.4, notion, 1.0)
    size = 3 * (len(log.groups) if apart else 1)
    theta = np.random.default_rng(2).normal(size=size)
    template = cq.Policy(theta, groups=log.groups if apart else ())
    coefficients = objective.coefficients(log)
    rows = Rows.of(log, coefficients, template, n_people=len(log))
    totals = scanned_totals(scan, objective)
    scanned = ScannedRows(scan, objective, template, totals, counts=True)
    link = link_numbers(template)
    assert_allclose(scanned.sums(theta, link), rows.sums(theta, link), rtol=1e-10, atol=1e-13)
    found = Columns.of(scanned.coefficients(), totals.sums[0] / totals.n)
    expected = Columns.of(coefficients, coefficients.shares())
    for column in fields(Columns):
        assert_allclose(getattr(found, column.name), getattr(expected, column.name), rtol=1e-12)


def test_what_is_split_off_and_the_rest_are_all_rows(log, scan):
    sample, rest = scan.split(300, seed=3)
    others = cq.DecisionLog.concatenate(list(rest.map(lambda piece: piece)))
    both = np.concatenate([sample.features[:, 0], others.features[:, 0]])
    assert_array_equal(np.sort(both), np.sort(log.features[:, 0]))
    assert rest.groups == scan.groups
    found = cq.evaluate(cq.AcceptAll(), rest, cost=0.4)
    assert found.n == 1000 - len(sample)


def test_a_frontier_learns_from_a_sample_and_is_judged_on_the_rest(tmp_path):
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 6000, np.random.default_rng(0))
    scan = cq.DecisionLog.scan(written(log, tmp_path), **NAMES | {"features": ["x0"]})
    direct = cq.FairPolicyLearner(method="direct", cost=world.cost, random_state=3)
    found = cq.frontier(scan, cost=world.cost, max_gaps=[0.02, None], learner=direct, seed=3)
    assert [point.name for point in found.points] == ["gap at most 0.02", "no bound"]
    assert [point.name for point in found.references][:3] == [
        "what the log did",
        "accept all",
        "reject all",
    ]
    assert "evaluated on all others" in found.notes[0]
    # the same policies, judged on the same rows in memory
    sample, rest = scan.split(3000, 3)
    others = cq.DecisionLog.concatenate(list(rest.map(lambda piece: piece)))
    learner = clone(direct).set_params(max_gap=0.02).fit_log(sample)
    judged = cq.evaluate(learner, others, cost=world.cost)
    fair = found.points[0]
    assert_allclose(fair.utility.value, judged.utility.value, rtol=1e-9)
    assert_allclose(fair.benefit_gap.value, judged.benefit_gap.value, rtol=1e-9)
    assert_allclose(fair.utility.standard_error, judged.utility.standard_error, rtol=1e-6)
    assert_allclose(fair.benefit_gap.standard_error, judged.benefit_gap.standard_error, rtol=1e-3)
    assert fair.utility.low < judged.utility.low  # a band is wider than one interval


@two_and_three_groups
def test_a_scan_that_fits_in_the_sample_teaches_what_the_log_teaches(log, scan):
    options = {"cost": 0.45, "max_gap": 0.02}
    one = cq.FairPolicyLearner(method="direct", **options).fit_log(scan)
    two = cq.FairPolicyLearner(method="direct", **options).fit_log(
        cq.DecisionLog.concatenate([log])
    )
    assert_allclose(one.policy_.theta, two.policy_.theta)
    assert one.policy_.learned_from == scan.fingerprint


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_a_scan_larger_than_its_sample_is_learned_from_whole(tmp_path, notion, monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLED", 2000)
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 20_000, np.random.default_rng(0))
    names = NAMES | {"features": ["x0"]}
    scan = cq.DecisionLog.scan(written(log, tmp_path, 3, 4000), **names)
    options = {"cost": world.cost, "fairness": notion, "max_gap": 0.02, "l2": 1e-4}
    learned = cq.FairPolicyLearner(method="direct", **options).fit_log(scan)
    whole = cq.FairPolicyLearner(method="direct", **options).fit_log(log)
    sampled = cq.FairPolicyLearner(method="direct", **options).fit_log(
        scan.sample(2000, np.random.default_rng(0))
    )
    objective = cq.Objective(world.cost, notion)
    worth = [objective.value(each.policy_, log) for each in (learned, whole, sampled)]
    assert abs(learned.result_.benefit_gap) <= 0.021
    assert abs(worth[0] - worth[1]) < 2e-4
    assert_allclose(learned.result_.utility, worth[0], rtol=1e-9)


# --- what cannot be read


def damaged(path):
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(bytes(content))


def test_a_damaged_row_group_is_named(log, tmp_path):
    damaged(written(log, tmp_path) / "part-1.parquet")
    scan = cq.DecisionLog.scan(tmp_path, **NAMES)
    with pytest.raises(cq.DecisionLogError, match=r"part-1\.parquet, row group 0.* cannot be read"):
        cq.evaluate(cq.AcceptAll(), scan, cost=0.4)


def test_a_file_that_is_no_parquet_is_named(log, tmp_path):
    (written(log, tmp_path) / "part-0.parquet").write_bytes(b"nothing")
    with pytest.raises(cq.DecisionLogError, match=r"part-0\.parquet cannot be read"):
        cq.DecisionLog.scan(tmp_path, **NAMES)


def test_a_file_of_another_schema_is_named(log, tmp_path):
    written(log, tmp_path)
    table = pq.read_table(tmp_path / "part-2.parquet")
    other = table.set_column(0, "x0", table["x0"].cast(pa.float32()))
    pq.write_table(other, tmp_path / "part-2.parquet")
    with pytest.raises(cq.DecisionLogError, match=r"part-2\.parquet has the column 'x0' as float"):
        cq.DecisionLog.scan(tmp_path, **NAMES)


def test_a_column_missing_in_one_file_is_named(log, tmp_path):
    written(log, tmp_path)
    table = pq.read_table(tmp_path / "part-1.parquet").drop_columns(["label"])
    pq.write_table(table, tmp_path / "part-1.parquet")
    with pytest.raises(cq.DecisionLogError, match=r"part-1\.parquet has no column 'label'"):
        cq.DecisionLog.scan(tmp_path, **NAMES)


def test_a_bad_row_is_found_and_its_file_named(log, tmp_path):
    written(log, tmp_path)
    table = pq.read_table(tmp_path / "part-1.parquet")
    wrong = table["propensity"].to_pylist()
    wrong[200] = 1.5
    place = table.schema.get_field_index("propensity")
    pq.write_table(
        table.set_column(place, "propensity", pa.array(wrong)),
        tmp_path / "part-1.parquet",
        row_group_size=150,
    )
    scan = cq.DecisionLog.scan(tmp_path, **NAMES)
    message = r"part-1\.parquet, row group 1, rows from 0: 1 row has a propensity outside"
    with pytest.raises(cq.DecisionLogError, match=message):
        cq.FairPolicyLearner(method="direct").fit_log(scan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": "x0"}, "features is a list of columns"),
        ({"features": []}, "features is empty"),
        ({"features": ["x9"]}, "no column 'x9'"),
        ({"horizon": 3}, "name the column with time_step="),
        ({"sensitive": None, "groups": [0, 1]}, "no sensitive attribute that has them"),
        ({"propensity": cq.EstimatedPropensity()}, "propensity of a scan is the name of a column"),
    ],
)
def test_what_cannot_be_scanned(log, tmp_path, change, message):
    written(log, tmp_path)
    with pytest.raises(cq.DecisionLogError, match=message):
        cq.DecisionLog.scan(tmp_path, **NAMES | change)


def test_an_empty_folder_and_a_missing_one(tmp_path):
    with pytest.raises(cq.DecisionLogError, match="no Parquet files"):
        cq.DecisionLog.scan(tmp_path, **NAMES)
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        cq.DecisionLog.scan(tmp_path / "nowhere", **NAMES)


# --- what is not part of the log, or no longer what it was


def test_hidden_and_unfinished_files_below_the_folder_are_left_out(log, tmp_path):
    folder = written(
        log, tmp_path / "_named" / "log.parquet"
    )  # how the folder is called is no matter
    for name in ("_temporary/0/part-9.parquet", ".ipynb_checkpoints/part-0.parquet", ".x.parquet"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((folder / "part-0.parquet").read_bytes())
    written(log, folder / "month=1.parquet")  # a folder that is called like a file
    assert len(cq.DecisionLog.scan(folder, **NAMES)) == 2 * len(log)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_file_that_is_there_twice_is_refused_and_one_from_elsewhere_is_read(log, tmp_path, link):
    folder, file = written(log, tmp_path / "log"), tmp_path / "elsewhere.parquet"
    pq.write_table(log.to_frame(), file)
    getattr(folder / "linked.parquet", link)(file)
    assert len(cq.DecisionLog.scan(folder, **NAMES)) == 2 * len(log)
    getattr(folder / "z.parquet", link)(folder / "part-0.parquet")
    with pytest.raises(cq.DecisionLogError, match=r"z\.parquet and .*part-0.* are the same file"):
        cq.DecisionLog.scan(folder, **NAMES)


def test_a_page_that_does_not_fit_its_checksum_is_an_error(log, tmp_path):
    file = tmp_path / "log.parquet"
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(log.to_frame(), file, **options)
    content = file.read_bytes()
    written_number = log.features[7, 0].tobytes()
    place = content.index(written_number)
    other = np.float64(log.features[7, 0] + 1.0).tobytes()
    file.write_bytes(content[:place] + other + content[place + 8 :])
    scan = cq.DecisionLog.scan(file, **NAMES)
    for reading in (lambda: scan.groups, lambda: cq.DecisionLog.from_file(file, **NAMES)):
        with pytest.raises(cq.DecisionLogError, match=r"log\.parquet.* cannot be read: .*hecksum"):
            reading()


def test_a_file_that_was_written_again_is_noticed(log, scan, tmp_path):
    assert len(scan.groups) == 2
    pq.write_table(log.take(slice(0, 300)).to_frame(), tmp_path / "part-1.parquet")
    with pytest.raises(cq.DecisionLogError, match=r"part-1\.parquet was written again .*scan it"):
        cq.evaluate(cq.AcceptAll(), scan, cost=0.4)


def test_a_policy_evaluated_on_the_scan_it_was_learned_from_warns(scan, tmp_path):
    learner = cq.FairPolicyLearner(method="direct", cost=0.4).fit_log(scan)
    with pytest.warns(cq.WinnersCurseWarning, match=r"scan\.split"):
        cq.evaluate(learner, scan, cost=0.4)
    other_columns = cq.DecisionLog.scan(tmp_path, **NAMES | {"sensitive": None})
    with pytest.warns(cq.WinnersCurseWarning):
        cq.compare(learner, cq.AcceptAll(), other_columns, cost=0.4)
    sample, rest = scan.split(500)
    cq.evaluate(cq.FairPolicyLearner(method="direct", cost=0.4).fit_log(sample), rest, cost=0.4)


MEASURED = """
import re, sys, consequential as cq
from pathlib import Path
from consequential.log import pieces
def peak():  # of this process alone: what getrusage says begins with the parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
pieces.PIECE_ROWS = pieces._BATCH_ROWS
scan = cq.DecisionLog.scan(sys.argv[1], features=[f"x{k}" for k in range(12)], decision="d",
                           propensity="p", label="y", n_threads=1)
before = peak()
assert sum(scan.map(len)) == 1_000_000
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_memory_does_not_depend_on_the_size_of_row_groups(tmp_path):
    n = 1_000_000  # 120 MB, of which a piece is 8 MB
    numbers = np.random.default_rng(0).random(n)
    table = pa.table(
        {f"x{k}": np.roll(numbers, k) for k in range(12)}
        | {"d": np.ones(n, np.int8), "p": np.full(n, 0.5), "y": np.ones(n)}
    )
    used = {}
    for size in (65_536, n):
        pq.write_table(table, tmp_path / f"{size}.parquet", row_group_size=size)
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, tmp_path / f"{size}.parquet"],
            capture_output=True,
            text=True,
            check=True,
        )
        used[size] = int(done.stdout)
    assert used[n] < 1.4 * used[65_536]  # measured: 1.1
