"""Estimate: a number with its interval, and what results and sums have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import add
from typing import Any, ClassVar, Self

import numpy as np


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its bounds and its standard error."""

    value: float
    low: float
    high: float
    standard_error: float

    def __contains__(self, number: float) -> bool:
        """Whether the interval covers a number."""
        return self.low <= number <= self.high

    @property
    def known(self) -> bool:
        """Whether the log allows an estimate at all."""
        return math.isfinite(self.value)

    def widened(self, error: float, quantile: float) -> Self:
        """Return the interval with an independent standard error added to its own."""
        low, high = (
            math.hypot(each, quantile * error)
            for each in (self.value - self.low, self.high - self.value)
        )
        total = math.hypot(self.standard_error, error)
        return replace(self, low=self.value - low, high=self.value + high, standard_error=total)


class Additive:
    """A dataclass of sums over rows: those of the chunks of a log add up to those of the log.

    `extremes` says which fields are the smallest or the largest of something instead.
    """

    extremes: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}

    def __add__(self, other: Self) -> Self:
        combined = {
            name: self.extremes.get(name, add)(value, getattr(other, name))
            for name, value in vars(self).items()
        }
        return type(self)(**combined)


UNKNOWN = Interval(math.nan, math.nan, math.nan, math.nan)


class Result:
    """A dataclass that JSON can hold."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON: groups by their text, None for what is not finite."""
        found: dict[str, Any] = json_ready(self)
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Interval, Result):
    """A number, and the interval that covers the true one with the stated confidence.

    `value` is NaN where a log cannot tell, and bounds are infinite where it says next to nothing.

    Attributes
    ----------
    value, low, high
        The estimate and its interval.
    standard_error
        From influence values.
    n
        How many decisions it is about.
    effective_sample_size
        How many equally weighted people say as much as the weighted ones.
    confidence, method
        How often intervals of this kind cover, and how they were made.
    unsupported
        The share of the rule's acceptances that falls on people whom the log could never accept,
        or whom clipped weights leave out. Where it is above 0 and labels matter, the interval
        covers every label they could have, and `value` is no more than its middle.

    Examples
    --------
    >>> import consequential as cq
    >>> estimate = cq.Estimate(0.0612, 0.0571, 0.0653, 0.0021, 5000, 3120.4, 0.95, "normal")
    >>> estimate
    0.0612 [0.0571, 0.0653]
    >>> 0.06 in estimate, 0.07 in estimate
    (True, False)
    """

    n: int
    effective_sample_size: float
    confidence: float
    method: str
    unsupported: float = 0.0

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate of something that is `factor` times as large; not negative."""
        ends = {name: factor * getattr(self, name) for name in ("value", "low", "high")}
        return replace(self, **ends, standard_error=factor * self.standard_error)

    def __repr__(self) -> str:
        if not self.known:
            return "not measurable"
        return f"{_short(self.value)} [{_short(self.low)}, {_short(self.high)}]"


def json_ready(value: Any) -> Any:
    """Return a result with plain dicts and lists; numbers that are not finite become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_dataclass(value):
        return {field.name: json_ready(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): json_ready(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [json_ready(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _short(number: float) -> str:
    if not math.isfinite(number) or abs(number) < 100.0:
        return f"{number:z.4f}"  # 0.0000 has no sign
    return f"{number:.6g}"
