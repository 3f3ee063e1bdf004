"""The compiled ascent: the loop of `UpdatePolicy`, near the machine's limit.

What it computes is what ascent.py and steps.py say in NumPy; tests hold the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.sums import (
    Buffers,
    Rows,
    add_benefit_sums,
    add_products,
    add_slopes_by_group,
    add_squares,
    buffers,
    set_benefits,
    set_deviations,
)
from consequential.policies.compiled import (
    Bend,
    compiled,
    derivatives,
    drawn_decisions,
    linear_scores,
    pasted,
    propensities,
    propensities_and_derivatives,
)
from consequential.policies.uniforms import fill_uniforms

Floats = NDArray[np.float64]

_ROOT_TWO = 2.0**0.5


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


class Around(NamedTuple):
    """What reference rows say about the neighbourhood of theta; see `Surroundings`."""

    theta: Floats
    residuals: Floats  # (benefits, groups)
    slopes: Floats  # (benefits, groups, inputs), of the residuals
    factor: Floats  # the step's matrix as its lower Cholesky factor
    acceptance: Floats  # (1,)
    acceptance_slope: Floats
    numerators: Floats  # room for sums: (benefits, groups)
    denominators: Floats
    benefits: Floats


@compiled
def nowhere(n_inputs: int, n_benefits: int, n_groups: int) -> Around:
    """Return room for surroundings."""
    shape = (n_benefits, n_groups)
    return Around(
        np.zeros(n_inputs), np.zeros(shape), np.zeros((n_benefits, n_groups, n_inputs)),
        np.zeros((n_inputs, n_inputs)), np.zeros(1), np.zeros(n_inputs), np.zeros(shape),
        np.zeros(shape), np.zeros(shape),
    )  # fmt: skip


@pasted
def _first_stretch(start: int, length: int, n: int) -> tuple[int, int]:
    """Return where a window of the circle begins and how long it is before it wraps."""
    begin = start % n
    return begin, min(length, n - begin)


@pasted
def _add_gradient(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, start: int, length: int,
    key: np.uint64, drawn: int, room: Buffers, gradient: Floats,
) -> None:
    eta, slope = room.eta[:length], room.derivative[:length]
    linear_scores(theta, rows.phi, start, eta)
    if ascent.sampled:
        uniforms = room.uniforms[:length]
        fill_uniforms(key, drawn, uniforms)
        drawn_decisions(link, eta, uniforms, room.propensity[:length], slope)
    else:
        derivatives(link, eta, slope)
    coefficient = rows.utility[start : start + length]
    for i in range(length):
        slope[i] *= coefficient[i]
    add_products(slope, rows.phi, start, gradient)


@pasted
def _add_taken(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, start: int, length: int,
    key: np.uint64, drawn: int, room: Buffers, numerators: Floats, denominators: Floats,
) -> None:
    eta, taken = room.eta[:length], room.propensity[:length]
    linear_scores(theta, rows.phi, start, eta)
    if ascent.sampled:
        uniforms = room.uniforms[:length]
        fill_uniforms(key, drawn, uniforms)
        drawn_decisions(link, eta, uniforms, taken, room.derivative[:length])
    else:
        propensities(link, eta, taken)
    add_benefit_sums(rows, taken, start, numerators, denominators)


@pasted
def _set_residuals(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, position: int,
    key: np.uint64, drawn: int, room: Buffers, around: Around,
) -> None:
    """Set the residuals r of the penalty, `lambda/2 sum r^2`, from the far window."""
    n, length = rows.phi.shape[1], ascent.n_reference
    numerators, denominators = around.numerators, around.denominators
    numerators[:] = 0.0
    denominators[:] = 0.0
    start, first = _first_stretch(position - 2 * length, length, n)
    _add_taken(rows, link, ascent, theta, start, first, key, drawn, room, numerators, denominators)
    if first < length:
        _add_taken(
            rows, link, ascent, theta, 0, length - first, key, drawn + first, room,
            numerators, denominators,
        )  # fmt: skip
    set_benefits(rows, rows.total / length, numerators, denominators, around.benefits)
    set_deviations(around.benefits, around.residuals)
    for b in range(numerators.shape[0]):
        for z in range(numerators.shape[1]):
            around.residuals[b, z] *= _ROOT_TWO


@pasted
def _add_near(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, start: int, length: int, room: Buffers,
    numerators: Floats, denominators: Floats, around: Around, curvature: Floats,
) -> float:
    """Add a stretch of the near window to all sums but the benefits' slopes."""
    eta, propensity = room.eta[:length], room.propensity[:length]
    derivative, steepness = room.derivative[:length], room.steepness[:length]
    linear_scores(theta, rows.phi, start, eta)
    propensities_and_derivatives(link, eta, propensity, derivative, steepness)
    if ascent.penalty > 0.0:
        add_benefit_sums(rows, propensity, start, numerators, denominators)
    total, accepted = 0.0, 0.0
    if ascent.preconditioned:
        add_squares(steepness, rows.phi, start, room.weighted[:length], curvature)
        add_products(derivative, rows.phi, start, around.acceptance_slope)
        for i in range(length):
            accepted += propensity[i]
            total += steepness[i]
    around.acceptance[0] += accepted
    return total


@pasted
def _add_benefit_slopes(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, start: int, length: int,
    key: np.uint64, drawn: int, room: Buffers, benefits: Floats, slopes: Floats,
) -> None:
    eta, slope, weighted = room.eta[:length], room.derivative[:length], room.weighted[:length]
    if ascent.sampled:
        linear_scores(theta, rows.phi, start, eta)
        uniforms = room.uniforms[:length]
        fill_uniforms(key, drawn, uniforms)
        drawn_decisions(link, eta, uniforms, room.propensity[:length], slope)
    elif length < ascent.n_reference:  # else `_add_near` has just left them there
        linear_scores(theta, rows.phi, start, eta)
        derivatives(link, eta, slope)
    group = rows.group[start : start + length]
    for b in range(benefits.shape[0]):
        values = rows.values[b, start : start + length]
        for i in range(length):
            weighted[i] = values[i] * slope[i]
        if rows.is_ratio[b]:
            denominators = rows.denominators[b, start : start + length]
            for i in range(length):
                ratio = benefits[b, group[i]]
                if not np.isnan(ratio):
                    weighted[i] -= ratio * denominators[i] * slope[i]
        add_slopes_by_group(weighted, rows.phi, start, group, slopes[b])


@pasted
def _centre_slopes(
    slopes: Floats, benefits: Floats, denominators: Floats, scale: float
) -> None:
    """Turn slopes of sums, in place, into slopes of the residuals."""
    n_groups, m = slopes.shape[1], slopes.shape[2]
    for b in range(slopes.shape[0]):
        known = 0
        for z in range(n_groups):
            defined = not np.isnan(benefits[b, z])
            known += defined
            factor = scale / denominators[b, z] if defined else 0.0
            for k in range(m):
                slopes[b, z, k] = slopes[b, z, k] * factor if defined else 0.0
        for k in range(m):
            mean = 0.0
            for z in range(n_groups):
                mean += slopes[b, z, k]
            mean /= max(known, 1)
            for z in range(n_groups):
                if not np.isnan(benefits[b, z]):
                    slopes[b, z, k] = _ROOT_TWO * (slopes[b, z, k] - mean)


@compiled
def factorise(matrix: Floats) -> None:
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor."""
    for j in range(matrix.shape[0]):
        for k in range(j + 1):
            total = matrix[j, k]
            for i in range(k):
                total -= matrix[j, i] * matrix[k, i]
            matrix[j, k] = np.sqrt(total) if j == k else total / matrix[k, k]


@compiled
def solve(factor: Floats, right: Floats, out: Floats) -> None:
    m = right.size
    for j in range(m):
        total = right[j]
        for k in range(j):
            total -= factor[j, k] * out[k]
        out[j] = total / factor[j, j]
    for j in range(m - 1, -1, -1):
        total = out[j]
        for k in range(j + 1, m):
            total -= factor[k, j] * out[k]
        out[j] = total / factor[j, j]


@pasted
def _look_around(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, position: int, scale: Floats,
    key: np.uint64, drawn: int, room: Buffers, around: Around,
) -> None:
    """Set what the near window says about the neighbourhood of theta."""
    n, length, m = rows.phi.shape[1], ascent.n_reference, theta.size
    shape = rows.constant.shape
    numerators, denominators = around.numerators, around.denominators
    benefits, curvature = around.benefits, around.factor
    numerators[:] = 0.0
    denominators[:] = 0.0
    curvature[:] = 0.0
    around.acceptance[0] = 0.0
    around.acceptance_slope[:] = 0.0
    around.slopes[:] = 0.0
    around.theta[:] = theta
    start, first = _first_stretch(position - length, length, n)
    steepness = _add_near(
        rows, link, ascent, theta, start, first, room, numerators, denominators, around, curvature
    )
    if first < length:
        steepness += _add_near(
            rows, link, ascent, theta, 0, length - first, room, numerators, denominators, around,
            curvature,
        )  # fmt: skip
    if ascent.penalty > 0.0:
        set_benefits(rows, rows.total / length, numerators, denominators, benefits)
        _add_benefit_slopes(
            rows, link, ascent, theta, start, first, key, drawn, room, benefits, around.slopes
        )
        if first < length:
            _add_benefit_slopes(
                rows, link, ascent, theta, 0, length - first, key, drawn + first, room, benefits,
                around.slopes,
            )  # fmt: skip
        _centre_slopes(around.slopes, benefits, denominators, rows.total / length)
    if not ascent.preconditioned:
        return
    around.acceptance[0] /= length
    for k in range(m):
        around.acceptance_slope[k] /= length
    steepness /= length
    trace = 0.0
    for j in range(m):
        trace += scale[j, j]
    for j in range(m):
        for k in range(j + 1):
            own = curvature[j, k] / length + steepness * scale[j, k]
            curvature[j, k] = own / 2.0 + ascent.ridge * scale[j, k]
            for b in range(shape[0]):
                for z in range(shape[1]):
                    curvature[j, k] += (
                        ascent.penalty * around.slopes[b, z, j] * around.slopes[b, z, k]
                    )
        curvature[j, j] += ascent.ridge * trace / m
    factorise(curvature)


@pasted
def _shorten(change: Floats, length: float, longest: float) -> None:
    if length > longest:
        for k in range(change.size):
            change[k] *= longest / length


@pasted
def _step(ascent: Ascent, gradient: Floats, theta: Floats, scale: Floats, around: Around,
          change: Floats) -> None:  # fmt: skip
    """Turn a gradient into a change of theta."""
    if not ascent.preconditioned:
        longest = 0.0
        for k in range(theta.size):
            change[k] = ascent.rate * gradient[k]
            longest = max(longest, abs(change[k]))
        _shorten(change, longest, ascent.max_step)
        return
    solve(around.factor, gradient, change)
    for k in range(theta.size):
        change[k] *= ascent.rate
    square, drift, accepted = 0.0, 0.0, around.acceptance[0]
    for j in range(theta.size):
        for k in range(theta.size):
            square += change[j] * scale[j, k] * change[k]
    _shorten(change, np.sqrt(max(square, 0.0)), ascent.max_step)
    for k in range(theta.size):
        drift += around.acceptance_slope[k] * change[k]
        accepted += around.acceptance_slope[k] * (theta[k] - around.theta[k])
    room = max(min(accepted, 1.0 - accepted), 0.0)
    _shorten(change, abs(drift), ascent.max_share * room)


@compiled
def prepared(ascent: Ascent, n_rows: int, penalty: float, rate: float) -> tuple[int, Ascent]:
    """Return how many rows are passed over, and the ascent with sizes that fit so many rows."""
    a = ascent
    n_passed = min(n_rows, a.n_iterations * a.batch_size + 2 * a.n_reference)
    batch_size = min(a.batch_size, n_passed)
    beside_a_batch = min(n_passed // 3, (n_passed - batch_size) // 2)
    n_reference = min(a.n_reference, max(1, beside_a_batch))
    return n_passed, Ascent(
        a.n_iterations, batch_size, n_reference, penalty, a.sampled, a.preconditioned, rate,
        a.ridge, a.max_step, a.max_share,
    )  # fmt: skip


@compiled
def mean_squares(phi: Floats) -> Floats:
    """Return `mean(phi phi')`."""
    m, n = phi.shape
    scale = np.zeros((m, m))
    for j in range(m):
        for k in range(j + 1):
            total = 0.0
            for i in range(n):
                total += phi[j, i] * phi[k, i]
            scale[j, k] = scale[k, j] = total / n
    return scale


@compiled
def ascend(
    rows: Rows, link: Bend, ascent: Ascent, start_theta: Floats, scale: Floats, key: np.uint64
) -> tuple[Floats, int]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    m, n = rows.phi.shape
    shape = rows.constant.shape
    room = buffers(max(ascent.batch_size, ascent.n_reference))
    around = nowhere(m, shape[0], shape[1])
    theta, gradient, change = start_theta.copy(), np.empty(m), np.empty(m)
    drawn, rejected = 0, 0
    refresh_every = max(1, ascent.n_reference // ascent.batch_size)
    for j in range(ascent.n_iterations):
        position = j * ascent.batch_size
        refresh = ascent.penalty > 0.0 or ascent.preconditioned
        if refresh and j % refresh_every == 0:
            if ascent.penalty > 0.0:
                _set_residuals(rows, link, ascent, theta, position, key, drawn, room, around)
                drawn += ascent.n_reference
            _look_around(rows, link, ascent, theta, position, scale, key, drawn, room, around)
            if ascent.penalty > 0.0:
                drawn += ascent.n_reference
        gradient[:] = 0.0
        start, first = _first_stretch(position, ascent.batch_size, n)
        _add_gradient(rows, link, ascent, theta, start, first, key, drawn, room, gradient)
        if first < ascent.batch_size:
            _add_gradient(
                rows, link, ascent, theta, 0, ascent.batch_size - first, key, drawn + first, room,
                gradient,
            )  # fmt: skip
        drawn += ascent.batch_size
        for k in range(m):
            gradient[k] *= rows.total / ascent.batch_size
        if ascent.penalty > 0.0:
            for b in range(shape[0]):
                for z in range(shape[1]):
                    residual = around.residuals[b, z]
                    for k in range(m):
                        residual += around.slopes[b, z, k] * (theta[k] - around.theta[k])
                    for k in range(m):
                        gradient[k] -= ascent.penalty * residual * around.slopes[b, z, k]
        _step(ascent, gradient, theta, scale, around, change)
        finite = True
        for k in range(m):
            finite = finite and np.isfinite(change[k])
        if finite:
            for k in range(m):
                theta[k] += change[k]
        else:
            rejected += 1
    return theta, rejected
