"""Alarms: guardrails at every closing, and the roll back that a broken one may cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from prometheus_client import Gauge
from sqlalchemy import Connection, func, select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from consequential.service import guardrails, schema
from consequential.service.approval import ROLL_BACK
from consequential.service.candidates import Deployed, deployed, settings_version
from consequential.service.closing import repeats
from consequential.service.cohorts import Cohorts, Row, name_of
from consequential.service.database import Store
from consequential.service.deciding import live_loops, policy_features, settings_until
from consequential.service.exports import UNKNOWN, as_log, reported_groups
from consequential.service.gate import Limits
from consequential.service.guardrails import Day, Finding
from consequential.service.policies import deploy, stored_policy
from consequential.service.records import canonical, first_id
from consequential.service.settings import period_of, period_start

# broken ones that may cause a roll back; people change for many reasons, and no policy changes that
_ROLLED_BACK = ("chance", "acceptance", "utility")
_ALARMS = Gauge("consequential_alarm", "Whether a guardrail is broken", ["loop", "guardrail"])
_MOST_PEOPLE = 10_000  # whose features are compared, the last ones of a day


@dataclass(frozen=True, slots=True)
class Watch:
    """The guardrails of a loop; what was read is kept for the days of a round."""

    cohorts: Cohorts
    _kept: dict[Any, Any] = field(default_factory=dict)

    def due(self) -> list[str]:
        """Return the closed days that were not looked at."""
        rail, day = schema.guardrail.c, schema.day.c
        loop = self.cohorts.loop
        with self.cohorts.store.read() as connection:
            last = connection.execute(select(func.max(rail.date)).where(rail.loop == loop)).scalar()
            later = select(day.date).where(
                day.loop == loop, day.table == "decision", day.date > (last or "")
            )
            return sorted(connection.execute(later).scalars())

    def look(self, date: str, time: datetime) -> list[Exception]:
        """Store what each guardrail says of a closed day; return what could not be computed."""
        with self.cohorts.store.read() as connection:
            now = deployed(connection, self.cohorts.loop)
            days = _days(connection, self.cohorts.loop, date)
        found: list[Finding] = []
        failed: list[Exception] = []
        for compute in self._guardrails(date, time, now, days):
            try:
                found += compute()
            except Exception as error:  # the others can still be computed
                failed.append(error)
        with self.cohorts.store.write() as connection:
            for finding in found:
                self._store(connection, date, time, finding)
        return failed

    def _guardrails(
        self, date: str, time: datetime, now: Deployed, days: list[Day]
    ) -> Iterator[Callable[[], list[Finding]]]:
        settings = self.cohorts.settings
        frozen = self.cohorts.kept(self.cohorts.frozen(), time)
        if sum(day.people for day in days):
            yield lambda: [guardrails.chance(days)]
            yield lambda: [guardrails.acceptance(days, self._by_group(date), settings)]
        if now.live is not None:
            yield lambda: self._drift(date, now)
            yield lambda: self._utility(frozen, now)

    def _by_group(self, until: str) -> dict[str, list[Day]]:
        """Return the days of a year up to one of them, by group."""
        if not self.cohorts.settings.sensitive:
            return {}
        year = until[:4]
        if year not in self._kept:
            self._kept[year] = _group_days(self.cohorts, year)
        return {
            group: [Day(date, *counts) for date, counts in sorted(days.items()) if date <= until]
            for group, days in self._kept[year].items()
        }

    def _drift(self, date: str, now: Deployed) -> list[Finding]:
        table, loop = schema.decision, self.cohorts.loop
        assert now.live is not None
        until = first_id(period_start(date) + timedelta(1))
        own = (table.c.loop == loop) & (table.c.id < until) & table.c.features.is_not(None)
        with self.cohorts.store.read() as connection:
            policy = stored_policy(connection, loop, now.live)
            if policy.summary is None or not policy.learned_from:
                return []  # nobody was learned from
            since = table.c.id >= first_id(period_start(date))
            today = connection.execute(select(func.count()).where(own, since)).scalar_one()
            n = min(max(today, guardrails.people_needed(policy.summary)), _MOST_PEOPLE)
            last = select(table.c.features).where(own).order_by(table.c.id.desc()).limit(n)
            people = [json.loads(each) for each in connection.execute(last).scalars()]
        if not people:
            return []
        matrix = np.asarray(policy.looked_at(policy_features(policy, people)))
        return guardrails.drift(policy.summary, matrix)

    def _utility(self, frozen: list[Row], now: Deployed) -> list[Finding]:
        """Compare the live policy with the one before on cohorts that neither was chosen by."""
        settings = self.cohorts.settings
        since = period_of(settings.period, period_start(now.live_date))
        later = [row for row in frozen if row["period"] > since]
        if not later or now.live is None or now.replaced is None:
            return []
        name = ("utility", now.live, now.replaced, *(name_of(row) for row in later))
        if name not in self._kept:
            with self.cohorts.store.read() as connection:
                live, before = (
                    stored_policy(connection, self.cohorts.loop, digest)
                    for digest in (now.live, now.replaced)
                )
                version = settings_version(connection, self.cohorts.loop)
                limits = Limits.of(settings_until(connection, self.cohorts.loop, version))
            log = as_log(self.cohorts.rows(later), settings, missing="against")
            self._kept[name] = guardrails.utility(live, before, log, settings, limits)
        return [self._kept[name]]

    def _store(self, connection: Connection, date: str, time: datetime, finding: Finding) -> None:
        table, loop = schema.guardrail, self.cohorts.loop
        own = (table.c.loop == loop) & (table.c.name == finding.name)
        last = select(table.c.broken).where(own).order_by(table.c.date.desc()).limit(1)
        was_broken = bool(connection.execute(last).scalar())
        values = {
            "date": date,
            "name": finding.name,
            "value": finding.value if np.isfinite(finding.value) else None,
            "limit": finding.limit,
            "broken": finding.broken,
            "sentence": finding.sentence,
        }
        schema.add(connection, table, loop, time, values)
        if finding.broken != was_broken:
            about = {"guardrail": finding.name, "date": date, "sentence": finding.sentence}
            what = "alarm raised" if finding.broken else "alarm ended"
            schema.add_event(connection, loop, time, "worker", what, canonical(about))

    # --- what follows

    def roll_back(self, time: datetime) -> int | None:
        """Deploy the shares of before, if the settings say so and an alarm is about the last ones.

        An alarm is, if it began after they were deployed. The worker does not take back what it
        has rolled back to: then people must decide.
        """
        if not self.cohorts.settings.auto_rollback:
            return None
        loop = self.cohorts.loop
        with self.cohorts.store.write() as connection:
            now = deployed(connection, loop)
            if not now.before or now.by == "worker":
                return None
            raised = raised_alarms(connection, loop)
            why = [
                each["sentence"]
                for each in raised
                if each["name"] in _ROLLED_BACK and each["since"] >= now.date
            ]
            if not why:
                return None
            live = live_loops(connection, {})[loop]
            said = f"{ROLL_BACK}: {why[0]}"
            return deploy(connection, live, now.before[-1], "worker", time, evidence=said)


def raised_alarms(connection: Connection, loop: str) -> list[dict[str, Any]]:
    """Return the guardrails that are broken, each with the day `since` when."""
    table = schema.guardrail
    own = table.c.loop == loop
    newest = select(func.max(table.c.date)).where(own).scalar_subquery()
    rows = schema.rows(connection, select(table).where(own, table.c.date == newest))
    found = []
    for row in rows:
        if row["broken"]:
            same = own & (table.c.name == row["name"])
            sound = select(func.max(table.c.date)).where(same, table.c.broken.is_(False))
            last = connection.execute(sound).scalar() or ""
            first = select(func.min(table.c.date)).where(same, table.c.date > last)
            found.append(row | {"since": connection.execute(first).scalar_one()})
    return found


def measure(store: Store) -> None:
    """Set the gauge of every guardrail; without a database it stays as it was."""
    table = schema.guardrail
    newest = select(table.c.loop, func.max(table.c.date)).group_by(table.c.loop)
    asked = select(table).where(tuple_(table.c.loop, table.c.date).in_(newest))
    try:
        with store.read() as connection:
            rows = schema.rows(connection, asked)
    except SQLAlchemyError:
        return
    _ALARMS.clear()
    for row in rows:
        _ALARMS.labels(row["loop"], row["name"]).set(row["broken"])


def _days(connection: Connection, loop: str, until: str) -> list[Day]:
    """Return the closed days of a year up to one of them."""
    row = schema.day.c
    asked = select(row.date, row.rows, row.summary).where(
        row.loop == loop, row.table == "decision", row.date >= until[:4], row.date <= until
    )
    days = []
    for date, _, summary in sorted(connection.execute(asked).all()):
        told = json.loads(summary)
        if "first_rows" in told:  # else it was closed by an older version
            names = ("rows", "accepted", "propensity", "variance")
            days.append(Day(date, *(told[f"first_{name}"] for name in names)))
    return days


def _group_days(cohorts: Cohorts, year: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Return by group and day how many people there were, and how many were accepted."""
    table = schema.decision
    start, end = (first_id(period_start(f"{int(year) + k}-01-01")) for k in (0, 1))
    asked = select(table.c.time, table.c.subject_id, table.c.accepted).where(
        table.c.loop == cohorts.loop, table.c.id >= start, table.c.id < end, ~repeats(table)
    )
    asked = asked.execution_options(yield_per=10_000)
    groups = reported_groups(cohorts.store, cohorts.settings.sensitive)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    with cohorts.store.read() as connection:
        for time, subject, accepted in connection.execute(asked):
            days = found.setdefault(groups.get(subject, UNKNOWN), {})
            people, taken = days.get(time[:10], (0, 0))
            days[time[:10]] = people + 1, taken + accepted
    return found
