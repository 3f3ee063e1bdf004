"""Sequences: which of the data collected so far an update learns from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consequential.log import DecisionLog


class Sequence(ABC):
    """Keeps, of all that was collected, what the next update uses."""

    name: ClassVar[str]

    @abstractmethod
    def extend(
        self, kept: DecisionLog | None, new: DecisionLog, rng: np.random.Generator
    ) -> DecisionLog:
        """Return what is kept once `new` has come in; it is what the update learns from."""


@dataclass(frozen=True, slots=True)
class Iterative(Sequence):
    """Only the data of the last step [K20: iterative sequence].

    Examples
    --------
    >>> import consequential as cq
    >>> cq.Iterative().name
    'iterative'
    """

    name = "iterative"

    def extend(
        self, kept: DecisionLog | None, new: DecisionLog, rng: np.random.Generator
    ) -> DecisionLog:
        """Return the new log."""
        return new


@dataclass(frozen=True, slots=True)
class Aggregated(Sequence):
    """All data so far, each row with the propensity it was logged with [K20: aggregated].

    Beyond `max_rows` a sample is kept, so memory stays flat; where every step brings equally many
    rows, each decision ever taken is as likely as any other to be in it.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.Aggregated(max_rows=100_000).name
    'aggregated'
    """

    max_rows: int = 262_144
    name = "aggregated"

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ValueError(f"max_rows is at least 1, not {self.max_rows!r}")

    def extend(
        self, kept: DecisionLog | None, new: DecisionLog, rng: np.random.Generator
    ) -> DecisionLog:
        """Return old and new rows together, thinned evenly where there are too many."""
        if kept is None:
            return new
        if len(kept) + len(new) <= self.max_rows:
            return DecisionLog.concatenate([kept, new])
        # every step brings as many rows as `new`, so this many have been seen by now
        seen = max(len(kept), int(kept.time_step.max() + 1) * len(new)) + len(new)
        n_new = min(len(new), max(1, round(self.max_rows * len(new) / seen)))
        n_old = min(len(kept), self.max_rows - n_new)
        old_rows = np.sort(rng.permutation(len(kept))[:n_old])
        new_rows = np.sort(rng.permutation(len(new))[:n_new])
        return DecisionLog.concatenate([kept.take(old_rows), new.take(new_rows)])


@dataclass(frozen=True, slots=True)
class LastSteps(Sequence):
    """The data of the last k steps: a mix of the most recent policies.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.LastSteps(5).k
    5
    """

    k: int
    name = "last steps"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"the last k steps need k of at least 1, not {self.k!r}")

    def extend(
        self, kept: DecisionLog | None, new: DecisionLog, rng: np.random.Generator
    ) -> DecisionLog:
        """Return old rows that are recent enough, and the new."""
        if kept is None:
            return new
        both = DecisionLog.concatenate([kept, new])
        newest = int(both.time_step.max())
        return both.take(both.time_step > newest - self.k)


_NAMED: dict[str, Sequence] = {"iterative": Iterative(), "aggregated": Aggregated()}


def sequence_named(name: str | Sequence) -> Sequence:
    """Look a sequence up by name; a `Sequence` passes through."""
    if isinstance(name, Sequence):
        return name
    if name not in _NAMED:
        raise ValueError(f"unknown sequence {name!r}; choose one of {', '.join(_NAMED)}")
    return _NAMED[name]
