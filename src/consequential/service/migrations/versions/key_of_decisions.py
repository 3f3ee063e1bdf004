"""The key of decisions begins with the application.

With a key that begins with the loop, SQLite would read all of a loop to find the rows of a day.
"""

from __future__ import annotations

from collections.abc import Iterator

from alembic import context, op

from consequential.service.migrations.rows import sqlite_rules, sqlite_tables
from consequential.service.migrations.versions.first_tables import MAIN

revision = "0003"
down_revision = "0002"

_OLD, _NEW = "unique (loop, application_id)", "unique (application_id, loop)"
_DECISION = {"decision": MAIN["decision"].replace(_OLD, _NEW)}


def upgrade() -> None:
    """Give decisions the key, whichever of the two they have; attributes stay as they are."""
    options = context.config.attributes
    if options["part"] == "main":
        for statement in _sqlite() if options["sqlite"] else _postgresql():
            op.execute(statement)


def _sqlite() -> Iterator[str]:
    """Make the table anew, since SQLite cannot change a key."""
    yield "pragma defer_foreign_keys = on"  # outcomes refer to decisions; checked at the end
    yield "create table kept as select * from decision"
    yield "drop table decision"
    yield from sqlite_tables(_DECISION)
    yield "insert into decision select * from kept order by id"
    yield "drop table kept"
    yield "create index decision_subject on decision (subject_id, loop, epoch, id)"
    yield from sqlite_rules(_DECISION, closed=True)


def _postgresql() -> Iterator[str]:
    names = ("decision_loop_application_id_key", "decision_application_id_loop_key")
    drops = ", ".join(f"drop constraint if exists {name}" for name in names)
    yield f"alter table decision {drops}, add unique (application_id, loop)"
