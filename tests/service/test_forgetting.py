from __future__ import annotations

import random
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as waited
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lending_loop import LOOP, START, applicants, attribute, decide, start
from sqlalchemy import event, select, text

from consequential.service import database, schema
from consequential.service.closing import close_day
from consequential.service.cohorts import _span, all_cohorts
from consequential.service.database import DatabaseError, only_worker, open_store
from consequential.service.exports import export
from consequential.service.forgetting import Forgotten, forget, retain
from consequential.service.outcomes import add_attributes
from consequential.service.verify import verify

MARKER = 7.7712345678  # an income that only one person has
LATER = START + timedelta(40)


def people_with_a_marked_one(n: int) -> list:
    people = applicants(n)
    marked = {"income": MARKER, "purpose": "tv"}
    return [people[0]._replace(subject_id="marked", features=marked), *people[1:]]


def traces(service, store) -> dict[str, int]:
    """In which files of the service the marker stands, and how often."""
    folders = [service.directory]
    if not store.is_sqlite:
        with store.read() as connection:
            connection.execute(text("select pg_switch_wal()"))
            data = Path(connection.execute(text("show data_directory")).scalar_one())
        folders.append(data / "base")
    marks = (str(MARKER).encode(), b"marked-value", struct.pack("<d", MARKER))
    return {
        path.name: sum(path.read_bytes().count(mark) for mark in marks)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and any(mark in path.read_bytes() for mark in marks)
    }


def checkpoint(store) -> None:
    """Write pages to the files, as the databases do in time."""
    if not store.is_sqlite:
        with store.read() as connection:
            connection.execute(text("checkpoint"))


def test_a_forgotten_subject_leaves_nothing_in_any_file(store, service):
    start(store, service)
    decide(store, service, people_with_a_marked_one(200))
    with store.write_sensitive() as connection:
        add_attributes(connection, [attribute("marked", "marked-value")], "anna", START)
    cohorts = all_cohorts(store, service.directory)[LOOP]
    first = cohorts.freeze("2026-01", LATER)
    second = cohorts.freeze("2026-01", LATER)
    checkpoint(store)
    assert len(traces(service, store)) >= 3
    found = forget(store, service.directory, "marked", LATER)
    assert found == Forgotten(decisions=1, attributes=1, files=2)
    checkpoint(store)
    assert traces(service, store) == {}
    for row in (first, second):
        assert not (service.directory / row["file"]).exists()
    (file,) = (service.directory / "cohorts" / LOOP).iterdir()
    assert file.name == "2026-01-3.parquet"
    assert pq.read_table(file).num_rows == 199
    assert list(verify(store, service.secret)) == []
    assert forget(store, service.directory, "marked", LATER) == Forgotten(1, 1, 0)


def test_people_are_forgotten_while_others_are_decided_on(store, service):
    start(store, service)
    decide(store, service, people_with_a_marked_one(50))
    done, written = threading.Event(), []

    def load() -> None:
        while not done.is_set():
            written.append(len(decide(store, service, applicants(20, name=f"L{len(written)}"))))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert forget(store, service.directory, "marked", LATER).decisions == 1
    finally:
        done.set()
        thread.join()
    checkpoint(store)
    assert traces(service, store) == {}
    assert list(verify(store, service.secret)) == []


def test_who_is_forgotten_while_a_cohort_is_frozen_is_not_in_its_file(store, service):
    start(store, service)
    decide(store, service, people_with_a_marked_one(20))
    cohorts = all_cohorts(store, service.directory)[LOOP]
    with ThreadPoolExecutor(1) as other:
        with only_worker(store, service.directory):
            found = export(store, LOOP, cohorts.settings, *_span("2026-01"))
            forgotten = other.submit(forget, store, service.directory, "marked", LATER)
            waited([forgotten], timeout=0.5)  # it cannot end before
            cohorts._keep("2026-01", found, LATER, "worker")
        assert forgotten.result() == Forgotten(decisions=1, files=1)
    checkpoint(store)
    assert traces(service, store) == {}


def test_values_that_could_not_be_erased_are_an_error(service, monkeypatch):
    monkeypatch.setattr(database, "_WAIT", 0.1)
    store = open_store(service)
    start(store, service)
    decide(store, service, people_with_a_marked_one(5))
    try:
        if store.is_sqlite:
            with store.read() as reader:
                reader.execute(text("select * from decision")).first()
                with pytest.raises(DatabaseError, match="others read"):
                    forget(store, service.directory, "marked", LATER)
        else:
            with store.write() as connection:
                roles = "consequential_service, consequential_sensitive"
                connection.execute(text(f"create role operator in role {roles}"))
            for engine in (store.main, store.apart):

                @event.listens_for(engine, "connect")
                def as_operator(connection, _):
                    connection.execute("set role operator")
                    connection.commit()

                engine.dispose()
            with pytest.raises(DatabaseError, match=r"vacuum \(full\) decision; until"):
                forget(store, service.directory, "marked", LATER)
    finally:
        store.close()


def test_seals_hold_after_forgetting(store, service):
    start(store, service)
    decide(store, service, people_with_a_marked_one(20))
    close_day(store, LOOP, "2026-01-10")
    forget(store, service.directory, "marked", LATER)
    assert list(verify(store, service.secret)) == []


def test_of_a_forgotten_subject_the_decision_stays(store, service):
    start(store, service)
    bodies = decide(store, service, people_with_a_marked_one(3))
    forget(store, service.directory, "marked", LATER)
    with store.read() as connection:
        rows = schema.rows(connection, select(schema.decision).order_by(schema.decision.c.id))
    forgotten = {row["id"]: row for row in rows}[bodies[0]["id"]]
    assert (forgotten["features"], forgotten["salt"]) == (None, None)
    assert (forgotten["propensity"], forgotten["digest"]) == (
        bodies[0]["propensity"],
        bodies[0]["digest"],
    )
    assert sum(row["features"] is None for row in rows) == 1


def test_an_application_without_a_subject_is_forgotten_by_its_own_id(store, service):
    start(store, service)
    person, other = applicants(2)
    decide(store, service, [person._replace(subject_id=None), other])
    assert forget(store, service.directory, other.application_id, LATER).decisions == 0
    assert forget(store, service.directory, person.application_id, LATER).decisions == 1


def test_features_are_kept_as_long_as_the_retention_says(store, service):
    start(store, service, retention=2)
    decide(store, service, people_with_a_marked_one(30))
    decide(store, service, applicants(10, START + timedelta(31), name="B"))  # in February
    cohorts = all_cohorts(store, service.directory)[LOOP]
    for month in ("2026-01", "2026-02"):
        cohorts.freeze(month, LATER)
    march, april = (datetime(2026, month, 1, tzinfo=START.tzinfo) for month in (3, 4))
    assert retain(cohorts, march) == Forgotten()
    assert retain(cohorts, april - timedelta(seconds=1)) == Forgotten()
    assert retain(cohorts, april) == Forgotten(decisions=30, files=1)
    assert retain(cohorts, april) == Forgotten()
    checkpoint(store)
    assert traces(service, store) == {}
    assert list(verify(store, service.secret)) == []


@pytest.mark.slow
def test_nothing_stays_behind_in_pages_that_were_split(store, service):
    start(store, service)
    rng = random.Random(0)
    for round in range(40):
        time = START + timedelta(seconds=rng.randrange(100))
        people = applicants(300, time, seed=round, name=f"R{round}")
        marked = {"income": MARKER, "purpose": "tv"}
        decide(store, service, [p._replace(subject_id="m", features=marked) for p in people])
    assert forget(store, service.directory, "m", LATER).decisions == 12_000
    checkpoint(store)
    assert traces(service, store) == {}
