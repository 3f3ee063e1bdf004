"""Pieces: some rows each of Parquet files, found before a scan begins and read in order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.columns import DecisionLogError
from consequential.log.frames import check_names_differ, read_damage
from consequential.policy import PolicyError

PIECE_ROWS = 524_288  # rows of a piece at most: with twenty features they take a hundred megabytes
_BATCH_ROWS = 65_536  # that are decoded at a time
_BUFFER = 1 << 20  # bytes read at a time; without a buffer a column of a row group is read at once


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file as it was when the scan was made."""

    path: str
    size: int
    modified: int  # in nanoseconds
    footer: str  # digest of what the file says of itself: schema, row groups, statistics

    @classmethod
    def of(cls, path: str) -> ParquetFile:
        """Look at a file."""
        found = os.stat(path)
        return cls(
            path, found.st_size, found.st_mtime_ns, hashlib.sha256(_footer(path)).hexdigest()
        )

    def opened(self) -> Any:
        """Open it for reading, unless it is another file by now."""
        import pyarrow.parquet as pq

        with read_damage(self.path):
            found = os.stat(self.path)
            if (found.st_size, found.st_mtime_ns) != (self.size, self.modified):
                raise DecisionLogError(
                    f"{self.path} was written again after the scan was made: scan it anew"
                )
            return pq.ParquetFile(
                self.path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
            )


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one Parquet file: a row group, or part of a large one."""

    file: ParquetFile
    row_group: int
    start: int
    n_rows: int

    @property
    def stop(self) -> int:
        """The first row of the row group that comes after it."""
        return self.start + self.n_rows

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"{self.file.path}, row group {self.row_group}, rows from {self.start}"


@dataclass(frozen=True, slots=True)
class Draw:
    """Which rows of a piece are in a sample, or outside it: the same in every process."""

    share: float
    seed: int
    inside: bool = True

    def rows(self, piece: Piece) -> NDArray[np.bool_]:
        """Return a mask."""
        name = f"{Path(piece.file.path).name} {piece.row_group} {piece.start}"
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        uniforms = np.random.default_rng([self.seed, key]).random(piece.n_rows)
        inside: NDArray[np.bool_] = uniforms < self.share
        return inside if self.inside else ~inside


@contextmanager
def located(piece: Piece) -> Iterator[None]:
    """Say which piece an error is about."""
    import pyarrow as pa

    try:
        yield
    except (DecisionLogError, PolicyError, pa.ArrowException) as error:
        raise DecisionLogError(f"{piece.place}: {error}") from None


def read_pieces(pieces: Sequence[Piece], columns: list[str]) -> Iterator[tuple[Piece, Any]]:
    """Yield pieces, which are in order, with their columns as pyarrow tables.

    Each row group is decoded once from its beginning, a batch at a time, however large it is.
    """
    for (file, group), parts in groupby(pieces, attrgetter("file", "row_group")):
        with file.opened() as opened:
            batches = opened.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns)
            held, begin = opened.schema_arrow.empty_table().select(columns), 0
            for piece in parts:
                with read_damage(piece.place):
                    held, begin = _rows_until(piece, held, begin, batches)
                yield piece, held.slice(piece.start - begin, piece.n_rows)


def _rows_until(piece: Piece, held: Any, begin: int, batches: Iterator[Any]) -> tuple[Any, int]:
    """Return rows that include those of a piece, and which row is their first.

    `held` are rows that were read before, from row `begin`.
    """
    import pyarrow as pa

    while True:
        gone = min(max(piece.start - begin, 0), len(held))  # they are before the piece
        held, begin = held.slice(gone), begin + gone
        if begin + len(held) >= piece.stop:
            return held, begin
        batch = next(batches, None)
        if batch is None:
            raise OSError(f"the row group ends at row {begin + len(held)}")
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])


def found_pieces(path: str | os.PathLike[str], columns: Sequence[str]) -> tuple[Piece, ...]:
    """Return the pieces of a Parquet file or of a folder of them, after a look at every schema."""
    root = Path(path)
    if not root.exists():
        raise FileNotFoundError(f"no file or folder {os.fspath(path)!r}")
    paths = _files_in(root) if root.is_dir() else [root]
    if not paths:
        raise DecisionLogError(f"no Parquet files in {os.fspath(path)!r}")
    pieces: list[Piece] = []
    first = None
    for each in paths:
        with read_damage(os.fspath(each)):
            file = ParquetFile.of(os.fspath(each))
            with file.opened() as parquet:
                schema, metadata = parquet.schema_arrow, parquet.metadata
            sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
            if sum(sizes) != metadata.num_rows or min(sizes, default=0) < 0:
                raise OSError("its numbers of rows contradict each other")
        check_names_differ(schema.names, file.path)
        missing = [name for name in columns if name not in schema.names]
        if missing:
            raise DecisionLogError(f"{each} has no column {missing[0]!r}; it has {schema.names}")
        kinds = {name: schema.field(name).type for name in columns}
        first = first or (each, kinds)
        for name, kind in kinds.items():
            if kind != first[1][name]:
                raise DecisionLogError(
                    f"{each} has the column {name!r} as {kind}, {first[0]} as {first[1][name]}: "
                    "all files need the same schema"
                )
        pieces += [
            Piece(file, group, start, min(PIECE_ROWS, n_rows - start))
            for group, n_rows in enumerate(sizes)
            for start in range(0, n_rows, PIECE_ROWS)
        ]
    if not pieces:
        raise DecisionLogError(f"no rows in {os.fspath(path)!r}: a log needs at least one decision")
    return tuple(pieces)


def _files_in(folder: Path) -> list[Path]:
    """Return its Parquet files, sorted; what other programs hide or have not finished is left out.

    Names of such files and folders begin with a dot or an underscore.
    """
    found: dict[tuple[int, int], Path] = {}
    for path in sorted(folder.rglob("*.parquet")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if hidden or not path.is_file():
            continue
        status = path.stat()
        other = found.setdefault((status.st_dev, status.st_ino), path)
        if other is not path:
            raise DecisionLogError(
                f"{path} and {other} are the same file, whose rows would count twice: remove one "
                "of the links"
            )
    return list(found.values())


def _footer(path: str) -> bytes:
    """Return what a Parquet file says of itself, or what is in its place."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(size - 8 - length, 0))
        return file.read(length)
