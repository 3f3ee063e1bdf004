"""A loop that learns: days of decisions by a harsh rule, outcomes, and a worker."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from lending_loop import decide as decide_on
from sqlalchemy import Connection, Table, insert, select

import consequential as cq
from consequential.service import schema, worker
from consequential.service.applications import Application
from consequential.service.cohorts import Cohorts, all_cohorts
from consequential.service.database import Store, open_store
from consequential.service.deciding import live_loops
from consequential.service.keys import SCOPES, Account
from consequential.service.loops import clock, put_loop
from consequential.service.policies import approve, propose
from consequential.service.records import hidden_digest, now, stamp
from consequential.service.settings import ServiceSettings, period_after, period_start

LOOP = "lending"
FIRST = "2026-01-01"
APART = ("id", "time", "digest")  # of rows that were written at another moment
SETTINGS: dict[str, Any] = {
    "cost": 0.5,
    "floor": 0.1,
    "period": "day",
    "horizon": 1,
    "sensitive": "sex",
    "rehearsal": True,
    "gate": {"effective": 20, "tuned_for": 1000},
    "features": {
        "score": {"low": -9, "high": 9, "phrase": "Score"},
        "purpose": {"words": ["car", "tv"], "phrase": "Purpose"},
    },
}


def rule(cut: float, floor: float = 0.1) -> str:
    """A policy that accepts people above a score, as JSON."""
    summary = cq.FeatureSummary.of([[-1.0], [0.0], [1.0]], ["score"])
    told = {"feature_names": ["score"], "summary": summary, "floor": floor}
    return cq.policy_to_json(cq.Policy([-8.0 * cut, 8.0], "smooth_semi_logistic", **told))


@dataclass
class Rehearsal:
    """A service and its loop; who has a score above 0 repays, and others do not."""

    store: Store
    service: ServiceSettings
    harsh: str = ""
    day: str = FIRST

    @classmethod
    def of(cls, store: Store, service: ServiceSettings, **changes: Any) -> Rehearsal:
        """Make the loop with a harsh rule."""
        made = cls(store, service)
        made.put(**changes)
        made.harsh = made.propose(rule(1.0))
        made.approve({made.harsh: 1.0}, why="as ever")
        return made

    def put(self, **changes: Any) -> None:
        with self.store.write() as connection:
            at = period_start(self.day)
            put_loop(connection, LOOP, SETTINGS | changes, self.service.secret, "anna", at)

    def propose(self, text: str, by: str = "anna", **told: Any) -> str:
        with self.store.write() as connection:
            live = live_loops(connection, {})[LOOP]
            at = clock(connection, LOOP, live.settings, period_start(self.day))
            return propose(connection, live, text, by, at, **told)

    def approve(self, shares: dict[str, float], by: str = "ben", scopes=SCOPES, **told: Any) -> int:
        with self.store.write() as connection:
            live = live_loops(connection, {})[LOOP]
            at = clock(connection, LOOP, live.settings, period_start(self.day))
            return approve(connection, live, shares, Account(by, frozenset(scopes)), at, **told)

    def decide(
        self, n: int = 500, label: Any = None, groups: str = "fm", shift: float = 0.0
    ) -> None:
        """Let a day of people be decided on, with outcomes."""
        rng, start = np.random.default_rng(int(self.day.replace("-", ""))), self.day
        time = period_start(start) + timedelta(hours=12)
        scores = rng.normal(shift, size=n).clip(-9.0, 9.0).round(4)
        people = [
            Application(f"{start}-{k}", f"{start}-{k}", 1.0,
                        {"score": float(scores[k]), "purpose": ["car", "tv"][k % 2]}, time)
            for k in range(n)
        ]  # fmt: skip
        bodies = decide_on(self.store, self.service, people)
        repays = scores > 0.0
        labels = [
            {"event_id": body["id"], "decision": body["id"], "happened": stamp(time),
             "label": int(repays[k]) if label is None else label, "corrects": None, "by": "shop"}
            for k, body in enumerate(bodies)
            if body["accepted"]
        ]  # fmt: skip
        groups_of = [
            {"subject_id": f"{start}-{k}", "attribute": "sex", "value": groups[k % len(groups)],
             "salt": "s", "value_digest": hidden_digest("s", groups[k % len(groups)]), "by": "shop"}
            for k in range(n)
        ]  # fmt: skip
        with self.store.write() as connection:
            _add_all(connection, schema.outcome, LOOP, time, labels)
        with self.store.write_sensitive() as connection:
            _add_all(connection, schema.attribute, "", now(), groups_of)
        self.day = period_after(start)

    def work(self) -> None:
        worker.work(self.store, self.service, now())

    def days(self, count: int, n: int = 500, **told: Any) -> None:
        """Decide and work, day by day."""
        for _ in range(count):
            self.decide(n, **told)
            self.work()

    def rows(self, table: Table) -> list[dict[str, Any]]:
        with self.store.read() as connection:
            return schema.rows(connection, select(table).where(table.c.loop == LOOP))

    def cohorts(self) -> Cohorts:
        return all_cohorts(self.store, self.service.directory)[LOOP]


def tables(loop: Rehearsal) -> dict[str, list[Any]]:
    """All rows without their timestamps."""
    return {
        table.name: sorted(
            repr({name: value for name, value in row.items() if name not in APART})
            for row in loop.rows(table)
        )
        for table in schema.SEALED
        if table.schema is None
    }


def copied(loop: Rehearsal, folder: Path) -> Rehearsal:
    loop.store.close()
    shutil.copytree(loop.service.directory, folder)
    files = [f"sqlite:///{folder / name}.db" for name in ("service", "sensitive")]
    settings = ServiceSettings(folder, files[0], files[1], loop.service.secret)
    return Rehearsal(open_store(settings), settings, loop.harsh, loop.day)


def _add_all(connection: Connection, table: Table, loop: str, time: datetime, rows: Any) -> None:
    if rows:
        made = [schema.made_row(table, loop, time, row) for row in rows]
        connection.execute(insert(table), made)
