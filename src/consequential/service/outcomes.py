"""Outcomes: what became of decisions, what was done instead, and people's attributes.

Events come in any order and more than once. An outcome may correct another, also one that has not
arrived yet; the state of a decision depends on the set of its events and not on their order.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, insert, select, text

from consequential.service import schema
from consequential.service.bodies import Attribute, OutcomeBody, Override
from consequential.service.chance import epoch_key, stored_commitment
from consequential.service.database import Store
from consequential.service.deciding import live_at, replayed
from consequential.service.loops import clock, settings_in_force
from consequential.service.problems import Problem
from consequential.service.records import hidden_digest, new_salt, stamp
from consequential.service.settings import NOT_STORED

Row = dict[str, Any]
Item = TypeVar("Item")


def state_of(events: Iterable[Row]) -> Row | None:
    """Return the outcome in force: that which nothing corrects, the latest where there are two.

    Examples
    --------
    >>> from consequential.service.outcomes import state_of
    >>> first = {"event_id": "a", "label": 0, "corrects": None, "happened": "2026-03-01"}
    >>> second = {"event_id": "b", "label": 1, "corrects": "a", "happened": "2026-02-01"}
    >>> state_of([second, first])["label"]
    1
    """
    events = list(events)
    corrected = {event["corrects"] for event in events}
    heads = [event for event in events if event["event_id"] not in corrected]
    return max(heads, key=lambda event: (event["happened"], event["event_id"]), default=None)


def add_outcomes(
    connection: Connection, items: Sequence[OutcomeBody], by: str, time: datetime
) -> int:
    """Store outcomes, all or none; return how many were new."""
    known = _Known(connection, {item.decision_id for item in items}, time)
    known.read_events({name for item in items for name in (item.event_id, item.corrects) if name})
    return _add(connection, schema.outcome, items, lambda item: _outcome(known, item, by))


def add_overrides(
    connection: Connection, items: Sequence[Override], by: str, time: datetime
) -> int:
    """Store overrides, all or none; return how many were new."""
    known = _Known(connection, {item.decision_id for item in items}, time)
    return _add(connection, schema.override, items, lambda item: _override(known, item, by))


def add_attributes(
    connection: Connection, items: Sequence[Attribute], by: str, time: datetime
) -> int:
    """Store attributes in their own database, all or none; return how many were new."""
    table = schema.attribute
    theirs = table.c.subject_id.in_({item.subject_id for item in items})
    stored = select(table.c.subject_id, table.c.attribute, table.c.value).where(theirs)
    rows = connection.execute(stored.order_by(table.c.id)).all()
    last: dict[tuple[str, str], str | None] = {(row[0], row[1]): row[2] for row in rows}
    return _add(connection, table, items, lambda item: _attribute(last, item, by, time))


def _add(
    connection: Connection, table: Table, items: Sequence[Item], made: Callable[[Item], Row | None]
) -> int:
    """Store the rows of what is new; a problem names the item that it is about."""
    rows = []
    for index, item in enumerate(items):
        try:
            rows.append(made(item))
        except Problem as problem:
            problem.extra["index"] = index
            raise
    new = [row for row in rows if row is not None]
    if new:
        connection.execute(insert(table), new)
    return len(new)


class _Known:
    """What is stored about decisions, read at once for a request, which has their events alone."""

    def __init__(self, connection: Connection, decisions: Set[str], time: datetime) -> None:
        if connection.dialect.name != "sqlite":  # which has one writer
            # until the commit: the same events sent at once are looked up one after the other
            connection.execute(text("select pg_advisory_xact_lock(20118)"))
        self._connection, self._ids, self._now = connection, decisions, time
        found = self._rows(schema.decision.c.id.in_(decisions))
        self._decisions = {row["id"]: row for row in found}
        found = self._rows(schema.override.c.decision.in_(decisions))
        self.overrides = {row["decision"]: row for row in found}
        self.settings = settings_in_force(connection)
        self._clocks: dict[str, datetime] = {}
        self.events: dict[str, Row] = {}  # by their ids
        self.events_of: dict[str, list[Row]] = defaultdict(list)  # by decision
        self.corrections: dict[str | None, list[Row]] = defaultdict(list)  # by what they correct

    def _rows(self, condition: Any) -> list[Row]:
        return schema.rows(self._connection, select(condition.left.table).where(condition))

    def read_events(self, names: Set[str]) -> None:
        """Read the events of the decisions, those with these ids, and what corrects them."""
        event = schema.outcome.c
        for condition in (
            event.decision.in_(self._ids),
            event.event_id.in_(names),
            event.corrects.in_(names),
        ):
            for row in self._rows(condition):
                if row["event_id"] not in self.events:
                    self.add_event(row)

    def add_event(self, row: Row) -> None:
        """Take note of an event."""
        self.events[row["event_id"]] = row
        self.events_of[row["decision"]].append(row)
        self.corrections[row["corrects"]].append(row)

    def decision(self, identifier: str) -> Row:
        """Return a decision."""
        if identifier not in self._decisions:
            raise _unknown_decision()
        return self._decisions[identifier]

    def time(self, loop: str) -> datetime:
        """Return what time it is for a loop."""
        if loop not in self._clocks:
            self._clocks[loop] = clock(self._connection, loop, self.settings[loop], self._now)
        return self._clocks[loop]


def _outcome(known: _Known, item: OutcomeBody, by: str) -> Row | None:
    content = {
        "event_id": item.event_id,
        "decision": item.decision_id,
        "label": item.label,
        "happened": stamp(item.happened),
        "corrects": item.corrects,
    }
    stored = known.events.get(item.event_id)
    if stored is not None:
        if all(stored[name] == value for name, value in content.items()):
            return None
        raise Problem("event_differs", 409, "this event id was used for something else")
    decision = known.decision(item.decision_id)
    now = known.time(decision["loop"])
    if known.settings[decision["loop"]].rehearsal:
        now = max(now, item.happened)
    _check_outcome(known, item, decision, now)
    row = schema.made_row(schema.outcome, decision["loop"], now, content | {"by": by})
    known.add_event(row)
    return row


def _check_outcome(known: _Known, item: OutcomeBody, decision: Row, now: datetime) -> None:
    done = known.overrides.get(item.decision_id)
    if not (decision["accepted"] or (done is not None and done["accepted"])):
        raise Problem("refused", 409, "this application was refused: it has no outcome")
    if not decision["time"] <= stamp(item.happened) <= stamp(now):
        raise Problem("time", 422, "an outcome happens after its decision and not in the future")
    linked = list(known.corrections[item.event_id])
    if item.corrects in known.events:
        linked.append(known.events[item.corrects])
    if any(event["decision"] != item.decision_id for event in linked):
        raise Problem("corrects_other", 422, "an event and its correction are about one decision")
    events = {event["event_id"]: event for event in known.events_of[item.decision_id]}
    if item.corrects is None:
        if any(event["corrects"] is None for event in events.values()):
            raise Problem(
                "second_outcome", 409, "the decision has an outcome: say which event this corrects"
            )
        return
    follows: str | None = item.corrects
    while follows is not None and follows != item.event_id:
        follows = events[follows]["corrects"] if follows in events else None
    if follows == item.event_id:
        raise Problem("circular", 422, "these events would correct each other in a circle")


def _override(known: _Known, item: Override, by: str) -> Row | None:
    decision = known.decision(item.decision_id)
    stored = known.overrides.get(item.decision_id)
    if stored is not None:
        if (stored["accepted"], stored["why"]) == (item.accepted, item.why):
            return None
        raise Problem("second_override", 409, "this decision was overridden before, differently")
    if item.accepted == decision["accepted"]:
        raise Problem("no_override", 422, "that is what was decided: there is nothing to override")
    values = {"decision": item.decision_id, "accepted": item.accepted, "by": by, "why": item.why}
    now = known.time(decision["loop"])
    row = schema.made_row(schema.override, decision["loop"], now, values)
    known.overrides[item.decision_id] = row
    return row


def _attribute(
    last: dict[tuple[str, str], str | None], item: Attribute, by: str, time: datetime
) -> Row | None:
    if last.get((item.subject_id, item.attribute)) == item.value:
        return None
    last[item.subject_id, item.attribute] = item.value
    salt = new_salt()
    values = {
        "subject_id": item.subject_id,
        "attribute": item.attribute,
        "value": item.value,
        "salt": salt,
        "value_digest": hidden_digest(salt, item.value),
        "by": by,
    }
    return schema.made_row(schema.attribute, "", time, values)


# --- what is stored


def decision_row(connection: Connection, identifier: str) -> Row:
    """Return a decision."""
    wanted = select(schema.decision).where(schema.decision.c.id == identifier)
    found = schema.row(connection, wanted)
    if found is None:
        raise _unknown_decision()
    return found


def _unknown_decision() -> Problem:
    return Problem("unknown_decision", 404, "there is no such decision")


def override_of(connection: Connection, decision: str) -> Row | None:
    """Return what was really done with a decision, where that was reported."""
    wanted = select(schema.override).where(schema.override.c.decision == decision)
    return schema.row(connection, wanted)


def outcomes_of(connection: Connection, decision: str) -> list[Row]:
    """Return all events of a decision."""
    wanted = select(schema.outcome).where(schema.outcome.c.decision == decision)
    return schema.rows(connection, wanted)


# --- all that is known of one decision


def decision_document(store: Store, id: str) -> dict[str, Any]:
    """Return a decision with its reasons, outcome and override."""
    with store.read() as connection:
        row = decision_row(connection, id)
        live = live_at(connection, row["loop"], row["version"], row["deployment"])
        commitment = stored_commitment(connection, row["loop"], row["epoch"])
        events = outcomes_of(connection, row["id"])
        override = override_of(connection, row["id"])
    features = None if row["features"] is None else json.loads(row["features"])
    told = live.answer_again(row, commitment)
    state = {"outcome": state_of(events), "events": events, "override": override}
    return {**row, "salt": None, **told, "features": features, **state}


def replay_document(store: Store, id: str, secret: bytes) -> dict[str, Any]:
    """Return what was logged of a decision, and what comes out when it is computed again."""
    with store.read() as connection:
        row = decision_row(connection, id)
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
