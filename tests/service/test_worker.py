from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from lending_loop import LOOP, SETTINGS, START, applicants, decide, start
from sqlalchemy import select

from consequential.service import schema, worker
from consequential.service.cohorts import Cohorts
from consequential.service.database import LockedError, only_worker
from consequential.service.loops import put_loop
from consequential.service.records import canonical, now
from consequential.service.verify import verify

DAILY = SETTINGS | {"period": "day", "epoch": "day"}


def rows(store, table) -> list[dict]:
    with store.read() as connection:
        return schema.rows(connection, select(table))


def fill(store, service, days: int = 4) -> None:
    start(store, service, **DAILY)
    for day in range(days):
        people = applicants(3, START + timedelta(day), seed=day, name=f"D{day}")
        decide(store, service, people)


def test_all_that_is_due_is_done_and_nothing_twice(store, service):
    fill(store, service)
    worker.work(store, service, now())
    closed = {row["date"] for row in rows(store, schema.day) if row["loop"] == LOOP}
    assert closed == {"2026-01-10", "2026-01-11", "2026-01-12"}
    frozen = {row["period"]: row["rows"] for row in rows(store, schema.cohort)}
    assert frozen == {"2026-01-10": 3, "2026-01-11": 3}  # the horizon is a day
    keys = {row["epoch"]: row["key"] for row in rows(store, schema.epoch)}
    assert {epoch for epoch, key in keys.items() if key} == {"2026-01-10", "2026-01-11"}
    assert "2026-01-14" in keys  # committed to before it begins
    before = [len(rows(store, table)) for table in (schema.day, schema.cohort, schema.epoch)]
    worker.work(store, service, now())
    assert before == [
        len(rows(store, table)) for table in (schema.day, schema.cohort, schema.epoch)
    ]
    assert list(verify(store, service.secret)) == []


def test_a_rehearsal_begins_with_its_first_decision(store, service):
    start(store, service, now() - timedelta(3), **DAILY)
    worker.work(store, service, now())
    assert {row["loop"] for row in rows(store, schema.day)} == set()
    decide(store, service, applicants(3, START - timedelta(900)))  # long before it was made
    worker.work(store, service, now())
    assert list(verify(store, service.secret)) == []


def test_work_that_was_interrupted_is_gone_on_with(store, service, monkeypatch):
    fill(store, service)
    close_day = worker.close_day

    def fails_on_the_second(store, loop, day):
        if day == "2026-01-11":
            raise OSError("killed")
        return close_day(store, loop, day)

    monkeypatch.setattr(worker, "close_day", fails_on_the_second)
    with pytest.raises(OSError, match="killed"):
        worker.work(store, service, now())
    monkeypatch.setattr(worker, "close_day", close_day)
    worker.work(store, service, now())
    assert len({row["date"] for row in rows(store, schema.day) if row["loop"] == LOOP}) == 3
    assert list(verify(store, service.secret)) == []


def test_what_fails_in_one_loop_stops_no_other(store, service, monkeypatch):
    fill(store, service)
    with store.write() as connection:
        put_loop(connection, "broken", DAILY, service.secret, "anna", START)
        newer = {"version": 1, "settings": canonical(DAILY | {"since": "2.0"}), "by": "anna"}
        schema.add(connection, schema.loop, "a-newer-one", START, newer)
    work_on = worker._work_on

    def fails(cohorts, *more):
        if cohorts.loop == "broken":
            raise KeyError("broken")
        return work_on(cohorts, *more)

    monkeypatch.setattr(worker, "_work_on", fails)
    monkeypatch.setattr(Cohorts, "first_period", lambda self: "2026-01-10")
    with pytest.raises(KeyError, match="broken"):
        worker.work(store, service, now())
    assert len({row["date"] for row in rows(store, schema.day) if row["loop"] == LOOP}) == 3


def test_retention_is_kept_when_a_day_is_closed(store, service):
    start(store, service, **(DAILY | {"retention": 1}))
    decide(store, service, applicants(3))
    worker.work(store, service, now())
    assert all(row["features"] for row in rows(store, schema.decision))
    decide(store, service, applicants(1, START + timedelta(59), name="late"))  # in March
    worker.work(store, service, now())
    assert sum(row["features"] is None for row in rows(store, schema.decision)) == 3


def test_of_two_workers_one_works(store, service):
    with only_worker(store, service.directory), pytest.raises(LockedError):
        worker.work(store, service, now())
    worker.work(store, service, now())


def test_a_worker_goes_on_when_something_failed_and_ends_when_told(store, service, monkeypatch):
    stop, calls = threading.Event(), []

    def work(*_):
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the database is away")
        stop.set()

    monkeypatch.setattr(worker, "work", work)
    worker.run(store, service, stop, interval=0.0)
    assert len(calls) == 2
