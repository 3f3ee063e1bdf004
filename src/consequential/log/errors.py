"""What is said of a table that cannot be a log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class DecisionLogError(ValueError):
    """A table of decisions that cannot be what it claims to be."""


def fail(bad: NDArray[np.bool_], what: str, advice: str) -> None:
    """Raise with the number of bad rows and the first of them, if there are any."""
    if bad.any():
        first = int(np.argmax(bad))
        raise DecisionLogError(f"{rows(bad)} {what} (first: row {first}). {advice}")


def rows(which: NDArray[np.bool_]) -> str:
    """Say how many rows have something."""
    count = int(which.sum())
    return "1 row has" if count == 1 else f"{count} rows have"
