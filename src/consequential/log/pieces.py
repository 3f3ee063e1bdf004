"""Pieces of Parquet files: found, checked against one schema, and read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consequential.log.errors import DecisionLogError
from consequential.log.files import read_damage

# so many rows of twenty features take a hundred megabytes
_PIECE = 524_288


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one file: whole row groups, or a stretch of a large one."""

    path: str
    row_group: int
    start: int
    n_rows: int

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"{self.path}, row group {self.row_group}, rows from {self.start}"


def read_piece(piece: Piece, columns: list[str]) -> Any:
    """Return a piece's columns as a table."""
    import pyarrow.parquet as pq

    with read_damage(piece.place), pq.ParquetFile(piece.path) as file:
        table = file.read_row_group(piece.row_group, columns=columns, use_threads=False)
        return table.slice(piece.start, piece.n_rows)


def footer(path: str) -> bytes:
    """Return what a Parquet file says of itself: schema, row groups, statistics."""
    with open(path, "rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return file.read(length)


def found_pieces(path: str | os.PathLike[str], columns: Sequence[str]) -> tuple[Piece, ...]:
    """Return the pieces of a Parquet file or of a folder of them, after a look at every schema."""
    import pyarrow.parquet as pq

    root = Path(path)
    if not root.exists():
        raise FileNotFoundError(f"no file or folder {os.fspath(path)!r}")
    paths = sorted(root.rglob("*.parquet")) if root.is_dir() else [root]
    if not paths:
        raise DecisionLogError(f"no Parquet files in {os.fspath(path)!r}")
    pieces: list[Piece] = []
    first = None
    for file in paths:
        with read_damage(os.fspath(file)), pq.ParquetFile(file) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
        missing = [name for name in columns if name not in schema.names]
        if missing:
            raise DecisionLogError(f"{file} has no column {missing[0]!r}; it has {schema.names}")
        kinds = {name: schema.field(name).type for name in columns}
        first = first or (file, kinds)
        for name, kind in kinds.items():
            if kind != first[1][name]:
                raise DecisionLogError(
                    f"{file} has the column {name!r} as {kind}, {first[0]} as {first[1][name]}: "
                    "all files need the same schema"
                )
        for group in range(metadata.num_row_groups):
            n_rows = metadata.row_group(group).num_rows
            pieces += [
                Piece(os.fspath(file), group, start, min(_PIECE, n_rows - start))
                for start in range(0, n_rows, _PIECE)
            ]
    if not pieces:
        raise DecisionLogError(f"no rows in {os.fspath(path)!r}: a log needs at least one decision")
    return tuple(pieces)
