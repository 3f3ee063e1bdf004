"""The first tables, with the triggers and grants that let rows be added and never changed."""

from __future__ import annotations

from collections.abc import Iterator

from alembic import context, op

revision = "0001"
down_revision = None

# {t} is text, {n} text that may be null, {f} a number
_MAIN = {
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

# what may still change: to null, or from null
_FORGOTTEN = {"decision": ("features", "salt"), "attribute": ("value", "salt")}
_FILLED_IN = {"epoch": ("key",), "account": ("revoked",)}


def upgrade() -> None:
    """Make the tables of one of the two databases."""
    options = context.config.attributes
    statements = _sqlite if options["sqlite"] else _postgresql
    for statement in statements(options["part"]):
        op.execute(statement)


def _columns(definition: str, text: str) -> str:
    kinds = {"t": f"{text} not null", "n": text, "f": "double precision not null"}
    return definition.format_map(kinds)


def _table(name: str, definition: str, text: str) -> str:
    rows = f"id {text} primary key not null, loop {{t}}, time {{t}}, "
    columns, unique, rest = definition.partition(", unique")
    return f"create table {name} ({_columns(f'{rows}{columns}, digest {{t}}{unique}{rest}', text)})"


def _fixed(name: str, definition: str) -> str:
    """Return the columns that nobody may change."""
    words = [each.split()[0] for each in definition.partition(", unique")[0].split(", ")]
    free = (*_FORGOTTEN.get(name, ()), *_FILLED_IN.get(name, ()))
    fixed = [word for word in words if word.strip('"') not in free]
    return ", ".join(("id", "loop", "time", *fixed, "digest"))


def _sqlite(part: str) -> Iterator[str]:
    tables = _MAIN if part == "main" else _SENSITIVE
    for name, definition in tables.items():
        yield _table(name, definition, "text") + " without rowid"
    if part == "sensitive":
        yield _SUBJECTS.format(name="attribute")
    else:
        yield f"create table day ({_columns(_DAY, 'text')}) without rowid"
        yield from _INDEXES
        yield from _sqlite_triggers("day", "update", "delete")
        yield _sqlite_is_new("day", [("loop", "date", '"table"')])
    refuse = "begin select raise(abort, '{}'); end"
    for name, definition in tables.items():
        fixed = f"update of {_fixed(name, definition)}"
        yield from _sqlite_triggers(name, fixed, "delete")
        yield _sqlite_is_new(name, [("id",), *_unique(definition)])
        closed = (
            "exists (select 1 from day where loop = new.loop and date >= substr(new.time, 1, 10) "
            f"and \"table\" = '{name}')"
        )
        if part == "main":
            yield f"create trigger {name}_is_open before insert on {name} when {closed} " + (
                refuse.format(f"{name}: the day is closed")
            )
        for column in _FORGOTTEN.get(name, ()):
            yield (
                f"create trigger {name}_{column}_once before update of {column} on {name} "
                f"when new.{column} is not null " + refuse.format(f"{column} may only be deleted")
            )
        for column in _FILLED_IN.get(name, ()):
            yield (
                f'create trigger {name}_once before update of "{column}" on {name} '
                f'when old."{column}" is not null ' + refuse.format(f"{column} is filled in once")
            )


def _sqlite_triggers(name: str, *changes: str) -> Iterator[str]:
    for change in changes:
        yield (
            f"create trigger {name}_no_{change.split()[0]} before {change} on {name} "
            f"begin select raise(abort, '{name}: rows are never changed'); end"
        )


def _sqlite_is_new(name: str, keys: list[tuple[str, ...]]) -> str:
    """Refuse `insert or replace`, which deletes without asking the trigger of deletes."""
    same = [" and ".join(f"{key} = new.{key}" for key in each) for each in keys]
    if name == "outcome":  # by its partial index
        same.append("new.corrects is null and corrects is null and decision = new.decision")
    there = " or ".join(f"exists (select 1 from {name} where {each})" for each in same)
    return (
        f"create trigger {name}_is_new before insert on {name} when {there} "
        f"begin select raise(abort, '{name}: rows are never replaced'); end"
    )


def _unique(definition: str) -> list[tuple[str, ...]]:
    rest = definition.partition(", unique (")[2]
    return [tuple(rest.rstrip(")").split(", "))] if rest else []


_FUNCTIONS = """
create function {schema}refuse_change() returns trigger language plpgsql as $$ begin
    raise exception using message = tg_table_name || ': rows are never changed', errcode = '23001';
end $$
"""
_CLOSED = """
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


def _postgresql(part: str) -> Iterator[str]:
    text, schema = 'text collate "C"', "" if part == "main" else "sensitive."
    tables = _MAIN if part == "main" else _SENSITIVE
    yield _FUNCTIONS.format(schema=schema)
    for name, definition in tables.items():
        yield _table(schema + name, definition, text)
    if part == "main":
        yield f"create table day ({_columns(_DAY, text)})"
        yield from _INDEXES
        yield _CLOSED
    else:
        yield _SUBJECTS.format(name="sensitive.attribute")
    call = f"for each row {{}} execute function {schema}refuse_change()"
    grants = [f"grant select, insert on {schema}{name} to {{role}};" for name in tables]
    for name, definition in (*tables.items(), *([("day", "")] if part == "main" else [])):
        on = f"on {schema}{name}"
        fixed = f"update of {_fixed(name, definition)}" if definition else "update"
        yield f"create trigger no_change before {fixed} or delete {on} " + call.format("")
        yield (
            f"create trigger no_truncate before truncate {on} "
            f"for each statement execute function {schema}refuse_change()"
        )
        for column in _FORGOTTEN.get(name, ()):
            when = f"when (new.{column} is not null)"
            yield f"create trigger {column}_once before update of {column} {on} {call.format(when)}"
            grants.append(f"grant update ({column}) {on} to {{role}};")
        for column in _FILLED_IN.get(name, ()):
            when = f'when (old."{column}" is not null)'
            yield f'create trigger once before update of "{column}" {on} {call.format(when)}'
            grants.append(f'grant update ("{column}") {on} to {{role}};')
        if definition and part == "main":
            yield (
                f"create trigger is_open before insert {on} "
                "for each row execute function refuse_closed()"
            )
    if part == "main":
        role = "consequential_service"
        grants.append("grant select, insert on day to {role};")
        grants.append("grant select on alembic_version to {role};")
    else:
        role = "consequential_sensitive"
        grants.append("grant usage on schema sensitive to {role};")
        grants.append("grant select on sensitive.alembic_version to {role};")
    yield _ROLE.format(role=role, grants="\n    ".join(grants).format(role=role))
