"""Closing: the rows of a past day are counted, summed up and sealed, and none can be added.

A seal is a hash of the digests of a day's rows and of the seal of the day before, so whoever has
the last seal can tell whether any earlier row was changed. Seals are also written to the log, so
that copies lie where the database is not.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, text

from consequential.service import schema
from consequential.service.database import Store
from consequential.service.records import canonical, digest, first_id
from consequential.service.settings import LoopSettings, loop_settings, period_start

GRACE = timedelta(minutes=5)  # after midnight, for what is being committed
_LOCK = "select pg_advisory_xact_lock(20116)"  # inserting takes it shared, in a trigger
_LOGGER = logging.getLogger("consequential.service")


def loops(connection: Connection) -> dict[str, LoopSettings]:
    """Return the settings in force of all loops."""
    rows = select(schema.loop.c.loop, schema.loop.c.settings).order_by(schema.loop.c.version)
    return {name: loop_settings(json.loads(found)) for name, found in connection.execute(rows)}


def clock(connection: Connection, loop: str, settings: LoopSettings, time: datetime) -> datetime:
    """Return what time it is for a loop: in a rehearsal, that of the last decision."""
    if not settings.rehearsal:
        return time
    decision = schema.decision
    last = select(decision.c.time).where(decision.c.loop == loop).order_by(decision.c.id.desc())
    found = connection.execute(last.limit(1)).scalar()
    return time if found is None else datetime.fromisoformat(found)


def days_due(store: Store, loop: str, time: datetime) -> list[str]:
    """Return the days that are over and not closed; a loop's first day is that of its first row."""
    with store.read() as connection:
        closed = select(func.max(schema.day.c.date)).where(schema.day.c.loop == loop)
        last = connection.execute(closed).scalar()
    if last is None:
        times = [found for table in schema.SEALED if (found := _first_time(store, table, loop))]
        if not times:
            return []
        due = date.fromisoformat(min(times)[:10])
    else:
        due = date.fromisoformat(last) + timedelta(1)
    over = (time - GRACE).date()
    return [str(due + timedelta(n)) for n in range((over - due).days)]


def close_day(store: Store, loop: str, day: str) -> dict[str, str]:
    """Seal all tables' rows of a day and return the seals; nothing when a row came meanwhile."""
    sums = {table: _day_sums(store, table, loop, day) for table in schema.SEALED}
    before = str(date.fromisoformat(day) - timedelta(1))
    rows: list[dict[str, Any]] = []
    with store.write() as connection:
        if not store.is_sqlite:
            connection.execute(text(_LOCK))
        seals = seals_of(connection, loop, before)
        for table, found in sums.items():
            if _count(store, connection, table, loop, day) != found.rows:
                return {}
            row = {"loop": loop, "date": day, "table": table.name, "rows": found.rows}
            row["summary"] = canonical(found.summary)
            row["seal"] = seal(row, found.hash, seals.get(table.name, ""))
            rows.append(row)
        connection.execute(insert(schema.day), rows)
    for row in rows:
        _LOGGER.info("day closed", extra={k: v for k, v in row.items() if k != "summary"})
    return {row["table"]: row["seal"] for row in rows}


def seal(row: Mapping[str, Any], rows_hash: str, before: str) -> str:
    """Return the seal of a row of `day`: nothing in it can change, nor the rows it is about."""
    about = [row[name] for name in ("loop", "date", "table", "rows", "summary")]
    return digest([*about, rows_hash, before])


def seals_of(connection: Connection, loop: str, day: str) -> dict[str, str]:
    """Return the seals of a day by table; none where it is not closed."""
    row = schema.day.c
    found = select(row.table, row.seal).where(row.loop == loop, row.date == day)
    return dict(connection.execute(found).all())


def day_of(identifier: str) -> str:
    """Return the day that a row belongs to, which its identifier begins with."""
    milliseconds = int(identifier[:8] + identifier[9:13], 16)
    return str(date(1970, 1, 1) + timedelta(milliseconds=milliseconds))


# --- one table's rows of one day


@dataclass(frozen=True, slots=True)
class _Sums:
    rows: int
    hash: str
    summary: dict[str, Any]


def _day_sums(store: Store, table: Table, loop: str, day: str) -> _Sums:
    within = _within(table, loop, day)
    digests = select(table.c.digest).where(*within).order_by(table.c.id)
    rows, hashed, summary = 0, hashlib.sha256(), {}
    with _reading(store, table) as connection:
        for value in connection.execute(digests.execution_options(yield_per=10_000)).scalars():
            hashed.update(value.encode())
            rows += 1
        if asked := _SUMMARIES.get(table.name):
            columns = [value.label(name) for name, value in asked.items()]
            summary = dict(connection.execute(select(*columns).where(*within)).mappings().one())
    return _Sums(rows, hashed.hexdigest(), summary)


def _count(store: Store, connection: Connection, table: Table, loop: str, day: str) -> int:
    asked = select(func.count()).select_from(table).where(*_within(table, loop, day))
    if table.schema is None:
        return int(connection.execute(asked).scalar_one())
    with store.read_sensitive() as apart:
        return int(apart.execute(asked).scalar_one())


def _first_time(store: Store, table: Table, loop: str) -> str | None:
    asked = select(table.c.time).where(table.c.loop == loop).order_by(table.c.id).limit(1)
    with _reading(store, table) as connection:
        found: str | None = connection.execute(asked).scalar()
    return found


def _reading(store: Store, table: Table) -> Any:
    return store.read() if table.schema is None else store.read_sensitive()


def _within(table: Table, loop: str, day: str) -> tuple[Any, ...]:
    start = period_start(day)
    low, high = first_id(start), first_id(start + timedelta(1))
    return table.c.loop == loop, table.c.id >= low, table.c.id < high


_CHANCE = schema.decision.c.propensity
_LABEL = schema.outcome.c.label
# what is known of a day without its rows; of decisions also what chance should have given
_SUMMARIES: dict[str, dict[str, Any]] = {
    "decision": {
        "accepted": func.count().filter(schema.decision.c.accepted),
        "propensity": func.coalesce(func.sum(_CHANCE), 0.0),
        "variance": func.coalesce(func.sum(_CHANCE * (1.0 - _CHANCE)), 0.0),
        **{f"from_{k}0": func.count().filter(k / 10.0 <= _CHANCE) for k in range(1, 10)},
    },
    "outcome": {
        "labels_1": func.count().filter(_LABEL == 1),
        "labels_0": func.count().filter(_LABEL == 0),
        "withdrawn": func.count().filter(_LABEL.is_(None)),
        "corrections": func.count().filter(schema.outcome.c.corrects.is_not(None)),
    },
    "override": {"accepted": func.count().filter(schema.override.c.accepted)},
}
