"""The tables, with the triggers and grants that let rows be added and never changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alembic import context, op
from sqlalchemy import PrimaryKeyConstraint, Table, UniqueConstraint
from sqlalchemy.schema import CreateIndex, CreateTable

from consequential.service import schema

revision = "2026_11_tables"
down_revision = None

_REFUSE_CHANGE = """
create function {place}refuse_change() returns trigger language plpgsql as $$ begin
    raise exception using message = tg_table_name || ': rows are never changed', errcode = '23001';
end $$
"""
_REFUSE_CLOSED = """
create function refuse_closed() returns trigger language plpgsql as $$ begin
    perform pg_advisory_xact_lock_shared(20116);  -- closing a day takes it alone
    if exists (select 1 from day where "loop" = new."loop" and date >= left(new.time, 10)
               and "table" = tg_table_name) then
        raise exception using message = tg_table_name || ': the day is closed', errcode = '23001';
    end if;
    return new;
end $$
"""
_ROLE = """
do $$ begin
    if not exists (select from pg_roles where rolname = '{role}') then
        create role {role} nologin;
    end if;
    {grants}
exception when insufficient_privilege then
    raise notice 'no role {role}: give the grants by hand';
end $$
"""


def upgrade() -> None:
    """Make the tables of one of the two databases."""
    options = context.config.attributes
    apart = options["part"] == "sensitive"
    found = schema.metadata.tables.values()
    tables = [table for table in found if (table.schema is not None) == apart]
    for table in tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            op.execute(CreateIndex(index))
    for statement in _sqlite(tables) if options["sqlite"] else _postgresql(tables, apart):
        op.execute(statement)


def _fixed(table: Table) -> str:
    """Return the columns that nobody may change."""
    free = table.info.get("may_change", ())
    return ", ".join(f'"{column.name}"' for column in table.c if column.name not in free)


# --- SQLite


def _sqlite(tables: Sequence[Table]) -> Iterator[str]:
    """Yield triggers that refuse changes and, where days are closed, rows of closed days."""
    for table in tables:
        name = table.name
        never = f"{name}: rows are never"
        yield _refusal(f"{name}_no_update", f"update of {_fixed(table)}", name, f"{never} changed")
        yield _refusal(f"{name}_no_delete", "delete", name, f"{never} changed")
        # `insert or replace` deletes without asking the trigger of deletes
        there = " or ".join(f"exists (select 1 from {name} where {same})" for same in _same(table))
        yield _refusal(f"{name}_is_new", "insert", name, f"{never} replaced", there)
        if table in schema.SEALED and table.schema is None:
            closed = (
                "exists (select 1 from day where loop = new.loop "
                f"and date >= substr(new.time, 1, 10) and \"table\" = '{name}')"
            )
            yield _refusal(f"{name}_is_open", "insert", name, f"{name}: the day is closed", closed)
        for column, may, when in _once(table):
            yield _refusal(f"{name}_{column}_once", f'update of "{column}"', name, may, when)


def _refusal(trigger: str, change: str, table: str, why: str, when: str = "true") -> str:
    return (
        f"create trigger {trigger} before {change} on {table} when {when} "
        f"begin select raise(abort, '{why}'); end"
    )


def _same(table: Table) -> Iterator[str]:
    """Yield what is true of a row that a new one would replace, for each unique key."""
    kinds = (PrimaryKeyConstraint, UniqueConstraint)
    for key in table.constraints:
        if isinstance(key, kinds):
            yield " and ".join(f'"{column.name}" = new."{column.name}"' for column in key.columns)
    if table is schema.outcome:  # by its partial index
        yield "new.corrects is null and corrects is null and decision = new.decision"


def _once(table: Table) -> Iterator[tuple[str, str, str]]:
    """Yield columns that change once, what may be done with them, and when it is refused."""
    for column in table.info.get("forgotten", ()):
        yield column, f"{column} may only be deleted", f'new."{column}" is not null'
    for column in table.info.get("filled_in", ()):
        yield column, f"{column} is filled in once", f'old."{column}" is not null'


# --- PostgreSQL


def _postgresql(tables: Sequence[Table], apart: bool) -> Iterator[str]:
    """Yield triggers that do the same, and the grants of the role that works with the tables."""
    place, role = (
        ("sensitive.", "consequential_sensitive") if apart else ("", "consequential_service")
    )
    yield _REFUSE_CHANGE.format(place=place)
    grants = [f"grant select on {place}alembic_version to {role};"]
    if apart:
        grants.append(f"grant usage on schema sensitive to {role};")
    else:
        yield _REFUSE_CLOSED
    refuse = f"execute function {place}refuse_change()"
    for table in tables:
        on = f"on {table.fullname}"
        grants.append(f"grant select, insert {on} to {role};")
        yield (
            f"create trigger no_change before update of {_fixed(table)} or delete {on} "
            f"for each row {refuse}"
        )
        yield f"create trigger no_truncate before truncate {on} for each statement {refuse}"
        if table in schema.SEALED and not apart:
            yield (
                f"create trigger is_open before insert {on} "
                "for each row execute function refuse_closed()"
            )
        for column, _, when in _once(table):
            yield (
                f'create trigger {column}_once before update of "{column}" {on} '
                f"for each row when ({when}) {refuse}"
            )
            grants.append(f'grant update ("{column}") {on} to {role};')
    yield _ROLE.format(role=role, grants="\n    ".join(grants))
