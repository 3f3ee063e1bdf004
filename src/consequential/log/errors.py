"""The error about a table that cannot be a log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class DecisionLogError(ValueError):
    """A table of decisions that cannot be what it claims to be."""


def fail(bad: NDArray[np.bool_], what: str, advice: str) -> None:
    """Raise an error if rows are bad; it has their number, the first of them, and advice."""
    if bad.any():
        count = int(bad.sum())
        rows = "1 row has" if count == 1 else f"{count} rows have"
        raise DecisionLogError(f"{rows} {what} (first: row {int(np.argmax(bad))}). {advice}")
