"""Tampering: rows that are changed although triggers refuse it, as an administrator could."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, insert, select

from consequential.service import schema
from consequential.service.database import Store
from consequential.service.records import row_digest

Row = dict[str, Any]


@contextmanager
def unguarded(store: Store, table: Table) -> Iterator[Connection]:
    """A transaction in which neither triggers nor foreign keys refuse anything."""
    engine = store.main if table.schema is None else store.apart
    if not store.is_sqlite:
        with engine.begin() as connection:
            connection.exec_driver_sql("set session_replication_role = replica")
            connection.exec_driver_sql("set local synchronous_commit = off")  # for speed
            yield connection
            connection.exec_driver_sql("reset session_replication_role")
        return
    with engine.begin() as connection:
        triggers = "select name from sqlite_master where type = 'trigger'"
        for (name,) in connection.exec_driver_sql(triggers).all():
            connection.exec_driver_sql(f"drop trigger {name}")
    with engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert driver is not None
        driver.execute("pragma foreign_keys = off")  # only possible outside a transaction
        yield connection
        connection.commit()
        driver.execute("pragma foreign_keys = on")


def rows_of(store: Store, table: Table) -> list[Row]:
    """All rows, in the order of their keys."""
    engine = store.main if table.schema is None else store.apart
    with engine.begin() as connection:
        found = connection.execute(select(table).order_by(*table.primary_key)).mappings()
        return [dict(row) for row in found]


def exchange(store: Store, table: Table, old: Sequence[Row], new: Sequence[Row]) -> None:
    """Put rows in the place of others."""
    with unguarded(store, table) as connection:
        for row in old:
            key = and_(*(column == row[column.name] for column in table.primary_key))
            connection.execute(delete(table).where(key))
        if new:
            connection.execute(insert(table), list(new))


def other_values(value: Any, nullable: bool) -> list[Any]:
    """Values that could stand in the place of one."""
    if value is None:
        return ["ab", 1]
    found: list[Any] = [None] if nullable else []
    if isinstance(value, bool):
        return [*found, not value]
    if isinstance(value, int):
        return [*found, value + 70]
    if isinstance(value, float):
        return [*found, math.nextafter(value, 2.0)]
    last = "9" if value[-1:] != "9" else "8"
    return [*found, value[:-1] + last]


def tampered(table: Table, rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], list[Row]]]:
    """Each way to change, drop or swap a cell or a row, as rows before and after."""
    first, second = rows[0], rows[-1]
    for place in (0, len(rows) // 2, -1):
        yield f"{table.name} dropped", [rows[place]], []
    yield f"{table.name} added", [], [forged(table, first)]
    for column in table.c:
        name = column.name
        for row in (first, second) if column.nullable else (first,):
            for value in other_values(row[name], bool(column.nullable)):
                if isinstance(value, column.type.python_type) or value is None:
                    yield f"{table.name}.{name} = {value!r}", [row], [row | {name: value}]
        if first[name] != second[name]:
            swapped = [first | {name: second[name]}, second | {name: first[name]}]
            yield f"{table.name}.{name} swapped", [first, second], swapped


def forged(table: Table, row: Row) -> Row:
    """A row of the same day that differs in every unique column, with the digest it should have."""
    if table is schema.day:
        return row | {"date": "2025-12-31"}
    changed: Row = {"id": row["id"][:-4] + "0000"}
    for name in ("application_id", "event_id", "key_hash", "policy", "epoch", "period", "date"):
        if name in row:
            changed[name] = "2025-01"
    for name in ("version", "number"):
        if name in row:
            changed[name] = 77
    if table in (schema.override, schema.outcome):  # one for each decision
        changed["decision"] = "0198"
    made = row | changed
    return made | {"digest": row_digest(made, table.info["may_change"])}
