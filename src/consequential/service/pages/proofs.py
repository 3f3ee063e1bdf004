"""Proofs: what waits to be approved, what was found out about it, and what it bought."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from math import nan
from typing import Any

from sqlalchemy import Connection, select

from consequential.service import candidates as queue
from consequential.service import schema
from consequential.service.approval import WITHOUT_EVIDENCE
from consequential.service.candidates import deployed, settings_version
from consequential.service.deciding import Live
from consequential.service.pages import charts
from consequential.service.pages.history import LISTED, deployments_of, policies_of
from consequential.service.state import Service

Context = dict[str, Any]


def candidates(service: Service, live: Live, name: str) -> Context:
    """Return what waits to be approved, with its proof, and what became of the others."""
    table = schema.evaluation
    with service.store.read() as connection:
        now = deployed(connection, live.loop)
        version = settings_version(connection, live.loop)
        rows = queue.candidates(connection, live.loop)[::-1][:LISTED]
        wanted = select(table).where(table.c.loop == live.loop).order_by(table.c.number)
        looks: dict[int, list[Any]] = defaultdict(list)
        for look in schema.rows(connection, wanted):
            looks[look["candidate_number"]].append(look)
        policies = {row["policy"]: row for row in policies_of(connection, live.loop, [])}
        deployments = deployments_of(connection, live.loop)
    shown = []
    for row in rows:
        seen = looks[row["number"]]
        policy = policies.get(row["policy"], {"cohorts": [], "by": row["by"]})
        more = {"seen": seen[-1] if seen else None, "is_own": policy["by"] == name}
        if seen and row["state"] == "waiting":
            more["is_proven"] = seen[-1]["passed"] and seen[-1]["version"] == version
            more["lines"] = json.loads(seen[-1]["checklist"])
            more["proving"] = json.loads(seen[-1]["cohorts"])
            more["chart"] = charts.gain(_gains(seen), live.settings.gate.margin)
        shown.append({"is_proven": False, "learned": policy["cohorts"]} | row | more)
    return {
        "now": now,
        "without_evidence": bool(deployments)
        and deployments[-1]["evidence"].startswith(WITHOUT_EVIDENCE),
        "waiting": sorted(
            (row for row in shown if row["state"] == "waiting"),
            key=lambda row: not row["is_proven"],
        ),
        "earlier": [row for row in shown if row["state"] != "waiting"],
    }


def _gains(looks: list[Any]) -> list[charts.Point]:
    lines = [(look["cohort"], _named(json.loads(look["checklist"]), "utility")) for look in looks]
    numbers = ("value", "low", "high")
    return [
        (cohort.rpartition("-")[0], *(nan if line[n] is None else line[n] for n in numbers))
        for cohort, line in lines
        if line is not None
    ]


def _named(lines: Sequence[Context], name: str) -> Context | None:
    return next((each for each in lines if each["name"] == name), None)


def last_proof(deployments: list[dict[str, Any]]) -> Context | None:
    """Return the line on utility that the last promotion by evidence rested on."""
    proven = [each["lines"] for each in deployments if each["lines"]]
    return _named(proven[-1], "utility") if proven else None


def authors_of_proven(connection: Connection, loop: str) -> list[str]:
    """Return the authors of candidates that have passed and wait for a second person."""
    version = settings_version(connection, loop)
    found = []
    for row in queue.candidates(connection, loop):
        if row["state"] == "waiting":
            seen = queue.newest_evaluation(connection, loop, row["number"])
            if seen is not None and seen["passed"] and seen["version"] == version:
                found.append(row["by"])
    return found
