from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from lending_loop import (
    LOOP,
    SETTINGS,
    START,
    applicants,
    attribute,
    decide,
    outcome,
    policy,
    settings_in,
    start,
)
from postgres_server import PostgresServer
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from tampering import exchange, rows_of, tampered, unguarded

from consequential.service import schema
from consequential.service.bodies import Override
from consequential.service.database import Store, migrate, open_store
from consequential.service.deciding import live_loops
from consequential.service.forgetting import forget
from consequential.service.keys import create_key, revoke_keys
from consequential.service.loops import put_loop
from consequential.service.outcomes import add_attributes, add_outcomes, add_overrides
from consequential.service.policies import deploy, propose
from consequential.service.records import first_id, row_digest
from consequential.service.settings import ServiceSettings
from consequential.service.verify import verify, verify_day, verify_decision
from consequential.service.worker import work

LATER = START + timedelta(2)
DAILY = SETTINGS | {"period": "day", "epoch": "day"}
FULL = "verify_full"  # the filled database of PostgreSQL
_numbers = count()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def full(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ServiceSettings, list[dict[str, Any]]]:
    """A filled service, once in SQLite, once in PostgreSQL, for tests to copy; its decisions."""
    url = ""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        server.execute(f"create database {FULL}")
        url = server.url(FULL)
    settings = settings_in(tmp_path_factory.mktemp("full"), url)
    migrate(settings)
    with closing(open_store(settings)) as store:
        return settings, fill(store, settings)


@pytest.fixture
def filled(
    full: tuple[ServiceSettings, list[dict[str, Any]]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Iterator[tuple[Store, ServiceSettings, list[dict[str, Any]]]]:
    """A copy of that service: its databases, its settings, its decisions."""
    settings, bodies = full
    shutil.copytree(settings.directory, tmp_path, dirs_exist_ok=True)
    name, url = f"verify_{next(_numbers)}", ""
    if not settings.is_sqlite:
        server: PostgresServer = request.getfixturevalue("postgres")
        server.execute(f"create database {name} template {FULL}")
        url = server.url(name)
    copy = settings_in(tmp_path, url)
    with closing(open_store(copy)) as store:
        yield store, copy, bodies


def fill(store, service) -> list[dict[str, Any]]:
    """Put rows into every table, on two days, and close all days until three later."""
    start(store, service, **DAILY)
    first = decide(store, service, applicants(6, START))
    bodies = first + decide(store, service, applicants(6, LATER, seed=1, name="B"))
    accepted = [body["id"] for body in bodies if body["accepted"]]
    refused = [body["id"] for body in bodies if not body["accepted"]]
    with store.write() as connection:
        reported = [outcome(f"E-{k}", id, k % 2, LATER) for k, id in enumerate(accepted)]
        reported.append(outcome("E-c", accepted[0], None, LATER, corrects="E-0"))
        add_outcomes(connection, reported, "shop", LATER)
        overrides = [
            Override(decision_id=refused[0], accepted=True, why="an error"),
            Override(decision_id=accepted[1], accepted=False, why="moved"),
        ]
        add_overrides(connection, overrides, "anna", LATER)
        for name in ("shop", "bank"):
            create_key(connection, name, ["decide"], START)
        revoke_keys(connection, "bank", LATER)
        live = live_loops(connection, {})[LOOP]
        put_loop(connection, LOOP, DAILY | {"cost": 0.7}, service.secret, "anna", LATER)
        text, parent = policy((-2.0, 0.5, 0.4, 0.0)), live.shares[0].digest
        other = propose(connection, live, text, "anna", LATER, parent=parent)
        deploy(connection, live, {other: 1.0}, "ben", LATER)
    with store.write_sensitive() as connection:
        people = [attribute("A-subject-1", "f"), attribute("A-subject-2", "m")]
        add_attributes(connection, people, "anna", START)
    with store.write() as connection:
        for table in (schema.candidate, schema.evaluation, schema.guardrail):
            for k in (100, 101):
                schema.add(connection, table, LOOP, LATER, learned_row(table, k))
    for days in (2, 4):  # what is done on the first of them, is sealed on the second
        late = LATER + timedelta(days)
        decide(store, service, applicants(1, late, name=f"C{days}"))
        work(store, service, late)
    return bodies


def learned_row(table, number: int) -> dict[str, Any]:
    """A row that a worker might have written long ago."""
    given = {str: f"2025-{number}", int: number, float: 0.5, bool: True}
    own = [column for column in table.c if column.name not in ("id", "loop", "time", "digest")]
    return {column.name: given[column.type.python_type] for column in own} | (
        {"deployment": 0} if table is schema.candidate else {}  # it has ended
    )


def closed_rows(store, table) -> list[dict[str, Any]]:
    """The rows of closed days."""
    rows = rows_of(store, table)
    if table is schema.day:
        return rows
    return [row for row in rows if row["id"] < first_id(LATER + timedelta(3))]


def findings(store, service) -> list[str]:
    return [str(found) for found in verify(store, service.secret)]


def is_clean(store, service) -> bool:
    """Whether there is no finding; ends at the first."""
    with closing(verify(store, service.secret)) as found:
        return next(found, None) is None


def test_nothing_is_found_where_nothing_was_changed(filled):
    store, service, bodies = filled
    assert findings(store, service) == []
    assert list(verify(store)) == []  # also without the secret
    for body in bodies:
        assert list(verify_decision(store, body["id"], service.secret)) == []
    assert [str(found) for found in verify_decision(store, "0198")] == [
        "decision 0198: there is none"
    ]


def test_a_day_can_be_verified_by_itself(filled):
    store, service, _ = filled
    days = [str(time.date()) for time in (START, LATER)]
    for day in days:
        assert list(verify_day(store, LOOP, day, service.secret)) == []
    row = closed_rows(store, schema.decision)[0]
    exchange(store, schema.decision, [row], [row | {"score": row["score"] + 1.0}])
    assert [found.where for found in verify_day(store, LOOP, days[0])] == [row["id"]]
    exchange(store, schema.decision, [row], [])
    assert "rows were sealed" in str(next(verify_day(store, LOOP, days[0])))
    assert list(verify_day(store, LOOP, days[1])) == []
    assert [found.what for found in verify_day(store, LOOP, "2025-12-31")] == ["it is not closed"]


def test_a_kept_seal_tells_of_deleted_days(filled):
    store, service, _ = filled
    days = rows_of(store, schema.day)
    last = max(day["date"] for day in days)
    newest = [day for day in days if day["date"] == last]
    kept = [newest[0]["seal"]]
    assert list(verify(store, service.secret, kept)) == []
    for day in newest:
        exchange(store, schema.day, [day], [])
    assert any(kept[0] in str(found) for found in verify(store, service.secret, kept))


@pytest.mark.parametrize("table", [*schema.SEALED, schema.day], ids=lambda table: table.name)
def test_each_changed_cell_and_each_dropped_or_added_row_is_found(filled, table):
    store, service, _ = filled
    rows, unseen = closed_rows(store, table), []
    assert len(rows) > 1
    assert all(any(row[c.name] is not None for row in rows) for c in table.c)
    every = 1 if service.is_sqlite else 5  # what verifies is the same program on both
    for what, before, after in islice(tampered(table, rows), 0, None, every):
        try:
            exchange(store, table, before, after)
        except IntegrityError:  # the database itself refuses it
            continue
        if is_clean(store, service):
            unseen.append(what)
        exchange(store, table, after, before)
    assert unseen == []
    assert findings(store, service) == []


def test_a_finding_names_the_row_or_the_day(filled):
    store, service, bodies = filled
    id = bodies[0]["id"]
    table = schema.decision
    with unguarded(store, table) as connection:
        connection.execute(update(table).where(table.c.id == id).values(amount=2.0))
    assert findings(store, service) == [f"decision {id}: its digest is not that of its content"]
    with store.read() as connection:
        row = connection.execute(select(table).where(table.c.id == id)).mappings().one()
    with unguarded(store, table) as connection:  # with a digest that fits
        fitting = row_digest(row, table.info["may_change"])
        connection.execute(update(table).where(table.c.id == id).values(digest=fitting))
    day = "day decision lending 2026-01-10: its seal is not that of its rows and of the day before"
    assert findings(store, service) == [day]
    assert [str(found) for found in verify_decision(store, id)] == [day]


def test_features_and_attributes_that_were_deleted_by_hand_are_found(filled):
    store, service, _ = filled
    for table, name, write in (
        (schema.decision, "features", store.write),
        (schema.attribute, "value", store.write_sensitive),
    ):
        theirs = update(table).where(table.c.subject_id == "A-subject-1")
        with write() as connection:
            connection.execute(theirs.values({name: None, "salt": None}))
    assert len(findings(store, service)) == 2
    assert all("no event says so" in each for each in findings(store, service))
    forget(store, service.directory, "A-subject-1", LATER + timedelta(30))
    assert findings(store, service) == []


def test_rows_of_open_days_are_checked_too(store, service):
    start(store, service)
    (body,) = decide(store, service, applicants(1))
    table = schema.decision
    with unguarded(store, table) as connection:
        connection.execute(update(table).values(propensity=0.987))
    found = findings(store, service)
    assert any("digest" in each for each in found)
    assert any("replayed" in each for each in found)
    assert all(body["id"] in each for each in found)


def test_a_wrong_secret_is_said_once(filled):
    store, _, _ = filled
    assert [str(found) for found in verify(store, b"w" * 32)] == [
        "epoch all: the secret is not the one that they were opened with"
    ]


@pytest.mark.parametrize("missing", ["policy", "deployment", "epoch"])
def test_a_decision_that_nothing_explains_is_found(store, service, missing):
    start(store, service)
    (body,) = decide(store, service, applicants(1))
    table = schema.metadata.tables[missing]
    exchange(store, table, rows_of(store, table), [])
    assert findings(store, service) == [f"decision {body['id']}: it cannot be replayed"]
