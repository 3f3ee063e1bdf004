"""Small symmetric matrices, for which calling a library would take longer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.jit import compiled

Floats = NDArray[np.float64]


@compiled
def factorise(matrix: Floats) -> None:
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor.

    The diagonal of the factor is stored as its reciprocal, since it is only ever divided by.
    """
    for j in range(matrix.shape[0]):
        for k in range(j + 1):
            total = matrix[j, k]
            for i in range(k):
                total -= matrix[j, i] * matrix[k, i]
            matrix[j, k] = 1.0 / np.sqrt(total) if j == k else total * matrix[k, k]


@compiled
def solve(factor: Floats, right: Floats, out: Floats) -> None:
    """Solve for `out`, given the matrix as `factorise` left it."""
    m = right.size
    for j in range(m):
        total = right[j]
        for k in range(j):
            total -= factor[j, k] * out[k]
        out[j] = total * factor[j, j]
    for j in range(m - 1, -1, -1):
        total = out[j]
        for k in range(j + 1, m):
            total -= factor[k, j] * out[k]
        out[j] = total * factor[j, j]


@compiled
def invert(factor: Floats, out: Floats) -> None:
    """Set `out` to the inverse of the matrix, given as `factorise` left it, which is lost."""
    m = out.shape[0]
    # the factor's own inverse takes its place
    for k in range(m):
        for j in range(k + 1, m):
            total = 0.0
            for i in range(k, j):
                total += factor[j, i] * (factor[i, k] if i > k else factor[k, k])
            factor[j, k] = -total * factor[j, j]
    for j in range(m):
        for k in range(j + 1):
            total = 0.0
            for i in range(j, m):
                total += factor[i, j] * factor[i, k]
            out[j, k] = out[k, j] = total


@compiled
def mean_squares(inputs: Floats) -> Floats:
    """Return `mean(inputs inputs')`."""
    m, n = inputs.shape
    scale = np.zeros((m, m))
    for j in range(m):
        for k in range(j + 1):
            total = 0.0
            for i in range(n):
                total += inputs[j, i] * inputs[k, i]
            scale[j, k] = scale[k, j] = total / n
    return scale
