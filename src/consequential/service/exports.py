"""Exports: decisions and what became of them, as a Parquet file that is a decision log.

A row is an application as it was drawn: an override changes no decision, and an acceptance that
was overridden has no label. Of a subject's applications in an epoch only the first counts, because
all of them are drawn with the same number.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from sqlalchemy import Boolean, Connection, Double, Integer, Select, select

from consequential.log import DecisionLog, DecisionLogError
from consequential.service import schema
from consequential.service.closing import repeats
from consequential.service.database import Store
from consequential.service.outcomes import state_of
from consequential.service.problems import Problem
from consequential.service.records import first_id
from consequential.service.settings import LoopSettings, Words

UNKNOWN = "unknown"  # the group of people whose attribute was not reported
_PIECE = 20_000  # rows in memory
_LOGGED = ("time", "decision", "propensity", "label", "amount")  # what a log has of `_OWN`
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

_READ = (
    "id", "subject_id", "application_id", "time", "epoch", "deployment", "u", "propensity",
    "accepted", "amount", "features",
)  # fmt: skip

# attributes and accounts belong to no loop
TABLES = {
    table.name: table
    for table in schema.metadata.tables.values()
    if table.schema is None and table is not schema.account
}
_KINDS = {Integer: pa.int64(), Double: pa.float64(), Boolean: pa.bool_()}


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
    kinds = {
        name: pa.string() if isinstance(kind, Words) else pa.float64()
        for name, kind in settings.features.items()
    }
    _check_span(since, until)
    columns, own = _feature_columns(settings), dict(_OWN)
    groups: dict[str, str] = {}
    if settings.sensitive and sensitive:
        groups = reported_groups(store, settings.sensitive)
    else:
        del own["sensitive"]
    fields = pa.schema(own | {columns[name]: kind for name, kind in kinds.items()})
    counts = Counter(dict.fromkeys(_COUNTED, 0))
    buffer = io.BytesIO()
    with store.read() as connection, pq.ParquetWriter(buffer, fields) as writer:
        for piece in _pieces(connection, loop, since, until):
            found = _columns(connection, piece, counts)
            if "sensitive" in own:
                found["sensitive"] = [groups.get(each, UNKNOWN) for each in found["subject"]]
                counts["unknown"] += found["sensitive"].count(UNKNOWN)
            arrays = [pa.array(found[name], kind) for name, kind in own.items()]
            arrays += _features(found["features"], pa.schema(kinds)).columns
            writer.write_table(pa.Table.from_arrays(arrays, schema=fields))
    return Export(buffer.getvalue(), dict(counts))


def joined(files: Sequence[bytes], settings: LoopSettings) -> pa.Table:
    """Return what is learned from several exports in one table.

    Features are named as the loop's. All other columns but the sensitive attribute begin with `=`,
    as no feature does. Decisions that were taken before a feature was asked for are left out,
    whatever was decided.
    """
    names = {column: f"={column}" for column in _LOGGED} | {"sensitive": settings.sensitive}
    names |= {column: name for name, column in _feature_columns(settings).items()}
    tables = [pq.ParquetFile(io.BytesIO(file)).read(list(names)) for file in files]
    table = pa.concat_tables(tables, promote_options="default")
    table = table.rename_columns([names[column] for column in table.column_names])
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
    found: dict[str, str] = {}
    with store.read_sensitive() as connection:
        for rows in connection.execute(asked.order_by(table.c.id)).partitions(_PIECE):
            found |= {subject: UNKNOWN if value is None else value for subject, value in rows}
    return found


def _pieces(
    connection: Connection, loop: str, since: datetime, until: datetime
) -> Iterator[list[Any]]:
    """Yield decisions in order, and whether a row repeats one of its subject and epoch."""
    table = schema.decision
    read = [table.c[name] for name in _READ]
    asked = select(*read, repeats(table).label("repeats")).where(
        table.c.loop == loop, table.c.id >= first_id(since), table.c.id < first_id(until)
    )
    ordered = asked.order_by(table.c.id).execution_options(yield_per=_PIECE)
    with connection.execute(ordered) as result:
        yield from map(list, result.partitions())


def _columns(
    connection: Connection, piece: Sequence[Any], counts: Counter[str]
) -> dict[str, Sequence[Any]]:
    """Return the columns of the rows that are learned from."""
    first, last = piece[0].id, piece[-1].id
    labels, overrides = _labels(connection, first, last), _overrides(connection, first, last)
    kept = [row[:-1] for row in piece if row.features is not None and not row.repeats]
    forgotten = sum(row.features is None for row in piece)
    found: dict[str, Sequence[Any]] = dict.fromkeys(_READ, ())
    found |= zip(_READ, zip(*kept, strict=True), strict=False)
    both = zip(found["id"], found["accepted"], strict=True)
    # an acceptance that was overridden became something else
    own = [labels.get(id) if accepted and id not in overrides else None for id, accepted in both]
    counts["rows"] += len(kept)
    counts["forgotten"] += forgotten
    counts["repeated"] += len(piece) - len(kept) - forgotten
    counts["overridden"] += len(overrides.intersection(found["id"]))
    counts["missing"] += sum(found["accepted"]) - sum(label is not None for label in own)
    subjects = zip(found["subject_id"], found["application_id"], strict=True)
    return found | {
        "subject": [other if subject is None else subject for subject, other in subjects],
        "decision": pa.array(found["accepted"], pa.bool_()).cast(_OWN["decision"]),
        "time": pa.array(found["time"], pa.string()).cast(_OWN["time"]),
        "label": own,
    }


def _labels(connection: Connection, first: str, last: str) -> dict[str, int | None]:
    """Return the labels in force of a range of decisions."""
    table, events = schema.outcome, dict[str, list[Any]]()
    read = [table.c[name] for name in ("decision", "event_id", "label", "corrects", "happened")]
    asked = select(*read).where(table.c.decision >= first, table.c.decision <= last)
    for row in connection.execute(asked).mappings().all():
        events.setdefault(row["decision"], []).append(row)
    states = {decision: state_of(each) for decision, each in events.items()}
    return {decision: None if row is None else row["label"] for decision, row in states.items()}


def _overrides(connection: Connection, first: str, last: str) -> set[str]:
    """Return the decisions of a range that were overridden."""
    decision = schema.override.c.decision
    asked = select(decision).where(decision >= first, decision <= last)
    return set(connection.execute(asked).scalars())


def _features(texts: Sequence[str], kinds: pa.Schema) -> pa.Table:
    """Return the columns of features that are stored as JSON."""
    options = pj.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="ignore")
    if not texts:
        return kinds.empty_table()
    return pj.read_json(io.BytesIO("\n".join(texts).encode()), parse_options=options)


# --- rows as they were written


def copy_of(store: Store, table: str, loop: str, since: datetime, until: datetime) -> bytes:
    """Return a loop's rows of a table as a Parquet file, in order, with all of their columns.

    They are those that were written from a moment until before another; of `day`, all.
    """
    if table not in TABLES:
        raise Problem("unknown_table", 422, f"tables are {', '.join(TABLES)}")
    columns = {
        column.name: _KINDS.get(type(column.type), pa.string()) for column in TABLES[table].c
    }
    fields, buffer = pa.schema(columns), io.BytesIO()
    _check_span(since, until)
    asked = _rows(table, loop, since, until).execution_options(yield_per=_PIECE)
    with (
        store.read() as connection,
        connection.execute(asked) as result,
        pq.ParquetWriter(buffer, fields) as writer,
    ):
        for piece in result.mappings().partitions():
            writer.write_table(pa.Table.from_pylist([dict(row) for row in piece], fields))
    return buffer.getvalue()


def _check_span(since: datetime, until: datetime) -> None:
    """Refuse a span that ends before it begins."""
    if until <= since:
        days = f"{since:%Y-%m-%d} and {until:%Y-%m-%d}"
        raise Problem("time", 422, f"an export ends on a later day than it begins, not {days}")


def _rows(name: str, loop: str, since: datetime, until: datetime) -> Select[Any]:
    table = TABLES[name]
    asked = select(table).where(table.c.loop == loop)
    if table is schema.day:
        return asked.order_by(table.c.date, table.c.table)
    within = (table.c.id >= first_id(since)) & (table.c.id < first_id(until))
    return asked.where(within).order_by(table.c.id)
