"""Decisions in bulk: rows as the service writes them, so that `verify` finds nothing wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Table, insert, text

from consequential.service import schema
from consequential.service.chance import epoch_key, open_epochs, uniform
from consequential.service.database import Store
from consequential.service.deciding import live_loops
from consequential.service.records import canonical, hidden_digest
from consequential.service.settings import ServiceSettings, period_of

PIECE = 20_000
OUTCOME_AFTER = timedelta(days=20)
SALT = "5" * 32


def report_groups(store: Store, time: datetime, subjects: int) -> None:
    """Insert the attribute `sex` of so many people."""
    values = ["female", "male"]
    digests = [hidden_digest(SALT, value) for value in values]
    told = {"attribute": "sex", "salt": SALT, "by": "bulk"}
    for first in range(0, subjects, PIECE):
        rows = [
            schema.made_row(schema.attribute, "", time, told | {
                "subject_id": f"P-{k}", "value": values[k % 2], "value_digest": digests[k % 2],
            })
            for k in range(first, min(first + PIECE, subjects))
        ]  # fmt: skip
        insert_rows(store, schema.attribute, rows)


def fill(
    store: Store,
    service: ServiceSettings,
    loop: str,
    times: list[datetime],
    person: Callable[[int], dict[str, Any]],
    until: datetime,
    subjects: int,
) -> None:
    """Insert a decision at each of these times, and outcomes of accepted people until a moment.

    One in fifty outcomes never comes.
    """
    for decisions, outcomes in _rows(store, service, loop, times, person, until, subjects):
        insert_rows(store, schema.decision, decisions)
        insert_rows(store, schema.outcome, outcomes)
    if not store.is_sqlite:
        with store.main.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("analyze"))


def _rows(
    store: Store,
    service: ServiceSettings,
    loop: str,
    times: list[datetime],
    person: Callable[[int], dict[str, Any]],
    until: datetime,
    subjects: int,
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Yield decisions and outcomes in pieces, in order of time."""
    rng = np.random.default_rng(0)
    with store.write() as connection:
        live = live_loops(connection, {})[loop]
        epochs = {period_of(live.settings.epoch, time): time for time in times}
        for time in epochs.values():
            open_epochs(connection, loop, live.settings, service.secret, time)
    keys = {epoch: epoch_key(service.secret, loop, epoch) for epoch in epochs}
    for first in range(0, len(times), PIECE):
        some = times[first : first + PIECE]
        people = [person(k) for k in range(first, first + len(some))]
        scored = live.scored(people)
        decisions, outcomes = [], []
        for k, time in enumerate(some):
            subject, features = f"P-{(first + k) % subjects}", canonical(people[k])
            epoch, p = period_of(live.settings.epoch, time), float(scored.propensity[k])
            u = uniform(keys[epoch], loop, subject)
            row = schema.made_row(schema.decision, loop, time, {
                "application_id": f"A-{first + k}", "subject_id": subject, "version": live.version,
                "cohort": period_of(live.settings.period, time), "epoch": epoch,
                "deployment": live.number, "features": features, "salt": SALT,
                "features_digest": hidden_digest(SALT, features), "amount": 1.0,
                "score": float(scored.found.score[k]), "propensity": p, "u": u, "accepted": u < p,
            })  # fmt: skip
            decisions.append(row)
            later = time + OUTCOME_AFTER
            if row["accepted"] and later < until and rng.random() > 0.02:
                outcomes.append(schema.made_row(schema.outcome, loop, later, {
                    "event_id": f"E-{loop}-{first + k}", "decision": row["id"],
                    "label": int(rng.random() < p), "happened": row["time"], "corrects": None,
                    "by": "bulk",
                }))  # fmt: skip
        yield decisions, outcomes


def insert_rows(store: Store, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows in one transaction, in PostgreSQL by `copy`."""
    if not rows:
        return
    with store.write() if table.schema is None else store.write_sensitive() as connection:
        if store.is_sqlite:
            connection.execute(insert(table), rows)
            return
        names = [column.name for column in table.columns]
        columns = ", ".join(f'"{name}"' for name in names)
        cursor = connection.connection.driver_connection.cursor()
        with cursor.copy(f"copy {table.fullname} ({columns}) from stdin") as copy:
            for row in rows:
                copy.write_row([row[name] for name in names])


def processor_seconds(store: Store) -> float:
    """Return the CPU time of this process and of those of PostgreSQL that serve it."""
    total = time.process_time()
    for reading in () if store.is_sqlite else (store.read, store.read_sensitive):
        with reading() as connection:
            pid = connection.execute(text("select pg_backend_pid()")).scalar_one()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def evenly(n: int, start: datetime, days: float) -> list[datetime]:
    """Return n times over some days."""
    return [start + timedelta(days=days * k / n) for k in range(n)]
