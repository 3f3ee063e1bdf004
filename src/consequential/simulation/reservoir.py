"""Reservoirs of aggregated runs, compiled: people and weights go where `reservoir_moves` says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policies.compiled import compiled, from_bits, to_bits
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
    kept_label: Floats, kinds: NDArray[np.int64],
) -> None:  # fmt: skip
    """Put people into a reservoir, and note whom each move puts out and whom it brings.

    A kind is 2 group + label, or -1 where nobody is put out.
    """
    for k in range(n_moves):
        entry, end, slot = moves[k]
        kinds[0, k] = -1
        if end >= 0:
            kept_group[end], kept_label[end] = kept_group[slot], kept_label[slot]
        else:
            kinds[0, k] = 2 * kept_group[slot] + (kept_label[slot] > 0.0)
        kept_group[slot], kept_label[slot] = group[entry], label[entry]
        kinds[1, k] = 2 * group[entry] + (label[entry] > 0.0)


@compiled
def keep_weights(
    moves: NDArray[np.int64], n_moves: int, kinds: NDArray[np.int64], fresh: Floats, kept: Floats,
    tally: Floats, moved: Floats,
) -> bool:  # fmt: skip
    """Put weights into a reservoir and bring the tally up to date; return whether it still holds.

    A heavy weight that goes leaves its rounding error behind: then all must be counted anew.
    Weights that go and that come are first laid side by side in `moved`: a branch on one that is
    not in the cache would be guessed wrongly half of the time, and wait for it.
    """
    for k in range(n_moves):
        entry, end, slot = moves[k]
        gone = kept[slot]
        if end >= 0:
            kept[end], gone = gone, 0.0
        kept[slot] = moved[1, k] = fresh[entry]
        moved[0, k] = gone
    _count(kinds[0], moved[0], n_moves, -1.0, tally)
    _count(kinds[1], moved[1], n_moves, 1.0, tally)
    heaviest, squares = _largest(moved[0], n_moves), 0.0
    for z in range(tally.shape[0]):
        squares += tally[z, SQUARES]
    return heaviest * heaviest <= 1e4 * squares


@compiled
def _count(
    kinds: NDArray[np.int64], weights: Floats, n_moves: int, sign: float, tally: Floats
) -> None:
    """Count weights of each kind, or with sign -1 no longer."""
    n = np.uint64(n_moves)
    for kind in range(2 * tally.shape[0]):
        total, squares, accepted = 0.0, 0.0, 0.0
        for k in range(n):
            weight = weights[k] if kinds[k] == kind else 0.0
            total += weight
            squares += weight * weight
            accepted += 1.0 if weight > 0.0 else 0.0
        z = kind >> 1
        tally[z, kind & 1] += sign * total
        tally[z, SQUARES] += sign * squares
        tally[z, ACCEPTED] += sign * accepted


@compiled
def _largest(weights: Floats, n_moves: int) -> float:
    """Return the largest of weights that are not negative: their bits are in their order."""
    largest = np.int64(0)
    for k in range(np.uint64(n_moves)):
        bits: int = to_bits(weights[k])  # type: ignore[call-arg]
        largest = bits if bits > largest else largest
    return float(from_bits(largest))  # type: ignore[call-arg]


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
