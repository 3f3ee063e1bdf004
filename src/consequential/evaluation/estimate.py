"""Estimate: a number with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Estimate:
    """A number, and the interval that covers the true one with the stated confidence.

    `value` is NaN where a log cannot tell, and bounds are infinite where it says next to nothing.

    Attributes
    ----------
    value, low, high
        The estimate and its interval.
    standard_error
        From influence values, or from the bootstrap where that was the method.
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

    value: float
    low: float
    high: float
    standard_error: float
    n: int
    effective_sample_size: float
    confidence: float
    method: str
    unsupported: float = 0.0

    def __contains__(self, number: float) -> bool:
        """Whether the interval covers a number."""
        return self.low <= number <= self.high

    @property
    def known(self) -> bool:
        """Whether the log allows an estimate at all."""
        return math.isfinite(self.value)

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Return the fields, ready for JSON; what is not a finite number becomes None."""
        return {
            "value": finite_or_none(self.value),
            "low": finite_or_none(self.low),
            "high": finite_or_none(self.high),
            "standard_error": finite_or_none(self.standard_error),
            "n": self.n,
            "effective_sample_size": finite_or_none(self.effective_sample_size),
            "confidence": self.confidence,
            "method": self.method,
            "unsupported": self.unsupported,
        }

    def __repr__(self) -> str:
        if not self.known:
            return "not measurable"
        return f"{_short(self.value)} [{_short(self.low)}, {_short(self.high)}]"


def finite_or_none(number: float) -> float | None:
    """Return a number as JSON can hold it."""
    return float(number) if math.isfinite(number) else None


def _short(number: float) -> str:
    size = abs(number)
    if not math.isfinite(number) or size < 100.0:
        return f"{number + 0.0:.4f}"  # adding 0 turns -0.0 into 0.0
    return f"{number:.6g}"
