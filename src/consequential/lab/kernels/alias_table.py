"""The alias table: a population cut into cells, from which people are drawn by one look-up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.random import fill_uniforms, stream_key

Floats = NDArray[np.float64]


class AliasTable(NamedTuple):
    """Cells of people who differ only by a small step of their first feature.

    A person is a cell, drawn by the alias method, and a position v in [0, 1) within it: the first
    feature is `x + v width`, the probability of label 1 is `label + v change`. A cell of width 0 is
    one kind of person.
    """

    cells: Floats  # one row per cell: keep, alias, group, label, change, features
    width: float

    @property
    def n_features(self) -> int:
        """How many features people have."""
        return int(self.cells.shape[1]) - FEATURES


# purposes of a seed's random streams
PEOPLE, DECISIONS, LEARNING, START = range(4)

# With probability `keep` a draw stays in its cell, otherwise it goes to cell `alias`.
_KEEP, _ALIAS, GROUP, _LABEL, _CHANGE, FEATURES = range(6)


def alias_table(
    mass: Floats,
    features: Floats,
    group: NDArray[np.integer],
    label: Floats,
    *,
    width: float = 0.0,
    label_change: float | Floats = 0.0,
) -> AliasTable:
    """Return the table of cells with these masses; features have one row per cell."""
    cells = np.empty((len(mass), FEATURES + features.shape[1]))
    cells[:, _KEEP], cells[:, _ALIAS] = _aliases(mass / mass.sum() * len(mass))
    cells[:, GROUP], cells[:, _LABEL], cells[:, _CHANGE] = group, label, label_change
    cells[:, FEATURES:] = features
    return AliasTable(cells, float(width))


@compiled
def _aliases(share: Floats) -> tuple[Floats, Floats]:
    """Return the columns `keep` and `alias` by Vose's method, for shares that are 1 on average."""
    n = share.size
    keep, alias = np.ones(n), np.arange(n).astype(np.float64)
    left = share.copy()
    small, large = np.empty(n, np.int32), np.empty(n, np.int32)
    n_small, n_large = 0, 0
    for i in range(n):
        if left[i] < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        poor, rich = small[n_small], large[n_large - 1]
        keep[poor], alias[poor] = left[poor], rich
        left[rich] -= 1.0 - left[poor]
        if left[rich] < 1.0:
            n_large -= 1
            small[n_small] = rich
            n_small += 1
    return keep, alias


@compiled
def draw_people(
    table: AliasTable, key: np.uint64, features: Floats, group: NDArray[np.int16], label: Floats
) -> None:
    """Fill in people and their labels; `features` has one row per feature."""
    n, n_cells = group.size, table.cells.shape[0]
    draws, positions, chances = np.empty(n), np.empty(n), np.empty(n)
    fill_uniforms(key, 0, draws)
    fill_uniforms(key, n, positions)
    fill_uniforms(key, 2 * n, chances)
    cells, width = table.cells, table.width
    for i in range(n):
        scaled = draws[i] * n_cells
        drawn = np.uint32(scaled)
        stays = scaled - drawn < cells[drawn, _KEEP]
        cell = drawn if stays else np.uint32(cells[drawn, _ALIAS])
        group[i] = np.int16(cells[cell, GROUP])
        label[i] = np.float64(
            chances[i] < cells[cell, _LABEL] + positions[i] * cells[cell, _CHANGE]
        )
        features[0, i] = cells[cell, FEATURES] + positions[i] * width
        for k in range(1, features.shape[0]):
            features[k, i] = cells[cell, FEATURES + k]


@compiled
def draw_proposals(
    table: AliasTable, seed: np.uint64, time_step: int, features: Floats,
    group: NDArray[np.int16], label: Floats, uniforms: Floats,
) -> None:  # fmt: skip
    """Fill in people and the random numbers that decide on them."""
    draw_people(table, stream_key(seed, PEOPLE, time_step), features, group, label)
    fill_uniforms(stream_key(seed, DECISIONS, time_step), 0, uniforms)
