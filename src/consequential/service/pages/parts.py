"""Parts: what the report says of a loop, each with a heading, sentences and a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, func, select

from consequential.evaluation import compare, overlap
from consequential.service import schema
from consequential.service.candidates import candidates, deployed
from consequential.service.chance import commitment_of
from consequential.service.cohorts import Cohorts
from consequential.service.deciding import Live
from consequential.service.exports import as_log
from consequential.service.loops import loop_versions
from consequential.service.pages import books, groups, history, sections
from consequential.service.pages.charts import Chart
from consequential.service.pages.rendering import count, date_of, figure, percent, short
from consequential.service.policies import stored_policy
from consequential.service.state import Service

_RECENT = 3  # frozen cohorts whose exploring is judged

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the report: a heading, sentences, charts, and a table."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()


def parts(service: Service, live: Live, cohorts: Cohorts) -> Iterator[Part]:
    """Yield all parts of the report, in order."""
    audit = history.audit(service, live, "", "")
    with service.store.read() as connection:
        frozen = books.frozen_cohorts(connection, cohorts.directory, live.loop, live.settings)
        filed = candidates(connection, live.loop)
        looks = _looks(connection, live.loop)
        yield _settings(loop_versions(connection, live.loop))
        yield _policies(audit["policies"], filed)
        yield _deployments(audit["deployments"])
        yield from _evidence(audit["deployments"], looks)
        yield _candidates(filed, looks)
        yield Part("How it does", charts=sections.overview(service, live)["charts"])
        yield _groups(sections.people(service, live), live)
        yield _overrides(connection, live.loop)
        yield _exploring(frozen, looks, audit["deployments"])
        yield from _overlap(connection, live, cohorts)
        yield _cohorts(frozen)
        yield _alarms(connection, live.loop)
        yield _epochs(audit["epochs"])
        yield _seals(connection, live.loop)


# --- what was agreed, and what decided


def _settings(versions: Sequence[Row]) -> Part:
    rows: list[list[Any]] = []
    before: Mapping[str, Any] = {}
    for version in reversed(versions):
        now = version["settings"]
        names = sorted({*now, *before})
        changed = [
            f"{name}: {_plain(now.get(name))}"
            for name in names
            if now.get(name) != before.get(name)
        ]
        rows.append(
            [version["version"], date_of(version["time"]), version["by"], "; ".join(changed)]
        )
        before = now
    return Part(
        "Settings over time",
        ["Of each version what is new in it; what is not said has its default."],
        columns=("version", "since", "by", "what changed"),
        rows=rows,
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _policies(policies: Sequence[Row], filed: Sequence[Row]) -> Part:
    numbers = {row["policy"]: row["number"] for row in filed}
    rows = [
        [
            short(row["policy"]),
            numbers.get(row["policy"], "–"),
            f"{date_of(row['time'])} by {row['by']}",
            short(row["parent"]) if row["parent"] else "–",
            _span(row["cohorts"]) or "no cohort",
            ", ".join(f"no. {each['number']}" for each in row["deployed"]) or "never",
        ]
        for row in reversed(policies)
    ]
    return Part(
        "Policies and where they come from",
        ["A policy's parent is the one that decided when it was learned."],
        columns=("policy", "candidate", "proposed", "parent", "learned from", "deployed"),
        rows=rows,
    )


def _span(names: Sequence[str]) -> str:
    return f"{names[0]} to {names[-1]} ({len(names)})" if len(names) > 2 else ", ".join(names)


def _deployments(deployments: Sequence[Row]) -> Part:
    rows = [
        [
            row["number"],
            row["time"][:10],
            ", ".join(f"{short(digest)} {percent(share)}" for digest, share in row["shares"]),
            row["by"],
            row["evidence"] or "none",
        ]
        for row in reversed(deployments)
    ]
    return Part(
        "What decided, and who said so",
        columns=("number", "since", "policies", "by", "evidence"),
        rows=rows,
    )


# --- evidence


def _looks(connection: Connection, loop: str) -> dict[int, dict[str, Any]]:
    table = schema.evaluation
    rows = schema.rows(connection, select(table).where(table.c.loop == loop))
    return {
        row["number"]: row | {name: json.loads(row[name]) for name in ("cohorts", "checklist")}
        for row in sorted(rows, key=lambda row: int(row["number"]))
    }


def _number(evidence: str) -> int | None:
    """Return the evaluation that a deployment rests on."""
    word, _, number = evidence.partition(":")[0].partition(" ")
    return int(number) if word == "evaluation" and number.isdigit() else None


def _evidence(deployments: Sequence[Row], looks: Mapping[int, Row]) -> Iterator[Part]:
    """Tell what every promotion rests on."""
    for row in reversed(deployments):
        look = looks.get(_number(row["evidence"]) or 0)
        if look is None:
            continue
        share = dict(row["shares"])[look["candidate"]]
        yield Part(
            f"Evidence of deployment {row['number']}",
            [
                f"Candidate {look['candidate_number']} ({short(look['candidate'])}) got "
                f"{percent(share)} of decisions on {date_of(row['time'])}, by {row['by']}, against "
                f"{short(look['against'])}. Evaluation {look['number']} rests on the cohorts "
                f"{_span(look['cohorts'])} and on version {look['version']} of the settings, with "
                f"an error probability of {look['alpha']:.3g}."
            ],
            columns=("requirement", "met", "what was found"),
            rows=[
                [line["name"], "yes" if line["passed"] else "no", line["sentence"]]
                for line in look["checklist"]
            ],
        )


def _candidates(filed: Sequence[Row], looks: Mapping[int, Row]) -> Part:
    last = {look["candidate_number"]: look for look in looks.values()}
    times = Counter(look["candidate_number"] for look in looks.values())
    rows = []
    for row in filed:
        number = row["number"]
        lacked = (
            "; ".join(_lacking(last[number]["checklist"])) or "nothing" if times[number] else "–"
        )
        known = [short(row["policy"]), row["since"], row["state"]]
        rows.append([number, *known, times[number], lacked])
    return Part(
        "All candidates, also those that did not pass",
        ["Each is looked at when a cohort is frozen. The error probabilities of all sum to less "
         "than one minus the confidence, however many there are and however often one looks."],
        columns=("number", "policy", "learned up to", "state", "looks", "lacked at the last look"),
        rows=rows,
    )  # fmt: skip


def _lacking(lines: Sequence[Row]) -> list[str]:
    return [f"{line['name']} ({line['needed']})" for line in lines if not line["passed"]]


# --- people


def _groups(people: Mapping[str, Any], live: Live) -> Part:
    if not people["attribute"]:
        return Part("Rates by group", ["The loop has no sensitive attribute to compare groups by."])
    sentences = [
        f"Groups are by {people['attribute']}, which decides nothing. Groups of fewer than "
        f"{groups.SMALLEST} people are shown only together with others."
    ]
    if (gap := people["gap"]) is not None:
        limit = live.settings.max_gap
        sentences.append(
            f"Over all frozen cohorts acceptance differs by {figure(gap.value)}, at most "
            f"{figure(gap.at_most)} with 95 % confidence; "
            + ("no limit is set." if limit is None else f"the limit is {figure(limit)}.")
        )
    return Part("Rates by group", sentences, people["charts"])


def _overrides(connection: Connection, loop: str) -> Part:
    override, decision = schema.override.c, schema.decision.c
    done = select(override.accepted, override.by, func.count()).where(override.loop == loop)
    rows = connection.execute(done.group_by(override.accepted, override.by)).all()
    drawn = select(decision.accepted, func.count()).where(decision.loop == loop)
    totals: dict[bool, int] = dict(connection.execute(drawn.group_by(decision.accepted)).all())
    shown = [
        [
            "refusal" if accepted else "acceptance",
            by,
            count(number),
            percent(number / totals[not accepted]),
        ]
        for accepted, by, number in sorted(rows, key=lambda row: (not row[0], row[1]))
    ]
    return Part(
        "Overrides",
        ["What was drawn is what counts: an overridden refusal stays a refusal in every figure "
         "here, and an overridden acceptance has no label."],
        columns=("what was overridden", "reported by", "how often", "share of all such decisions"),
        rows=shown,
    )  # fmt: skip


# --- exploring


def _exploring(
    frozen: Sequence[books.Cohort], looks: Mapping[int, Row], deployments: Sequence[Row]
) -> Part:
    by_number: dict[int, list[books.Earned]] = {}
    for cohort in frozen:
        for number, part in cohort.earned.items():
            by_number.setdefault(number, []).append(part)
    rows = []
    for number, parts in sorted(by_number.items()):
        earned = books.Earned.sum(parts)
        assert earned is not None
        low, high = earned.bounds
        known = [figure(earned.mean, 4), f"{figure(low)} to {figure(high)}"]
        rows.append([number, count(earned.people), *known, figure(earned.exploring_costs, 1)])
    sentences = [
        "Exploring costs what people lost who were accepted by chance, below 0 what they brought; "
        "per 1,000 applicants of frozen cohorts."
    ]
    used = {_number(row["evidence"]) for row in deployments}
    proved = [look for number, look in looks.items() if number in used]
    for look in proved:
        line = next(each for each in look["checklist"] if each["name"] == "utility")
        sentences.append(
            f"It proved that candidate {look['candidate_number']} brings "
            f"{figure(line['value'], 4)} more per decision, at least {figure(line['low'], 4)} "
            f"(evaluation {look['number']})."
        )
    if not proved:
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
    log = as_log(cohorts.rows(recent), everybody, missing="against")
    found = overlap(log, floor=live.settings.floor)
    yield Part(
        f"Does the log explore? {found.exploring.capitalize()}",
        [f"The cohorts {_span([row['period'] for row in recent])}.", *found.reasons],
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
    yield Part(
        "What decides now, against what it replaced",
        [f"{short(now.live)} less {short(now.replaced)} on the same cohorts, by the library's "
         f"compare with 95 % intervals: {difference.verdict.partition(';')[0]}."],
        columns=("", "difference", "from", "to"),
        rows=[
            [name, *(figure(each, 4) for each in (found_in.value, found_in.low, found_in.high))]
            for name, found_in in (
                ("utility per applicant", difference.utility),
                ("share accepted", difference.acceptance),
            )
        ],
    )  # fmt: skip


# --- cohorts, alarms and books


def _cohorts(frozen: Sequence[books.Cohort]) -> Part:
    names = ("rows", "missing", "overridden", "repeated", "forgotten")
    return Part(
        "Frozen cohorts, and labels that never came",
        ["In a proof a missing label counts against the candidate, whatever it would have been. "
         "Who applies again within an epoch is left out."],
        columns=("cohort", "version", "decisions", "labels missing", "overridden", "applied again",
                 "forgotten"),
        rows=[
            [cohort.period, cohort.version, *(count(cohort.counts.get(name, 0)) for name in names)]
            for cohort in frozen
        ],
    )  # fmt: skip


def _alarms(connection: Connection, loop: str) -> Part:
    event = schema.event.c
    raised = (event.loop == loop) & event.what.in_(("alarm raised", "alarm ended"))
    rows = schema.rows(connection, select(schema.event).where(raised).order_by(event.id))
    told = [(row["what"], json.loads(row["about"])) for row in rows]
    return Part(
        "Alarms",
        ["Guardrails are looked at whenever a day is closed."],
        columns=("day", "what", "guardrail", "what was found"),
        rows=[[about["date"], what, about["guardrail"], about["sentence"]] for what, about in told],
    )


def _epochs(epochs: Sequence[Row]) -> Part:
    rows = []
    for row in reversed(epochs):
        holds = (
            row["key"] is not None and commitment_of(bytes.fromhex(row["key"])) == row["commitment"]
        )
        state = "not revealed yet" if row["key"] is None else "as promised" if holds else "WRONG"
        rows.append([row["epoch"], row["time"][:10], row["commitment"], state])
    return Part(
        "Epochs of chance",
        ["The hash of an epoch's key is stored before its first decision, and the key is revealed "
         "a day after its end: then everybody can compute every draw."],
        columns=("epoch", "committed on", "commitment", "key"),
        rows=rows,
    )  # fmt: skip


def _seals(connection: Connection, loop: str) -> Part:
    day = schema.day.c
    newest = select(func.max(day.date)).where(day.loop == loop).scalar_subquery()
    last = select(schema.day).where(day.loop == loop, day.date == newest).order_by(day.table)
    n_days = select(func.count(day.date.distinct())).where(day.loop == loop)
    rows = schema.rows(connection, last)
    closed = f", the last of them {rows[0]['date']}" if rows else ""
    return Part(
        "Last seals",
        [f"{count(connection.execute(n_days).scalar_one())} days are closed{closed}. Each seal "
         "covers the rows of its day and the seal of the day before: keep these, and compare them "
         "with the log lines that the operator keeps elsewhere."],
        columns=("table", "seal"),
        rows=[[row["table"], row["seal"]] for row in rows],
    )  # fmt: skip
