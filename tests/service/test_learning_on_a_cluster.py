"""`work --cluster`: a real Dask cluster of two processes learns what the worker itself would."""

from __future__ import annotations

import contextlib
import json

import distributed
import pytest
from learning_loop import Rehearsal, copied, tables

from consequential.cli import main
from consequential.service import schema


@pytest.fixture(scope="module")
def address():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as workers:
        yield workers.scheduler_address


def work_by_command(loop: Rehearsal, address: str) -> int:
    folder = loop.service.directory
    (folder / "service.json").write_text(json.dumps({"database": ""}))
    (folder / "secret").write_text(loop.service.secret.hex())
    (folder / "secret").chmod(0o600)
    with contextlib.chdir(folder):  # where Dask's workers are not
        return main(["work", ".", "--once", "--cluster", address])


def test_all_tables_are_the_same_row_for_row(sqlite_loop, address, tmp_path_factory):
    for _ in range(10):
        sqlite_loop.decide(300)
    places = tmp_path_factory.mktemp("cluster")
    here, there = (copied(sqlite_loop, places / name) for name in ("here", "there"))
    here.work()
    assert work_by_command(there, address) == 0
    assert len(there.rows(schema.candidate)) == 4  # of 1, 2, 4 and 8 cohorts
    assert len(there.rows(schema.evaluation)) > 4
    assert tables(there) == tables(here)  # parameters to the last bit
    here.store.close()
    there.store.close()


def test_what_a_cluster_could_not_do_is_written_down(rehearsed, address, capsys):
    rehearsed.decide()
    (rehearsed.service.directory / "cohorts" / "lending" / "2026-01-03-1.parquet").unlink()
    assert work_by_command(rehearsed, address) != 0
    told = "2026-01-03-1.parquet is missing"
    assert told in capsys.readouterr().err
    failed = [row["about"] for row in rehearsed.rows(schema.event) if row["what"] == "work failed"]
    assert failed
    assert all(told in about for about in failed)


def test_days_are_closed_also_where_no_scheduler_answers(rehearsed, capsys):
    days, frozen = len(rehearsed.rows(schema.day)), len(rehearsed.rows(schema.cohort))
    rehearsed.decide()
    assert work_by_command(rehearsed, "tcp://127.0.0.1:9") != 0
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
    assert len(rehearsed.rows(schema.day)) > days
    assert len(rehearsed.rows(schema.cohort)) == frozen + 1
    seen = {row["cohort"] for row in rehearsed.rows(schema.evaluation)}
    rehearsed.work()  # what was not looked at is looked at by the next round
    assert len({row["cohort"] for row in rehearsed.rows(schema.evaluation)} - seen) == 1
