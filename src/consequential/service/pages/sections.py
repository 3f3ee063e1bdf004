"""Sections: what overview, outcomes and people say, from closed days and frozen cohorts."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from prometheus_client import REGISTRY
from sqlalchemy import select

from consequential.service import schema
from consequential.service.alarms import last_findings, raised_alarms
from consequential.service.deciding import Live
from consequential.service.pages import books, charts, groups
from consequential.service.pages.history import deployments_of
from consequential.service.pages.proofs import authors_of_proven, last_proof
from consequential.service.pages.rendering import percent
from consequential.service.settings import period_after, period_of, period_start
from consequential.service.state import Service
from consequential.service.worker import FAILED

_RECENT = 30  # days
_AGES = 12  # columns of outcomes by age
_COHORTS = 24  # rows

Context = dict[str, Any]


def overview(service: Service, live: Live) -> Context:
    """Return how the loop does."""
    with service.store.read() as connection:
        days = books.closed_days(connection, live.loop, "decision")
        cohorts = books.frozen_cohorts(
            connection, service.settings.directory, live.loop, live.settings
        )
        deployments = deployments_of(connection, live.loop)
        proof = last_proof(deployments)
        ready = authors_of_proven(connection, live.loop)
    recent = books.last_days(days, _RECENT)
    by_number: dict[int, list[books.Earned]] = defaultdict(list)
    for cohort in cohorts:
        for number, part in cohort.earned.items():
            by_number[number].append(part)
    numbers = sorted(by_number)
    earned = {number: books.Earned.sum(by_number[number]) for number in numbers[-2:]}
    return {
        "deployed": deployments[-1] if deployments else None,
        "recent": books.Accepted.of(recent),
        "earned_by": numbers[-1] if numbers else None,
        "earned": earned[numbers[-1]] if numbers else None,
        "was": earned[numbers[-2]] if len(numbers) > 1 else None,
        "gap": groups.Gap.of(groups.summed(_rates(cohorts))),
        "max_gap": _max_gap(live),
        "agreed": _agreed(live),
        "proof": proof,
        "ready": ready,
        "closed": days[-1].date if days else None,
        "cohorts": len(cohorts),
        "charts": _overview_charts(days, recent, cohorts, _agreed(live)),
    }


def _max_gap(live: Live) -> float | None:
    """Return the limit of the gap, where that is one of acceptance."""
    return live.settings.max_gap if live.settings.fairness == "demographic_parity" else None


def _agreed(live: Live) -> tuple[float, ...]:
    """Return the ends of the agreed range of acceptance; none where anything is agreed."""
    return () if live.settings.acceptance == (0.0, 1.0) else live.settings.acceptance


def _overview_charts(
    days: list[books.Day],
    recent: list[books.Day],
    cohorts: list[books.Cohort],
    agreed: tuple[float, ...],
) -> list[charts.Chart]:
    found: list[charts.Chart] = []
    points: list[charts.Point] = []
    marks, before = [], 1
    for cohort in cohorts:
        if (earned := books.Earned.sum(list(cohort.earned.values()))) is None:
            continue
        for number in sorted(cohort.earned):
            if number > before:
                marks.append((len(points), f"no. {number}"))
                before = number
        points.append((cohort.period, earned.mean, *earned.bounds))
    if points:
        found.append(charts.utility(points, marks))
    if days:
        told = [(d.date, d.rows, d.summary["accepted"], d.summary["propensity"]) for d in days]
        found.append(charts.accepted(told, agreed))
    if sum(day.rows for day in recent):
        above = [sum(day.summary[f"from_{k}0"] for day in recent) for k in range(1, 10)]
        ends = [sum(day.rows for day in recent), *above, 0]
        found.append(charts.propensities([high - low for high, low in pairwise(ends)]))
    return found


def outcomes(service: Service, live: Live) -> Context:
    """Return which outcomes have arrived, and how the service keeps up."""
    with service.store.read() as connection:
        decisions = books.closed_days(connection, live.loop, "decision")
        arrived = books.closed_days(connection, live.loop, "outcome")
        overrides = books.closed_days(connection, live.loop, "override")
        cohorts = books.frozen_cohorts(
            connection, service.settings.directory, live.loop, live.settings
        )
        watched = last_findings(connection, live.loop)
        event = schema.event.c
        failed = select(schema.event).where(event.loop == live.loop, event.what == FAILED)
        last = schema.row(connection, failed.order_by(event.id.desc()).limit(1))
    return {
        "guardrails": watched,
        "failed": None if last is None else last | {"about": json.loads(last["about"])},
        "arrivals": _arrivals(live, decisions, arrived),
        "ages": list(range(min(live.settings.horizon + 1, _AGES))),
        "frozen": cohorts[::-1][:_COHORTS],
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


def alarms(service: Service, loop: str) -> list[dict[str, Any]]:
    """Return the alarms that every page of a loop shows."""
    with service.store.read() as connection:
        return raised_alarms(connection, loop)


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
    last = period(decisions[-1])
    most = min(live.settings.horizon + 1, _AGES)
    rows = []
    for cohort in sorted(accepted)[::-1][:_COHORTS]:
        shares: list[float | None] = []
        total, later = 0, cohort
        while later <= last and len(shares) < most:
            total += came[cohort, later]
            shares.append(total / accepted[cohort] if accepted[cohort] else 0.0)
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


def _rates(cohorts: list[books.Cohort]) -> dict[str, list[groups.Rate]]:
    return groups.shown_groups({cohort.period: cohort.rates for cohort in cohorts})


def people(service: Service, live: Live) -> Context:
    """Return acceptance by group."""
    with service.store.read() as connection:
        cohorts = books.frozen_cohorts(
            connection, service.settings.directory, live.loop, live.settings
        )
    shown = _rates(cohorts)
    together = groups.summed(shown)
    found = []
    if together:
        rows = [(rate.group, rate.share, *rate.bounds) for rate in together]
        numbers = [
            (rate.group, f"{rate.people:,}", percent(rate.share), *map(percent, rate.bounds))
            for rate in together
        ]
        found.append(charts.rates(rows, numbers))
        labelled = [rate.success for rate in together if rate.success is not None]
        if labelled:
            found.append(charts.successes([(r.group, r.share, *r.bounds) for r in labelled]))
    gaps = [(period, gap) for period, rates in shown.items() if (gap := groups.Gap.of(rates))]
    if gaps:
        found.append(
            charts.gaps(
                [(period, gap.value, gap.value, gap.at_most) for period, gap in gaps],
                _max_gap(live),
            )
        )
    return {
        "attribute": live.settings.sensitive,
        "gap": groups.Gap.of(together),
        "max_gap": _max_gap(live),
        "charts": found,
        "cohorts": len(cohorts),
        "shown": [(period, rates, groups.Gap.of(rates)) for period, rates in shown.items()][::-1],
    }
