"""History: one decision with all that is known of it, and the records that an auditor reads."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

from sqlalchemy import Connection, select

from consequential.service import lookups, schema
from consequential.service.closing import last_closed
from consequential.service.deciding import Live
from consequential.service.settings import NOT_STORED
from consequential.service.state import Service
from consequential.service.verify import verify_day

LISTED = 50  # rows of a list
_SEALS = 10

Context = dict[str, Any]


def decision(service: Service, live: Live, asked: str, *, replay: bool) -> Context:
    """Return all about one decision, found by its id or its application's."""
    found = lookups.decision_id(service.store, live.loop, asked) if asked else None
    if found is None:
        return {"row": None, "replay": None}
    again = lookups.replay_document(service.store, found, service.settings.secret)
    return {
        "row": lookups.decision_document(service.store, found),
        "replay": again if replay else None,
    }


def audit(service: Service, live: Live, before: str, verify: str) -> Context:
    """Return who did what, where policies come from, and what keeps the books honest."""
    event, epoch, day = schema.event.c, schema.epoch.c, schema.day.c
    with service.store.read() as connection:
        ours = select(schema.event).where(event.loop.in_([live.loop, ""]))
        if not NOT_STORED.search(before) and before:
            ours = ours.where(event.id < before)
        events = schema.rows(connection, ours.order_by(event.id.desc()).limit(LISTED + 1))
        epochs = select(schema.epoch).where(epoch.loop == live.loop)
        newest = schema.rows(connection, epochs.order_by(epoch.start.desc()).limit(LISTED))
        sealed = select(schema.day).where(day.loop == live.loop, day.table == "decision")
        seals = schema.rows(connection, sealed.order_by(day.date.desc()).limit(_SEALS))
        deployments = deployments_of(connection, live.loop)
        policies = policies_of(connection, live.loop, deployments)
        closed = last_closed(connection, live.loop)
    findings = None
    day_asked = _day(verify)
    if day_asked and day_asked <= closed:
        found = verify_day(service.store, live.loop, day_asked, service.settings.secret)
        findings = [str(each) for each in found][:LISTED]
    return {
        "events": events[:LISTED],
        "older": events[LISTED - 1]["id"] if len(events) > LISTED else None,
        "epochs": newest,
        "seals": seals,
        "policies": policies,
        "deployments": deployments[::-1],
        "closed": closed,
        "verify": day_asked or verify,
        "is_open": day_asked > closed,
        "findings": findings,
    }


def _day(text: str) -> str:
    """Return a day as it is stored; nothing if the text is none."""
    try:
        return str(date.fromisoformat(text))
    except ValueError:
        return ""


def deployments_of(connection: Connection, loop: str) -> list[dict[str, Any]]:
    """Return all deployments in order, with the lines of the checklist that allowed them."""
    table, look = schema.deployment, schema.evaluation
    wanted = select(table).where(table.c.loop == loop).order_by(table.c.number)
    found = []
    for row in schema.rows(connection, wanted):
        shares = sorted(json.loads(row["shares"]).items(), key=lambda each: -each[1])
        lines = []
        if told := re.match(r"evaluation (\d+)(:|$)", row["evidence"]):
            own = (look.c.loop == loop) & (look.c.number == int(told[1]))
            seen = select(look.c.checklist).where(own)
            lines = json.loads(connection.execute(seen).scalar() or "[]")
        found.append(row | {"shares": shares, "lines": lines})
    return found


def policies_of(
    connection: Connection, loop: str, deployments: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return policies, the newest first, with the deployments that they were part of."""
    table = schema.policy
    columns = [column for column in table.c if column.name != "content"]
    wanted = select(*columns).where(table.c.loop == loop).order_by(table.c.id.desc())
    return [
        row
        | {
            "cohorts": json.loads(row["cohorts"]),
            "deployed": [each for each in deployments if row["policy"] in dict(each["shares"])],
        }
        for row in schema.rows(connection, wanted.limit(LISTED))
    ]
