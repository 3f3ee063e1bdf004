"""Alarms: guardrails at every closing, and the roll back that a broken one may cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date as calendar_day
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import Gauge
from sqlalchemy import Connection, func, select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from consequential.service import guardrails, schema
from consequential.service.candidates import ROLL_BACK, Deployed, deployed, settings_version
from consequential.service.closing import repeats, within
from consequential.service.cohorts import Cohorts, Row, log_of, name_of
from consequential.service.database import Store
from consequential.service.deciding import Live, live_loops, policy_features, settings_until
from consequential.service.exports import UNKNOWN, reported_groups
from consequential.service.gate import Limits
from consequential.service.guardrails import DayCounts, GuardrailFinding
from consequential.service.policies import deploy, stored_policy
from consequential.service.records import canonical, first_id
from consequential.service.settings import period_of, period_start

# broken ones that may cause a roll back; people change for many reasons, and no policy changes that
_ROLLED_BACK = ("chance", "acceptance", "utility")
_ALARMS = Gauge("consequential_alarm", "Whether a guardrail is broken", ["loop", "guardrail"])
_OF_NO_POLICY = ("chance", "acceptance")  # the others are about the live policy
_MOST_PEOPLE = 10_000  # whose features are compared, the last ones of a day
_PIECE = 10_000  # rows in memory

Groups = dict[str, tuple[int, int]]  # people, and how many of them were accepted
# how old closed days were when they were counted, and what was found
_counted: dict[tuple[Path, str, str, str], tuple[int, Groups]] = {}


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
            changed = _changed(connection, self.cohorts.loop, date)
        own = [day for day in days if day.date > changed]
        found: list[GuardrailFinding] = []
        failed: list[Exception] = []
        for compute in self._guardrails(date, time, now, days, own):
            try:
                found += compute()
            except Exception as error:  # the others can still be computed
                failed.append(error)
        with self.cohorts.store.write() as connection:
            for finding in found:
                self._store(connection, date, time, finding)
        return failed

    def _guardrails(
        self, date: str, time: datetime, now: Deployed, days: list[DayCounts], own: list[DayCounts]
    ) -> Iterator[Callable[[], list[GuardrailFinding]]]:
        settings = self.cohorts.settings
        frozen = self.cohorts.kept(self.cohorts.frozen(), time)
        if sum(day.people for day in days):
            yield lambda: [guardrails.chance(days)]
        if sum(day.people for day in own):
            yield lambda: [guardrails.acceptance(own, self._by_group(own), settings)]
        if now.live is not None:
            yield lambda: self._drift(date, now)
            yield lambda: self._utility(frozen, now)

    def _by_group(self, days: list[DayCounts]) -> dict[str, list[DayCounts]]:
        """Return days, of which the last is looked at, by group."""
        found: dict[str, list[DayCounts]] = {}
        if self.cohorts.settings.sensitive:
            for day in days:
                for group, counts in _groups(self.cohorts, day.date, days[-1].date).items():
                    found.setdefault(group, []).append(DayCounts(day.date, *counts))
        return found

    def _drift(self, date: str, now: Deployed) -> list[GuardrailFinding]:
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

    def _utility(self, frozen: list[Row], now: Deployed) -> list[GuardrailFinding]:
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
            log = log_of(self.cohorts.directory, later, settings)
            self._kept[name] = guardrails.utility(live, before, log, settings, limits)
        return [self._kept[name]]

    def _store(
        self, connection: Connection, date: str, time: datetime, finding: GuardrailFinding
    ) -> None:
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

        An alarm is, if it began after the day on which they were deployed or the settings changed,
        by what happened after that day. What was rolled back to is not taken back: then people
        must decide.
        """
        if not self.cohorts.settings.auto_rollback:
            return None
        loop = self.cohorts.loop
        with self.cohorts.store.write() as connection:
            now = deployed(connection, loop)
            if not now.before or now.evidence.startswith(ROLL_BACK):
                return None
            changed = _changed(connection, loop)
            why = [
                each["sentence"]
                for each in raised_alarms(connection, loop)
                if each["name"] in _ROLLED_BACK
                and each["since"] > changed
                and (each["name"] != "chance" or _chance_broke(connection, each, changed))
            ]
            if not why:
                return None
            live = live_loops(connection, {})[loop]
            said = f"{ROLL_BACK}: {why[0]}"
            return deploy(connection, live, now.before[-1], "worker", time, evidence=said)


def last_findings(connection: Connection, loop: str) -> list[dict[str, Any]]:
    """Return what each guardrail said last, by name; what was about another policy is left out."""
    table, now = schema.guardrail, deployed(connection, loop)
    own = table.c.loop == loop
    newest = select(table.c.name, func.max(table.c.date)).where(own).group_by(table.c.name)
    asked = select(table).where(own, tuple_(table.c.name, table.c.date).in_(newest))
    since = "" if now.replaced is None else now.live_date
    return [
        row
        for row in schema.rows(connection, asked.order_by(table.c.name))
        if row["name"] in _OF_NO_POLICY or row["date"] >= since
    ]


def unwatched(connection: Connection, live: Live) -> list[str]:
    """Return the guardrails that can raise no alarm about what decides now, and why."""
    found, now = [], deployed(connection, live.loop)
    if now.live is None:
        return []
    if live.settings.acceptance == (0.0, 1.0):
        found.append("acceptance (no range is agreed)")
    if not stored_policy(connection, live.loop, now.live).learned_from:
        found.append("drift (this policy was learned from no cohort)")
    if now.replaced is None:
        found.append("utility (no policy decided before)")
    elif all(row["name"] != "utility" for row in last_findings(connection, live.loop)):
        found.append("utility (no cohort that began after the deployment is frozen)")
    return found


def raised_alarms(connection: Connection, loop: str) -> list[dict[str, Any]]:
    """Return the guardrails that are broken, each with the day `since` when."""
    table = schema.guardrail
    own = table.c.loop == loop
    found = []
    for row in last_findings(connection, loop):
        if row["broken"]:
            same = own & (table.c.name == row["name"])
            sound = select(func.max(table.c.date)).where(same, table.c.broken.is_(False))
            last = connection.execute(sound).scalar() or ""
            first = select(func.min(table.c.date)).where(same, table.c.date > last)
            found.append(row | {"since": connection.execute(first).scalar_one()})
    return found


def measure(store: Store) -> None:
    """Set the gauge of every guardrail; without a database it stays as it was."""
    watched = select(schema.guardrail.c.loop).distinct()
    try:
        with store.read() as connection:
            loops = connection.execute(watched).scalars().all()
            rows = [row for loop in loops for row in last_findings(connection, loop)]
    except SQLAlchemyError:
        return
    _ALARMS.clear()
    for row in rows:
        _ALARMS.labels(row["loop"], row["name"]).set(row["broken"])


def _days(connection: Connection, loop: str, until: str) -> list[DayCounts]:
    """Return the closed days of a year up to one of them."""
    row = schema.day.c
    asked = select(row.date, row.rows, row.summary).where(
        row.loop == loop, row.table == "decision", row.date >= until[:4], row.date <= until
    )
    days = []
    for date, _, summary in sorted(connection.execute(asked).all()):
        told = json.loads(summary)
        names = ("rows", "accepted", "propensity", "variance", "skew")
        days.append(DayCounts(date, *(told[f"first_{name}"] for name in names)))
    return days


def _changed(connection: Connection, loop: str, until: str = "9999") -> str:
    """Return the last day, up to one, on which a deployment or the settings were replaced.

    What happened on that day is partly of before, so guardrails of what is new begin after it.
    """
    days = [""]
    for table, number in ((schema.deployment, "number"), (schema.loop, "version")):
        day = func.substr(table.c.time, 1, 10)
        own = (table.c.loop == loop) & (table.c[number] > 1) & (day <= until)
        days.append(connection.execute(select(func.max(day)).where(own)).scalar() or "")
    return max(days)


def _chance_broke(connection: Connection, alarm: dict[str, Any], after: str) -> bool:
    """Whether the days after one of them would raise the alarm without the year before."""
    days = [day for day in _days(connection, alarm["loop"], alarm["date"]) if day.date > after]
    return bool(days) and guardrails.chance(days).broken


def _groups(cohorts: Cohorts, date: str, until: str) -> Groups:
    """Return the groups of a closed day.

    People's groups may be reported later, so a day is counted again when its age has doubled.
    """
    age = (calendar_day.fromisoformat(until) - calendar_day.fromisoformat(date)).days
    key = cohorts.directory, cohorts.loop, cohorts.settings.sensitive, date
    if key not in _counted or age > 2 * _counted[key][0]:
        _counted[key] = age, _count_groups(cohorts, date)
    return _counted[key][1]


def _count_groups(cohorts: Cohorts, date: str) -> Groups:
    table, found = schema.decision, Groups()
    asked = select(table.c.subject_id, table.c.accepted).where(
        *within(table, cohorts.loop, date), ~repeats(table)
    )
    with cohorts.store.read() as connection:
        result = connection.execute(asked.execution_options(yield_per=_PIECE))
        for piece in result.partitions():
            subjects = [subject for subject, _ in piece if subject is not None]
            reported = reported_groups(cohorts.store, cohorts.settings.sensitive, subjects)
            for subject, accepted in piece:
                group = reported.get(subject, UNKNOWN)
                people, taken = found.get(group, (0, 0))
                found[group] = people + 1, taken + accepted
    return found
