"""Reservoirs of aggregated runs, compiled: people and weights go where `reservoir_moves` says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policies.compiled import compiled
from consequential.simulation.functionals import ACCEPTED, SQUARES

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]


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
def keep_people(
    moves: NDArray[np.int64], n_moves: int, group: Codes, label: Floats, kept_group: Codes,
    kept_label: Floats, lost: NDArray[np.int64],
) -> None:  # fmt: skip
    """Put people into a reservoir, and note whom each move puts out: -1, or 2 group + label."""
    for k in range(n_moves):
        entry, end, slot = moves[k]
        lost[k] = -1
        if end >= 0:
            kept_group[end], kept_label[end] = kept_group[slot], kept_label[slot]
        else:
            lost[k] = 2 * kept_group[slot] + (kept_label[slot] > 0.0)
        kept_group[slot], kept_label[slot] = group[entry], label[entry]


@compiled
def keep_weights(
    moves: NDArray[np.int64], n_moves: int, lost: NDArray[np.int64], group: Codes, label: Floats,
    fresh: Floats, kept: Floats, tally: Floats,
) -> bool:  # fmt: skip
    """Put weights into a reservoir and bring the tally up to date; return whether it still holds.

    A heavy weight that goes leaves its rounding error behind: then all must be counted anew.
    """
    heaviest = 0.0
    for k in range(n_moves):
        entry, end, slot = moves[k]
        if end >= 0:
            kept[end] = kept[slot]
        elif kept[slot] > 0.0:
            old, z = kept[slot], lost[k] >> 1
            tally[z, lost[k] & 1] -= old
            tally[z, ACCEPTED] -= 1.0
            tally[z, SQUARES] -= old * old
            heaviest = max(heaviest, old)
        new = fresh[entry]
        kept[slot] = new
        if new > 0.0:
            z = group[entry]
            tally[z, 1 if label[entry] > 0.0 else 0] += new
            tally[z, ACCEPTED] += 1.0
            tally[z, SQUARES] += new * new
    squares = 0.0
    for z in range(tally.shape[0]):
        squares += tally[z, SQUARES]
    return heaviest * heaviest <= 1e4 * squares


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
