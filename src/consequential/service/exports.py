"""Exports: decisions and what became of them, as a Parquet file that is a decision log.

A row is an application as it was drawn: an override changes no decision, and an acceptance that
was overridden has no label. Of a subject's applications in an epoch only the first counts, because
all of them are drawn with the same number.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import Connection, Table, select

from consequential.log import DecisionLog, DecisionLogError
from consequential.service import schema
from consequential.service.closing import repeats
from consequential.service.database import Store
from consequential.service.outcomes import state_of
from consequential.service.problems import Problem
from consequential.service.records import first_id, moment
from consequential.service.settings import LoopSettings, Words

UNKNOWN = "unknown"  # the group of people whose attribute was not reported
_PIECE = 20_000  # rows in memory
_COUNTED = ("rows", "missing", "overridden", "repeated", "forgotten", "unknown")
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

Row = Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class Export:
    """A Parquet file, and how many applications are in it, lack a label, or were left out.

    People whose attribute was not reported are a group of their own, `unknown`, since a log needs
    a group for everybody; they are counted so that nobody takes them for a real one.
    """

    content: bytes
    counts: Mapping[str, int]

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()


def log_columns(settings: LoopSettings, *, sensitive: bool = True) -> dict[str, Any]:
    """Return what the columns of an export mean, as keywords of `DecisionLog.from_file`.

    Examples
    --------
    >>> from consequential.service.exports import log_columns
    >>> from consequential.service.settings import loop_settings
    >>> income = {"low": 0, "high": 9, "phrase": "Income"}
    >>> settings = loop_settings({"cost": 0.6, "floor": 0.1, "features": {"income": income}})
    >>> log_columns(settings)["features"]
    ['income']
    """
    found = {name: name for name in ("decision", "propensity", "label", "amount")}
    if settings.sensitive and sensitive:
        found["sensitive"] = "sensitive"
    features = list(_feature_columns(settings).values())
    return {"features": features, "time_step": "time", "period": settings.period, **found}


def export(
    store: Store,
    loop: str,
    settings: LoopSettings,
    since: datetime,
    until: datetime,
    *,
    sensitive: bool = True,
) -> Export:
    """Return the decisions from a moment until before another, as `log_columns` says."""
    columns, kinds = _feature_columns(settings), dict(_OWN)
    for name, column in columns.items():
        kinds[column] = pa.string() if isinstance(settings.features[name], Words) else pa.float64()
    groups: dict[str, str] = {}
    if settings.sensitive and sensitive:
        groups = reported_groups(store, settings.sensitive)
    else:
        del kinds["sensitive"]
    fields, counts = pa.schema(kinds), Counter(dict.fromkeys(_COUNTED, 0))
    buffer = io.BytesIO()
    with store.read() as connection, pq.ParquetWriter(buffer, fields) as writer:
        for piece in _pieces(connection, loop, since, until):
            rows = [
                {column: features.get(name) for name, column in columns.items()}
                | row
                | {"sensitive": groups.get(row["subject"], UNKNOWN)}
                for row, features in _rows(connection, piece, counts)
            ]
            if "sensitive" in kinds:
                counts["unknown"] += sum(row["sensitive"] == UNKNOWN for row in rows)
            writer.write_table(pa.Table.from_pylist(rows, fields))
    return Export(buffer.getvalue(), dict(counts))


def joined(files: Sequence[bytes], settings: LoopSettings) -> pa.Table:
    """Return the rows of several exports in one table, whose features are named as the loop's.

    All other columns but the sensitive attribute begin with `=`, as no feature does. Decisions that
    were taken before a feature was asked for are left out, whatever was decided.
    """
    tables = [pq.read_table(io.BytesIO(file)) for file in files]
    table = pa.concat_tables(tables, promote_options="default")
    names = {column: f"={column}" for column in _OWN} | {"sensitive": settings.sensitive}
    names |= {column: name for name, column in _feature_columns(settings).items()}
    table = table.rename_columns([names.get(column, f"={column}") for column in table.column_names])
    if not settings.features.keys() <= set(table.column_names):
        raise Problem("no_rows", 409, "a feature was asked for only after these cohorts")
    known = reduce(pc.and_, [pc.is_valid(table[name]) for name in settings.features])
    return table.filter(known)


def as_log(table: pa.Table, settings: LoopSettings, **more: Any) -> DecisionLog:
    """Return such a table as a log; `more` are other keywords of `from_frame`."""
    columns: dict[str, Any] = {
        name: f"={name}" for name in ("decision", "propensity", "label", "amount")
    }
    if settings.sensitive:
        columns["sensitive"] = settings.sensitive
    try:
        return DecisionLog.from_frame(
            table,
            features=list(settings.features),
            time_step="=time",
            period=settings.period,
            **columns,
            **more,
        )
    except DecisionLogError as error:
        raise Problem("cohort_rows", 503, f"the cohorts are no sound log: {error}") from None


def _feature_columns(settings: LoopSettings) -> dict[str, str]:
    """Return the column of each feature: its name, unless another column has it."""
    columns: dict[str, str] = {}
    for name in settings.features:
        column = name
        while column in _OWN or (column != name and column in settings.features):
            column += "_"
        columns[name] = column
    return columns


def reported_groups(
    store: Store, attribute: str, subjects: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the last value that was reported of each subject, or of some."""
    table = schema.attribute
    asked = select(table.c.subject_id, table.c.value).where(table.c.attribute == attribute)
    if subjects is not None:
        asked = asked.where(table.c.subject_id.in_(subjects))
    with store.read_sensitive() as connection:
        rows = connection.execute(asked.order_by(table.c.id))
        return {subject: UNKNOWN if value is None else value for subject, value in rows}


def _pieces(
    connection: Connection, loop: str, since: datetime, until: datetime
) -> Iterator[list[Row]]:
    """Yield decisions in order, and whether a row repeats one of its subject and epoch."""
    table = schema.decision
    asked = select(table, repeats(table).label("repeats")).where(
        table.c.loop == loop, table.c.id >= first_id(since), table.c.id < first_id(until)
    )
    ordered = asked.order_by(table.c.id).execution_options(yield_per=_PIECE)
    with connection.execute(ordered) as result:
        yield from map(list, result.mappings().partitions())


def _rows(
    connection: Connection, piece: list[Row], counts: Counter[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the rows that are learned from, each with its features."""
    outcomes, overrides = (_about(connection, t, piece) for t in (schema.outcome, schema.override))
    for row in piece:
        if row["features"] is None or row["repeats"]:
            counts["forgotten" if row["features"] is None else "repeated"] += 1
            continue
        state = state_of(outcomes.get(row["id"], ()))
        is_own = row["accepted"] and row["id"] not in overrides  # else it is of something else
        label = state["label"] if state is not None and is_own else None
        counts["rows"] += 1
        counts["overridden"] += row["id"] in overrides
        counts["missing"] += row["accepted"] and label is None
        kept = {name: row[name] for name in _OWN.keys() & row.keys()}
        subject = row["application_id"] if row["subject_id"] is None else row["subject_id"]
        made = {"subject": subject, "decision": int(row["accepted"]), "label": label}
        yield kept | made | {"time": moment(row["time"])}, json.loads(row["features"])


def _about(connection: Connection, table: Table, piece: list[Row]) -> dict[str, list[Any]]:
    """Return what was reported of decisions, by decision."""
    first, last = piece[0]["id"], piece[-1]["id"]
    asked = select(table).where(table.c.decision >= first, table.c.decision <= last)
    found: dict[str, list[Any]] = {}
    for row in schema.rows(connection, asked):
        found.setdefault(row["decision"], []).append(row)
    return found
