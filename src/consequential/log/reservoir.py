"""Reservoirs: a uniform sample of all rows seen so far, in random order and bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.log.decision_log import DecisionLog


def extended(
    kept: DecisionLog | None, new: DecisionLog, max_rows: int, rng: np.random.Generator
) -> DecisionLog:
    """Return old and new rows together, in random order, a sample where there are too many."""
    max_rows = checked_room(max_rows)
    n_kept = 0 if kept is None else len(kept)
    # once it is full, the reservoir no longer tells how many rows it has seen
    seen = n_kept if n_kept < max_rows else int(new.time_step.min()) * len(new)
    moves = reservoir_moves(rng.random(len(new)), max(seen, n_kept), max_rows)
    both = new if kept is None else DecisionLog.concatenate([kept, new])
    rows = list(range(min(n_kept + len(new), max_rows)))
    for entry, end, slot in moves.tolist():
        if end >= 0:
            rows[end] = rows[slot]
        rows[slot] = n_kept + entry
    return both.take(np.array(rows, dtype=np.intp))


def checked_room(max_rows: int) -> int:
    """Return how many rows a reservoir keeps at most, once it is known to be some."""
    if max_rows < 1:
        raise ValueError(f"max_rows is at least 1, not {max_rows!r}")
    return max_rows


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
