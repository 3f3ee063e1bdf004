"""Forgetting: features and attributes are deleted from the databases and from cohorts' files.

Digests stay, so that seals hold; so do identifiers, decisions and outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, select, update

from consequential.service import schema
from consequential.service.cohorts import Cohorts, all_cohorts
from consequential.service.database import DatabaseError, Store, only_worker
from consequential.service.records import canonical, first_id
from consequential.service.settings import period_after, period_of, period_start

FORGOTTEN = "forgotten"  # the event that says which rows
_WAIT = 300.0  # seconds for a worker to end its round
_GROUP = 5_000  # rows in one transaction, so that decisions need not wait long


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many decisions and attributes lost their values, and how many files were deleted.

    Examples
    --------
    >>> from consequential.service.forgetting import Forgotten
    >>> Forgotten(decisions=2, attributes=1)
    Forgotten(decisions=2, attributes=1, files=0)
    """

    decisions: int = 0
    attributes: int = 0
    files: int = 0


def forget(
    store: Store, directory: Path, subject: str, time: datetime, by: str = "operator"
) -> Forgotten:
    """Delete what is known of a subject; for an application without one, give its id."""
    decision, attribute = schema.decision, schema.attribute
    alone = decision.c.subject_id.is_(None) & (decision.c.application_id == subject)
    wanted = select(decision.c.id, decision.c.loop, decision.c.cohort).where(
        (decision.c.subject_id == subject) | alone
    )
    theirs = select(attribute.c.id).where(attribute.c.subject_id == subject)
    with only_worker(store, directory, _WAIT):  # it might be writing a file with their rows
        with store.read_sensitive() as connection:
            values = connection.execute(theirs).scalars().all()
        with store.write() as connection:
            rows = connection.execute(wanted).all()
            ids = [row.id for row in rows]
            _delete(connection, decision, ids, "features")
            about = canonical({"decisions": ids, "attributes": list(values)})
            schema.add_event(connection, "", time, by, FORGOTTEN, about)
        with store.write_sensitive() as connection:
            _delete(connection, attribute, values, "value")
        files, cohorts = 0, all_cohorts(store, directory)
        for loop, period in {(row.loop, row.cohort) for row in rows}:
            files += cohorts[loop].leave_out(period, set(ids), cohorts[loop].clock(time), by)
    erase(store)
    return Forgotten(len(ids), len(values), files)


def retain(cohorts: Cohorts, time: datetime, by: str = "worker") -> Forgotten:
    """Delete the features of decisions of months that are older than the loop's retention."""
    store, months = cohorts.store, cohorts.settings.retention
    if months is None:
        return Forgotten()
    limit = period_start(period_after(period_of("month", time), -months))
    table, n, before = schema.decision, 0, first_id(limit)
    old = (table.c.loop == cohorts.loop) & (table.c.id < before)
    wanted = select(table.c.id).where(old, table.c.features.is_not(None)).limit(_GROUP)
    with store.write() as connection:
        if connection.execute(wanted.limit(1)).first() is not None:
            about = canonical({"before": before})
            schema.add_event(connection, cohorts.loop, time, by, FORGOTTEN, about)
    while ids := _delete_some(store, wanted):
        n += len(ids)
    files = cohorts.remove(
        [row for row in cohorts.versions() if period_start(row["period"]) < limit]
    )
    if n or files:
        erase(store)
    return Forgotten(n, 0, files)


def _delete_some(store: Store, wanted: Select[str]) -> Sequence[str]:
    with store.write() as connection:
        ids = connection.execute(wanted).scalars().all()
        _delete(connection, schema.decision, ids, "features")
    return ids


def _delete(connection: Connection, table: Table, ids: Sequence[str], column: str) -> None:
    for k in range(0, len(ids), 500):
        some = table.c.id.in_(ids[k : k + 500])
        connection.execute(update(table).where(some).values({column: None, "salt": None}))


def erase(store: Store) -> None:
    """Leave nothing of deleted values in the databases' files.

    SQLite rewrites its files. PostgreSQL rewrites the tables, where its role owns them; its
    write-ahead log ages out.
    """
    left = []
    for engine, table in ((store.main, "decision"), (store.apart, "sensitive.attribute")):
        connection = engine.raw_connection()
        driver: Any = connection.driver_connection
        try:
            if store.is_sqlite:
                driver.execute("vacuum")
                is_busy, *_ = driver.execute("pragma wal_checkpoint(truncate)").fetchone()
                if is_busy:
                    left.append("while others read the database: run it again")
            else:
                driver.autocommit = True  # no transaction may contain this
                warned: list[Any] = []
                driver.add_notice_handler(warned.append)
                driver.execute(f"vacuum (full) {table}")
                if warned:  # it was skipped
                    left.append(f"until the owner of the table runs: vacuum (full) {table}")
        finally:
            connection.invalidate()  # it shall not be used for transactions
    if left:
        raise DatabaseError(f"deleted values stay in the database's files {'; '.join(left)}")
