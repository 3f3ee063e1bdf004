"""Candidates: policies that wait to be proven against the live one, and what became of them.

The live policy is the one with the largest share. When it changes, everything that waits has ended:
what it was compared with is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Table, func, select

from consequential.service import schema
from consequential.service.problems import Problem

State = Literal["waiting", "live", "ended", "withdrawn"]
Shares = Mapping[str, float]
Row = dict[str, Any]

NO_COHORTS = "none"  # is written by somebody who learned from no cohort
ROLL_BACK, SMALLER = "roll back", "smaller shares of candidates"  # deployments without a rise
WITHOUT_EVIDENCE = "without evidence"
_WITHDRAWN = "candidate withdrawn"


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a loop decides with: its last deployment, 0 without one.

    Attributes
    ----------
    number, shares, by, evidence, date
        Of the last deployment.
    live, since, live_date
        The policy with the largest share, and the deployment since which it is the live one.
    replaced
        The live policy before it.
    before
        The shares that can be rolled back to: those of earlier deployments, the last at the end,
        without those that were rolled back from.
    """

    number: int = 0
    shares: Shares = field(default_factory=dict)
    by: str = ""
    evidence: str = ""
    date: str = ""
    live: str | None = None
    since: int = 0
    live_date: str = ""
    replaced: str | None = None
    before: tuple[Shares, ...] = ()


def deployed(connection: Connection, loop: str) -> Deployed:
    """Return what a loop decides with."""
    table = schema.deployment
    rows = schema.rows(connection, select(table).where(table.c.loop == loop))
    found = Deployed()
    for row in sorted(rows, key=lambda each: int(each["number"])):
        date, shares, before = row["time"][:10], json.loads(row["shares"]), found.before
        if row["evidence"].startswith((ROLL_BACK, SMALLER)):
            before = _undone(before, shares)
        elif found.number:
            before = (*before, found.shares)
        last = {name: row[name] for name in ("number", "by", "evidence")}
        last |= {"shares": shares, "date": date}
        if found.live is None or shares.get(found.live, 0.0) < max(shares.values()):
            live = max(shares, key=shares.__getitem__)
            last |= {"live": live, "since": row["number"], "live_date": date}
            last["replaced"] = found.live
        found = replace(found, **last, before=before)
    return found


def _undone(before: tuple[Shares, ...], shares: Shares) -> tuple[Shares, ...]:
    """Return what was deployed before some shares, the last time that they were."""
    there = [k for k, each in enumerate(before) if dict(each) == dict(shares)]
    return before[: there[-1]] if there else before


# --- filing


def last_learned(
    connection: Connection, loop: str, cohorts: Sequence[str] | None, now: str, *, by_worker: bool
) -> str:
    """Return the last period that a policy may have been learned from, at most the present one.

    The worker learns from the cohorts that it names. A person may have looked at all that are
    frozen, whatever they name, and who names none may have looked at everything up to now.
    """
    table = schema.cohort.c
    asked = select(table.period, table.version).where(table.loop == loop)
    frozen: dict[str, str] = {}  # periods by the names of their cohorts
    for period, version in connection.execute(asked):
        frozen |= {period: period, f"{period}-{version}": period}
    if cohorts is None and frozen:
        raise Problem(
            "cohorts", 422,
            "say which frozen cohorts the policy was learned from, with names such as "
            f"{max(frozen.values())}, or write cohorts={NO_COHORTS}: it is proven on later ones",
        )  # fmt: skip
    if not cohorts or list(cohorts) == [NO_COHORTS]:
        return now
    for name in cohorts:
        if name not in frozen:
            raise Problem(
                "cohorts", 422,
                f"{name!r} is no frozen cohort of this loop: name frozen ones, "
                f"or write cohorts={NO_COHORTS}",
            )  # fmt: skip
    return max(frozen[name] for name in cohorts) if by_worker else max(frozen.values())


def file_candidate(
    connection: Connection,
    loop: str,
    policy: str,
    time: datetime,
    *,
    since: str,
    version: int,
    by: str,
    seed: int | None = None,
) -> int:
    """Let a policy wait for its proof, against what decides now; return its number.

    A policy that waits already keeps its number, and without a live policy there is nothing to
    prove: then the number is 0. What a policy may have been learned from once stays so.
    """
    now = deployed(connection, loop)
    known = candidates(connection, loop)
    same = [row for row in known if row["policy"] == policy and row["state"] == "waiting"]
    if same or now.live in (None, policy):
        return int(same[0]["number"]) if same else 0
    number = max((row["number"] for row in known), default=0) + 1
    since = max([since, *(row["since"] for row in known if row["policy"] == policy)])
    values = {"number": number, "policy": policy, "since": since, "deployment": now.number}
    values |= {"version": version, "seed": seed, "by": by}
    schema.add(connection, schema.candidate, loop, time, values)
    return number


def withdraw(connection: Connection, loop: str, number: int, by: str, time: datetime) -> None:
    """Let a candidate wait no longer."""
    state = one_candidate(connection, loop, str(number))["state"]
    if state != "waiting":
        raise Problem("candidate_ended", 409, f"the candidate is {state}")
    schema.add_event(connection, loop, time, by, _WITHDRAWN, str(number))


# --- what became of them


def candidates(connection: Connection, loop: str) -> list[dict[str, Any]]:
    """Return all candidates in order, each with its `state`."""
    table, event = schema.candidate, schema.event.c
    told = select(event.about).where(event.loop == loop, event.what == _WITHDRAWN)
    withdrawn = set(connection.execute(told).scalars())
    now = deployed(connection, loop)
    rows = schema.rows(
        connection, select(table).where(table.c.loop == loop).order_by(table.c.number)
    )
    return [row | {"state": _state(row, now, withdrawn)} for row in rows]


def one_candidate(connection: Connection, loop: str, number: str) -> dict[str, Any]:
    """Return one of them."""
    for row in candidates(connection, loop):
        if str(row["number"]) == number:
            return row
    raise Problem("unknown_candidate", 404, f"the loop has no candidate {number}")


def _state(row: Mapping[str, Any], now: Deployed, withdrawn: set[str]) -> State:
    if str(row["number"]) in withdrawn:
        return "withdrawn"
    if row["deployment"] >= now.since:
        return "waiting"
    # it may have been the one that ended the others
    return "live" if row["policy"] == now.live else "ended"


def newest_evaluation(connection: Connection, loop: str, candidate: int) -> dict[str, Any] | None:
    """Return the last look at a candidate, if there was one."""
    table = schema.evaluation
    own = (table.c.loop == loop) & (table.c.candidate_number == candidate)
    return schema.row(connection, select(table).where(own).order_by(table.c.number.desc()).limit(1))


def settings_version(connection: Connection, loop: str) -> int:
    """Return the version of the settings in force."""
    table = schema.loop
    last = select(func.max(table.c.version)).where(table.c.loop == loop)
    return int(connection.execute(last).scalar_one())


# --- all of it


@dataclass(frozen=True, slots=True)
class History:
    """Rows of a loop in order, with their JSON as values; candidates have a `state`."""

    policies: list[Row]
    deployments: list[Row]
    candidates: list[Row]
    looks: dict[int, Row]  # evaluations by number
    version: int  # of the settings in force

    @classmethod
    def of(cls, connection: Connection, loop: str) -> History:
        """Read all of it."""
        looks = _rows(connection, schema.evaluation, loop, "cohorts", "checklist")
        return cls(
            _rows(connection, schema.policy, loop, "cohorts"),
            _rows(connection, schema.deployment, loop, "shares"),
            candidates(connection, loop),
            {row["number"]: row for row in looks},
            settings_version(connection, loop),
        )

    def looks_at(self, candidate: int) -> list[Row]:
        """Return the evaluations of a candidate."""
        return [look for look in self.looks.values() if look["candidate_number"] == candidate]

    def is_proven(self, candidate: Row) -> bool:
        """Whether a candidate waits and has passed under the settings in force."""
        looks = self.looks_at(candidate["number"])
        last = looks[-1] if looks else {"passed": False}
        waits = candidate["state"] == "waiting"
        return bool(waits and last["passed"] and last["version"] == self.version)

    def evidence(self, deployment: Row) -> Row | None:
        """Return the evaluation that a deployment rests on."""
        told = re.match(r"evaluation (\d+)(:|$)", deployment["evidence"])
        return self.looks.get(int(told[1])) if told else None

    def is_unproven(self, deployment: Row) -> bool:
        """Whether an administrator deployed it without evidence, or what was rolled back to."""
        earlier = self.deployments[: deployment["number"] - 1]
        if earlier and deployment["evidence"].startswith((ROLL_BACK, SMALLER)):
            same = [row for row in earlier if row["shares"] == deployment["shares"]]
            return self.is_unproven((same or earlier)[-1])
        return bool(deployment["evidence"].startswith(WITHOUT_EVIDENCE))

    def proofs(self) -> list[tuple[Row, Row]]:
        """Return the deployments that rest on an evaluation, each with it, the newest first."""
        found = ((row, self.evidence(row)) for row in reversed(self.deployments))
        return [(row, look) for row, look in found if look is not None]


def line_of(look: Row, name: str) -> Row | None:
    """Return a line of the checklist of an evaluation."""
    return next((line for line in look["checklist"] if line["name"] == name), None)


def _rows(connection: Connection, table: Table, loop: str, *json_columns: str) -> list[Row]:
    order = table.c.number if "number" in table.c else table.c.id
    columns = [column for column in table.c if column.name != "content"]
    found = schema.rows(connection, select(*columns).where(table.c.loop == loop).order_by(order))
    return [row | {name: json.loads(row[name]) for name in json_columns} for row in found]
