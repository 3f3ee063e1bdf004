"""Outcomes: what became of decisions, what was done instead, and people's attributes.

Events come in any order and more than once. An outcome may correct another, also one that has not
arrived yet; the state of a decision depends on the set of its events and not on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, select, text

from consequential.service import schema
from consequential.service.bodies import Attribute, Outcome, Override
from consequential.service.loops import clock, settings_in_force
from consequential.service.problems import Problem
from consequential.service.records import hidden_digest, new_salt, stamp

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


def add_outcomes(connection: Connection, items: Sequence[Outcome], by: str, time: datetime) -> int:
    """Store outcomes, all or none; return how many were new."""
    clocks = _Clocks(connection, time)
    return _each(items, lambda item: _add_outcome(connection, item, by, clocks))


def add_overrides(
    connection: Connection, items: Sequence[Override], by: str, time: datetime
) -> int:
    """Store overrides, all or none; return how many were new."""
    clocks = _Clocks(connection, time)
    return _each(items, lambda item: _add_override(connection, item, by, clocks))


def add_attributes(
    connection: Connection, items: Sequence[Attribute], by: str, time: datetime
) -> int:
    """Store attributes in their own database, all or none; return how many were new."""
    return _each(items, lambda item: _add_attribute(connection, item, by, time))


class _Clocks:
    """What time it is for each loop, during one request, which has the events to itself."""

    def __init__(self, connection: Connection, time: datetime) -> None:
        if connection.dialect.name != "sqlite":  # which has one writer
            # until the commit: the same events sent at once are looked up one after the other
            connection.execute(text("select pg_advisory_xact_lock(20118)"))
        self.connection, self.now = connection, time
        self.settings = settings_in_force(connection)

    def time(self, loop: str) -> datetime:
        return clock(self.connection, loop, self.settings[loop], self.now)


def _each(items: Sequence[Item], add: Callable[[Item], bool]) -> int:
    """Add items; a problem names the one it is about."""
    new = 0
    for index, item in enumerate(items):
        try:
            new += add(item)
        except Problem as problem:
            problem.extra["index"] = index
            raise
    return new


def _add_outcome(connection: Connection, item: Outcome, by: str, clocks: _Clocks) -> bool:
    content = {
        "event_id": item.event_id,
        "decision": item.decision_id,
        "label": item.label,
        "happened": stamp(item.happened),
        "corrects": item.corrects,
    }
    stored = _one(connection, schema.outcome.c.event_id == item.event_id)
    if stored is not None:
        if all(stored[name] == value for name, value in content.items()):
            return False
        raise Problem("event_differs", 409, "this event id was used for something else")
    decision = decision_row(connection, item.decision_id)
    now = clocks.time(decision["loop"])
    if clocks.settings[decision["loop"]].rehearsal:
        now = max(now, item.happened)
    _check_outcome(connection, item, decision, now)
    schema.add(connection, schema.outcome, decision["loop"], now, content | {"by": by})
    return True


def _check_outcome(connection: Connection, item: Outcome, decision: Row, now: datetime) -> None:
    done = override_of(connection, item.decision_id)
    if not (decision["accepted"] or (done is not None and done["accepted"])):
        raise Problem("refused", 409, "this application was refused: it has no outcome")
    if not decision["time"] <= stamp(item.happened) <= stamp(now):
        raise Problem("time", 422, "an outcome happens after its decision and not in the future")
    linked = schema.outcome.c.corrects == item.event_id
    if item.corrects is not None:
        linked |= schema.outcome.c.event_id == item.corrects
    if _one(connection, linked & (schema.outcome.c.decision != item.decision_id)) is not None:
        raise Problem("corrects_other", 422, "an event and its correction are about one decision")
    events = {event["event_id"]: event for event in outcomes_of(connection, item.decision_id)}
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


def _add_override(connection: Connection, item: Override, by: str, clocks: _Clocks) -> bool:
    decision = decision_row(connection, item.decision_id)
    stored = override_of(connection, item.decision_id)
    if stored is not None:
        if (stored["accepted"], stored["why"]) == (item.accepted, item.why):
            return False
        raise Problem("second_override", 409, "this decision was overridden before, differently")
    if item.accepted == decision["accepted"]:
        raise Problem("no_override", 422, "that is what was decided: there is nothing to override")
    values = {"decision": item.decision_id, "accepted": item.accepted, "by": by, "why": item.why}
    now = clocks.time(decision["loop"])
    schema.add(connection, schema.override, decision["loop"], now, values)
    return True


def _add_attribute(connection: Connection, item: Attribute, by: str, time: datetime) -> bool:
    table = schema.attribute
    theirs = select(table.c.value).where(
        table.c.subject_id == item.subject_id, table.c.attribute == item.attribute
    )
    last = connection.execute(theirs.order_by(table.c.id.desc()).limit(1)).scalar()
    if last == item.value:
        return False
    salt = new_salt()
    values = {
        "subject_id": item.subject_id,
        "attribute": item.attribute,
        "value": item.value,
        "salt": salt,
        "value_digest": hidden_digest(salt, item.value),
        "by": by,
    }
    schema.add(connection, table, "", time, values)
    return True


# --- what is stored


def decision_row(connection: Connection, identifier: str) -> Row:
    """Return a decision."""
    wanted = select(schema.decision).where(schema.decision.c.id == identifier)
    found = schema.row(connection, wanted)
    if found is None:
        raise Problem("unknown_decision", 404, "there is no such decision")
    return found


def override_of(connection: Connection, decision: str) -> Row | None:
    """Return what was really done with a decision, where that was reported."""
    wanted = select(schema.override).where(schema.override.c.decision == decision)
    return schema.row(connection, wanted)


def outcomes_of(connection: Connection, decision: str) -> list[Row]:
    """Return all events of a decision."""
    wanted = select(schema.outcome).where(schema.outcome.c.decision == decision)
    return schema.rows(connection, wanted)


def _one(connection: Connection, condition: Any) -> Row | None:
    return schema.row(connection, select(schema.outcome).where(condition))
