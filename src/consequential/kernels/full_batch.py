"""Full-batch sums: every functional of a log at one theta, with its gradient.

Rows lie one after the other here (`inputs[i, k]`, without the constant). A tile of them is
transposed and added up by the functions of batch_sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.kernels.batch_sums import update_products, update_sums, weigh
from consequential.kernels.jit import compiled
from consequential.kernels.links import LinkNumbers, linear_scores, responses

Floats = NDArray[np.float64]

_TILE = 128
_MANY_GROUPS = 8  # from here on, rows are added one by one: most of a tile's columns would be 0


class Table(NamedTuple):
    """Rows of a log: inputs, columns of coefficients, and groups.

    With `by_group` each group has its own block of parameters.
    """

    inputs: Floats  # (n, k), without the constant
    columns: Floats  # (columns, n)
    group: NDArray[np.intp]  # (n,)
    by_group: bool


class Tile(NamedTuple):
    """A workspace for some rows."""

    inputs: Floats  # (inputs, rows), with the constant
    eta: Floats
    propensity: Floats
    derivative: Floats
    steepness: Floats


@compiled
def _tile(n_inputs: int, n: int) -> Tile:
    return Tile(np.ones((n_inputs, n)), np.empty(n), np.empty(n), np.empty(n), np.empty(n))


@compiled
def _transpose(inputs: Floats, first: int, out: Floats) -> None:
    """Copy rows so that each input lies along rows; four rows at a time are one vector store."""
    n_inputs, n = inputs.shape[1], out.shape[1]
    whole = n - n % 4
    for i in range(0, whole, 4):
        one, two = inputs[first + i], inputs[first + i + 1]
        three, four = inputs[first + i + 2], inputs[first + i + 3]
        for k in range(n_inputs):
            column = out[k + 1]
            column[i], column[i + 1] = one[k], two[k]
            column[i + 2], column[i + 3] = three[k], four[k]
    for i in range(whole, n):
        for k in range(n_inputs):
            out[k + 1, i] = inputs[first + i, k]


@compiled
def _load(table: Table, first: int, theta: Floats, link: LinkNumbers, tile: Tile) -> None:
    """Fill a tile; theta has one row per block of parameters."""
    _transpose(table.inputs, first, tile.inputs)
    if table.by_group and theta.shape[0] >= _MANY_GROUPS:
        for i in range(tile.eta.size):
            tile.eta[i] = 0.0
            for k in range(tile.inputs.shape[0]):
                tile.eta[i] += theta[table.group[first + i], k] * tile.inputs[k, i]
    else:
        linear_scores(theta[0], tile.inputs, 0, tile.eta)
        for z in range(1, theta.shape[0] if table.by_group else 1):
            linear_scores(theta[z], tile.inputs, 0, tile.steepness)
            for i in range(tile.eta.size):
                if table.group[first + i] == z:
                    tile.eta[i] = tile.steepness[i]
    responses(link, tile.eta, tile.propensity, tile.derivative, tile.steepness)


@compiled
def _expand(table: Table, c: int, first: int, out: Floats) -> None:
    """Set one row per group to a column, 0 for the rows of other groups."""
    n_groups = out.shape[0]
    column, group = table.columns[c], table.group
    for z in range(n_groups):
        for i in range(out.shape[1]):
            out[z, i] = column[first + i] if group[first + i] == z else 0.0


@compiled
def _add_by_row(
    table: Table, first: int, tile: Tile, n_groups: int, values: Floats, gradients: Floats
) -> None:
    """Add each row to its own group: the time does not depend on the number of groups."""
    m = tile.inputs.shape[0]
    for c in range(table.columns.shape[0]):
        column = table.columns[c]
        for i in range(tile.eta.size):
            at, weight = c * n_groups + table.group[first + i], column[first + i]
            values[at] += weight * tile.propensity[i]
            weight *= tile.derivative[i]
            for k in range(m):
                gradients[at, k] += weight * tile.inputs[k, i]


@compiled
def add_sums(
    table: Table, theta: Floats, link: LinkNumbers, start: int, stop: int, sums: Floats
) -> None:
    """Add the rows from `start` to `stop` to `sums[column, group]`: value, then gradient."""
    n_columns, n_groups, m = sums.shape[0], sums.shape[1], table.inputs.shape[1] + 1
    n_rows = n_columns * n_groups
    values, gradients = np.zeros(n_rows), np.zeros((n_rows, m))
    weighted = np.empty((n_rows, _TILE))
    whole = _tile(m, _TILE)
    for first in range(start, stop, _TILE):
        n = min(_TILE, stop - first)
        tile = whole if n == _TILE else _tile(m, n)
        _load(table, first, theta, link, tile)
        if n_groups >= _MANY_GROUPS:
            _add_by_row(table, first, tile, n_groups, values, gradients)
            continue
        for c in range(n_columns):
            _expand(table, c, first, weighted[c * n_groups : (c + 1) * n_groups, :n])
        update_sums(weighted, 0, tile.propensity, 1.0, 1.0, values)
        weigh(weighted, 0, tile.derivative, n_rows, weighted)
        update_products(weighted, tile.inputs, 0, n, 1.0, 1.0, gradients, False)
    for c in range(n_columns):
        for z in range(n_groups):
            sums[c, z, 0] += values[c * n_groups + z]
            for k in range(m):
                sums[c, z, 1 + k] += gradients[c * n_groups + z, k]
