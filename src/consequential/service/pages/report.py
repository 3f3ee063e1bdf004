"""Report: all about a loop in one HTML file, for an auditor, from what the pages show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from typing import Any

from markupsafe import Markup
from sqlalchemy import Connection, func, select

from consequential.evaluation import compare, overlap
from consequential.service import schema
from consequential.service.alarms import unwatched
from consequential.service.candidates import History, deployed, line_of
from consequential.service.cohorts import Cohorts, log_of, name_of
from consequential.service.deciding import Live
from consequential.service.loops import loop_versions
from consequential.service.pages import books, parts, sections
from consequential.service.pages.parts import Part
from consequential.service.pages.rendering import count, date, figure, percent, render, short
from consequential.service.policies import stored_policy
from consequential.service.problems import Problem
from consequential.service.records import stamp
from consequential.service.state import Service
from consequential.service.verify import file_findings, verify

_SHOWN = 200  # findings
_RECENT = 3  # frozen cohorts whose exploring is judged


def report(service: Service, loop: str, time: datetime) -> str:
    """Return the report about a loop: HTML that needs no other file.

    Everything is verified anew, which takes as long as `verify`.
    """
    live = service.live(loop)
    cohorts = Cohorts(service.store, service.settings.directory, loop, live.settings)
    if cohorts.first_period() is None:
        raise Problem("no_decisions", 409, "the loop has decided on nobody: there is no report")
    findings = [*file_findings(cohorts), *verify(service.store, service.settings.secret)]
    style = (files(__package__) / "static" / "style.css").read_text(encoding="utf-8")
    with service.store.read() as connection:
        return render(
            "report.html",
            style=style,
            live=live,
            time=stamp(time),
            findings=[str(each) for each in findings[:_SHOWN]],
            n_findings=len(findings),
            parts=list(_parts(connection, live, cohorts)),
        )


def _parts(connection: Connection, live: Live, cohorts: Cohorts) -> Iterator[Part]:
    """Yield all parts of the report, in order."""
    loop = live.loop
    frozen = books.frozen_cohorts(connection, cohorts.directory, loop, live.settings)
    history = History.of(connection, loop)
    days = books.closed_days(connection, loop, "decision")
    yield _settings(loop_versions(connection, loop))
    yield parts.policies(history)
    yield parts.deployments(history)
    yield from parts.evidence(history)
    filed = history.candidates
    yield parts.candidates("All candidates, also those that did not pass", filed, history)
    yield Part("How it does", charts=sections.overview_charts(days, frozen, live))
    yield parts.people(frozen, live)
    yield _overrides(connection, loop)
    yield _exploring(frozen, history)
    yield from _overlap(connection, live, cohorts)
    yield parts.cohorts(frozen)
    yield _alarms(connection, live)
    yield parts.epochs(connection, loop)
    yield parts.seals(connection, loop)


def _settings(versions: Sequence[Mapping[str, Any]]) -> Part:
    rows: list[list[Any]] = []
    before: Mapping[str, Any] = {}
    for version in reversed(versions):
        now = version["settings"]
        changed = [
            f"{name}: {_plain(now.get(name))}"
            for name in sorted({*now, *before})
            if now.get(name) != before.get(name)
        ]
        rows.append([version["version"], date(version["time"]), version["by"], "; ".join(changed)])
        before = now
    return Part(
        "Settings over time",
        ["Of each version what is new in it; what is not said has its default."],
        columns=("version", "since", "by", "what changed"),
        rows=rows,
    )


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _overrides(connection: Connection, loop: str) -> Part:
    override, decision = schema.override.c, schema.decision.c
    done = select(override.accepted, override.by, func.count()).where(override.loop == loop)
    rows = connection.execute(done.group_by(override.accepted, override.by)).all()
    drawn = select(decision.accepted, func.count()).where(decision.loop == loop)
    totals: dict[bool, int] = dict(connection.execute(drawn.group_by(decision.accepted)).all())
    return Part(
        "Overrides",
        ["What was drawn is what counts: an overridden refusal stays a refusal in every figure "
         "here, and an overridden acceptance has no label."],
        columns=("what was overridden", "reported by", "how often", "share of all such decisions"),
        rows=[
            ["refusal" if accepted else "acceptance", by, count(number),
             percent(number / totals[not accepted])]
            for accepted, by, number in sorted(rows, key=lambda row: (not row[0], row[1]))
        ],
    )  # fmt: skip


def _exploring(frozen: Sequence[books.Cohort], history: History) -> Part:
    rows = []
    for number, earned in books.earned_by_deployment(frozen).items():
        low, high = earned.bounds
        known = [figure(earned.mean, 4), f"{figure(low)} to {figure(high)}"]
        rows.append([number, count(earned.people), *known, figure(earned.exploring_costs, 1)])
    sentences = [
        "The cost is what people accepted by chance lost, per 1,000 applicants of frozen cohorts; "
        "a negative number is a gain."
    ]
    for _, look in history.proofs():
        if line := line_of(look, "utility"):
            sentences.append(
                f"It proved that candidate {look['candidate_number']} brings at least "
                f"{figure(line['low'], 4)} more per decision; the estimate is "
                f"{figure(line['value'], 4)} (evaluation {look['number']})."
            )
    if not history.proofs():
        sentences.append("It has proved nothing yet that a deployment rests on.")
    return Part(
        "What exploring cost, and what it proved",
        sentences,
        columns=("deployment", "applicants", "utility", "95 % interval", "cost per 1,000"),
        rows=rows,
    )


def _overlap(connection: Connection, live: Live, cohorts: Cohorts) -> Iterator[Part]:
    """Judge the last frozen cohorts by the library's `overlap` and `compare`, without groups.

    Both would tell of groups of any size.
    """
    kept = [row for row in cohorts.frozen() if (cohorts.directory / row["file"]).exists()]
    if not kept:
        return
    recent = kept[-_RECENT:]
    everybody = replace(live.settings, sensitive="", max_gap=None)
    log = log_of(cohorts.directory, recent, everybody)
    found = overlap(log, floor=live.settings.floor)
    yield Part(
        f"Does the log explore? {found.exploring.capitalize()}",
        [f"The cohorts {parts.span([name_of(row) for row in recent])}.", *found.reasons],
        columns=("", "people", "accepted", "effective people", "least probability", "mean weight"),
        rows=[
            [found.overall.name, count(found.overall.people), count(found.overall.accepted),
             f"{found.overall.effective_sample_size:,.0f}", f"{found.overall.smallest:.3g}",
             f"{found.overall.mean_weight:.3f}"]
        ],
    )  # fmt: skip
    now = deployed(connection, live.loop)
    if now.live is None or now.replaced is None:
        return
    new, old = (stored_policy(connection, live.loop, each) for each in (now.live, now.replaced))
    difference = compare(new, old, log, cost=live.settings.cost)
    said = Markup(
        "{} less {} on the same cohorts, by the library's compare with 95 % intervals: {}."
    )
    yield Part(
        "What decides now, against what it replaced",
        [said.format(short(now.live), short(now.replaced), difference.verdict.partition(";")[0])],
        columns=("", "difference", "from", "to"),
        rows=[
            [name, *(figure(each, 4) for each in (found_in.value, found_in.low, found_in.high))]
            for name, found_in in (
                ("utility per applicant", difference.utility),
                ("share accepted", difference.acceptance),
            )
        ],
    )


def _alarms(connection: Connection, live: Live) -> Part:
    event = schema.event.c
    raised = (event.loop == live.loop) & event.what.in_(("alarm raised", "alarm ended"))
    rows = schema.rows(connection, select(schema.event).where(raised).order_by(event.id))
    told = [(row["what"], json.loads(row["about"])) for row in rows]
    return Part(
        "Alarms",
        [
            "Guardrails are looked at whenever a day is closed.",
            *(
                f"Not watched now: {', '.join(each)}."
                for each in [unwatched(connection, live)]
                if each
            ),
        ],
        columns=("day", "what", "guardrail", "what was found"),
        rows=[[about["date"], what, about["guardrail"], about["sentence"]] for what, about in told],
    )
