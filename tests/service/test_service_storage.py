"""Storage: rows that never change, versions of tables, and databases that must not be used."""

from __future__ import annotations

import asyncio
import time

import pytest
from postgres_server import PostgresServer
from sqlalchemy import UniqueConstraint, event, inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from trial import Trial, application, make_trial, served_here

from consequential.service import schema
from consequential.service.applications import read_application
from consequential.service.closing import close_day
from consequential.service.database import (
    DatabaseError,
    connected,
    migrate,
    migration_sql,
    open_store,
)
from consequential.service.deciding import live_loops
from consequential.service.problems import Problem
from consequential.service.records import now, stamp
from consequential.service.settings import ServiceSettings, SettingsError
from consequential.service.writer import Answer, Writer


@pytest.fixture(scope="module")
def filled(trial):
    """A service with a row in every table that requests fill."""
    with served_here(trial) as http:
        batch = {"applications": [application(f"A-{k}", subject_id=f"P-{k}") for k in range(30)]}
        bodies = http.post("/v1/loops/trial/decisions/batch", json=batch).json()["decisions"]
        taken = next(body["id"] for body in bodies if body["accepted"])
        event = {"event_id": "E-1", "decision_id": taken, "label": 1, "happened": now().isoformat()}
        assert http.post("/v1/outcomes", json={"outcomes": [event]}).status_code == 200
        other = {"decision_id": taken, "accepted": False, "why": "forged"}
        assert http.post("/v1/overrides", json={"overrides": [other]}).status_code == 200
        person = {"subject_id": "P-1", "attribute": "sex", "value": "f"}
        assert http.post("/v1/sensitive", json={"sensitive": [person]}).status_code == 200
    store = connected(trial.settings)
    with store.write() as connection:  # the worker's
        for table in (schema.candidate, schema.evaluation, schema.guardrail):
            own = [column for column in table.c if column.name not in ("id", "loop", "time")]
            values = {column.name: _ZEROS[column.type.python_type] for column in own}
            schema.add(connection, table, "trial", now(), values)
    store.close()
    return trial


_ZEROS: dict[type, object] = {str: "", int: 0, float: 0.0, bool: False}


TABLES = [table for table in schema.SEALED if table is not schema.cohort]


def execute(trial: Trial, table, statement: str) -> None:
    store = connected(trial.settings)
    apart = table.schema == "sensitive"
    try:
        with store.write_sensitive() if apart else store.write() as connection:
            connection.execute(text(statement))
    finally:
        store.close()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_row_can_be_changed_deleted_or_replaced(filled, table):
    sqlite = filled.settings.is_sqlite
    name = table.name if sqlite or not table.schema else f"{table.schema}.{table.name}"
    changes = [f"delete from {name}"]
    changes += [
        f'update {name} set "{column.name}" = "{column.name}"'
        for column in table.c
        if column.name not in table.info["may_change"]
    ]
    changes.append(f"insert or replace into {name} select * from {name}" if sqlite
                   else f"truncate {name} cascade")  # fmt: skip
    for change in changes:
        with pytest.raises(IntegrityError, match="rows are never"):
            execute(filled, table, change)


@pytest.mark.parametrize("trial", ["sqlite"], indirect=True)  # PostgreSQL has no such statement
def test_insert_or_replace_changes_no_closed_day_and_no_first_outcome(filled):
    day = "day values ('other', '2026-01-01', 'decision', {}, 's', '{{}}')"
    execute(filled, schema.day, f"insert into {day.format(1)}")
    columns = [f'"{column.name}"' for column in schema.outcome.c]
    other = [{'"id"': "'x'", '"event_id"': "'E-x'", '"label"': "0"}.get(c, c) for c in columns]
    outcome = f"outcome ({', '.join(columns)}) select {', '.join(other)} from outcome"
    for change in (day.format(2), outcome):
        with pytest.raises(IntegrityError, match="never replaced"):
            execute(filled, schema.day, f"insert or replace into {change}")


def test_features_can_only_become_null_and_keys_only_be_filled_in_once(filled):
    why = r"deleted|never changed|once"
    for change in ("features = '{}'", "salt = 'x'"):
        with pytest.raises(IntegrityError, match=why):
            execute(filled, schema.decision, f"update decision set {change}")
    forget = "update decision set features = null, salt = null where application_id = 'A-3'"
    execute(filled, schema.decision, forget)
    for table, column in ((schema.epoch, "key"), (schema.account, "revoked")):
        fill = f"update {table.name} set \"{column}\" = '2026'"
        if table is schema.account:
            fill += " where name = 'approve'"
        execute(filled, table, fill)
        with pytest.raises(IntegrityError, match=why):
            execute(filled, table, fill)


def test_a_forgotten_application_is_gone(filled):
    execute(
        filled,
        schema.decision,
        "update decision set features = null, salt = null where application_id = 'A-4'",
    )
    with served_here(filled) as http:
        address = "/v1/loops/trial/decisions"
        again = http.post(address, json=application("A-4", subject_id="P-4"))
    assert (again.status_code, again.json()["code"]) == (410, "forgotten")


def test_the_migration_makes_the_tables_of_the_schema(filled):
    store = connected(filled.settings)
    for table in schema.metadata.tables.values():
        apart = table.schema == "sensitive"
        with store.read_sensitive() if apart else store.read() as connection:
            found = inspect(connection)
            place = None if filled.settings.is_sqlite else table.schema
            columns = found.get_columns(table.name, schema=place)
            unique = found.get_unique_constraints(table.name, schema=place)
            indexes = found.get_indexes(table.name, schema=place)
        assert [(each["name"], each["nullable"]) for each in columns] == [
            (each.name, each.nullable) for each in table.c
        ]
        assert {tuple(each["column_names"]) for each in unique} == {
            tuple(column.name for column in each.columns)
            for each in table.constraints
            if isinstance(each, UniqueConstraint)
        }
        named = {each["name"] for each in indexes if "duplicates_constraint" not in each}
        assert named == {each.name for each in table.indexes}
    store.close()


def test_the_sql_for_administrators_has_every_table():
    statements = migration_sql()
    for table in schema.metadata.tables:
        assert f"CREATE TABLE {table} (" in statements
    assert "%%" not in statements


@pytest.mark.parametrize("door", [open_store, migrate])
@pytest.mark.parametrize("version", ["0001", "9999"])
def test_a_database_of_another_version_is_refused(tmp_path, version, door):
    trial = make_trial(tmp_path)
    execute(trial, schema.loop, f"update alembic_version set version_num = '{version}'")
    told = rf"another version.*{version}.*start a new service with `consequential init`"
    with pytest.raises(DatabaseError, match=told):
        door(trial.settings)


def test_a_postgresql_without_tables_or_without_fsync_is_refused(tmp_path):
    server = PostgresServer()
    try:
        server.execute("create database lossy")
        settings = ServiceSettings(tmp_path, *[server.url("lossy")] * 2, b"s" * 32)
        with pytest.raises(DatabaseError, match="consequential migrate"):
            open_store(settings)
        make_trial(tmp_path, server.url("lossy"))
        server.execute("alter system set fsync = off")
        server.execute("select pg_reload_conf()")
        time.sleep(0.5)  # it reads its settings a moment later
        with pytest.raises(DatabaseError, match="fsync"):
            open_store(settings)
    finally:
        server.stop()


def test_attributes_are_refused_once_the_books_of_their_day_are_closed(tmp_path):
    trial = make_trial(tmp_path)
    store = connected(trial.settings)
    close_day(store, "", stamp(now())[:10])
    store.close()
    person = {"subject_id": "P-1", "attribute": "sex", "value": "f"}
    with served_here(trial) as http:
        answer = http.post("/v1/sensitive", json={"sensitive": [person]})
    assert (answer.status_code, answer.json()["code"]) == (409, "day_closed")


@pytest.mark.parametrize("trial", ["postgresql"], indirect=True)  # SQLite has no roles
def test_the_role_of_the_service_lacks_the_grants(trial):
    store = connected(trial.settings)
    for change in ("delete from decision", "update decision set u = 0", "truncate decision",
                   "select * from sensitive.attribute"):  # fmt: skip
        with store.write() as connection:
            connection.execute(text("set local role consequential_service"))
            with pytest.raises(DBAPIError, match="permission denied"):
                connection.execute(text(change))
            connection.rollback()
    store.close()


@pytest.mark.parametrize("trial", ["postgresql"], indirect=True)
def test_the_role_of_the_service_may_add_rows_and_change_what_may_change(trial):
    asked = "select table_name, {} from information_schema.role_{}_grants where grantee = :role"
    tables = [table for table in schema.metadata.tables.values() if table.schema is None]
    free = {(t.name, name) for t in tables for name in t.info.get("may_change", ())}
    adds = {(t.name, kind) for t in tables for kind in ("SELECT", "INSERT")}
    store, role = connected(trial.settings), {"role": "consequential_service"}
    with store.read() as connection:
        given = connection.execute(text(asked.format("privilege_type", "table")), role).all()
        columns = text(asked.format("column_name", "column") + " and privilege_type = 'UPDATE'")
        assert {tuple(row) for row in given} == {*adds, ("alembic_version", "SELECT")}
        assert {tuple(row) for row in connection.execute(columns, role)} == free
    store.close()


def test_a_secret_that_is_missing_short_or_open_to_others_is_refused(tmp_path, monkeypatch):
    trial = make_trial(tmp_path)
    secret = tmp_path / "secret"
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        ServiceSettings.load(tmp_path)
    secret.chmod(0o600)
    for text_, message in (("00", "at least 32"), ("zz" * 32, "hexadecimal")):
        secret.write_text(text_)
        with pytest.raises(SettingsError, match=message):
            ServiceSettings.load(tmp_path)
    secret.unlink()
    with pytest.raises(SettingsError, match="no secret"):
        ServiceSettings.load(tmp_path)
    monkeypatch.setenv("CONSEQUENTIAL_SECRET", trial.settings.secret.hex())
    assert ServiceSettings.load(tmp_path) == trial.settings


def test_a_full_disk_is_no_success(sqlite_trial):
    """What cannot be committed is answered 503, and is decided when there is room again."""
    store = connected(sqlite_trial.settings)

    @event.listens_for(store.main, "connect")
    def limit(connection, _):
        # pages beyond the present ones are refused, as on a full disk
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")

    async def answers() -> list[object]:
        with store.read() as connection:
            live = live_loops(connection, {})["trial"]
        writer = Writer(store, sqlite_trial.settings.secret)
        people = [read_application(application(f"F-{k}"), live.settings) for k in range(400)]
        asked = (writer.decide(live, [person]) for person in people)
        found = await asyncio.gather(*asked, return_exceptions=True)
        await writer.close()
        return found

    found = asyncio.run(answers())
    store.close()
    assert {(each.code, each.status) for each in found} == {("storage", 503)}
    with served_here(sqlite_trial) as http:
        again = http.post("/v1/loops/trial/decisions", json=application("F-1"))
    assert again.status_code == 201


def test_a_full_queue_answers_busy(sqlite_trial):
    async def answers() -> list[object]:
        store = connected(sqlite_trial.settings)
        with store.read() as connection:
            live = live_loops(connection, {})["trial"]
        writer = Writer(store, sqlite_trial.settings.secret)
        batches = [
            [read_application(application(f"{b}-{k}"), live.settings) for k in range(1000)]
            for b in range(10)
        ]
        asked = (writer.decide(live, batch) for batch in batches)
        found = await asyncio.gather(*asked, return_exceptions=True)
        await writer.close()
        store.close()
        return found

    found = asyncio.run(answers())
    busy = [each for each in found if isinstance(each, Problem)]
    assert {(each.code, each.status) for each in busy} == {("busy", 503)}
    assert len(busy) == 2
    assert sum(len(each.decisions) for each in found if isinstance(each, Answer)) == 8000
