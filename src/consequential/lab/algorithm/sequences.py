"""Sequences: which of the data collected so far an update learns from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog

__all__ = ["Aggregated", "Iterative", "LastSteps", "Sequence"]


class Sequence(ABC):
    """Keeps, of all that was collected, what the next update uses.

    Examples
    --------
    A sequence that learns from the first time step forever:

    >>> import numpy as np, consequential as cq
    >>> class FirstOnly(cq.lab.sequences.Sequence):
    ...     name = "first only"
    ...     def extend(self, kept, new, rng):
    ...         return new if kept is None else kept
    >>> strategy = cq.lab.LearnToDecide("logistic", FirstOnly())
    >>> runs = cq.simulate(cq.worlds.second_setting(), strategy, seeds=1, time_steps=2,
    ...                    n_proposals=500, progress=False)
    >>> runs.strategies
    ('logistic, first only',)
    """

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
    >>> cq.lab.sequences.Iterative().name
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

    A reservoir: beyond `max_rows` it is a uniform sample, so memory stays flat, and each decision
    ever taken is as likely as any other to be in it (where every step brings equally many). Its
    rows are in random order.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.lab.sequences.Aggregated(max_rows=100_000).name
    'aggregated'
    """

    max_rows: int = 65_536
    name = "aggregated"

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ValueError(f"max_rows is at least 1, not {self.max_rows!r}")

    def extend(
        self, kept: DecisionLog | None, new: DecisionLog, rng: np.random.Generator
    ) -> DecisionLog:
        """Return old and new rows together, in random order, a sample where there are too many."""
        n_kept = 0 if kept is None else len(kept)
        # once it is full, the reservoir no longer tells how many rows it has seen
        seen = n_kept if n_kept < self.max_rows else int(new.time_step.min()) * len(new)
        moves = reservoir_moves(rng.random(len(new)), max(seen, n_kept), self.max_rows)
        both = new if kept is None else DecisionLog.concatenate([kept, new])
        rows = list(range(min(n_kept + len(new), self.max_rows)))
        for entry, end, slot in moves.tolist():
            if end >= 0:
                rows[end] = rows[slot]
            rows[slot] = n_kept + entry
        return both.take(np.array(rows, dtype=np.intp))


@dataclass(frozen=True, slots=True)
class LastSteps(Sequence):
    """The data of the last k steps: a mix of the most recent policies.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.lab.sequences.LastSteps(5).k
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


def reservoir_moves(uniforms: NDArray[np.float64], n_seen: int, max_rows: int) -> NDArray[np.int64]:
    """Say where entries go in a uniform sample without replacement, kept in random order.

    A move is (entry, end, slot): the entry goes into the slot; where `end` is not -1 the
    reservoir still grows, and what was in the slot goes to its end. Entries without a move are
    not kept.
    """
    count = np.arange(n_seen, n_seen + len(uniforms))
    slot = (uniforms * (count + 1)).astype(np.int64)
    entry = np.flatnonzero((count < max_rows) | (slot < max_rows))
    moves = np.empty((len(entry), 3), dtype=np.int64)
    moves[:, 0], moves[:, 2] = entry, slot[entry]
    moves[:, 1] = np.where(count[entry] < max_rows, count[entry], -1)
    return moves


_NAMED: dict[str, Sequence] = {"iterative": Iterative(), "aggregated": Aggregated()}


def sequence_named(name: str | Sequence) -> Sequence:
    """Look a sequence up by name; a `Sequence` passes through."""
    if isinstance(name, Sequence):
        return name
    if name not in _NAMED:
        raise ValueError(f"unknown sequence {name!r}; choose one of {', '.join(_NAMED)}")
    return _NAMED[name]
