"""Columns of numbers, words and dates, parsed to numbers; an error says where that fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.policy.cells import HOW_TO_WRITE, Dates, is_number, missing_values
from consequential.policy.features import unmasked

Floats = NDArray[np.float64]
Role = Literal["decision", "label"]

_SHOWN = 6  # different values in a message, at most

_YES = ("yes", "y", "true", "t", "1.0")
_NO = ("no", "n", "false", "f", "0.0")
_OWN: dict[Role, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "decision": (
        ("accepted", "accept", "approved", "approve", "granted", "grant", "admitted", "hired"),
        ("rejected", "reject", "declined", "decline", "denied", "deny", "refused", "refuse"),
    ),
    "label": (
        ("repaid", "paid", "paid back", "fully paid", "good"),
        ("defaulted", "default", "charged off", "unpaid", "not repaid", "bad"),
    ),
}
_MEANING = {
    "decision": "1 for accepted and 0 for rejected",
    "label": "1 for the outcome hoped for and 0 for the other, and leave unknown ones missing",
}
_BAD_OUTCOME = re.compile(
    r"default|charged?.?off|delinquen|unpaid|fraud|churn|arrest|recidiv|fail"
    r"|(?<![a-z])(bad|late)(?![a-z])"
)

# NumPy's unit, how many of them a period has, and where in a period 1970 began: on a Thursday
_UNITS = {
    "day": ("D", 1, 0),
    "week": ("D", 7, 3),
    "month": ("M", 1, 0),
    "quarter": ("M", 3, 0),
    "year": ("Y", 1, 0),
}


class DecisionLogError(ValueError):
    """A table of decisions that cannot be what it claims to be."""


def fail(bad: NDArray[np.bool_], what: str, advice: str) -> None:
    """Raise an error if rows are bad; it has their number, the first of them, and advice."""
    if bad.any():
        count = int(bad.sum())
        rows = "1 row has" if count == 1 else f"{count} rows have"
        raise DecisionLogError(f"{rows} {what} (first: row {int(np.argmax(bad))}). {advice}")


class FrameColumn(np.ndarray[Any, Any]):
    """The values of a frame's column, with its name."""

    column: str = ""


def column_name(values: Any) -> str:
    """Return the name of a frame's column; empty for other values."""
    return values.column if isinstance(values, FrameColumn) else ""


def title(role: str, values: Any) -> str:
    """Return a column's name for errors: its role, and its name in a frame."""
    name = column_name(values)
    return role if name in ("", role) else f"{role} (column {name!r})"


# Numbers


def numbers(role: str, values: Any, names: Sequence[str] | None = None) -> Floats:
    """Return values as numbers; missing ones are NaN, and text that is a number counts as one.

    `names` are those of a matrix's columns.
    """
    array = as_array(role, values)
    if array.dtype.kind in "cmM":  # NumPy would drop imaginary parts, and count nanoseconds
        raise DecisionLogError(f"{title(role, values)} must be numbers, not {array.dtype}")
    try:
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    flat = array.ravel().tolist()
    row, value = next((k, value) for k, value in enumerate(flat) if not is_number(value))
    advice, what = HOW_TO_WRITE, title(role, values)
    if array.ndim == 2:
        row, column = divmod(row, array.shape[1])
        what = f"{role} (column {names[column]!r})" if names is not None else what
        advice = ": encode categories first (one-hot, say), or build the log of a frame"
    raise DecisionLogError(f"{what} must be numbers, but row {row} has {value!r}{advice}")


def as_array(role: str, values: Any) -> NDArray[Any]:
    """Return an array; where it has objects or text, NaN is in place of what is missing."""
    values = unmasked(values)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "OU":
            return array
        array = np.array(values, dtype=object)  # or NaN would become the text "nan"
    except ValueError:
        raise DecisionLogError(
            f"{title(role, values)} must be numbers, as many in every row: rows differ in length"
        ) from None
    array[missing_values(array)] = np.nan
    return array


# Words


@dataclass(frozen=True, slots=True)
class PositiveLabel:
    """The favourable label; `checked` says that all labels were compared with it."""

    label: Any
    checked: bool = False

    def codes(self, labels: Iterable[Any]) -> dict[Any, float]:
        """Return 1 for the favourable label and 0 for the other; refuse any further label."""
        words = {label: _word(label) for label in labels}
        found, own = set(words.values()), _word(self.label)
        if found and not self.checked and (own not in found or len(found) > 2):
            raise DecisionLogError(
                f"positive_label is {self.label!r}, but the labels are {listed(words)}: "
                "it is one of two, and unknown labels are left missing"
            )
        return {label: float(word == own) for label, word in words.items()}


def as_positive(label: Any) -> PositiveLabel | None:
    """Return a favourable label that a user gave; None where none was given."""
    return label if label is None or isinstance(label, PositiveLabel) else PositiveLabel(label)


def _word(value: Any) -> str:
    """Normalise spelling: paid_back equals Paid Back, and 1.0 equals 1."""
    text = str(value).strip().lower()
    return str(float(text)) if is_number(text) else re.sub(r"[\s_-]+", " ", text)


def yes_or_no(
    role: Role, column: str, values: NDArray[Any], positive: PositiveLabel | None = None
) -> tuple[Floats, str]:
    """Return words as 1 and 0, missing ones as NaN, and a sentence that says which is which.

    `column` is the name of the column, where it has one: a label called `default` that says yes is
    not the outcome hoped for. Which one is can be said with `positive`.
    """
    absent = missing_values(values)
    texts = [str(value) for value in values.tolist()]
    found = dict.fromkeys(text for text, gone in zip(texts, absent, strict=True) if not gone)
    code = _known_codes(role, column, found) if positive is None else positive.codes(found)
    said = [f"{text!r} is {code[text]:.0f}" for text in sorted(code, key=lambda t: (-code[t], t))]
    coded = np.array([code.get(text, np.nan) for text in texts])
    return np.where(absent, np.nan, coded), f"{role}: {', '.join(said)}"


def _known_codes(role: Role, column: str, texts: Iterable[str]) -> dict[str, float]:
    """Return 1 or 0 for each of the words that mean one of them."""
    yes, no = (*_YES, *_OWN[role][0]), (*_NO, *_OWN[role][1])
    words = {text: _word(text) for text in texts}
    advice = f"Code it as {_MEANING[role]}"
    if role == "label":
        advice += "; or say which is hoped for with positive_label="
    if not all(word in (*yes, *no) for word in words.values()):
        raise DecisionLogError(
            f"{role} has the values {listed(words)}, which are not known as yes and no. {advice}"
        )
    unclear = any(word in (*_YES, *_NO) for word in words.values())
    if unclear and is_doubtful(role, column):
        raise DecisionLogError(
            f"the label {column!r} has the values {listed(words)}: is yes the outcome hoped for? "
            f"{advice}"
        )
    return {text: float(word in yes) for text, word in words.items()}


def is_doubtful(role: Role, column: str) -> bool:
    """Whether a label is called by an outcome that nobody hopes for."""
    return role == "label" and _BAD_OUTCOME.search(column.lower()) is not None


def listed(values: Iterable[Any]) -> str:
    """Return the first few different values as text."""
    shown = sorted({repr(value) for value in values})
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more


# Dates


@dataclass(frozen=True, slots=True)
class Period:
    """What a time step is; `first` is the number of step 0 since 1970, where it is known."""

    name: str
    first: int | None = None

    def __post_init__(self) -> None:
        if self.name not in _UNITS:
            raise DecisionLogError(f"period is one of {', '.join(_UNITS)}, not {self.name!r}")

    def time_steps(self, dates: Dates) -> tuple[NDArray[np.int64], Period]:
        """Return time steps, and the period with its first number."""
        fail(
            np.isnat(dates),
            "no date for a time step",
            "Every decision was taken at some time: fill it in, or leave the rows out.",
        )
        unit, length, offset = _UNITS[self.name]
        since_1970 = (dates.astype(f"datetime64[{unit}]").astype(np.int64) + offset) // length
        first = int(since_1970.min()) if self.first is None else self.first
        return since_1970 - first, replace(self, first=first)

    @property
    def note(self) -> str:
        """What a time step is, in words, once the first is known."""
        unit, length, offset = _UNITS[self.name]
        start = np.array((self.first or 0) * length - offset).astype(f"datetime64[{unit}]")
        begins = "" if length == 1 else f"the {self.name} from "
        return f"time_step: one step per {self.name}, step 0 is {begins}{start}"
