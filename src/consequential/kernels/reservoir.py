"""Reservoirs of aggregated runs: where the entries of a step go, as `reservoir_moves` says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.kernels.jit import compiled


@compiled
def keep(moves: NDArray[np.int64], fresh: NDArray[Any], kept: NDArray[Any]) -> None:
    """Put a step's entries into a reservoir."""
    for move in range(moves.shape[0]):
        entry, end, slot = moves[move]
        if end >= 0:
            kept[end] = kept[slot]
        kept[slot] = fresh[entry]


@compiled
def changed_slots(
    moves: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return which slots of a reservoir change, and their sources: an old slot, or size + entry."""
    source = np.full(size, -1, np.int32)  # -1: unchanged
    slots = np.empty(2 * moves.shape[0], np.int32)
    n = 0
    for move in range(moves.shape[0]):
        entry, end, slot = moves[move]
        if end >= 0:
            if source[end] < 0:
                slots[n] = end
                n += 1
            source[end] = source[slot] if source[slot] >= 0 else slot
        if source[slot] < 0:
            slots[n] = slot
            n += 1
        source[slot] = size + entry
    return slots[:n], source[slots[:n]]
