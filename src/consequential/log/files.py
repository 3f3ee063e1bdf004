"""CSV and Parquet files as tables, whatever separates their columns."""

from __future__ import annotations

import os
import re
from codecs import getincrementaldecoder
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
    """What stands between the columns of a CSV file and in its decimals, and its encoding."""

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf8"

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> _Dialect:
        import pyarrow as pa

        with pa.input_stream(os.fspath(path)) as stream:  # of a compressed file too
            head = stream.read(_HEAD)
        encoding, text = _decoded(head)
        text = re.sub(r'"[^"]*"', "", text)
        header, _, body = text.partition("\n")
        delimiter = next((mark for mark in ",;\t" if mark in header), ",")
        fields = re.split(r"[;\t\r\n]", body)
        comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", each) for each in fields)
        point = any(re.fullmatch(r"\s*[-+]?\d+\.\d+\s*", each) for each in fields)
        decimal = "," if comma and not point and delimiter != "," else "."
        return cls(delimiter, decimal, encoding)

    @property
    def notes(self) -> tuple[str, ...]:
        decimals = ", with decimal commas" if self.decimal == "," else ""
        marks = f"the file was read with {_WORDS[self.delimiter]} between columns{decimals}"
        encoding = f"the file was read as text in {self.encoding}, since it is not UTF-8"
        return (*[marks] * (self.delimiter != ","), *[encoding] * (self.encoding != "utf8"))


def _decoded(head: bytes) -> tuple[str, str]:
    """Return the beginning of a file as text, and its encoding: UTF-8, or that of Windows."""
    try:
        # a character may be cut in two at the end
        text = getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return "cp1252", head.decode("cp1252", errors="replace")
    return "utf8", text


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
