"""Cohorts: the decisions of a calendar period as a Parquet file that is learned from.

A row is an application as it was drawn: an override changes no decision, and an acceptance that
was overridden has no label. Of a subject's applications in an epoch only the first counts, because
all of them are drawn with the same number.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import Connection, exists, select

from consequential.files import write_atomically
from consequential.service import schema
from consequential.service.database import Store
from consequential.service.loops import settings_in_force
from consequential.service.outcomes import state_of
from consequential.service.records import canonical, first_id, moment
from consequential.service.settings import LoopSettings, Words, period_after, period_start

UNKNOWN = "unknown"  # the group of people whose attribute was not reported
_PIECE = 20_000  # rows in memory
_COUNTED = ("rows", "missing", "overridden", "repeated", "forgotten")
_OWN = {
    "id": pa.string(),
    "subject": pa.string(),
    "time": pa.timestamp("us", "UTC"),
    "epoch": pa.string(),
    "deployment": pa.int64(),
    "u": pa.float64(),
    "propensity": pa.float64(),
    "decision": pa.int8(),
    "label": pa.float64(),
    "amount": pa.float64(),
    "sensitive": pa.string(),
}


@dataclass(frozen=True, slots=True)
class Export:
    """A Parquet file, and how many of which applications are in it or not."""

    content: bytes
    counts: Mapping[str, int]

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Cohorts:
    """The decisions of a loop, period by period, and the folder of their files.

    Examples
    --------
    >>> from consequential.service.cohorts import Cohorts
    >>> from consequential.service.settings import loop_settings
    >>> income = {"low": 0, "high": 9, "phrase": "Income"}
    >>> settings = loop_settings({"cost": 0.6, "floor": 0.1, "features": {"income": income}})
    >>> Cohorts(None, None, "lending", settings).columns()["features"]
    ['income']
    """

    store: Store
    directory: Path  # of the service
    loop: str
    settings: LoopSettings

    def columns(self, *, sensitive: bool = True) -> dict[str, Any]:
        """Return what the columns of an export mean, as keywords of `DecisionLog.from_file`."""
        return {
            "features": list(feature_columns(self.settings).values()),
            "decision": "decision",
            "propensity": "propensity",
            "label": "label",
            "time_step": "time",
            "period": self.settings.period,
            "amount": "amount",
            **({"sensitive": "sensitive"} if self.settings.sensitive and sensitive else {}),
        }

    def export(self, since: datetime, until: datetime, *, sensitive: bool = True) -> Export:
        """Return the decisions from a moment until before another, as `columns` describes them."""
        attribute = self.settings.sensitive if sensitive else ""
        groups = _groups(self.store, attribute) if attribute else None
        columns = feature_columns(self.settings)
        fields = _fields(self.settings, columns, groups is not None)
        buffer, counts = io.BytesIO(), Counter(dict.fromkeys(_COUNTED, 0))
        with self.store.read() as connection, pq.ParquetWriter(buffer, fields) as writer:
            for piece in _pieces(connection, self.loop, since, until):
                rows = list(_rows(connection, piece, columns, groups, counts))
                writer.write_table(pa.Table.from_pylist(rows, fields))
        return Export(buffer.getvalue(), dict(counts))

    def due(self, time: datetime) -> list[str]:
        """Return the periods whose outcomes have all had their time, and that are not frozen."""
        decision, cohort = schema.decision.c, schema.cohort.c
        ours = decision.loop == self.loop
        first = select(decision.cohort).where(ours).order_by(decision.id).limit(1)
        known = select(cohort.period).where(cohort.loop == self.loop)
        with self.store.read() as connection:
            period = connection.execute(first).scalar()
            frozen = set(connection.execute(known).scalars())
            due = []
            while period and period_start(period_after(period, self.settings.horizon + 1)) <= time:
                low, high = map(first_id, _span(period))
                some = exists().where(ours, decision.id >= low, decision.id < high)
                if period not in frozen and connection.execute(select(some)).scalar():
                    due.append(period)
                period = period_after(period)
        return due

    def freeze(self, period: str, time: datetime, by: str = "worker") -> Mapping[str, Any]:
        """Write a period's file, which never changes, and store its digest; return the row."""
        return self.keep(period, self.export(*_span(period)), time, by)

    def keep(self, period: str, found: Export, time: datetime, by: str) -> Mapping[str, Any]:
        """Store the next version of a period's file; return the row."""
        with self.store.write() as connection:
            version = len(self._versions(connection, period)) + 1
            file = Path("cohorts") / self.loop / f"{period}-{version}.parquet"
            (self.directory / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.directory / file, found.content)
            values = {
                "period": period,
                "version": version,
                "file": str(file),
                "file_digest": found.digest,
                "rows": found.counts["rows"],
                "counts": canonical(found.counts),
                "by": by,
            }
            return schema.add(connection, schema.cohort, self.loop, time, values)

    def leave_out(self, period: str, ids: Set[str], time: datetime, by: str) -> int:
        """Store a period's file again without some rows; return how many files were deleted."""
        with self.store.read() as connection:
            versions = self._versions(connection, period)
        if not versions or not (self.directory / versions[-1]["file"]).exists():
            return 0
        last = versions[-1]
        table = pq.read_table(self.directory / last["file"])
        kept = table.filter(pc.invert(pc.is_in(table["id"], pa.array(sorted(ids), pa.string()))))
        if kept.num_rows == table.num_rows:
            return self.remove(versions[:-1])
        counts = json.loads(last["counts"])
        counts["forgotten"] += counts["rows"] - kept.num_rows
        buffer = io.BytesIO()
        pq.write_table(kept, buffer)
        found = Export(buffer.getvalue(), counts | {"rows": kept.num_rows})
        self.keep(period, found, time, by)
        return self.remove(versions)

    def remove(self, versions: Sequence[Mapping[str, Any]]) -> int:
        """Delete files; return how many there were."""
        there = [path for row in versions if (path := self.directory / row["file"]).exists()]
        for path in there:
            path.unlink()
        return len(there)

    def damaged(self) -> list[str]:
        """Return the files that are not as they were written; deleted ones are no such files."""
        with self.store.read() as connection:
            versions = self._versions(connection)
        digests = {row["file"]: row["file_digest"] for row in versions}
        return [
            file
            for file, digest in digests.items()
            if (path := self.directory / file).exists()
            and hashlib.sha256(path.read_bytes()).hexdigest() != digest
        ]

    def before(self, limit: datetime) -> list[dict[str, Any]]:
        """Return all versions of the periods that begin before a moment."""
        with self.store.read() as connection:
            rows = self._versions(connection)
        return [row for row in rows if period_start(row["period"]) < limit]

    def _versions(self, connection: Connection, period: str | None = None) -> list[dict[str, Any]]:
        table = schema.cohort
        wanted = select(table).where(table.c.loop == self.loop).order_by(table.c.version)
        if period is not None:
            wanted = wanted.where(table.c.period == period)
        return schema.rows(connection, wanted)


def all_cohorts(store: Store, directory: Path) -> dict[str, Cohorts]:
    """Return the cohorts of all loops."""
    with store.read() as connection:
        found = settings_in_force(connection)
    return {loop: Cohorts(store, directory, loop, settings) for loop, settings in found.items()}


def feature_columns(settings: LoopSettings) -> dict[str, str]:
    """Return the column of each feature: its name, unless another column has it."""
    columns: dict[str, str] = {}
    for name in settings.features:
        column = name
        while column in _OWN or (column != name and column in settings.features):
            column += "_"
        columns[name] = column
    return columns


def _span(period: str) -> tuple[datetime, datetime]:
    return period_start(period), period_start(period_after(period))


def _fields(settings: LoopSettings, columns: Mapping[str, str], sensitive: bool) -> pa.Schema:
    kinds = dict(_OWN) if sensitive else {k: v for k, v in _OWN.items() if k != "sensitive"}
    for name, column in columns.items():
        is_word = isinstance(settings.features[name], Words)
        kinds[column] = pa.string() if is_word else pa.float64()
    return pa.schema(kinds)


def _pieces(
    connection: Connection, loop: str, since: datetime, until: datetime
) -> Iterator[list[Mapping[str, Any]]]:
    """Yield decisions in order, and whether a row repeats one of its subject and epoch."""
    table, earlier = schema.decision, schema.decision.alias()
    repeats = exists().where(
        earlier.c.subject_id == table.c.subject_id,
        earlier.c.loop == table.c.loop,
        earlier.c.epoch == table.c.epoch,
        earlier.c.id < table.c.id,
    )
    low, high = first_id(since), first_id(until)
    asked = select(table, repeats.label("repeats")).where(
        table.c.loop == loop, table.c.id >= low, table.c.id < high
    )
    ordered = asked.order_by(table.c.id).execution_options(yield_per=_PIECE)
    with connection.execute(ordered) as result:
        yield from map(list, result.mappings().partitions())


def _rows(
    connection: Connection,
    piece: list[Mapping[str, Any]],
    columns: Mapping[str, str],
    groups: Mapping[str, str] | None,
    counts: Counter[str],
) -> Iterator[dict[str, Any]]:
    labels, overridden = _labels(connection, piece), _overridden(connection, piece)
    for row in piece:
        if row["features"] is None or row["repeats"]:
            counts["forgotten" if row["features"] is None else "repeated"] += 1
            continue
        counts["rows"] += 1
        counts["overridden"] += row["id"] in overridden
        label = labels.get(row["id"]) if row["accepted"] else None
        if row["id"] in overridden:  # the label, if any, is of something else than was decided
            label = None
        counts["missing"] += row["accepted"] and label is None
        subject = row["application_id"] if row["subject_id"] is None else row["subject_id"]
        found = {
            "id": row["id"],
            "subject": subject,
            "time": moment(row["time"]),
            "epoch": row["epoch"],
            "deployment": row["deployment"],
            "u": row["u"],
            "propensity": row["propensity"],
            "decision": int(row["accepted"]),
            "label": label,
            "amount": row["amount"],
        }
        if groups is not None:
            found["sensitive"] = groups.get(subject, UNKNOWN)
        features = json.loads(row["features"])
        yield found | {columns[name]: features.get(name) for name in columns}


def _labels(connection: Connection, piece: list[Mapping[str, Any]]) -> dict[str, float | None]:
    events: dict[str, list[Any]] = {}
    for row in connection.execute(_about(schema.outcome, piece)).mappings():
        events.setdefault(row["decision"], []).append(row)
    states = {decision: state_of(each) for decision, each in events.items()}
    return {decision: state["label"] for decision, state in states.items() if state is not None}


def _overridden(connection: Connection, piece: list[Mapping[str, Any]]) -> set[str]:
    return {
        row["decision"] for row in connection.execute(_about(schema.override, piece)).mappings()
    }


def _about(table: Any, piece: list[Mapping[str, Any]]) -> Any:
    first, last = piece[0]["id"], piece[-1]["id"]
    return select(table).where(table.c.decision >= first, table.c.decision <= last)


def _groups(store: Store, attribute: str) -> dict[str, str]:
    """Return the last value that was reported of each subject."""
    table = schema.attribute
    asked = select(table.c.subject_id, table.c.value).where(table.c.attribute == attribute)
    with store.read_sensitive() as connection:
        rows = connection.execute(asked.order_by(table.c.id))
        return {subject: UNKNOWN if value is None else value for subject, value in rows}
