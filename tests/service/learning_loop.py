"""A loop that learns: months of decisions by a harsh rule, outcomes, and a worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from lending_loop import decide as decide_on
from sqlalchemy import Table, select

import consequential as cq
from consequential.service import schema, worker
from consequential.service.applications import Application
from consequential.service.approval import approve
from consequential.service.bodies import Attribute, Outcome
from consequential.service.cohorts import Cohorts, all_cohorts
from consequential.service.database import Store
from consequential.service.deciding import live_loops
from consequential.service.keys import SCOPES, Account
from consequential.service.loops import clock, put_loop
from consequential.service.outcomes import add_attributes, add_outcomes
from consequential.service.policies import propose
from consequential.service.records import now, stamp
from consequential.service.settings import ServiceSettings, period_after, period_start

LOOP = "lending"
FIRST = "2026-01"
SETTINGS: dict[str, Any] = {
    "cost": 0.5,
    "floor": 0.1,
    "horizon": 1,
    "sensitive": "sex",
    "rehearsal": True,
    "max_gap": 0.9,
    "gate": {"effective": 100, "tuned_for": 2000},
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
    """A service and its loop; people with a score above 0 mostly repay, and others mostly not."""

    store: Store
    service: ServiceSettings
    harsh: str = ""
    month: str = FIRST

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
            at = period_start(self.month)
            put_loop(connection, LOOP, SETTINGS | changes, self.service.secret, "anna", at)

    def propose(self, text: str, by: str = "anna", **told: Any) -> str:
        with self.store.write() as connection:
            live = live_loops(connection, {})[LOOP]
            at = clock(connection, LOOP, live.settings, period_start(self.month))
            return propose(connection, live, text, by, at, **told)

    def approve(self, shares: dict[str, float], by: str = "ben", scopes=SCOPES, **told: Any) -> int:
        with self.store.write() as connection:
            live = live_loops(connection, {})[LOOP]
            at = clock(connection, LOOP, live.settings, period_start(self.month))
            return approve(connection, live, shares, Account(by, frozenset(scopes)), at, **told)

    def decide(self, n: int = 600, label: Any = None, groups: str = "fm") -> None:
        """Let a month of people be decided on, with outcomes."""
        rng, start = np.random.default_rng(int(self.month.replace("-", ""))), self.month
        time = period_start(start) + timedelta(days=14)
        scores = rng.normal(size=n).round(4)
        people = [
            Application(f"{start}-{k}", f"{start}-{k}", 1.0,
                        {"score": float(scores[k]), "purpose": ["car", "tv"][k % 2]}, time)
            for k in range(n)
        ]  # fmt: skip
        bodies = decide_on(self.store, self.service, people)
        repays = rng.random(n) < np.where(scores > 0.0, 0.9, 0.1)
        told = [
            {"event_id": body["id"], "decision_id": body["id"], "happened": stamp(time),
             "label": int(repays[k]) if label is None else label}
            for k, body in enumerate(bodies)
            if body["accepted"]
        ]  # fmt: skip
        outcomes = [Outcome.model_validate(each) for each in told]
        with self.store.write() as connection:
            add_outcomes(connection, outcomes, "shop", now())
        attributes = [
            Attribute(subject_id=f"{start}-{k}", attribute="sex", value=groups[k % len(groups)])
            for k in range(n)
        ]
        with self.store.write_sensitive() as connection:
            add_attributes(connection, attributes, "shop", now())
        self.month = period_after(start)

    def work(self) -> None:
        worker.work(self.store, self.service, now())

    def months(self, count: int, n: int = 600, **told: Any) -> None:
        """Decide and work, month by month."""
        for _ in range(count):
            self.decide(n, **told)
            self.work()

    def rows(self, table: Table) -> list[dict[str, Any]]:
        with self.store.read() as connection:
            return schema.rows(connection, select(table).where(table.c.loop == LOOP))

    def cohorts(self) -> Cohorts:
        return all_cohorts(self.store, self.service.directory)[LOOP]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
