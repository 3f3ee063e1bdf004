"""Verify: whether the rows are those that were written, by their digests, seals and replays."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, select
from sqlalchemy.exc import NoResultFound

from consequential.service import schema
from consequential.service.chance import commitment_of, epoch_key
from consequential.service.closing import HashedRows, day_of, hashed_rows, reading, seal, within
from consequential.service.cohorts import Cohorts
from consequential.service.database import Store
from consequential.service.deciding import Live, live_at, replayed
from consequential.service.forgetting import FORGOTTEN
from consequential.service.records import hidden_digest, row_digest

_PIECE = 2_000  # rows that are replayed together

Row = Mapping[Any, Any]
Place = tuple[str, str]  # a loop and a day


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Something that is not as it was written.

    Examples
    --------
    >>> from consequential.service.verify import Discrepancy
    >>> print(Discrepancy("decision", "0198", "its digest is not that of its content"))
    decision 0198: its digest is not that of its content
    """

    table: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.table} {self.where}: {self.what}"


def verify(
    store: Store, secret: bytes | None = None, seals: Sequence[str] = ()
) -> Iterator[Discrepancy]:
    """Check every row, seal, epoch and account, and replay every decision.

    Rows of days that are still open are checked one by one. Without the secret, draws are
    replayed where the key of the epoch is revealed. `seals` are those that somebody kept: one that
    is not found tells of closed days that were deleted, which the seals before it cannot.
    """
    with store.read() as connection:
        closed = connection.execute(select(schema.day).order_by(schema.day.c.date)).mappings().all()
        epochs = connection.execute(select(schema.epoch)).mappings().all()
        yield from _account_findings(connection)
    for each in set(seals) - {row["seal"] for row in closed}:
        yield Discrepancy("day", each, "no day has this seal: days were deleted, or sealed again")
    own = secret is not None and [_is_own(row, secret) for row in epochs]
    if own and not any(own):
        yield Discrepancy("epoch", "all", "the secret is not the one that they were opened with")
        secret = None
    yield from _epoch_findings(epochs, closed, secret)
    yield from _missing_days(closed)
    replay, forgotten = _Replay(store, secret), _Forgotten(store)
    last = {row["loop"]: row["date"] for row in closed}
    for table in schema.SEALED:
        found: dict[Place, HashedRows] = defaultdict(HashedRows)
        asked = select(table).order_by(table.c.id).execution_options(yield_per=_PIECE)
        with reading(store, table) as connection, connection.execute(asked) as result:
            for rows in result.mappings().partitions():
                for row in rows:
                    yield from _row_findings(table, row, forgotten)
                    found[row["loop"], _day(row["id"])].add(row["digest"])
                if table is schema.decision:
                    yield from replay.findings(rows)
        days = [row for row in closed if row["table"] == table.name]
        yield from _seal_findings(table, days, found, last)


def verify_decision(store: Store, id: str, secret: bytes | None = None) -> Iterator[Discrepancy]:
    """Check one decision, what belongs to it, and the seal of its day."""
    table, day, forgotten = schema.decision, schema.day.c, _Forgotten(store)
    with store.read() as connection:
        row = connection.execute(select(table).where(table.c.id == id)).mappings().one_or_none()
        if row is None:
            yield Discrepancy("decision", id, "there is none")
            return
        loop, date_of = row["loop"], day_of(id)
        sealed = (day.table == "decision") & (day.loop == loop) & (day.date <= date_of)
        last = select(schema.day).where(sealed).order_by(day.date.desc()).limit(2)
        closed = connection.execute(last).mappings().all()[::-1]
        for other in (schema.outcome, schema.override):
            theirs = select(other).where(other.c.decision == id)
            for each in connection.execute(theirs).mappings():
                yield from _row_findings(other, each, forgotten)
    yield from _row_findings(table, row, forgotten)
    yield from _Replay(store, secret).findings([row])
    if closed and closed[-1]["date"] == date_of:
        before = closed[0]["seal"] if len(closed) > 1 else ""
        yield from _day_findings(closed[-1], hashed_rows(store, table, loop, date_of), before)


def verify_day(
    store: Store, loop: str, date_of: str, secret: bytes | None = None
) -> Iterator[Discrepancy]:
    """Check the rows of one closed day, replay its decisions, and compare the day's seals."""
    day, forgotten = schema.day.c, _Forgotten(store)
    before = str(date.fromisoformat(date_of) - timedelta(1))
    both = select(schema.day).where(day.loop == loop, day.date.in_([before, date_of]))
    with store.read() as connection:
        closed = connection.execute(both).mappings().all()
    seals = {row["table"]: row["seal"] for row in closed if row["date"] == before}
    days = {row["table"]: row for row in closed if row["date"] == date_of}
    if not days:
        yield Discrepancy("day", f"{loop} {date_of}".strip(), "it is not closed")
        return
    for table in schema.SEALED:
        if table.name not in days:
            yield Discrepancy("day", f"{table.name} {loop} {date_of}", "it is missing")
            continue
        rows, replay = HashedRows(), _Replay(store, secret)
        own = select(table).where(*within(table, loop, date_of)).order_by(table.c.id)
        with reading(store, table) as connection:
            result = connection.execute(own.execution_options(yield_per=_PIECE))
            for piece in result.mappings().partitions():
                for row in piece:
                    yield from _row_findings(table, row, forgotten)
                    rows.add(row["digest"])
                if table is schema.decision:
                    yield from replay.findings(piece)
        yield from _day_findings(days[table.name], rows, seals.get(table.name, ""))


def file_findings(cohorts: Cohorts) -> list[Discrepancy]:
    """Check the files of a loop's cohorts; deleted ones are no finding."""
    why = "it is not the file that was frozen"
    return [Discrepancy("cohort", file, why) for file in cohorts.damaged()]


# --- rows and seals


def _day(identifier: str) -> str:
    try:
        return day_of(identifier)
    except (ValueError, OverflowError):  # it was changed, as its row's digest tells
        return ""


class _Forgotten:
    """The rows that were forgotten, as events say, which are read when one is not among them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: set[str] = set()
        self._before: dict[str, str] = {}  # by loop, the first one that is kept

    def has(self, row: Row) -> bool:
        if not self._knows(row):
            self._read()
        return self._knows(row)

    def _knows(self, row: Row) -> bool:
        return row["id"] in self._ids or row["id"] < self._before.get(row["loop"], "")

    def _read(self) -> None:
        event = schema.event.c
        told = select(event.loop, event.about).where(event.what == FORGOTTEN).order_by(event.id)
        with self._store.read() as connection:
            for loop, about in connection.execute(told):
                with suppress(ValueError, TypeError, KeyError):  # its row's digest tells
                    found = json.loads(about)
                    if "before" in found:
                        self._before[loop] = found["before"]
                    else:
                        self._ids.update(found["decisions"], found["attributes"])


def _row_findings(table: Table, row: Row, forgotten: _Forgotten) -> Iterator[Discrepancy]:
    if row_digest(row, table.info["may_change"]) != row["digest"]:
        yield Discrepancy(table.name, row["id"], "its digest is not that of its content")
    if table.info["forgotten"]:
        name, _ = table.info["forgotten"]
        content, salt = row[name], row["salt"]
        if (content is None) != (salt is None):
            yield Discrepancy(table.name, row["id"], f"of {name} and salt only one was deleted")
        elif content is None and not forgotten.has(row):
            yield Discrepancy(table.name, row["id"], f"{name} was deleted, and no event says so")
        elif content is not None and hidden_digest(salt, content) != row[f"{name}_digest"]:
            yield Discrepancy(table.name, row["id"], f"{name} or salt is not what was written")


def _seal_findings(
    table: Table, closed: Sequence[Row], found: dict[Place, HashedRows], last: dict[str, str]
) -> Iterator[Discrepancy]:
    before: dict[str, str] = {}
    for day in closed:
        rows = found.pop((day["loop"], day["date"]), HashedRows())
        yield from _day_findings(day, rows, before.get(day["loop"], ""))
        before[day["loop"]] = day["seal"]
    for loop, date_of in found:
        if date_of <= last.get(loop, ""):
            yield Discrepancy(table.name, f"{loop} {date_of}".strip(), "rows of a day never closed")


def _day_findings(day: Row, rows: HashedRows, before: str) -> Iterator[Discrepancy]:
    where = f"{day['table']} {day['loop']} {day['date']}".replace("  ", " ")
    if rows.count != day["rows"]:
        yield Discrepancy("day", where, f"{day['rows']} rows were sealed, {rows.count} are there")
    elif seal(day, rows, before) != day["seal"]:
        yield Discrepancy("day", where, "its seal is not that of its rows and of the day before")


def _missing_days(closed: Sequence[Row]) -> Iterator[Discrepancy]:
    """Find days that are closed for some tables only, or lie between closed days."""
    tables: dict[Place, set[str]] = defaultdict(set)
    for row in closed:
        tables[row["loop"], row["date"]].add(row["table"])
    sealed = {table.name for table in schema.SEALED}
    for loop in {loop for loop, _ in tables}:
        for day in _days_between([day for name, day in tables if name == loop]):
            for table in sealed - tables.get((loop, day), set()):
                yield Discrepancy(
                    "day", f"{table} {loop} {day}".replace("  ", " "), "it is missing"
                )


def _days_between(days: Sequence[str]) -> list[str]:
    """Return all days from the first to the last; what is no date is one more."""
    try:
        first, last = date.fromisoformat(min(days)), date.fromisoformat(max(days))
    except ValueError:
        return sorted(days)
    return [str(first + timedelta(k)) for k in range((last - first).days + 1)]


# --- what is filled in later


def _account_findings(connection: Connection) -> Iterator[Discrepancy]:
    """Find keys whose revocation is not what the events say."""
    account, event = schema.account.c, schema.event.c
    own = (event.about == account.id) & (event.what == "key revoked")
    both = schema.account.outerjoin(schema.event, own)  # in one statement: of one moment
    for row in connection.execute(
        select(account.id, account.revoked, event.time).select_from(both)
    ):
        if row.revoked != row.time:
            yield Discrepancy("account", row.id, "it was not revoked when the events say so")


def _epoch_findings(
    epochs: Iterable[Row], closed: Sequence[Row], secret: bytes | None
) -> Iterator[Discrepancy]:
    last = {row["loop"]: row["date"] for row in closed}
    for row in epochs:
        if secret is not None and not _is_own(row, secret):
            yield Discrepancy("epoch", row["id"], "its commitment is not of the service's secret")
        if row["key"] is not None and _commitment(row["key"]) != row["commitment"]:
            yield Discrepancy("epoch", row["id"], "its key is not the one committed to")
        # when the day of its end is closed, a day later, the worker has revealed the key
        elif row["key"] is None and row["end"][:10] <= last.get(row["loop"], ""):
            yield Discrepancy("epoch", row["id"], "its key should have been revealed")


def _is_own(epoch: Row, secret: bytes) -> bool:
    key = epoch_key(secret, epoch["loop"], epoch["epoch"])
    return bool(commitment_of(key) == epoch["commitment"])


def _commitment(key: str) -> str | None:
    try:
        return commitment_of(bytes.fromhex(key))
    except ValueError:
        return None


class _Replay:
    """Decisions computed again, by the policies that were deployed and the keys that are known."""

    def __init__(self, store: Store, secret: bytes | None) -> None:
        @cache
        def live(loop: str, version: int, number: int) -> Live:
            with store.read() as connection:
                return live_at(connection, loop, version, number)

        @cache
        def key(loop: str, epoch: str) -> bytes | None:
            table = schema.epoch
            wanted = select(table.c.key).where(table.c.loop == loop, table.c.epoch == epoch)
            with store.read() as connection:
                revealed = connection.execute(wanted).scalar_one()
            if revealed is not None:
                return bytes.fromhex(revealed)
            return None if secret is None else epoch_key(secret, loop, epoch)

        self._live, self._key = live, key

    def findings(self, rows: Iterable[Row]) -> Iterator[Discrepancy]:
        """Replay rows and find those that come out differently."""
        groups: dict[tuple[str, int, int, str], list[Row]] = defaultdict(list)
        for row in rows:
            groups[row["loop"], row["version"], row["deployment"], row["epoch"]].append(row)
        for some in groups.values():
            yield from self._group_findings(some)

    def _group_findings(self, rows: list[Row]) -> Iterator[Discrepancy]:
        first = rows[0]
        try:
            live = self._live(first["loop"], first["version"], first["deployment"])
            again = replayed(live, rows, self._key(first["loop"], first["epoch"]))
        except (NoResultFound, KeyError, ValueError, TypeError):
            if len(rows) > 1:  # only one of them may be wrong
                for row in rows:
                    yield from self._group_findings([row])
            else:
                yield Discrepancy("decision", first["id"], "it cannot be replayed")
            return
        for row, each in zip(rows, again, strict=True):
            if not each.agrees:
                yield Discrepancy("decision", row["id"], "it comes out differently when replayed")
