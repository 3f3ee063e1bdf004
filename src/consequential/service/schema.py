"""Schema: the tables, whose rows are added and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    UniqueConstraint,
    insert,
    text,
)

from consequential.service.records import new_id, row_digest, stamp

metadata = MetaData()

# times and identifiers are compared as bytes, whatever the database's language
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def _text(name: str, *more: Any, null: bool = False, key: bool = False) -> Column[str]:
    return Column(name, _TEXT, *more, nullable=null, primary_key=key)


def _rows(
    name: str,
    *columns: Any,
    filled_in: tuple[str, ...] = (),
    forgotten: tuple[str, ...] = (),
    schema: str | None = None,
) -> Table:
    """Return a table of rows, of which nothing changes but two kinds of columns.

    Those `filled_in` change once, from null. Those `forgotten`, a value and its salt, change once,
    to null; a digest of them stays. Neither is part of the row's digest.
    """
    return Table(
        name,
        metadata,
        _text("id", key=True),
        _text("loop"),  # empty where it is about the whole service
        _text("time"),
        *columns,
        _text("digest"),
        schema=schema,
        sqlite_with_rowid=False,
        info={
            "filled_in": filled_in,
            "forgotten": forgotten,
            "may_change": frozenset((*filled_in, *forgotten)),
        },
    )


loop = _rows(
    "loop",
    Column("version", Integer, nullable=False),
    _text("settings"),  # JSON, as all that is not a plain value
    _text("by"),
    UniqueConstraint("loop", "version"),
)

policy = _rows(
    "policy",
    _text("policy"),  # its digest
    _text("content"),
    _text("by"),
    _text("parent", null=True),
    _text("cohorts"),
    UniqueConstraint("loop", "policy"),
)

deployment = _rows(
    "deployment",
    Column("number", Integer, nullable=False),
    _text("shares"),
    _text("by"),
    _text("evidence"),
    UniqueConstraint("loop", "number"),
)

epoch = _rows(
    "epoch",
    _text("epoch"),
    _text("start"),
    _text("end"),
    _text("commitment"),
    _text("key", null=True),
    UniqueConstraint("loop", "epoch"),
    filled_in=("key",),
)

decision = _rows(
    "decision",
    _text("application_id"),
    _text("subject_id", null=True),
    Column("version", Integer, nullable=False),  # of the loop's settings
    _text("cohort"),
    _text("epoch"),
    Column("deployment", Integer, nullable=False),
    _text("features", null=True),
    _text("salt", null=True),
    _text("features_digest"),
    Column("amount", Double, nullable=False),
    Column("score", Double, nullable=False),
    Column("propensity", Double, nullable=False),
    Column("u", Double, nullable=False),
    Column("accepted", Boolean, nullable=False),
    # the loop last: with an index that begins with it, SQLite would read all of a loop for a day
    UniqueConstraint("application_id", "loop"),
    Index("decision_subject", "subject_id", "loop", "epoch", "id"),
    forgotten=("features", "salt"),
)

override = _rows(
    "override",
    _text("decision", ForeignKey("decision.id"), null=False),
    Column("accepted", Boolean, nullable=False),
    _text("by"),
    _text("why"),
    UniqueConstraint("decision"),
)

outcome = _rows(
    "outcome",
    _text("event_id"),
    _text("decision", ForeignKey("decision.id"), null=False),
    Column("label", Integer, nullable=True),  # null where it is withdrawn
    _text("happened"),
    _text("corrects", null=True),  # an event id
    _text("by"),
    UniqueConstraint("event_id"),
    Index(
        "outcome_first",
        "decision",
        unique=True,
        sqlite_where=text("corrects is null"),
        postgresql_where=text("corrects is null"),
    ),
    Index("outcome_decision", "decision"),
    Index("outcome_corrects", "corrects"),
)

attribute = _rows(
    "attribute",
    _text("subject_id"),
    _text("attribute"),
    _text("value", null=True),
    _text("salt", null=True),
    _text("value_digest"),
    _text("by"),
    Index("attribute_subject", "subject_id", "attribute"),
    forgotten=("value", "salt"),
    schema="sensitive",
)

cohort = _rows(
    "cohort",
    _text("period"),
    Column("version", Integer, nullable=False),
    _text("file"),
    _text("file_digest"),
    Column("rows", Integer, nullable=False),
    _text("counts"),
    _text("by"),
    UniqueConstraint("loop", "period", "version"),
)

# A candidate is a policy that shall prove itself against the live one. Its proofs rest on cohorts
# after the period `since`; `deployment` was in force when it was filed.
candidate = _rows(
    "candidate",
    Column("number", Integer, nullable=False),
    _text("policy"),
    _text("since"),
    Column("deployment", Integer, nullable=False),
    Column("version", Integer, nullable=False),  # of the loop's settings
    Column("seed", Integer, nullable=True),  # null where a person learned it
    _text("by"),
    UniqueConstraint("loop", "number"),
)

# One look at a candidate: what its proving cohorts, the last of them `cohort`, say of it.
evaluation = _rows(
    "evaluation",
    Column("number", Integer, nullable=False),
    _text("candidate"),  # its policy
    Column("candidate_number", Integer, nullable=False),
    _text("against"),  # the live policy
    _text("cohort"),
    _text("cohorts"),
    Column("alpha", Double, nullable=False),
    Column("version", Integer, nullable=False),
    Column("passed", Boolean, nullable=False),
    _text("checklist"),
    UniqueConstraint("loop", "number"),
    UniqueConstraint("loop", "candidate_number", "cohort", "version"),
)

guardrail = _rows(
    "guardrail",
    _text("date"),
    _text("name"),
    Column("value", Double, nullable=True),
    Column("limit", Double, nullable=True),
    Column("broken", Boolean, nullable=False),
    _text("sentence"),
    UniqueConstraint("loop", "date", "name"),
)

account = _rows(
    "account",
    _text("name"),
    _text("scopes"),
    _text("key_hash"),
    _text("revoked", null=True),
    UniqueConstraint("key_hash"),
    filled_in=("revoked",),
)

event = _rows("event", _text("by"), _text("what"), _text("about"))

SEALED = tuple(metadata.tables.values())  # their rows are sealed when a day is closed

day = Table(
    "day",
    metadata,
    _text("loop", key=True),
    _text("date", key=True),
    _text("table", key=True),
    Column("rows", Integer, nullable=False),
    _text("seal"),
    _text("summary"),
    sqlite_with_rowid=False,
)


def rows(connection: Connection, wanted: Select[Any]) -> list[dict[str, Any]]:
    """Return the rows that a query finds."""
    return [dict(row) for row in connection.execute(wanted).mappings()]


def row(connection: Connection, wanted: Select[Any]) -> dict[str, Any] | None:
    """Return the first row that a query finds, if there is one."""
    found = connection.execute(wanted).mappings().first()
    return None if found is None else dict(found)


def made_row(table: Table, loop: str, time: datetime, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a complete row: with its identifier, time and digest."""
    made = {"id": new_id(time), "loop": loop, "time": stamp(time), **values}
    made["digest"] = row_digest(made, table.info["may_change"])
    return made


def add(
    connection: Connection, table: Table, loop: str, time: datetime, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Insert one row and return it."""
    made = made_row(table, loop, time, values)
    connection.execute(insert(table), made)
    return made


def add_event(
    connection: Connection, loop: str, time: datetime, by: str, what: str, about: str
) -> None:
    """Write down who did what."""
    add(connection, event, loop, time, {"by": by, "what": what, "about": about})
