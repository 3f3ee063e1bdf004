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
