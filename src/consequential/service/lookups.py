"""Lookups: everything that is known of one decision, and the decision computed again."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import select

from consequential.service import outcomes, schema
from consequential.service.chance import epoch_key, stored_commitment
from consequential.service.database import Store
from consequential.service.deciding import live_at, replayed
from consequential.service.settings import NOT_STORED


def decision_document(store: Store, id: str) -> dict[str, Any]:
    """Return a decision with its reasons, outcome and override."""
    with store.read() as connection:
        row = outcomes.decision_row(connection, id)
        live = live_at(connection, row["loop"], row["version"], row["deployment"])
        commitment = stored_commitment(connection, row["loop"], row["epoch"])
        events = outcomes.outcomes_of(connection, row["id"])
        override = outcomes.override_of(connection, row["id"])
    features = None if row["features"] is None else json.loads(row["features"])
    told = live.answer_again(row, commitment)
    state = {"outcome": outcomes.state_of(events), "events": events, "override": override}
    return {**row, "salt": None, **told, "features": features, **state}


def replay_document(store: Store, id: str, secret: bytes) -> dict[str, Any]:
    """Return what was logged of a decision, and what comes out when it is computed again."""
    with store.read() as connection:
        row = outcomes.decision_row(connection, id)
        live = live_at(connection, row["loop"], row["version"], row["deployment"])
    again = replayed(live, [row], epoch_key(secret, row["loop"], row["epoch"]))[0]
    logged = {name: row[name] for name in ("u", "propensity", "accepted")}
    now_is = {"u": again.u, "propensity": again.propensity, "accepted": again.accepted}
    return {"id": id, "agrees": again.agrees, "logged": logged, "replayed": now_is}


def decision_id(store: Store, loop: str, name: str) -> str | None:
    """Return the id of a loop's decision from its id or from that of the application."""
    if NOT_STORED.search(name):
        return None
    table = schema.decision.c
    with store.read() as connection:
        for column in (table.id, table.application_id):
            wanted = select(table.id).where(table.loop == loop, column == name)
            found: str | None = connection.execute(wanted).scalar()
            if found is not None:
                return found
    return None
