"""Cells: the values of a raw column in a common form, and how their text is read.

Cells are an array of floats (NaN is missing), of booleans, of days (`datetime64[D]`, NaT is
missing), or of text (None is missing). Text that is blank or says nan is missing too.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policy.features import PolicyError, as_frame, is_records, record_columns

Cells = NDArray[Any]
Dates = NDArray[np.datetime64]

# what a person reads as a number
_NEARLY = re.compile(r"[-+]?[$€£]?\s?\d[\d.,' ]*\s?([%kKmM$€£]|mio)?")
_CODE = re.compile(r"\s*[-+]?0\d+\s*")  # 01234 is the code of a place, not a number
HOW_TO_WRITE = ": write numbers as 1234.5 and dates as 2024-03-01, and leave missing values empty"
_MANY = 10  # different numbers that are too many for codes of categories
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")  # and maybe a time
# another notation of dates, which may leave open what is the day and what the month
_OTHER_DAY = re.compile(
    r"(\d{4}([./])\d{1,2}\2\d{1,2}|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2})"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})([T ].*)?"
)
_MONTH = re.compile(r"\d{4}-\d{2}")
_POINTED = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})\b")  # with points the day is first


def columns_of(people: Any) -> dict[str, Cells] | None:
    """Return the cells of a data frame, a dict (one person) or a list of dicts; None for others."""
    if is_records(people):
        columns = record_columns(people).items()
        return {name: _cells_of_values(values) for name, values in columns}
    frame = as_frame(people)
    return None if frame is None else {name: cells_of(frame[name]) for name in frame.columns}


def cells_of(series: Any) -> Cells:
    """Return the cells of a narwhals series."""
    import narwhals as nw

    dtype = series.dtype
    if dtype == nw.Boolean and not series.is_null().any():
        return np.asarray(series.to_numpy(), dtype=np.bool_)
    if dtype.is_numeric():
        try:
            return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        except ValueError as error:  # Arrow's, about whole numbers that floats cannot hold
            raise PolicyError(f"the column {series.name!r}: {error}") from None
    if dtype == nw.Date or isinstance(dtype, nw.Datetime):
        if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
            series = series.dt.replace_time_zone(None)  # the local day
        return np.asarray(series.to_numpy()).astype("datetime64[D]")
    if dtype.is_nested() or dtype.is_temporal() or dtype == nw.Binary or _has_parts(series):
        raise PolicyError(
            f"the column {series.name!r} has type {dtype}, not numbers, words, dates or booleans"
        )
    values = series.to_list()
    if dtype != nw.String:
        return _texts(values)
    distinct = list(set(values))  # each is looked at once
    said = dict(zip(distinct, _texts(distinct), strict=True))
    return np.array([said[value] for value in values], dtype=object)


def _has_parts(series: Any) -> bool:
    """Whether a column of Python objects has lists, bytes or the like: no words to learn from."""
    parts = (list, tuple, dict, set, bytes, complex, np.ndarray)
    known = str(series.dtype) not in ("Object", "Unknown")
    return not known and any(isinstance(value, parts) for value in series.to_list())


def _cells_of_values(values: Sequence[Any]) -> Cells:
    """Return the cells of Python values, those of a column of records."""
    known = [value for value in values if not _is_missing(value)]
    if known and all(_is_plain_number(value) for value in known):
        return np.array([math.nan if _is_missing(value) else value for value in values], np.float64)
    return _texts(values)


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and is_number(value)


def _texts(values: Iterable[Any]) -> Cells:
    found = [
        None if _is_missing(value) or (text := str(value)).strip().lower() in ("", "nan") else text
        for value in values
    ]
    return np.array(found, dtype=object)


def missing_values(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where an array has None, NaN or another value that is not equal to itself."""
    if values.dtype.kind != "O":
        return np.asarray(values != values)
    try:
        nothing = np.equal(values, np.array(None)) | np.not_equal(values, values)
        return np.asarray(nothing, dtype=np.bool_)
    except (TypeError, ValueError, ArithmeticError):  # a value that cannot be compared
        flags = [_is_missing(value) for value in values.ravel()]
        return np.array(flags, dtype=np.bool_).reshape(values.shape)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)  # NaN and NaT differ from themselves
    except (TypeError, ValueError, ArithmeticError):  # Decimal("sNaN") cannot be compared
        return type(value).__name__ == "NAType"


# Text


def is_number(value: Any) -> bool:
    """Whether a value, or what text says, is a number that a float can hold."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def as_number(value: Any) -> float:
    """Return a value, or what text says, as a number; NaN where it is none."""
    return float(value) if is_number(value) else math.nan


def is_code(text: str) -> bool:
    """Whether text is a number with a leading zero, which numbers do not have and codes do."""
    return _CODE.fullmatch(text) is not None


def check_spelling(name: str, texts: Cells, counts: Counter[str]) -> None:
    """Refuse a column of numbers that a few values turned into words, and dates that are no ISO.

    Few different numbers among words may be categories. Many are amounts, and the words among them
    are misspelt or stand for missing values. `counts` says how often each text occurs.
    """
    n = counts.total()
    days = [text for text in counts if _OTHER_DAY.fullmatch(text.strip())]
    understood = {text for text in days if _day(text) is not None}
    unread = [text for text in days if text not in understood]
    if unread and len(days) > _MANY and sum(counts[text] for text in days) > n / 2:
        said = f"the column {name!r} has dates such as {unread[0].strip()!r}"
        raise PolicyError(f"{said}: write dates as 2024-03-01")
    plain = {text for text in counts if is_number(text)}
    nearly = {text for text in counts if _NEARLY.fullmatch(text.strip())} - understood
    numeric = plain | nearly
    n_rows = sum(counts[text] for text in numeric)
    many = len(numeric) > _MANY or len(counts) > n / 2
    if len(plain) == len(counts) or n_rows <= n / 2 or not many:
        return
    row = next(row for row, text in enumerate(texts) if text is not None and text not in plain)
    others = sum(count for text, count in counts.items() if text not in plain) - 1
    also = f", and {others} more rows have such values" if others else ""
    text = texts[row].strip()
    raise PolicyError(
        f"the column {name!r} must be numbers, but row {row} has {text!r}{also}{HOW_TO_WRITE}"
    )


def as_dates(values: Any) -> Dates | None:
    """Return dates, also in text (2024-03-01 or 01.03.2024); None where a value is no date."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        return array.astype("datetime64[D]")
    if array.dtype.kind not in "OU" or array.ndim != 1:
        return None
    days = days_of(array)
    unknown = np.isnat(days)
    return None if unknown.all() or (unknown & ~missing_values(array)).any() else days


def days_of(values: NDArray[Any]) -> Dates:
    """Return the days of dates, times and their text; NaT where a value is none of them."""
    return np.array([_day(value) for value in values.tolist()], dtype="datetime64[D]")


def _day(value: Any) -> date | None:
    try:
        if isinstance(value, datetime):
            return value.date()
        text = str(value).strip()
        if _MONTH.fullmatch(text):
            text += "-01"
        text = _POINTED.sub(lambda day: f"{day[3]}-{day[2]:0>2}-{day[1]:0>2}", text)
        return datetime.fromisoformat(text).date() if _DAY.match(text) else None
    except ValueError:  # a day that no month has, or NaT
        return None
