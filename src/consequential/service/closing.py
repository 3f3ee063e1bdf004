"""Closing: the rows of a past day are counted, summed up and sealed, and none can be added.

A seal is a hash of the digests of a day's rows and of the seal of the day before, so whoever has
the last seal can tell whether any earlier row was changed. Seals are also written to the log, so
that copies lie where the database is not.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    Double,
    Numeric,
    Select,
    Table,
    cast,
    exists,
    func,
    insert,
    select,
    text,
)

from consequential.service import schema
from consequential.service.database import Store
from consequential.service.problems import Problem
from consequential.service.records import canonical, digest, first_id, stamp
from consequential.service.settings import period_start

GRACE = timedelta(minutes=5)  # after midnight, for what is being committed
_MOST_DAYS = 1000  # in a round: a rehearsal may skip centuries, and other loops do not wait for it
_LOCK = "select pg_advisory_xact_lock(20116)"  # inserting takes it shared, in a trigger
_SHARED = "select pg_advisory_xact_lock_shared(20116)"
_log = logging.getLogger(__name__)


def days_due(store: Store, loop: str, time: datetime) -> list[str]:
    """Return the days that are over and not closed, as many as one round closes.

    A loop's first day is that of its first row.
    """
    with store.read() as connection:
        last = last_closed(connection, loop)
    if not last:
        times = [found for table in schema.SEALED if (found := _first_time(store, table, loop))]
        if not times:
            return []
        due = date.fromisoformat(min(times)[:10])
    else:
        due = date.fromisoformat(last) + timedelta(1)
    over = (time - GRACE).date()
    return [str(due + timedelta(n)) for n in range(min((over - due).days, _MOST_DAYS))]


def last_closed(connection: Connection, loop: str) -> str:
    """Return the last day that is closed; nothing as long as there is none."""
    closed = select(func.max(schema.day.c.date)).where(schema.day.c.loop == loop)
    return connection.execute(closed).scalar() or ""


def close_day(store: Store, loop: str, day: str) -> dict[str, str]:
    """Seal all tables' rows of a day and return the seals; nothing when a row came meanwhile."""
    found = {table: hashed_rows(store, table, loop, day) for table in schema.SEALED}
    rows: list[dict[str, Any]] = [
        {
            "loop": loop,
            "date": day,
            "table": table.name,
            "rows": hashed.count,
            "summary": _summary(store, table, loop, day),
        }
        for table, hashed in found.items()
    ]
    with store.write() as connection:
        if not store.is_sqlite:
            connection.execute(text(_LOCK))
        before = _seals(connection, loop, str(date.fromisoformat(day) - timedelta(1)))
        for row, (table, hashed) in zip(rows, found.items(), strict=True):
            if _count(store, connection, table, loop, day) != hashed.count:
                return {}
            row["seal"] = seal(row, hashed, before.get(table.name, ""))
        connection.execute(insert(schema.day), rows)
    for row in rows:
        _log.info("day closed", extra={"about": row})
    return {row["table"]: row["seal"] for row in rows}


@contextmanager
def open_books(store: Store, loop: str, time: datetime) -> Iterator[None]:
    """Keep a day from being closed while rows of it are added to the other database.

    That database cannot see which days are closed, so its triggers cannot refuse them.
    """
    with store.write() as connection:
        if not store.is_sqlite:
            connection.execute(text(_SHARED))
        if last_closed(connection, loop) >= stamp(time)[:10]:
            raise Problem("day_closed", 409, "the books of that day are closed")
        yield


def seal(row: Mapping[Any, Any], rows: HashedRows, before: str) -> str:
    """Return the seal of a row of `day`: nothing in it can change, nor the rows it is about."""
    about = [row[name] for name in ("loop", "date", "table", "rows", "summary")]
    return digest([*about, rows.hashed.hexdigest(), before])


def _seals(connection: Connection, loop: str, day: str) -> dict[str, str]:
    row = schema.day.c
    found = select(row.table, row.seal).where(row.loop == loop, row.date == day)
    return dict(connection.execute(found).all())


def day_of(identifier: str) -> str:
    """Return the day that a row belongs to, which its identifier begins with."""
    milliseconds = int(identifier[:8] + identifier[9:13], 16)
    return str(date(1970, 1, 1) + timedelta(milliseconds=milliseconds))


# --- one table's rows of one day


@dataclass(slots=True)
class HashedRows:
    """How many rows a day has, and a hash of their digests in order."""

    count: int = 0
    hashed: Any = field(default_factory=hashlib.sha256)

    def add(self, digest: str) -> None:
        """Count one more row."""
        self.count += 1
        self.hashed.update(digest.encode())


def hashed_rows(store: Store, table: Table, loop: str, day: str) -> HashedRows:
    """Return the rows of a day, as its seal has them."""
    asked = select(table.c.digest).where(*within(table, loop, day)).order_by(table.c.id)
    rows = HashedRows()
    with reading(store, table) as connection:
        for value in connection.execute(asked.execution_options(yield_per=10_000)).scalars():
            rows.add(value)
    return rows


def _summary(store: Store, table: Table, loop: str, day: str) -> str:
    columns = [value.label(name) for name, value in _SUMMARIES.get(table.name, {}).items()]
    if not columns:
        return canonical({})
    asked = select(*columns).where(*within(table, loop, day))
    with store.read() as connection:
        found = dict(connection.execute(asked).mappings().one())
        if table is schema.decision:
            firsts = [value.label(name) for name, value in _FIRSTS.items()]
            own = select(*firsts).where(*within(table, loop, day), ~repeats(table))
            found |= connection.execute(own).mappings().one()
        if table is schema.outcome:
            found["cohorts"] = dict(connection.execute(_arrivals(loop, day)).all())
    return canonical(found)


def _arrivals(loop: str, day: str) -> Select[Any]:
    """Select of how many accepted people of each cohort a day brought the first outcome."""
    decision, outcome = schema.decision, schema.outcome
    return (
        select(decision.c.cohort, func.count())
        .join_from(outcome, decision, outcome.c.decision == decision.c.id)
        .where(*within(outcome, loop, day), outcome.c.corrects.is_(None), decision.c.accepted)
        .group_by(decision.c.cohort)
    )


def _count(store: Store, connection: Connection, table: Table, loop: str, day: str) -> int:
    asked = select(func.count()).select_from(table).where(*within(table, loop, day))
    if table.schema is None:
        return int(connection.execute(asked).scalar_one())
    with store.read_sensitive() as apart:
        return int(apart.execute(asked).scalar_one())


def _first_time(store: Store, table: Table, loop: str) -> str | None:
    asked = select(table.c.time).where(table.c.loop == loop).order_by(table.c.id).limit(1)
    with reading(store, table) as connection:
        found: str | None = connection.execute(asked).scalar()
    return found


def reading(store: Store, table: Table) -> AbstractContextManager[Connection]:
    """Return a transaction that reads a table, wherever it is."""
    return store.read() if table.schema is None else store.read_sensitive()


def within(table: Table, loop: str, day: str) -> tuple[Any, ...]:
    """Return what selects the rows of a day, by their identifiers."""
    start = period_start(day)
    low, high = first_id(start), first_id(start + timedelta(1))
    return table.c.loop == loop, table.c.id >= low, table.c.id < high


def repeats(table: Any) -> Any:
    """Return whether a decision is not the first of its subject in the epoch.

    All of them are drawn with the same number.
    """
    earlier = schema.decision.alias()
    return exists().where(
        earlier.c.subject_id == table.c.subject_id,
        earlier.c.loop == table.c.loop,
        earlier.c.epoch == table.c.epoch,
        earlier.c.id < table.c.id,
    )


def _summed(value: Any) -> Any:
    """Return a sum that does not depend on the order of rows, as that of floats does."""
    return cast(func.coalesce(func.sum(cast(value, Numeric)), 0), Double)


_CHANCE = schema.decision.c.propensity
_VARIANCE = _summed(_CHANCE * (1.0 - _CHANCE))
_LABEL = schema.outcome.c.label
# what is known of a day without its rows; of decisions also what chance should have given
_SUMMARIES: dict[str, dict[str, Any]] = {
    "decision": {
        "accepted": func.count().filter(schema.decision.c.accepted),
        "propensity": _summed(_CHANCE),
        "variance": _VARIANCE,
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
# the same of first applications, whose draws are independent of each other
_FIRSTS = {
    "first_rows": func.count(),
    "first_accepted": func.count().filter(schema.decision.c.accepted),
    "first_propensity": _summed(_CHANCE),
    "first_variance": _VARIANCE,
    "first_skew": _summed(_CHANCE * (1.0 - _CHANCE) * (1.0 - 2.0 * _CHANCE)),
}
