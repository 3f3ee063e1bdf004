"""CSV and Parquet files as tables, whatever separates their columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consequential.log.errors import DecisionLogError

_HEAD = 1 << 16  # bytes of a CSV file that tell how it is written
_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs"}


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
    """What stands between the columns of a CSV file, and what in its decimal numbers."""

    delimiter: str = ","
    decimal: str = "."

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> _Dialect:
        import pyarrow as pa

        with pa.input_stream(os.fspath(path)) as stream:  # of a compressed file too
            text = stream.read(_HEAD).decode("utf-8-sig", errors="replace")
        text = re.sub(r'"[^"]*"', "", text)
        header, _, body = text.partition("\n")
        delimiter = next((mark for mark in ",;\t" if mark in header), ",")
        if delimiter == ",":
            return cls()
        fields = re.split(r"[;\t\r\n]", body)
        comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", each) for each in fields)
        point = any(re.fullmatch(r"\s*[-+]?\d+\.\d+\s*", each) for each in fields)
        return cls(delimiter, "," if comma and not point else ".")

    @property
    def notes(self) -> tuple[str, ...]:
        if self.delimiter == ",":
            return ()
        decimals = ", with decimal commas" if self.decimal == "," else ""
        return (f"the file was read with {_WORDS[self.delimiter]} between columns{decimals}",)


def _read_csv(path: str | os.PathLike[str], dialect: _Dialect) -> Any:
    """Read a file; a column that does not keep to the type of its beginning becomes text."""
    import pyarrow as pa
    import pyarrow.csv

    types: dict[str, Any] = {}
    parse = pyarrow.csv.ParseOptions(delimiter=dialect.delimiter)
    while True:
        convert = pyarrow.csv.ConvertOptions(
            strings_can_be_null=True, decimal_point=dialect.decimal, column_types=types
        )
        try:
            return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            place = re.search(r"In CSV column #(\d+): CSV conversion error to (\w+)", str(error))
            if place is None or place[2] == "string":
                raise
            with pyarrow.csv.open_csv(path, parse_options=parse) as reader:
                name = reader.schema.names[int(place[1])]
            # whole numbers at first may be decimals later; anything else is words
            types[name] = pa.float64() if place[2] == "int64" else pa.string()
