"""The first tables, with the triggers and grants that let rows be added and never changed."""

from __future__ import annotations

from collections.abc import Iterator

from alembic import context, op

from consequential.service.migrations.rows import (
    POSTGRESQL_TEXT,
    columns,
    postgresql_rules,
    postgresql_tables,
    sqlite_is_new,
    sqlite_no,
    sqlite_rules,
    sqlite_tables,
)

revision = "0001"
down_revision = None

MAIN = {
    "loop": '"version" integer not null, settings {t}, "by" {t}, unique (loop, "version")',
    "policy": 'policy {t}, content {t}, "by" {t}, parent {n}, cohorts {t}, unique (loop, policy)',
    "deployment": '"number" integer not null, shares {t}, "by" {t}, evidence {t}, '
    'unique (loop, "number")',
    "epoch": 'epoch {t}, start {t}, "end" {t}, commitment {t}, "key" {n}, unique (loop, epoch)',
    "decision": "application_id {t}, subject_id {n}, version integer not null, cohort {t}, "
    "epoch {t}, deployment integer not null, features {n}, salt {n}, features_digest {t}, "
    "amount {f}, score {f}, propensity {f}, u {f}, accepted boolean not null, "
    "unique (loop, application_id)",
    "override": 'decision {t} references decision (id), accepted boolean not null, "by" {t}, '
    "why {t}, unique (decision)",
    "outcome": "event_id {t}, decision {t} references decision (id), label integer, "
    'happened {t}, corrects {n}, "by" {t}, unique (event_id)',
    "cohort": 'period {t}, "version" integer not null, file {t}, file_digest {t}, '
    '"rows" integer not null, counts {t}, "by" {t}, unique (loop, period, "version")',
    "account": "name {t}, scopes {t}, key_hash {t}, revoked {n}, unique (key_hash)",
    "event": '"by" {t}, what {t}, about {t}',
}
_SENSITIVE = {
    "attribute": 'subject_id {t}, attribute {t}, value {n}, salt {n}, value_digest {t}, "by" {t}'
}
_DAY = (
    'loop {t}, date {t}, "table" {t}, "rows" integer not null, seal {t}, summary {t}, '
    'primary key (loop, date, "table")'
)
_INDEXES = (
    "create index decision_subject on decision (subject_id, loop, epoch, id)",
    "create unique index outcome_first on outcome (decision) where corrects is null",
    "create index outcome_decision on outcome (decision)",
    "create index outcome_corrects on outcome (corrects)",
)
_SUBJECTS = "create index attribute_subject on {name} (subject_id, attribute)"

_REFUSE_CHANGE = """
create function {schema}refuse_change() returns trigger language plpgsql as $$ begin
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


def upgrade() -> None:
    """Make the tables of one of the two databases."""
    options = context.config.attributes
    statements = _sqlite if options["sqlite"] else _postgresql
    for statement in statements(options["part"]):
        op.execute(statement)


def _sqlite(part: str) -> Iterator[str]:
    if part == "sensitive":
        yield from sqlite_tables(_SENSITIVE)
        yield _SUBJECTS.format(name="attribute")
        yield from sqlite_rules(_SENSITIVE, closed=False)
        return
    yield from sqlite_tables(MAIN)
    yield f"create table day ({columns(_DAY, 'text')}) without rowid"
    yield from _INDEXES
    yield from sqlite_no("day", "update", "delete")
    yield sqlite_is_new("day", [("loop", "date", '"table"')])
    yield from sqlite_rules(MAIN, closed=True)


def _postgresql(part: str) -> Iterator[str]:
    if part == "sensitive":
        role = "consequential_sensitive"
        yield _REFUSE_CHANGE.format(schema="sensitive.")
        yield from postgresql_tables(_SENSITIVE, "sensitive.")
        yield _SUBJECTS.format(name="sensitive.attribute")
        schema = f"grant usage on schema sensitive to {role};"
        version = f"grant select on sensitive.alembic_version to {role};"
        yield from postgresql_rules(_SENSITIVE, role, "sensitive.", more=(schema, version))
        return
    role = "consequential_service"
    yield _REFUSE_CHANGE.format(schema="")
    yield from postgresql_tables(MAIN)
    yield f"create table day ({columns(_DAY, POSTGRESQL_TEXT)})"
    yield from _INDEXES
    yield _REFUSE_CLOSED
    version = f"grant select on alembic_version to {role};"
    yield from postgresql_rules(MAIN | {"day": ""}, role, more=(version,))
