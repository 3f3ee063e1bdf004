"""Path sums: the functionals of many policies at once, on one population."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.kernels.jit import compiled
from consequential.kernels.links import LinkNumbers, linear_scores, propensities

Floats = NDArray[np.float64]

_CHUNK = 1024
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(4)


class Cells(NamedTuple):
    """A score cut into equal cells, each with four Gauss nodes, which are the points."""

    low: float
    width: float
    n_cells: int  # 0 where points are not such nodes


@compiled
def path_sums(
    inputs: Floats, columns: Floats, link: LinkNumbers, thetas: Floats, cells: Cells
) -> Floats:
    """Return `sum_i columns[c, i] pi_i` for each theta, one row per theta.

    `inputs` has one column per point. On cells of a score a jump of the policy is integrated
    exactly: the cell it falls into is cut there.
    """
    n, out = inputs.shape[1], np.zeros((thetas.shape[0], columns.shape[0]))
    scores, chances = np.empty(_CHUNK), np.empty(_CHUNK)
    for k in range(thetas.shape[0]):
        for start in range(0, n, _CHUNK):
            length = min(_CHUNK, n - start)
            eta, chance = scores[:length], chances[:length]
            linear_scores(thetas[k], inputs, start, eta)
            propensities(link, eta, chance)
            for c in range(columns.shape[0]):
                column = columns[c, start : start + length]
                total = 0.0
                for i in range(length):
                    total += column[i] * chance[i]
                out[k, c] += total
        if cells.n_cells > 0 and link.flat > 0.0 and link.below < 2.0:
            _cut_at_jump(columns, link, thetas[k], cells, out[k])
    return out


@compiled
def _cut_at_jump(
    columns: Floats, link: LinkNumbers, theta: Floats, cells: Cells, out: Floats
) -> None:
    """Integrate the cell in which the score is 0 in two parts, one on each side."""
    if theta[1] == 0.0:
        return
    jump = (-theta[0] / theta[1] - cells.low) / cells.width
    if not 0.0 < jump < cells.n_cells:
        return
    cell = int(jump)
    cut = 2.0 * (jump - cell) - 1.0  # within the cell, on [-1, 1] as the nodes are
    begin = cells.low + cell * cells.width
    places, weights, chance = np.empty(12), np.empty(12), np.empty(12)
    for j in range(4):
        places[j], weights[j] = _NODES[j], -_NODE_WEIGHTS[j]
        places[4 + j] = -1.0 + (cut + 1.0) * (_NODES[j] + 1.0) / 2.0
        weights[4 + j] = _NODE_WEIGHTS[j] * (cut + 1.0) / 2.0
        places[8 + j] = cut + (1.0 - cut) * (_NODES[j] + 1.0) / 2.0
        weights[8 + j] = _NODE_WEIGHTS[j] * (1.0 - cut) / 2.0
    eta = theta[0] + theta[1] * (begin + (places + 1.0) * cells.width / 2.0)
    propensities(link, eta, chance)
    for c in range(columns.shape[0]):
        for i in range(12):
            # the coefficients' density within the cell: the cubic through its four nodes
            density = 0.0
            for j in range(4):
                basis = columns[c, 4 * cell + j] / _NODE_WEIGHTS[j]
                for other in range(4):
                    if other != j:
                        basis *= (places[i] - _NODES[other]) / (_NODES[j] - _NODES[other])
                density += basis
            out[c] += weights[i] * density * chance[i]
