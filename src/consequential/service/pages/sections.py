"""Sections: what each page of a loop says, from closed days and frozen cohorts."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import date
from itertools import islice, pairwise
from math import nan
from typing import Any

from prometheus_client import REGISTRY
from sqlalchemy import select

from consequential.service import schema
from consequential.service.alarms import last_findings, raised_alarms, unwatched
from consequential.service.candidates import History, Row, deployed, line_of
from consequential.service.closing import last_closed
from consequential.service.deciding import Live
from consequential.service.keys import Account
from consequential.service.outcomes import decision_document, decision_id, replay_document
from consequential.service.pages import books, charts, groups, parts
from consequential.service.pages.parts import LISTED
from consequential.service.pages.rendering import minute
from consequential.service.settings import NOT_STORED, period_after, period_of, period_start
from consequential.service.state import Service
from consequential.service.verify import verify_day
from consequential.service.worker import FAILED

_RECENT = 30  # days
_AGES = 12  # columns of outcomes by age
_COHORTS = 24  # rows

Context = dict[str, Any]


def alarms(service: Service, loop: str) -> list[Row]:
    """Return the alarms that every page of a loop shows."""
    with service.store.read() as connection:
        return raised_alarms(connection, loop)


# --- overview


def overview(service: Service, live: Live) -> Context:
    """Return how the loop does."""
    with service.store.read() as connection:
        days = books.closed_days(connection, live.loop, "decision")
        cohorts = books.frozen_cohorts(
            connection, service.settings.directory, live.loop, live.settings
        )
        history = History.of(connection, live.loop)
    recent = books.last_days(days, _RECENT)
    earned = books.earned_by_deployment(cohorts)
    newest = list(islice(reversed(earned.items()), 2))
    proofs = history.proofs()
    return {
        "deployed": history.deployments[-1] if history.deployments else None,
        "without_evidence": _is_unproven(history, len(history.deployments)),
        "recent": sum(day.rows for day in recent),
        "accepted": sum(day.summary["accepted"] for day in recent),
        "expected": sum(day.summary["propensity"] for day in recent),
        "earned_by": newest[0][0] if newest else None,
        "earned": newest[0][1] if newest else None,
        "was": newest[1][1] if len(newest) > 1 else None,
        "gap": groups.Gap.of(groups.summed(books.shown_rates(cohorts))),
        "max_gap": parts.max_gap(live),
        "agreed": _agreed(live),
        "proof": line_of(proofs[0][1], "utility") if proofs else None,
        "ready": [row["by"] for row in history.candidates if history.is_proven(row)],
        "closed": days[-1].date if days else None,
        "cohorts": len(cohorts),
        "charts": overview_charts(days, cohorts, live),
    }


def _is_unproven(history: History, number: int) -> bool:
    """Whether a deployment rests on no evidence; their numbers begin with 1."""
    return number > 0 and history.is_unproven(history.deployments[number - 1])


def _agreed(live: Live) -> tuple[float, ...]:
    """Return the ends of the agreed range of acceptance; none where anything is agreed."""
    return () if live.settings.acceptance == (0.0, 1.0) else live.settings.acceptance


def overview_charts(
    days: list[books.Day], cohorts: list[books.Cohort], live: Live
) -> list[charts.Chart]:
    """Draw how the loop did over time."""
    found: list[charts.Chart] = []
    points: list[charts.Point] = []
    marks, before = [], 1
    for cohort in cohorts:
        if not cohort.earned:
            continue
        for number in sorted(cohort.earned):
            if number > before:
                marks.append((len(points), str(number)))
                before = number
        earned = books.DeploymentEarnings.sum(cohort.earned.values())
        points.append((cohort.period, earned.mean, *earned.bounds))
    if points:
        found.append(charts.utility(points, marks))
    if days:
        told = [(d.date, d.rows, d.summary["accepted"], d.summary["propensity"]) for d in days]
        found.append(charts.accepted(told, _agreed(live)))
    recent = books.last_days(days, _RECENT)
    if people := sum(day.rows for day in recent):
        above = [sum(day.summary[f"from_{k}0"] for day in recent) for k in range(1, 10)]
        ends = [people, *above, 0]
        found.append(charts.propensities([high - low for high, low in pairwise(ends)]))
    return found


# --- outcomes


def outcomes(service: Service, live: Live) -> Context:
    """Return which outcomes have arrived, and how the service keeps up."""
    with service.store.read() as connection:
        decisions = books.closed_days(connection, live.loop, "decision")
        arrived = books.closed_days(connection, live.loop, "outcome")
        overrides = books.closed_days(connection, live.loop, "override")
        cohorts = books.frozen_cohorts(
            connection, service.settings.directory, live.loop, live.settings
        )
        watched, missing = last_findings(connection, live.loop), unwatched(connection, live)
        event = schema.event.c
        failed = select(schema.event).where(event.loop == live.loop, event.what == FAILED)
        last = schema.row(connection, failed.order_by(event.id.desc()).limit(1))
    return {
        "guardrails": watched,
        "unwatched": missing,
        "failed": None if last is None else last | {"about": json.loads(last["about"])},
        "days": books.DAYS,
        "arrivals": _arrivals(live, decisions, arrived),
        "ages": list(range(min(live.settings.horizon + 1, _AGES))),
        "frozen": parts.cohorts(cohorts[-_COHORTS:]),
        "reported": [
            ("Succeeded", sum(day.summary["labels_1"] for day in arrived)),
            ("Failed", sum(day.summary["labels_0"] for day in arrived)),
            ("Withdrawn", sum(day.summary["withdrawn"] for day in arrived)),
            ("Corrections among them", sum(day.summary["corrections"] for day in arrived)),
            ("Decisions overridden", sum(day.rows for day in overrides)),
        ],
        "writing": _writing(),
        "closed": decisions[-1].date if decisions else None,
    }


def _arrivals(live: Live, decisions: list[books.Day], arrived: list[books.Day]) -> list[Context]:
    """Return by cohort, the newest first, the share of outcomes that had arrived at each age."""
    if not decisions:
        return []

    def period(day: books.Day) -> str:
        return period_of(live.settings.period, period_start(day.date))

    accepted: dict[str, int] = defaultdict(int)
    for day in decisions:
        accepted[period(day)] += day.summary["accepted"]
    came: dict[tuple[str, str], int] = defaultdict(int)
    for day in arrived:
        for cohort, number in day.summary.get("cohorts", {}).items():
            came[cohort, period(day)] += number
    if len(decisions) == books.DAYS:  # of the first cohort some days may lie further back
        del accepted[period(decisions[0])]
    last = period(decisions[-1])
    most = min(live.settings.horizon + 1, _AGES)
    rows = []
    for cohort in sorted(each for each, n in accepted.items() if n)[::-1][:_COHORTS]:
        shares: list[float | None] = []
        total, later = 0, cohort
        while later <= last and len(shares) < most:
            total += came[cohort, later]
            shares.append(total / accepted[cohort])
            later = period_after(later)
        late = sum(n for (own, at), n in came.items() if own == cohort and at >= later)
        rows.append({
            "cohort": cohort, "accepted": accepted[cohort],
            "shares": shares + [None] * (most - len(shares)), "late": late,
        })  # fmt: skip
    return rows


def _writing() -> list[tuple[str, str]]:
    """Return how this process keeps up, from its metrics."""
    value = REGISTRY.get_sample_value
    groups = value("consequential_group_size_count") or 0.0
    size = (value("consequential_group_size_sum") or 0.0) / groups if groups else 0.0
    slow = _quantile("consequential_longest_seconds", 0.99)
    return [
        ("Applications that wait", f"{value('consequential_waiting') or 0:.0f}"),
        ("Decisions in one commit, on average", f"{size:.1f}" if groups else "none yet"),
        ("99 % of commits answered within", f"{slow:g} s" if slow else "none yet"),
    ]


def _quantile(name: str, share: float) -> float | None:
    """Return the bound of the bucket of a histogram that a quantile lies in."""
    total = REGISTRY.get_sample_value(f"{name}_count") or 0.0
    samples = [each for family in REGISTRY.collect() for each in family.samples]
    for sample in samples:
        if sample.name == f"{name}_bucket" and total and sample.value >= share * total:
            return float(sample.labels["le"])
    return None


# --- people and candidates


def people(service: Service, live: Live) -> Context:
    """Return acceptance by group."""
    with service.store.read() as connection:
        cohorts = books.frozen_cohorts(
            connection, service.settings.directory, live.loop, live.settings
        )
    return {"people": parts.people(cohorts, live)}


def candidates(service: Service, live: Live, account: Account) -> Context:
    """Return what waits to be approved, with its proof, and what became of the others."""
    with service.store.read() as connection:
        now = deployed(connection, live.loop)
        history = History.of(connection, live.loop)
    policies = {row["policy"]: row for row in history.policies}
    waiting, earlier = [], []
    for row in history.candidates[-LISTED:]:
        if row["state"] != "waiting":
            earlier.append(row)
            continue
        looks, policy = history.looks_at(row["number"]), policies[row["policy"]]
        waiting.append(row | {
            "learned": parts.span(policy["cohorts"]),
            "is_own": policy["by"] == account.name,
            "is_proven": history.is_proven(row),
            "seen": looks[-1] if looks else None,
            "chart": charts.gain(_gains(looks), live.settings.gate.margin) if looks else None,
        })  # fmt: skip
    return {
        "now": now,
        **{f"may_{scope}": scope in account.scopes for scope in ("approve", "admin", "learn")},
        "without_evidence": _is_unproven(history, now.number),
        "waiting": sorted(waiting, key=lambda row: (not row["is_proven"], -row["number"])),
        "earlier": parts.candidates("Earlier candidates", earlier, history) if earlier else None,
    }


def _gains(looks: list[Row]) -> list[charts.Point]:
    lines = [(look["cohort"].rpartition("-")[0], line_of(look, "utility")) for look in looks]
    numbers = ("value", "low", "high")
    return [
        (period, *(nan if line[n] is None else line[n] for n in numbers))
        for period, line in lines
        if line is not None
    ]


# --- decision and audit


def decision(service: Service, live: Live, asked: str, *, replay: bool) -> Context:
    """Return all about one decision, found by its id or its application's."""
    found = decision_id(service.store, live.loop, asked) if asked else None
    if found is None:
        return {"row": None, "replay": None}
    row = decision_document(service.store, found)
    with service.store.read() as connection:
        history = History.of(connection, live.loop)
    again = replay_document(service.store, found, service.settings.secret)
    return {
        "row": row,
        "without_evidence": _is_unproven(history, row["deployment"]),
        "replay": again if replay else None,
    }


def audit(service: Service, live: Live, before: str, verify: str) -> Context:
    """Return who did what, where policies come from, and what keeps the books honest."""
    event = schema.event.c
    with service.store.read() as connection:
        ours = select(schema.event).where(event.loop.in_([live.loop, ""]))
        if not NOT_STORED.search(before) and before:
            ours = ours.where(event.id < before)
        events = schema.rows(connection, ours.order_by(event.id.desc()).limit(LISTED + 1))
        history = History.of(connection, live.loop)
        closed = last_closed(connection, live.loop)
        found = [
            parts.policies(history),
            parts.deployments(history),
            *parts.evidence(history),
            parts.epochs(connection, live.loop),
            parts.seals(connection, live.loop),
        ]
    findings = None
    day = _day(verify)
    if day and day <= closed:
        wrong = verify_day(service.store, live.loop, day, service.settings.secret)
        findings = [str(each) for each in islice(wrong, LISTED)]
    return {
        "parts": found,
        "events": [
            (minute(row["time"]), row["by"], row["what"], row["about"]) for row in events[:LISTED]
        ],
        "older": events[LISTED - 1]["id"] if len(events) > LISTED else None,
        "closed": closed,
        "verify": day or verify,
        "is_open": day > closed,
        "findings": findings,
    }


def _day(text: str) -> str:
    """Return a day as it is stored; nothing if the text is none."""
    try:
        return str(date.fromisoformat(text))
    except ValueError:
        return ""
