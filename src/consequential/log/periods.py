"""Dates as time steps: days, weeks, months, quarters or years, counted from the first."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.errors import DecisionLogError, fail
from consequential.log.numbers import missing_values

Dates = NDArray[np.datetime64]

# NumPy's unit, how many of them a period has, and where in a period 1970 began: on a Thursday
_UNITS = {
    "day": ("D", 1, 0),
    "week": ("D", 7, 3),
    "month": ("M", 1, 0),
    "quarter": ("M", 3, 0),
    "year": ("Y", 1, 0),
}
PERIODS = tuple(_UNITS)


@dataclass(frozen=True, slots=True)
class Period:
    """What a time step is; `first` is the number of step 0 since 1970, where it is known."""

    name: str
    first: int | None = None

    def __post_init__(self) -> None:
        if self.name not in PERIODS:
            raise DecisionLogError(f"period is one of {', '.join(PERIODS)}, not {self.name!r}")

    def numbers(self, dates: Dates) -> NDArray[np.int64]:
        """Return the number of each date's period since 1970."""
        unit, length, offset = _UNITS[self.name]
        return (dates.astype(f"datetime64[{unit}]").astype(np.int64) + offset) // length

    @property
    def said(self) -> str:
        """What a time step is, in words; empty where the first is not known."""
        if self.first is None:
            return ""
        unit, length, offset = _UNITS[self.name]
        start = np.array(self.first * length - offset).astype(f"datetime64[{unit}]")
        begins = "" if length == 1 else f"the {self.name} from "
        return f"time_step: one step per {self.name}, step 0 is {begins}{start}"


def numbered(dates: Dates, period: Period) -> tuple[NDArray[np.int64], Period]:
    """Return time steps, and the period with its first number."""
    fail(
        np.isnat(dates),
        "no date for a time step",
        "Every decision was taken at some time: fill it in, or leave the rows out.",
    )
    found = period.numbers(dates)
    if period.first is None:
        period = replace(period, first=int(found.min()))
    return found - int(period.first or 0), period


def as_dates(values: Any) -> Dates | None:
    """Return dates, also those in ISO text (2024-03-01); None where a value is not a date."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        return array.astype("datetime64[D]")
    if array.dtype.kind not in "OU" or array.ndim != 1:
        return None
    array = array.astype(object)
    absent = missing_values(array)
    try:
        known = {value: _day(value) for value in set(array[~absent].tolist())}
    except (TypeError, ValueError):
        return None
    days = [None if gone else known[value] for gone, value in zip(absent, array, strict=True)]
    return np.array(days, dtype="datetime64[D]") if known else None


def _day(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    text = value.strip()
    if re.fullmatch(r"\d{4}-\d{2}", text):
        text += "-01"
    if not re.match(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError(text)
    return datetime.fromisoformat(text).date()
