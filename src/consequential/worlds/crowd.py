"""A crowd: a population cut into cells, to draw people from by looking them up in a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.policies.compiled import compiled
from consequential.policies.uniforms import fill_uniforms

Floats = NDArray[np.float64]


class Crowd(NamedTuple):
    """Cells of people who are alike but for a small step of their first feature.

    A person is a cell, drawn by the alias method in one look-up, and a place v in [0, 1) within
    it: the first feature is `x + v width`, the probability of label 1 `label + v change`. A cell
    of width 0 is one kind of person. All that a cell says lies side by side in memory.
    """

    cells: Floats  # one row a cell: keep, alias, group, label, change, features
    width: float

    @property
    def n_features(self) -> int:
        """How many features people have."""
        return int(self.cells.shape[1]) - FEATURES


# with probability `keep` a draw stays in its cell, else it goes to cell `alias`
_KEEP, _ALIAS, GROUP, _LABEL, _CHANGE, FEATURES = range(6)


def crowd_of(
    mass: Floats,
    features: Floats,
    group: NDArray[np.integer],
    label: Floats,
    *,
    width: float = 0.0,
    label_change: float | Floats = 0.0,
) -> Crowd:
    """Return the crowd of cells with these masses; one row of features a cell."""
    cells = np.empty((len(mass), FEATURES + features.shape[1]))
    cells[:, _KEEP], cells[:, _ALIAS] = _aliases(mass / mass.sum() * len(mass))
    cells[:, GROUP], cells[:, _LABEL], cells[:, _CHANGE] = group, label, label_change
    cells[:, FEATURES:] = features
    return Crowd(cells, float(width))


@compiled
def _aliases(share: Floats) -> tuple[Floats, Floats]:
    """Return Vose's tables for cells with these shares, which are one on average."""
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
    crowd: Crowd, key: np.uint64, features: Floats, group: NDArray[np.int16], label: Floats
) -> None:
    """Fill in people and their labels, one row of `features` a feature."""
    n, n_cells = group.size, crowd.cells.shape[0]
    draws, places, chances = np.empty(n), np.empty(n), np.empty(n)
    fill_uniforms(key, 0, draws)
    fill_uniforms(key, n, places)
    fill_uniforms(key, 2 * n, chances)
    cells, width = crowd.cells, crowd.width
    for i in range(n):
        scaled = draws[i] * n_cells
        drawn = np.uint32(scaled)
        stays = scaled - drawn < cells[drawn, _KEEP]
        cell = drawn if stays else np.uint32(cells[drawn, _ALIAS])
        group[i] = np.int16(cells[cell, GROUP])
        label[i] = np.float64(chances[i] < cells[cell, _LABEL] + places[i] * cells[cell, _CHANGE])
        features[0, i] = cells[cell, FEATURES] + places[i] * width
        for k in range(1, features.shape[0]):
            features[k, i] = cells[cell, FEATURES + k]
