"""Reservoirs of aggregated runs, compiled: people and weights go where `reservoir_moves` says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policies.compiled import compiled


@compiled
def keep_all(
    moves: NDArray[np.int64], n_moves: int, fresh: NDArray[Any], kept: NDArray[Any]
) -> None:
    """Put a step's entries into a reservoir, where `reservoir_moves` says."""
    for k in range(n_moves):
        entry, end, slot = moves[k]
        if end >= 0:
            kept[end] = kept[slot]
        kept[slot] = fresh[entry]


@compiled
def follow_moves(
    moves: NDArray[np.int64], room: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return which slots of a reservoir change, and what of: an old slot, or room + a new entry."""
    source = np.full(room, -1, np.int32)  # -1: as it was
    slots = np.empty(2 * moves.shape[0], np.int32)
    n = 0
    for k in range(moves.shape[0]):
        entry, end, slot = moves[k]
        if end >= 0:
            if source[end] < 0:
                slots[n] = end
                n += 1
            source[end] = source[slot] if source[slot] >= 0 else slot
        if source[slot] < 0:
            slots[n] = slot
            n += 1
        source[slot] = room + entry
    return slots[:n], source[slots[:n]]
