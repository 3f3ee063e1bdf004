"""Rows: SQL of tables whose rows are added and never changed.

In definitions {t} is text, {n} text that may be null, {f} a number. Constraints come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

POSTGRESQL_TEXT = 'text collate "C"'

# what may still change: to null, or from null
_FORGOTTEN = {"decision": ("features", "salt"), "attribute": ("value", "salt")}
_FILLED_IN = {"epoch": ("key",), "account": ("revoked",)}

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


def columns(definition: str, text: str) -> str:
    """Return a definition with the types of a database."""
    kinds = {"t": f"{text} not null", "n": text, "f": "double precision not null"}
    return definition.format_map(kinds)


def _table(name: str, definition: str, text: str) -> str:
    rows = f"id {text} primary key not null, loop {{t}}, time {{t}}, "
    own, unique, rest = definition.partition(", unique")
    return f"create table {name} ({columns(f'{rows}{own}, digest {{t}}{unique}{rest}', text)})"


def _fixed(name: str, definition: str) -> str:
    """Return the columns that nobody may change."""
    words = [each.split()[0] for each in definition.partition(", unique")[0].split(", ")]
    free = (*_FORGOTTEN.get(name, ()), *_FILLED_IN.get(name, ()))
    fixed = [word for word in words if word.strip('"') not in free]
    return ", ".join(("id", "loop", "time", *fixed, "digest"))


# --- SQLite


def sqlite_tables(tables: Mapping[str, str]) -> Iterator[str]:
    """Yield what makes tables."""
    for name, definition in tables.items():
        yield _table(name, definition, "text") + " without rowid"


def sqlite_rules(tables: Mapping[str, str], *, closed: bool) -> Iterator[str]:
    """Yield triggers that refuse changes and, where days are closed, rows of closed days."""
    refuse = "begin select raise(abort, '{}'); end"
    for name, definition in tables.items():
        yield from sqlite_no(name, f"update of {_fixed(name, definition)}", "delete")
        yield sqlite_is_new(name, [("id",), *_unique(definition)])
        if closed:
            yield (
                f"create trigger {name}_is_open before insert on {name} when exists (select 1 "
                "from day where loop = new.loop and date >= substr(new.time, 1, 10) "
                f"and \"table\" = '{name}') " + refuse.format(f"{name}: the day is closed")
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


def sqlite_no(name: str, *changes: str) -> Iterator[str]:
    """Yield triggers that refuse changes of a table."""
    for change in changes:
        yield (
            f"create trigger {name}_no_{change.split()[0]} before {change} on {name} "
            f"begin select raise(abort, '{name}: rows are never changed'); end"
        )


def sqlite_is_new(name: str, keys: list[tuple[str, ...]]) -> str:
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
    keys = definition.split(", unique (")[1:]
    return [tuple(key.rstrip(")").split(", ")) for key in keys]


# --- PostgreSQL


def postgresql_tables(tables: Mapping[str, str], schema: str = "") -> Iterator[str]:
    """Yield what makes tables."""
    for name, definition in tables.items():
        yield _table(schema + name, definition, POSTGRESQL_TEXT)


def postgresql_rules(
    tables: Mapping[str, str], role: str, schema: str = "", *, more: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield triggers that refuse changes, and the grants of a role, with `more` of them.

    An empty definition is that of a table without digests.
    """
    call = f"for each row {{}} execute function {schema}refuse_change()"
    grants = [f"grant select, insert on {schema}{name} to {role};" for name in tables]
    for name, definition in tables.items():
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
            grants.append(f"grant update ({column}) {on} to {role};")
        for column in _FILLED_IN.get(name, ()):
            when = f'when (old."{column}" is not null)'
            yield f'create trigger once before update of "{column}" {on} {call.format(when)}'
            grants.append(f'grant update ("{column}") {on} to {role};')
        if definition and not schema:
            yield (
                f"create trigger is_open before insert {on} "
                "for each row execute function refuse_closed()"
            )
    yield _ROLE.format(role=role, grants="\n    ".join([*grants, *more]))
