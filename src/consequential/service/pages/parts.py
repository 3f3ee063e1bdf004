"""Parts: what pages and the report say alike, each a heading, sentences, charts and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from sqlalchemy import Connection, func, select

from consequential.service import schema
from consequential.service.candidates import WITHOUT_EVIDENCE, History, Row
from consequential.service.chance import commitment_of
from consequential.service.deciding import Live
from consequential.service.gate import FEWEST
from consequential.service.pages import books, charts, groups
from consequential.service.pages.rendering import (
    count,
    date,
    minute,
    percent,
    points,
    shares,
    short,
)

LISTED = 50  # rows of a list, the newest
_NONE = "–"
_CODE = Markup("<code>{}</code>")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page or of the report."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[charts.Chart] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()


def span(names: Sequence[str]) -> str:
    """Return the periods of cohorts with their versions, of many only the first and the last.

    Examples
    --------
    >>> from consequential.service.pages.parts import span
    >>> print(span(["2026-12-1", "2027-01-1", "2027-02-2"]))
    2026-12 (version 1) to 2027-02 (version 2), 3 cohorts
    """
    told = ["{} (version {})".format(*name.rsplit("-", 1)) for name in names]
    return f"{told[0]} to {told[-1]}, {len(told)} cohorts" if len(told) > 2 else ", ".join(told)


# --- what decided


def policies(history: History) -> Part:
    """Where policies come from."""
    numbers = {row["policy"]: row["number"] for row in history.candidates}
    deployed: dict[str, list[str]] = {}
    for row in history.deployments:
        for digest in row["shares"]:
            deployed.setdefault(digest, []).append(f"no. {row['number']}")
    return Part(
        "Policies and where they come from",
        ["A policy's parent is the one that decided when it was learned."],
        columns=("policy", "candidate", "proposed", "parent", "learned from", "deployed"),
        rows=[
            [
                short(row["policy"]),
                numbers.get(row["policy"], _NONE),
                f"{date(row['time'])} by {row['by']}",
                short(row["parent"]) if row["parent"] else _NONE,
                span(row["cohorts"]) or "no cohort of this loop",
                ", ".join(deployed.get(row["policy"], ["never"])),
            ]
            for row in history.policies[: -LISTED - 1 : -1]
        ],
    )


def deployments(history: History) -> Part:
    """Who let what decide."""
    return Part(
        "What decided, and who said so",
        columns=("number", "since", "policies", "by", "evidence"),
        rows=[
            [
                row["number"],
                minute(row["time"]),
                shares(row["shares"]),
                row["by"],
                _evidence(row, history),
            ]
            for row in reversed(history.deployments)
        ],
    )


def _evidence(row: Row, history: History) -> str:
    told: str = row["evidence"] or "none"
    if not history.is_unproven(row):
        return told
    mark = Markup('<strong class="mark">{}</strong>')
    if told.startswith(WITHOUT_EVIDENCE):
        return mark.format(told)
    return Markup("{} {}").format(told, mark.format(WITHOUT_EVIDENCE))


def evidence(history: History) -> Iterator[Part]:
    """What every promotion rests on."""
    said = Markup(
        "Candidate {} ({}) got {} of decisions on {}, by {}, against {}. Evaluation {} rests on "
        "the cohorts {} and on version {} of the settings, with an error probability of {:.3g}."
    )
    for row, look in history.proofs():
        yield Part(
            f"Evidence of deployment {row['number']}",
            [
                said.format(
                    look["candidate_number"], short(look["candidate"]),
                    percent(row["shares"][look["candidate"]]), date(row["time"]), row["by"],
                    short(look["against"]), look["number"], span(look["cohorts"]),
                    look["version"], look["alpha"],
                )
            ],
            columns=("requirement", "met", "what was found"),
            rows=[
                [line["name"], "yes" if line["passed"] else "no", line["sentence"]]
                for line in look["checklist"]
            ],
        )  # fmt: skip


def candidates(title: str, filed: Sequence[Row], history: History) -> Part:
    """What became of candidates, also of those that did not pass."""
    rows = []
    for row in reversed(filed):
        looks = history.looks_at(row["number"])
        lines = [line for line in looks[-1]["checklist"] if not line["passed"]] if looks else []
        lacked = "; ".join(f"{line['name']} ({line['needed']})" for line in lines)
        known = [short(row["policy"]), f"{date(row['time'])} by {row['by']}", row["since"]]
        lacked = lacked or ("nothing" if looks else _NONE)
        rows.append([row["number"], *known, row["state"], len(looks), lacked])
    return Part(
        title,
        ["Each is looked at when a cohort is frozen. The error probabilities of all sum to less "
         "than one minus the confidence, however many there are and however often one looks."],
        columns=("number", "policy", "filed", "learned up to", "state", "looks",
                 "lacked at the last look"),
        rows=rows,
    )  # fmt: skip


# --- people and cohorts


def people(cohorts: Sequence[books.Cohort], live: Live) -> Part:
    """Acceptance by group."""
    attribute, title = live.settings.sensitive, "Rates by group"
    if not attribute:
        return Part(title, ["The loop has no sensitive attribute to compare groups by."])
    shown = books.shown_rates(cohorts)
    together, limit = groups.summed(shown), max_gap(live)
    sentences = [
        f"Groups are by the attribute {attribute}, which decides nothing. Groups of fewer than "
        f"{FEWEST} people are shown only together with others, so that nobody can be told apart; "
        f"unknown are people whose {attribute} was not reported."
    ]
    if (gap := groups.Gap.of(together)) is not None:
        sentences.append(
            f"Over {len(cohorts)} frozen cohorts acceptance differs by {points(gap.value)} "
            f"percentage points, at most {points(gap.at_most)} with 95 % confidence; "
            + ("no limit is set." if limit is None else f"the limit is {points(limit)}.")
        )
    found = []
    if together:
        found.append(charts.rates(together))
    if labelled := [rate.success for rate in together if rate.success is not None]:
        found.append(charts.successes(labelled))
    if gaps := {name: gap for name, rates in shown.items() if (gap := groups.Gap.of(rates))}:
        found.append(charts.gaps(gaps, limit))
    rows = [
        [period, rate.group, count(rate.people), *charts.in_percent(rate)]
        for period, rates in reversed(shown.items())
        for rate in rates
    ]
    columns = ("cohort", "group", "people", "accepted", "from", "to")
    return Part(title, sentences, found, columns, rows)


def max_gap(live: Live) -> float | None:
    """Return the limit of the gap, where that is one of acceptance."""
    return live.settings.max_gap if live.settings.fairness == "demographic_parity" else None


def cohorts(frozen: Sequence[books.Cohort]) -> Part:
    """What cohorts have in them."""
    names = ("rows", "missing", "overridden", "repeated", "forgotten")
    return Part(
        "Frozen cohorts, and labels that never came",
        ["In a proof a missing label counts against the candidate, whatever it would have been. "
         "Who applies again within an epoch is left out."],
        columns=("cohort", "version", "decisions", "labels missing", "overridden", "applied again",
                 "forgotten"),
        rows=[
            [cohort.period, cohort.version, *(count(cohort.counts.get(name, 0)) for name in names)]
            for cohort in reversed(frozen)
        ],
    )  # fmt: skip


# --- books


def epochs(connection: Connection, loop: str) -> Part:
    """What chance was committed to."""
    epoch = schema.epoch.c
    newest = select(schema.epoch).where(epoch.loop == loop).order_by(epoch.start.desc())
    rows = []
    for row in schema.rows(connection, newest.limit(LISTED)):
        key, known = row["key"], Markup("not yet revealed")
        if key is not None:
            holds = commitment_of(bytes.fromhex(key)) == row["commitment"]
            known = _CODE.format(key) + (", as promised" if holds else ", WRONG")
        days = [row[name][:10] for name in ("start", "end")]
        rows.append([row["epoch"], *days, _CODE.format(row["commitment"]), known])
    return Part(
        "Epochs of chance",
        ["The commitment, the hash of an epoch's key, is stored before its first decision. The "
         "key, which every draw can be computed from, is revealed a day after its end."],
        columns=("epoch", "from", "until", "commitment", "key"),
        rows=rows,
    )  # fmt: skip


def seals(connection: Connection, loop: str) -> Part:
    """What the books were closed with last."""
    day = schema.day.c
    newest = select(func.max(day.date)).where(day.loop == loop).scalar_subquery()
    last = select(schema.day).where(day.loop == loop, day.date == newest).order_by(day.table)
    n_days = select(func.count(day.date.distinct())).where(day.loop == loop)
    rows = schema.rows(connection, last)
    closed = f", the last of them {date(rows[0]['date'])}" if rows else ""
    return Part(
        "Last seals",
        [f"{count(connection.execute(n_days).scalar_one())} days are closed{closed}. Each seal "
         "covers the rows of its day and the seal of the day before: keep these, and compare them "
         "with the log lines that the operator keeps elsewhere."],
        columns=("table", "rows of the day", "seal"),
        rows=[[row["table"], count(row["rows"]), _CODE.format(row["seal"])] for row in rows],
    )  # fmt: skip
