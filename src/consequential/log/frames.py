"""Frames: tables of any library and in CSV and Parquet files, which logs are made of and become."""

from __future__ import annotations

import os
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log.columns import DecisionLogError, FrameColumn
from consequential.policy import NamedFeatures, PolicyError, Preparation
from consequential.policy.cells import Cells, missing_values

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog

_FEW = 20  # people whose blanks may be chance
_HEAD = 1 << 16  # bytes of a CSV file that tell how it is written
_NOT_CSV = {  # how files begin that are sometimes given in place of one
    b"PK\x03\x04": "an Excel workbook, or another archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


# Frames


def as_table(frame: Any) -> Any:
    """Return a frame of any library as a narwhals frame."""
    import narwhals as nw

    try:
        return nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError as error:
        raise DecisionLogError(f"two columns of the frame have one name. {error}") from None
    except TypeError as error:
        raise DecisionLogError(
            f"{type(frame).__name__} is not a data frame that narwhals knows "
            f"(pandas, polars, pyarrow): {error}"
        ) from None


def prepared_features(
    table: Any, features: Sequence[str] | None, like: Any
) -> tuple[NamedFeatures, tuple[str, ...]]:
    """Return the features of a narwhals frame, and what was noticed when they were prepared.

    With `like`, a log or a policy, they are prepared in the same way as there.
    """
    import pyarrow as pa

    try:
        if like is None:
            check_features_are_listed(features)
            preparation = with_clear_names(Preparation.of(table, features))
        else:
            preparation = _preparation_of(like, features)
        missing = [name for name in preparation.names if name not in table.columns]
        if missing:
            raise DecisionLogError(f"no column {missing[0]!r} in the frame; it has {table.columns}")
        people = preparation.transform(table.select(*preparation.names))
    except (PolicyError, pa.ArrowException) as error:
        raise DecisionLogError(f"{error}") from None
    return people, preparation.notes if like is None else people.notes


def _preparation_of(like: Any, features: Sequence[str] | None) -> Preparation:
    # of a learner it is that of its policy
    found: Preparation | None = getattr(getattr(like, "policy_", like), "preparation", None)
    if found is None:
        raise DecisionLogError(
            f"like is a log or a policy made of raw columns; this {type(like).__name__} knows no "
            "preparation of them: name the features"
        )
    if features is not None and set(features) != set(found.names):
        raise DecisionLogError(
            f"features are {', '.join(features)}, but what the log shall be like looks at "
            f"{', '.join(found.names)}: leave features out"
        )
    return found


def with_clear_names(preparation: Preparation) -> Preparation:
    """Return a preparation, unless a column could be taken for a word of another.

    Rules find features by name: `x=y` is the column of that name, or the word y of the column x.
    """
    for words in (column.name for column in preparation.columns if column.kind == "word"):
        for name in preparation.names:
            if name.startswith(f"{words}="):
                raise DecisionLogError(
                    f"the column {name!r} could be taken for a word of the column {words!r}: "
                    "rename one of them"
                )
    return preparation


def check_features_are_listed(features: Sequence[str] | None) -> None:
    """Refuse a single name in place of a list of names, and an empty list."""
    if isinstance(features, str):
        raise DecisionLogError(f"features is a list of columns: write features=[{features!r}]")
    if features is None or len(features) == 0:
        raise DecisionLogError("features is empty: name at least one column")


def check_known_beforehand(raw: Mapping[str, Cells], accepted: NDArray[np.bool_]) -> None:
    """Refuse raw columns that are filled in only once people are accepted, or rejected."""
    if min(accepted.sum(), (~accepted).sum()) < _FEW:
        return
    for name, cells in raw.items():
        known = ~missing_values(cells)
        some = accepted if known[accepted].any() else ~accepted
        if known[some].mean() > 0.5 and not known[~some].any():
            one, other = ("accepted", "rejected") if some is accepted else ("rejected", "accepted")
            raise DecisionLogError(
                f"{name!r} is filled for {known.sum()} of {some.sum()} {one} people and for nobody "
                f"{other}: it is known only after the decision, and no rule can go by it. Leave it "
                "out of the features"
            )


def check_names_differ(names: Sequence[str], where: str) -> None:
    """Refuse a table with two columns of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DecisionLogError(f"{where} has two columns {twice[0]!r}: rename one")


def named_columns(table: Any, **named: Any) -> dict[str, Any]:
    """Return the columns of a narwhals frame by role; values other than names stay unchanged."""

    def column(name: str) -> FrameColumn:
        if name not in table.columns:
            raise DecisionLogError(f"no column {name!r} in the frame; it has {table.columns}")
        return _column(table[name])

    return {
        role: column(name)
        if isinstance(name, str)
        else {each: column(each) for each in name}
        if isinstance(name, list | tuple)
        else name
        for role, name in named.items()
    }


def _column(series: Any) -> FrameColumn:
    import narwhals as nw

    dtype = series.dtype
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        series = series.dt.replace_time_zone(None)  # the day it was there
    if dtype.is_numeric() and series.is_null().any():
        try:
            series = series.cast(nw.Float64)
        except ValueError as error:  # Arrow's, about whole numbers that floats cannot hold
            raise DecisionLogError(f"the column {series.name!r}: {error}") from None
    if dtype.is_temporal() or dtype.is_numeric():
        values = np.asarray(series.to_numpy())
    else:
        values = np.array(series.to_list(), dtype=object)
    column = values.view(FrameColumn)
    column.column = series.name
    return column


def to_frame(log: DecisionLog, backend: Literal["pyarrow", "pandas", "polars"] = "pyarrow") -> Any:
    """Return the rows as a data frame; unknown labels, or values, are missing values."""
    columns = {"sensitive": log.sensitive} if len(log.groups) > 1 else {}
    columns["decision"] = log.decision.astype(np.int8)
    for name in ("propensity", "label", "time_step", "amount", "cost", "observed"):
        if getattr(log, name) is not None:
            columns[name] = getattr(log, name)
    if log.value_range is not None:
        columns["value"] = columns.pop("amount") * (columns.pop("label") - columns.pop("cost"))
    features = {name: log.features[:, k] for k, name in enumerate(log.feature_names)}
    clash = sorted(features.keys() & columns.keys())
    if clash:
        raise DecisionLogError(f"the feature {clash[0]!r} has the name of a column: rename it")
    return make_frame(features | columns, backend)


def make_frame(columns: dict[str, NDArray[Any]], backend: str) -> Any:
    """Return columns as a native frame of the library named; an outcome of NaN becomes missing."""
    import narwhals as nw
    import pyarrow as pa

    if backend not in ("pyarrow", "pandas", "polars"):
        raise ValueError(f"unknown backend {backend!r}; choose pyarrow, pandas or polars")
    outcomes = ("label", "value")
    table = pa.table(
        {name: pa.array(values, from_pandas=name in outcomes) for name, values in columns.items()}
    )
    frame = nw.from_native(table, eager_only=True)
    return table if backend == "pyarrow" else getattr(frame, f"to_{backend}")()


# Files


def read_table(path: str | os.PathLike[str]) -> tuple[Any, tuple[str, ...]]:
    """Return a CSV or Parquet file as a pyarrow table, and what was found out about it."""
    import pyarrow.parquet

    if not Path(path).exists():
        raise FileNotFoundError(f"no file {os.fspath(path)!r}")
    if not Path(path).is_file() and not Path(path).is_dir():
        raise DecisionLogError(f"{os.fspath(path)} is a device or a pipe: save it as a file first")
    with read_damage(os.fspath(path)):
        if Path(path).suffix.lower() == ".parquet":
            table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
            notes: tuple[str, ...] = ()
        else:
            table, notes = _read_csv(path)
    check_names_differ(table.column_names, os.fspath(path))
    return table, notes


@contextmanager
def read_damage(where: str) -> Iterator[None]:
    """Turn errors of reading into one that names the file and gives advice."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        advice = ": save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        if isinstance(error, UnicodeEncodeError):  # of its name
            advice = ": rename it, with letters of UTF-8"
        raise DecisionLogError(f"{where} cannot be read: {error}{advice}") from None


def _read_csv(path: str | os.PathLike[str]) -> tuple[Any, tuple[str, ...]]:
    """Read a CSV file; notes say where its separators or its encoding are unusual."""
    import pyarrow as pa
    import pyarrow.csv

    delimiter, decimal, encoding = _dialect(path)
    notes = []
    if delimiter != ",":
        decimals = ", with decimal commas" if decimal == "," else ""
        marks = _SEPARATORS[delimiter]
        notes.append(f"the file was read with {marks} between columns{decimals}")
    if encoding != "utf8":
        notes.append(f"the file was read as text in {encoding}, since it is not UTF-8")
    table = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        read_options=pyarrow.csv.ReadOptions(encoding=encoding),
        convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True, decimal_point=decimal),
    )
    undecoded = [field.name for field in table.schema if pa.types.is_binary(field.type)]
    if undecoded:
        raise DecisionLogError(
            f"{os.fspath(path)} is not UTF-8 text throughout (column {undecoded[0]!r}): save "
            "it as UTF-8"
        )
    return table, tuple(notes)


def _dialect(path: str | os.PathLike[str]) -> tuple[str, str, str]:
    """Return what separates a CSV file's columns, its decimal mark, and its encoding."""
    import pyarrow as pa

    with pa.input_stream(os.fspath(path)) as stream:  # of a compressed file too
        head = stream.read(_HEAD)
    for start, kind in _NOT_CSV.items():
        if head.startswith(start):
            raise DecisionLogError(f"{os.fspath(path)} is {kind}: save it as CSV in UTF-8")
    try:
        # a character may be cut in two at the end
        encoding, text = "utf8", getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:  # the encoding of Windows
        encoding, text = "cp1252", head.decode("cp1252", errors="replace")
    header, _, body = re.sub(r'"[^"]*"', "", text).partition("\n")
    delimiter = next((mark for mark in _SEPARATORS if mark in header), ",")
    fields = re.split(r"[;\t\r\n]", body)
    comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", each) for each in fields)
    point = any(re.fullmatch(r"\s*[-+]?\d+\.\d+\s*", each) for each in fields)
    decimal = "," if comma and not point and delimiter != "," else "."
    return delimiter, decimal, encoding
