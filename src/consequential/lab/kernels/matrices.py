"""Small symmetric matrices, and logistic regression by Newton's method with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.batch_sums import CHUNK, update_products, weigh
from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import linear_scores, sigmoids

Floats = NDArray[np.float64]
# next to no penalty, but enough for features that are collinear and labels that are separable
RIDGE = 1e-4


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


@compiled
def _set_derivatives(
    inputs: Floats, label: Floats, weights: Floats, theta: Floats, gradient: Floats,
    hessian: Floats,
) -> None:  # fmt: skip
    """Set the gradient (1, inputs) and the curvature of the log likelihood."""
    m = theta.size
    for j in range(m):
        gradient[0, j] = 0.0
        for k in range(m):
            hessian[j, k] = 0.0
    scores, residuals = np.empty(CHUNK), np.empty((1, CHUNK))
    curvatures, factors = np.empty(CHUNK), np.empty((m, CHUNK))
    for start in range(0, label.size, CHUNK):
        n = min(CHUNK, label.size - start)
        eta, curvature = scores[:n], curvatures[:n]
        linear_scores(theta, inputs, start, eta)
        outcome, weight = label[start : start + n], weights[start : start + n]
        for i in range(n):
            larger, smaller = sigmoids(eta[i])
            residuals[0, i] = weight[i] * (outcome[i] - (larger if eta[i] >= 0.0 else smaller))
            curvature[i] = weight[i] * larger * smaller
        update_products(residuals, inputs, start, n, 1.0, 1.0, gradient, False)
        weigh(inputs, start, curvature, m, factors)
        update_products(factors, inputs, start, n, 1.0, 1.0, hessian, True)


@compiled
def _largest_score(inputs: Floats, step: Floats, weights: Floats) -> float:
    """Return the largest `|inputs . step|` of the rows that count."""
    scores = np.empty(CHUNK)
    largest = np.int64(0)
    for start in range(0, weights.size, CHUNK):
        eta = scores[: min(CHUNK, weights.size - start)]
        weight = weights[start : start + eta.size]
        linear_scores(step, inputs, start, eta)
        for i in range(eta.size):
            # compared as integers, since the larger one of two floats would not be vectorised
            score = abs(eta[i]) if weight[i] > 0.0 else 0.0
            largest = max(largest, np.float64(score).view(np.int64))
    return np.int64(largest).view(np.float64)


@compiled
def fit_logistic(
    inputs: Floats, label: Floats, weights: Floats, start: Floats, ridge: float,
    max_iterations: int,
) -> tuple[Floats, bool]:  # fmt: skip
    """Return the maximum of the penalised log likelihood, and whether it was reached.

    Minimises `sum_i w_i loss_i + ridge/2 |slopes|^2`; the intercept, which comes first, is free. A
    step is `log(1 + D) / D` of Newton's, with D the largest change of a score: then the loss always
    falls, and close to the maximum the steps are Newton's.
    """
    m = start.size
    theta, gradient, step = start.copy(), np.empty((1, m)), np.empty(m)
    hessian = np.empty((m, m))
    for _ in range(max_iterations):
        _set_derivatives(inputs, label, weights, theta, gradient, hessian)
        for k in range(1, m):
            gradient[0, k] -= ridge * theta[k]
            hessian[k, k] += ridge
        hessian[0, 0] += 1e-12
        factorise(hessian)
        solve(hessian, gradient[0], step)
        # the squared distance to the maximum, in standard errors of the fit
        distance = 0.0
        for k in range(m):
            distance += step[k] * gradient[0, k]
            if not np.isfinite(step[k]):
                return theta, False
        change = 0.0 if distance < 1e-8 else _largest_score(inputs, step, weights)
        # The curvature changes at most by a factor of exp(change): what a step leaves undone.
        close = change * change * distance < 1e-14
        shortened = 1.0 if close else np.log1p(change) / change
        for k in range(m):
            theta[k] += shortened * step[k]
        if close:
            return theta, True
    return theta, False
