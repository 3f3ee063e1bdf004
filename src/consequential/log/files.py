"""CSV and Parquet files, read as tables or piece by piece."""

from __future__ import annotations

import os
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consequential.log.errors import DecisionLogError

_HEAD = 1 << 16  # bytes of a CSV file that tell how it is written
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
PIECE_ROWS = 524_288  # rows of a piece at most: with twenty features they take a hundred megabytes


def read_table(path: str | os.PathLike[str]) -> tuple[Any, tuple[str, ...]]:
    """Return a CSV or Parquet file as a pyarrow table, and what was found out about it."""
    import pyarrow.parquet

    if not Path(path).exists():
        raise FileNotFoundError(f"no file {os.fspath(path)!r}")
    with read_damage(os.fspath(path)):
        if Path(path).suffix.lower() == ".parquet":
            return pyarrow.parquet.read_table(path), ()
        dialect = _Dialect.of(path)
        return _read_csv(path, dialect), dialect.notes


@contextmanager
def read_damage(where: str) -> Iterator[None]:
    """Say where a file could not be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DecisionLogError(f"{where} cannot be read: {error}{_advice(str(error))}") from None


def _advice(error: str) -> str:
    if "invalid UTF8" in error:
        return ". Save the file as UTF-8"
    if re.search(r"Expected \d+ columns, got", error):
        return (
            ". A comma within a number or a text must be in quotes; with decimal commas, separate "
            "columns by semicolons"
        )
    return ""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a CSV file is written: what separates columns and decimals, and its encoding."""

    delimiter: str
    decimal: str
    encoding: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> _Dialect:
        import pyarrow as pa

        with pa.input_stream(os.fspath(path)) as stream:  # of a compressed file too
            head = stream.read(_HEAD)
        try:
            # a character may be cut in two at the end
            encoding, text = "utf8", getincrementaldecoder("utf-8-sig")().decode(head)
        except UnicodeDecodeError:  # the encoding of Windows
            encoding, text = "cp1252", head.decode("cp1252", errors="replace")
        text = re.sub(r'"[^"]*"', "", text)
        header, _, body = text.partition("\n")
        delimiter = next((mark for mark in _SEPARATORS if mark in header), ",")
        fields = re.split(r"[;\t\r\n]", body)
        comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", each) for each in fields)
        point = any(re.fullmatch(r"\s*[-+]?\d+\.\d+\s*", each) for each in fields)
        decimal = "," if comma and not point and delimiter != "," else "."
        return cls(delimiter, decimal, encoding)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.delimiter != ",":
            decimals = ", with decimal commas" if self.decimal == "," else ""
            marks = _SEPARATORS[self.delimiter]
            notes.append(f"the file was read with {marks} between columns{decimals}")
        if self.encoding != "utf8":
            notes.append(f"the file was read as text in {self.encoding}, since it is not UTF-8")
        return tuple(notes)


def _read_csv(path: str | os.PathLike[str], dialect: _Dialect) -> Any:
    """Read a file; a column that does not keep to the type of its beginning becomes text."""
    import pyarrow as pa
    import pyarrow.csv

    types: dict[str, Any] = {}
    options = {
        "parse_options": pyarrow.csv.ParseOptions(delimiter=dialect.delimiter),
        "read_options": pyarrow.csv.ReadOptions(encoding=dialect.encoding),
    }
    while True:
        convert = pyarrow.csv.ConvertOptions(
            strings_can_be_null=True, decimal_point=dialect.decimal, column_types=types
        )
        try:
            table = pyarrow.csv.read_csv(path, convert_options=convert, **options)
        except pa.ArrowInvalid as error:
            place = re.search(r"In CSV column #(\d+): CSV conversion error to (\w+)", str(error))
            if place is None or place[2] == "string":
                raise
            with pyarrow.csv.open_csv(path, **options) as reader:
                name = reader.schema.names[int(place[1])]
            # whole numbers at first may be decimals later; anything else is words
            types[name] = pa.float64() if place[2] == "int64" else pa.string()
            continue
        undecoded = [field.name for field in table.schema if pa.types.is_binary(field.type)]
        if undecoded:
            raise DecisionLogError(
                f"{os.fspath(path)} is not UTF-8 text throughout (column {undecoded[0]!r}): save "
                "it as UTF-8"
            )
        return table


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one Parquet file: a row group, or part of a large one."""

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
                Piece(os.fspath(file), group, start, min(PIECE_ROWS, n_rows - start))
                for start in range(0, n_rows, PIECE_ROWS)
            ]
    if not pieces:
        raise DecisionLogError(f"no rows in {os.fspath(path)!r}: a log needs at least one decision")
    return tuple(pieces)
