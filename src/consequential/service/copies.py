"""Copies: a table's rows as they were written, so that others can check digests and seals."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Boolean, Double, Integer, Select, select

from consequential.service import schema
from consequential.service.database import Store
from consequential.service.problems import Problem
from consequential.service.records import first_id

_PIECE = 20_000  # rows in memory
# attributes and accounts belong to no loop
TABLES = {
    table.name: table
    for table in schema.metadata.tables.values()
    if table.schema is None and table is not schema.account
}
_KINDS = {Integer: pa.int64(), Double: pa.float64(), Boolean: pa.bool_()}


def copy_of(store: Store, table: str, loop: str, since: datetime, until: datetime) -> bytes:
    """Return a loop's rows of a table as a Parquet file, in order, with all of their columns.

    They are those that were written from a moment until before another; of `day`, all.
    """
    if table not in TABLES:
        raise Problem("unknown_table", 422, f"tables are {', '.join(TABLES)}")
    columns = {column.name: _kind(column.type) for column in TABLES[table].c}
    fields, buffer = pa.schema(columns), io.BytesIO()
    check_span(since, until)
    asked = _rows(table, loop, since, until).execution_options(yield_per=_PIECE)
    with (
        store.read() as connection,
        connection.execute(asked) as result,
        pq.ParquetWriter(buffer, fields) as writer,
    ):
        for piece in result.mappings().partitions():
            writer.write_table(pa.Table.from_pylist([dict(row) for row in piece], fields))
    return buffer.getvalue()


def check_span(since: datetime, until: datetime) -> None:
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


def _kind(kind: Any) -> pa.DataType:
    return _KINDS.get(type(kind), pa.string())
