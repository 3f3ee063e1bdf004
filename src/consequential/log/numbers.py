"""Numbers out of whatever a column holds, and what to say of a value that is none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.errors import DecisionLogError

Floats = NDArray[np.float64]

_NEARLY = re.compile(r"[-+]?[$€£]?\s?\d[\d.,' ]*\s?([%kKmM$€£]|mio)?")  # a number to a person
_ABSENT = ("", "-", "?", ".", "na", "n/a", "nan", "none", "null", "missing", "unknown")
_MANY = 10  # different numbers that are too many for codes of categories


def numbers(title: str, values: Any, names: Sequence[str] | None = None) -> Floats:
    """Return values as numbers; missing ones are NaN, and text that is a number counts as one.

    `names` are those of a matrix's columns.
    """
    array = as_array(title, values)
    try:
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError):
        pass
    flat = array.ravel().tolist()
    row, value = next((k, value) for k, value in enumerate(flat) if not is_number(value))
    advice = hint(value)
    if array.ndim == 2:
        row, column = divmod(row, array.shape[1])
        title = f"{title} (column {names[column]!r})" if names is not None else title
        advice = advice or ": encode categories first (one-hot, say), or build the log of a frame"
    raise DecisionLogError(f"{title} must be numbers, but row {row} has {value!r}{advice}")


def as_array(title: str, values: Any) -> NDArray[Any]:
    """Return an array; where it has objects or text, NaN is in place of what is missing."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "OU":
            return array
        array = np.array(values, dtype=object)  # or NaN would become the text "nan"
    except ValueError:
        raise DecisionLogError(
            f"{title} must be numbers, as many in every row: rows differ in length"
        ) from None
    array[missing_values(array)] = np.nan
    return array


def missing_values(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an array has None, NaN or another value that is not equal to itself."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))

    def is_missing(value: Any) -> bool:
        if value is None:
            return True
        try:
            return bool(value != value)  # NaN and NaT differ from themselves
        except (TypeError, ValueError):
            return type(value).__name__ == "NAType"

    flags = [is_missing(value) for value in values.ravel()]
    return np.array(flags, dtype=np.bool_).reshape(values.shape)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or the text of one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def hint(value: Any) -> str:
    """Say how to write what is a number to a person."""
    text = str(value).strip()
    if text.lower() in _ABSENT:
        return ": leave missing values empty"
    if not _NEARLY.fullmatch(text):
        return ""
    if text.endswith("%"):
        return ": a percentage; write 0.6 for 60%"
    if "," in text or "'" in text or " " in text:
        return ": write 1234.5, with a decimal point and without separators of thousands"
    return ": write 12000 for 12k, digits only"


def check_spelling(name: str, values: Sequence[Any]) -> None:
    """Refuse a column of numbers that a few values turned into words.

    Few different numbers among words may be categories. Many are amounts, and the words among them
    are misspelt or stand for missing values.
    """
    known = [
        (row, str(value).strip())
        for row, value in enumerate(values)
        if value is not None and value == value
    ]
    counts = Counter(text for _, text in known)
    plain = {text for text in counts if is_number(text)}
    nearly = {text for text in counts if text not in plain and _NEARLY.fullmatch(text)}
    n_rows = sum(counts[text] for text in plain | nearly)
    many = len(plain | nearly) > _MANY or len(counts) > len(known) / 2
    if len(plain) == len(counts) or n_rows <= len(known) / 2 or not many:
        return
    row, text = next((row, text) for row, text in known if text not in plain)
    others = sum(count for text, count in counts.items() if text not in plain) - 1
    also = f", and {others} more rows have such values" if others else ""
    raise DecisionLogError(
        f"the column {name!r} must be numbers, but row {row} has {text!r}{hint(text)}{also}"
    )
