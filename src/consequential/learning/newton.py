"""Logistic regression by Newton's method, compiled: a few steps from where the last fit ended."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.learning.matrices import factorise, solve
from consequential.learning.sums import add_products, add_squares
from consequential.policies.compiled import compiled, from_bits, linear_scores, sigmoids, to_bits

Floats = NDArray[np.float64]

_STRETCH = 1024
# next to no penalty, but enough for features that are collinear and labels that are separable
RIDGE = 1e-4


@compiled
def _derivatives_of_two(
    phi: Floats, label: Floats, weights: Floats, theta: Floats, gradient: Floats, hessian: Floats
) -> None:
    """Do what `_derivatives` does for two inputs, in one pass."""
    a, b = theta[0], theta[1]
    one, other, xx, xy, yy = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(label.size):
        x, y = phi[0, i], phi[1, i]
        eta = a * x + b * y
        larger, smaller = sigmoids(eta)
        residual = weights[i] * (label[i] - (larger if eta >= 0.0 else smaller))
        one += residual * x
        other += residual * y
        own = weights[i] * larger * smaller
        xx += own * x * x
        xy += own * x * y
        yy += own * y * y
    gradient[0], gradient[1] = one, other
    hessian[0, 0], hessian[1, 0], hessian[1, 1] = xx, xy, yy


@compiled
def _derivatives(
    phi: Floats, label: Floats, weights: Floats, theta: Floats, gradient: Floats, hessian: Floats
) -> None:
    """Set the log likelihood's gradient and curvature."""
    gradient[:] = 0.0
    hessian[:] = 0.0
    etas, residuals = np.empty(_STRETCH), np.empty(_STRETCH)
    curvatures = np.empty(_STRETCH)
    for start in range(0, label.size, _STRETCH):
        length = min(_STRETCH, label.size - start)
        eta, residual, curvature = etas[:length], residuals[:length], curvatures[:length]
        linear_scores(theta, phi, start, eta)
        outcome, weight = label[start : start + length], weights[start : start + length]
        for i in range(length):
            larger, smaller = sigmoids(eta[i])
            residual[i] = weight[i] * (outcome[i] - (larger if eta[i] >= 0.0 else smaller))
            curvature[i] = weight[i] * larger * smaller
        add_products(residual, phi, start, gradient)
        add_squares(curvature, phi, start, hessian)


@compiled
def _largest_score(phi: Floats, step: Floats, weights: Floats) -> float:
    """Return the largest `|phi . step|` of the rows that count."""
    etas = np.empty(_STRETCH)
    largest = 0
    for start in range(0, weights.size, _STRETCH):
        eta = etas[: min(_STRETCH, weights.size - start)]
        weight = weights[start : start + eta.size]
        linear_scores(step, phi, start, eta)
        for i in range(eta.size):
            # integers, as a loop with the larger one of two numbers would not be vectorised
            largest = max(largest, to_bits(abs(eta[i]) if weight[i] > 0.0 else 0.0))  # type: ignore[call-arg]
    return from_bits(largest)  # type: ignore[call-arg]


@compiled
def fit_logistic(
    phi: Floats, label: Floats, weights: Floats, start: Floats, ridge: float, max_iterations: int
) -> tuple[Floats, bool]:
    """Return the maximum of the penalised log likelihood, and whether it was reached.

    Minimises `sum_i w_i loss_i + ridge/2 |slopes|^2`; the intercept, first, is free. Steps are
    shortened to `log(1 + D) / D` of Newton's, D being the largest change of a score: then the
    loss always falls, and near the end the steps are whole.
    """
    m = start.size
    theta, gradient, step, hessian = start.copy(), np.empty(m), np.empty(m), np.empty((m, m))
    for _ in range(max_iterations):
        if m == 2:
            _derivatives_of_two(phi, label, weights, theta, gradient, hessian)
        else:
            _derivatives(phi, label, weights, theta, gradient, hessian)
        for k in range(1, m):
            gradient[k] -= ridge * theta[k]
            hessian[k, k] += ridge
        hessian[0, 0] += 1e-12
        factorise(hessian)
        solve(hessian, gradient, step)
        if not np.isfinite(step).all():
            return theta, False
        # the squared distance to the maximum, in standard errors of the fit
        distance = 0.0
        for k in range(m):
            distance += step[k] * gradient[k]
        change = 0.0 if distance < 1e-8 else _largest_score(phi, step, weights)
        # curvature changes by a factor of exp(change) at most: what a step leaves of the distance
        near = change * change * distance < 1e-14
        shortened = 1.0 if near else np.log1p(change) / change
        for k in range(m):
            theta[k] += shortened * step[k]
        if near:
            return theta, True
    return theta, False
