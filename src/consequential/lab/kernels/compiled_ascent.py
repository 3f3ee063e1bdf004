"""The ascent: the loop of `UpdatePolicy`, compiled.

It computes the same as ascent.py and steps.py in lab/algorithm, which give the reasons in NumPy
code. Means are kept as flat arrays, so that one loop updates all of them with a minibatch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels import ROOT_TWO
from consequential.lab.kernels.batch_sums import (
    BatchRows,
    centre,
    draw,
    set_benefits,
    update_products,
    update_sums,
    weigh,
    weigh_row,
)
from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import linear_scores, responses
from consequential.lab.kernels.matrices import factorise, invert
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]


class Ascent(NamedTuple):
    """How to ascend: numbers only."""

    n_iterations: int
    batch_size: int
    n_reference: int
    penalty: float
    sampled: bool
    preconditioned: bool
    rate: float
    ridge: float
    max_step: float
    max_share: float


@compiled
def _set_scales(shares: Floats, sizes: Floats, scales: Floats) -> None:
    """Set what sums over minibatches are multiplied by to have each group's share of the log."""
    for z in range(scales.size):
        scales[z] = shares[z] / sizes[z] if sizes[z] > 0.0 else 0.0


@compiled
def _set_residual_slopes(
    is_ratio: NDArray[np.bool_], values: Floats, factors: Floats, slopes: Floats, out: Floats
) -> None:
    """Set the gradients of the residuals in theta, one row per benefit and group."""
    n_benefits, n_groups = values.shape
    for b in range(n_benefits):
        first, n_known = b * n_groups, 0.0
        for z in range(n_groups):
            n_known += 1.0 if factors[b, z] > 0.0 else 0.0
        for k in range(out.shape[1]):
            total = 0.0
            for z in range(n_groups):
                slope = slopes[first + z, k]
                if is_ratio[b]:
                    slope -= values[b, z] * slopes[n_benefits * n_groups + first + z, k]
                out[first + z, k] = factors[b, z] * slope
                total += out[first + z, k]
            mean = total / max(n_known, 1.0)
            for z in range(n_groups):
                known = factors[b, z] > 0.0
                out[first + z, k] = ROOT_TWO * (out[first + z, k] - mean) if known else 0.0


@compiled
def _set_push(
    is_ratio: NDArray[np.bool_], values: Floats, factors: Floats, penalty: float, push: Floats
) -> None:
    """Set the derivative of the penalty in the sums of columns, and centre the benefits."""
    n_benefits, n_groups = values.shape
    half = n_benefits * n_groups
    for b in range(n_benefits):
        for z in range(n_groups):
            if is_ratio[b]:
                push[half + b * n_groups + z] = -values[b, z]
    centre(values, factors)
    for b in range(n_benefits):
        for z in range(n_groups):
            at = b * n_groups + z
            push[at] = -2.0 * penalty * values[b, z] * factors[b, z]
            if is_ratio[b]:
                push[half + at] *= push[at]


@compiled
def _add_push(columns: Floats, start: int, slope: Floats, push: Floats, weighted: Floats) -> None:
    """Add `push . columns_i` times the slope to the weighted utility."""
    first = np.uint64(start)
    for c in range(push.size):
        by = push[c]
        for i in range(np.uint64(slope.size)):
            weighted[0, i] += by * columns[c, first + i] * slope[i]


@compiled
def _subtract_penalty(
    penalty: float, deviations: Floats, residual_slopes: Floats, gradient: Floats
) -> None:
    """Subtract the gradient of the penalty, `lambda r J`."""
    n_groups = deviations.shape[1]
    for r in range(residual_slopes.shape[0]):
        by = penalty * ROOT_TWO * deviations[r // n_groups, r % n_groups]
        for k in range(gradient.shape[1]):
            gradient[0, k] -= by * residual_slopes[r, k]


@compiled
def _set_inverse(
    ascent: Ascent, scale: Floats, curvature: Floats, steepness: float, residual_slopes: Floats,
    matrix: Floats, inverse: Floats,
) -> None:  # fmt: skip
    """Set the inverse of the step's metric."""
    m = scale.shape[0]
    trace = 0.0
    for j in range(m):
        trace += scale[j, j]
    for j in range(m):
        for k in range(j + 1):
            own = (curvature[j, k] + steepness * scale[j, k]) / 2.0 + ascent.ridge * scale[j, k]
            for r in range(residual_slopes.shape[0]):
                own += ascent.penalty * residual_slopes[r, j] * residual_slopes[r, k]
            matrix[j, k] = own
        matrix[j, j] += ascent.ridge * trace / m
    factorise(matrix)
    invert(matrix, inverse)


@compiled
def _shorten(change: Floats, length: float, longest: float) -> None:
    if length > longest:
        for k in range(change.size):
            change[k] *= longest / length


@compiled
def _plain_step(ascent: Ascent, gradient: Floats, change: Floats) -> None:
    """Set the change of theta to a `GradientStep`."""
    longest = 0.0
    for k in range(change.size):
        change[k] = ascent.rate * gradient[0, k]
        longest = max(longest, abs(change[k]))
    _shorten(change, longest, ascent.max_step)


@compiled
def _preconditioned_step(
    ascent: Ascent, gradient: Floats, scale: Floats, inverse: Floats, acceptance: float,
    acceptance_slope: Floats, change: Floats,
) -> None:  # fmt: skip
    """Set the change of theta to a `PreconditionedStep`."""
    m = change.size
    square, drift = 0.0, 0.0
    for j in range(m):
        total = 0.0
        for k in range(m):
            total += inverse[j, k] * gradient[0, k]
        change[j] = ascent.rate * total
    for j in range(m):
        total = 0.0
        for k in range(m):
            total += scale[j, k] * change[k]
        square += change[j] * total
    _shorten(change, np.sqrt(max(square, 0.0)), ascent.max_step)
    for k in range(m):
        drift += acceptance_slope[k] * change[k]
    distance = max(min(acceptance, 1.0 - acceptance), 0.0)
    _shorten(change, abs(drift), ascent.max_share * distance)


@compiled
def _add_if_finite(change: Floats, theta: Floats) -> bool:
    """Add a change to theta, or set it to 0; return whether it was finite."""
    finite = True
    for k in range(theta.size):
        finite = finite and np.isfinite(change[k])
    for k in range(theta.size):
        change[k] = change[k] if finite else 0.0
        theta[k] += change[k]
    return finite


@compiled
def _follow(
    change: Floats, slopes: Floats, sizes: Floats, level_sizes: Floats, sums: Floats,
    level_sums: Floats,
) -> None:  # fmt: skip
    """Move the means of sums with theta, to first order."""
    n_groups = sizes.size
    for c in range(sums.size):
        z = c % n_groups
        ratio = level_sizes[z] / sizes[z] if sizes[z] > 0.0 else 0.0
        drift = 0.0
        for k in range(change.size):
            drift += slopes[c, k] * change[k]
        sums[c] += drift
        level_sums[c] += ratio * drift


@compiled
def _blend(mean: Floats, new: Floats, row: int, weight: float) -> None:
    for i in range(mean.size):
        mean[i] += weight * (new[row, i] - mean[i])


@compiled
def _dot(left: Floats, right: Floats) -> float:
    total = 0.0
    for k in range(left.size):
        total += left[k] * right[k]
    return total


@compiled
def fitted_sizes(ascent: Ascent, n_rows: int) -> tuple[int, int]:
    """Return how many of the rows are read, and how many of them are a minibatch."""
    size = min(ascent.batch_size, max(1, n_rows // 2))
    wanted = ascent.n_iterations + ascent.n_reference // size
    n_batches = min(n_rows // size, wanted + wanted % 2)
    if n_batches > 1:
        n_batches -= n_batches % 2
    return n_batches * size, size


@compiled
def ascend(
    rows: BatchRows, link: LinkNumbers, ascent: Ascent, start_theta: Floats, scale: Floats,
    key: np.uint64,
) -> tuple[Floats, int]:  # fmt: skip
    """Return theta after the ascent, and how many steps were not finite and not taken.

    `scale` is `mean(inputs inputs')`; `key` is that of the random numbers for sampled decisions.
    """
    # Arrays are taken out of their tuples once; see batch_sums.
    inputs, utility, columns, batch_shares, benefits, total = rows
    constant, defined, is_ratio, shares = benefits
    size, penalised, preconditioned = ascent.batch_size, ascent.penalty > 0.0, ascent.preconditioned
    m, n_batches, per_batch = inputs.shape[0], inputs.shape[1] // size, total / size
    n_benefits, n_groups = constant.shape if penalised else (0, 0)
    n_columns = columns.shape[0] if penalised else 0
    looks = penalised or preconditioned
    in_batch = ascent.n_reference == 0 or n_batches == 1  # all from the minibatch itself
    pushed = in_batch and penalised and not preconditioned
    memory = max(1.0, ascent.n_reference / size)
    lightest, every = 1.0 if in_batch else 2.0 / (memory + 1.0), max(1, int(memory / 4.0))
    before = 0 if in_batch else min(n_batches, 2 * max(1, int(memory / 2.0)))
    # one entry per row of the minibatch
    eta, propensity, derivative = np.empty(size), np.empty(size), np.empty(size)
    steepness, weighted = np.empty(size), np.empty((max(n_columns, m), size))
    decision, slope = propensity, derivative
    if ascent.sampled:
        decision, slope = np.empty(size), np.empty(size)
    counted = decision if in_batch else propensity  # in the means beside the slopes
    # running means
    level_sums, level_sizes = np.zeros(n_columns), np.zeros(n_groups)
    sums, sizes, slopes = np.zeros(n_columns), np.zeros(n_groups), np.zeros((n_columns, m))
    curvature, acceptance_slope = np.zeros((m, m)), np.zeros(m)
    mean_steepness, acceptance = 0.0, 0.0
    # what steps are made of
    values, factors = np.zeros((n_benefits, n_groups)), np.zeros((n_benefits, n_groups))
    scales, push = np.zeros(n_groups), np.zeros(n_columns if pushed else 0)
    residual_slopes = np.zeros((n_benefits * n_groups, m))
    matrix, inverse = np.zeros((m, m)), np.zeros((m, m))
    last_slope, expected = np.zeros(m), 0.0
    theta, gradient, change = start_theta.copy(), np.zeros((1, m)), np.zeros(m)
    n_levels, n_slopes, rejected, at = 0, 0, 0, n_batches - before
    for j in range(-before, ascent.n_iterations):
        at = at if at < n_batches else 0
        start = at * size
        has_levels = penalised and (in_batch or at % 2 == 0)
        has_slopes = looks and not pushed and (in_batch or at % 2 == 1)
        n_levels += has_levels
        n_slopes += has_slopes
        linear_scores(theta, inputs, start, eta)
        if ascent.sampled:
            draw(link, eta, key, (j + before) * size, decision, slope)
        if has_slopes or not ascent.sampled:
            responses(link, eta, propensity, derivative, steepness)
        for moment in range(2):
            # the minibatch enters the means before the step that is made of it alone, else after
            if moment == (0 if in_batch else 1):
                if has_levels:
                    weight = max(lightest, 1.0 / n_levels)
                    update_sums(
                        columns, start, decision, 1.0 - weight, weight * per_batch, level_sums
                    )
                    _blend(level_sizes, batch_shares, at, weight)
                if has_slopes:
                    weight = max(lightest, 1.0 / n_slopes)
                    keep, factor, mean = 1.0 - weight, weight * per_batch, weight / size
                    update_sums(columns, start, counted, keep, factor, sums)
                    _blend(sizes, batch_shares, at, weight)
                    weigh(columns, start, slope, n_columns, weighted)
                    update_products(weighted, inputs, start, size, keep, factor, slopes, False)
                    update_sums(inputs, start, derivative, keep, mean, acceptance_slope)
                    weigh(inputs, start, steepness, m, weighted)
                    update_products(weighted, inputs, start, size, keep, mean, curvature, True)
                    steep, accepted = 0.0, 0.0
                    for i in range(size):
                        steep += steepness[i]
                        accepted += propensity[i]
                    mean_steepness = keep * mean_steepness + mean * steep
                    acceptance = keep * acceptance + mean * accepted
            if moment == 1 or j < 0:
                continue
            if penalised:
                if not pushed and j % every == 0:
                    _set_scales(shares, sizes, scales)
                    set_benefits(constant, defined, is_ratio, sums, scales, values, factors)
                    _set_residual_slopes(is_ratio, values, factors, slopes, residual_slopes)
                _set_scales(shares, level_sizes, scales)
                set_benefits(constant, defined, is_ratio, level_sums, scales, values, factors)
            weigh_row(utility, start, slope, weighted)
            if pushed:
                _set_push(is_ratio, values, factors, ascent.penalty, push)
                _add_push(columns, start, slope, push, weighted)
            update_products(weighted, inputs, start, size, 0.0, per_batch, gradient, False)
            if penalised and not pushed:
                centre(values, factors)
                _subtract_penalty(ascent.penalty, values, residual_slopes, gradient)
            if preconditioned:
                if j % every == 0:
                    _set_inverse(
                        ascent, scale, curvature, mean_steepness, residual_slopes, matrix, inverse
                    )
                    expected = acceptance
                    for k in range(m):
                        last_slope[k] = acceptance_slope[k]
                _preconditioned_step(ascent, gradient, scale, inverse, expected, last_slope, change)
            else:
                _plain_step(ascent, gradient, change)
            rejected += not _add_if_finite(change, theta)
            expected += _dot(last_slope, change)  # the mean propensity, to first order
        if looks and not in_batch and j >= 0:
            acceptance += _dot(acceptance_slope, change)
            _follow(change, slopes, sizes, level_sizes, sums, level_sums)
        at += 1
    return theta, rejected
