"""Running means of what minibatches say about an objective: compiled.

The NumPy counterpart is `reference._Running`; tests hold the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.matrices import factorise, invert
from consequential.learning.sums import Batch, Rows, add_pushes
from consequential.objective import NOBODY, ROOT_TWO
from consequential.policies.compiled import compiled, pasted

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


class Running(NamedTuple):
    """The means, and what steps are made of, brought up to date every so often."""

    levels: Floats  # (2, benefits, groups): numerators and denominators, by the even minibatches
    level_sizes: Floats  # (groups,)
    beside: Floats  # the same by the odd ones
    beside_sizes: Floats
    slopes: Floats  # (2, benefits, groups, inputs), of `beside`
    curvature: Floats  # (inputs, inputs), lower triangle: mean(s phi phi')
    steepness: Floats  # (1,)
    acceptance: Floats  # (1,)
    acceptance_slope: Floats  # (inputs,)
    residuals: Floats  # (benefits, groups)
    theta: Floats  # where the following are from
    residual_slopes: Floats  # (benefits, groups, inputs)
    inverse: Floats  # of the step's matrix
    accepted: Floats  # (1,)
    accepted_slope: Floats
    values: Floats  # (benefits, groups); this and what follows is room for computing
    scales: Floats
    squares: Floats  # (inputs, inputs)
    spare: Floats  # (groups,)


@compiled
def running(n_inputs: int, n_benefits: int, n_groups: int) -> Running:
    """Return room for the means."""
    sums, by_group = (2, n_benefits, n_groups), (n_benefits, n_groups)
    return Running(
        np.zeros(sums), np.zeros(n_groups), np.zeros(sums), np.zeros(n_groups),
        np.zeros((2, n_benefits, n_groups, n_inputs)), np.zeros((n_inputs, n_inputs)),
        np.zeros(1), np.zeros(1), np.zeros(n_inputs), np.zeros(by_group), np.zeros(n_inputs),
        np.zeros((n_benefits, n_groups, n_inputs)), np.zeros((n_inputs, n_inputs)), np.zeros(1),
        np.zeros(n_inputs), np.zeros(by_group), np.zeros(by_group),
        np.zeros((n_inputs, n_inputs)), np.zeros(n_groups),
    )  # fmt: skip


@compiled
def _absorb_sums(
    values: Floats, taken: Floats, group: NDArray[np.int16], weight: float, scale: float,
    sums: Floats, sizes: Floats,
) -> None:  # fmt: skip
    """Bring `scale sum_i values_i taken_i`, group by group, and groups' shares into means."""
    n, last = taken.size, sizes.size - 1
    total, count = 0.0, float(n)  # of the groups that are left
    for i in range(n):
        total += values[i] * taken[i]
    for z in range(last):
        own, owned = 0.0, 0.0
        for i in range(n):
            own += values[i] * taken[i] if group[i] == z else 0.0
            owned += 1.0 if group[i] == z else 0.0
        sums[z] += weight * (scale * own - sums[z])
        sizes[z] += weight * (owned / n - sizes[z])
        total -= own
        count -= owned
    sums[last] += weight * (scale * total - sums[last])
    sizes[last] += weight * (count / n - sizes[last])


@compiled
def _absorb_slopes(
    values: Floats, slope: Floats, phi: Floats, start: int, group: NDArray[np.int16],
    weight: float, scale: float, room: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Bring `scale sum_i values_i slope_i phi_i`, group by group, into means."""
    n_groups, m = sums.shape
    n = slope.size
    stop = start + n
    for i in range(n):
        room[i] = values[i] * slope[i]
    for k in range(0, m, 2):
        beside = min(k + 1, m - 1)
        column, next_column = phi[k, start:stop], phi[beside, start:stop]
        total, next_total = 0.0, 0.0  # of the groups that are left
        for i in range(n):
            total += room[i] * column[i]
            next_total += room[i] * next_column[i]
        for z in range(n_groups):
            one, other = total, next_total
            if z < n_groups - 1:
                one, other = 0.0, 0.0
                for i in range(n):
                    own = room[i] if group[i] == z else 0.0
                    one += own * column[i]
                    other += own * next_column[i]
            total -= one
            next_total -= other
            sums[z, k] += weight * (scale * one - sums[z, k])
            if beside > k:
                sums[z, beside] += weight * (scale * other - sums[z, beside])


@pasted
def absorb_levels(rows: Rows, start: int, batch: Batch, weight: float, means: Running) -> None:
    """Bring a minibatch into the means of benefits."""
    stop = start + batch.taken.size
    scale, group = rows.total / batch.taken.size, rows.group[start:stop]
    for b in range(rows.is_ratio.size):
        if rows.is_ratio[b]:
            _absorb_sums(
                rows.denominators[b, start:stop], batch.taken, group, weight, scale,
                means.levels[1, b], means.spare,
            )  # fmt: skip
        _absorb_sums(
            rows.values[b, start:stop], batch.taken, group, weight, scale, means.levels[0, b],
            means.level_sizes if b == 0 else means.spare,
        )  # fmt: skip


@pasted
def absorb_slopes(
    rows: Rows, start: int, batch: Batch, taken: Floats, weight: float, means: Running
) -> None:
    """Bring a minibatch into the means of the benefits' slopes, and of benefits beside them."""
    stop = start + batch.slope.size
    scale, group, room = rows.total / batch.slope.size, rows.group[start:stop], batch.room
    for b in range(rows.is_ratio.size):
        values = rows.values[b, start:stop]
        _absorb_slopes(
            values, batch.slope, rows.phi, start, group, weight, scale, room, means.slopes[0, b]
        )
        if b == 0 or rows.is_ratio[b]:
            _absorb_sums(
                values, taken, group, weight, scale, means.beside[0, b],
                means.beside_sizes if b == 0 else means.spare,
            )  # fmt: skip
        if rows.is_ratio[b]:
            divisors = rows.denominators[b, start:stop]
            _absorb_sums(divisors, taken, group, weight, scale, means.beside[1, b], means.spare)
            _absorb_slopes(
                divisors, batch.slope, rows.phi, start, group, weight, scale, room,
                means.slopes[1, b],
            )  # fmt: skip


@compiled
def _absorb_metric(
    phi: Floats, start: int, derivative: Floats, steepness: Floats, propensity: Floats,
    weight: float, curvature: Floats, acceptance_slope: Floats, mean_steepness: Floats,
    acceptance: Floats,
) -> None:  # fmt: skip
    m, n = phi.shape[0], propensity.size
    stop, share = start + n, weight / n
    keep = 1.0 - weight
    steep, accepted = 0.0, 0.0
    for i in range(n):
        steep += steepness[i]
        accepted += propensity[i]
    mean_steepness[0] = keep * mean_steepness[0] + share * steep
    acceptance[0] = keep * acceptance[0] + share * accepted
    for j in range(0, m, 2):
        last = min(j + 1, m - 1)
        row, next_row = phi[j, start:stop], phi[last, start:stop]
        one, other = 0.0, 0.0
        for i in range(n):
            one += derivative[i] * row[i]
            other += derivative[i] * next_row[i]
        acceptance_slope[j] = keep * acceptance_slope[j] + share * one
        if last > j:
            acceptance_slope[last] = keep * acceptance_slope[last] + share * other
        for k in range(0, j + 1, 2):
            beside = min(k + 1, m - 1)
            column, next_column = phi[k, start:stop], phi[beside, start:stop]
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                own, next_ = steepness[i] * row[i], steepness[i] * next_row[i]
                a += own * column[i]
                b += own * next_column[i]
                c += next_ * column[i]
                d += next_ * next_column[i]
            curvature[j, k] = keep * curvature[j, k] + share * a
            if beside > k:
                curvature[j, beside] = keep * curvature[j, beside] + share * b
            if last > j:
                curvature[last, k] = keep * curvature[last, k] + share * c
                if beside > k:
                    curvature[last, beside] = keep * curvature[last, beside] + share * d


@pasted
def absorb_metric(rows: Rows, start: int, batch: Batch, weight: float, means: Running) -> None:
    """Bring a minibatch into the means that a step's metric is made of."""
    _absorb_metric(
        rows.phi, start, batch.derivative, batch.steepness, batch.propensity, weight,
        means.curvature, means.acceptance_slope, means.steepness, means.acceptance,
    )  # fmt: skip


@pasted
def follow(change: Floats, means: Running) -> None:
    """Bring the means to where theta goes next."""
    _, n_benefits, n_groups = means.levels.shape
    for k in range(change.size):
        means.acceptance[0] += means.acceptance_slope[k] * change[k]
    for z in range(n_groups):
        there = means.beside_sizes[z] > 0.0
        ratio = means.level_sizes[z] / means.beside_sizes[z] if there else 0.0
        for part in range(2):
            for b in range(n_benefits):
                drift = 0.0
                for k in range(change.size):
                    drift += means.slopes[part, b, z, k] * change[k]
                means.beside[part, b, z] += drift
                means.levels[part, b, z] += ratio * drift


@compiled
def _benefits(
    sums: Floats, sizes: Floats, shares: Floats, constant: Floats, defined: NDArray[np.bool_],
    is_ratio: NDArray[np.bool_], values: Floats, scales: Floats,
) -> None:  # fmt: skip
    """Set benefits, NaN where unknown, and what their slopes are multiplied by, 0 there."""
    n_benefits, n_groups = values.shape
    for z in range(n_groups):
        scale = shares[z] / sizes[z] if sizes[z] > 0.0 else 0.0
        for b in range(n_benefits):
            below = sums[1, b, z] * scale if is_ratio[b] else 1.0
            known = defined[b, z] and sizes[z] > 0.0 and below > NOBODY
            above = constant[b, z] + sums[0, b, z] * scale
            if not is_ratio[b]:
                values[b, z] = above if known else np.nan
                scales[b, z] = scale if known else 0.0
            else:
                values[b, z] = above / below if known else np.nan
                scales[b, z] = scale / below if known else 0.0


@compiled
def _centre(values: Floats) -> None:
    """Turn each benefit's values by group into residuals or their slopes; 0 where unknown."""
    n_benefits, n_groups = values.shape
    for b in range(n_benefits):
        total, n_known = 0.0, 0.0
        for z in range(n_groups):
            known = not np.isnan(values[b, z])
            total += values[b, z] if known else 0.0
            n_known += 1.0 if known else 0.0
        mean = total / max(n_known, 1.0)
        for z in range(n_groups):
            known = not np.isnan(values[b, z])
            values[b, z] = ROOT_TWO * (values[b, z] - mean) if known else 0.0


@pasted
def set_residuals(rows: Rows, means: Running) -> None:
    """Set the residuals r of the penalty, `lambda/2 sum r^2`."""
    _benefits(
        means.levels, means.level_sizes, rows.shares, rows.constant, rows.defined, rows.is_ratio,
        means.values, means.scales,
    )  # fmt: skip
    means.residuals[:] = means.values
    _centre(means.residuals)


@pasted
def push(rows: Rows, start: int, penalty: float, means: Running, coefficient: Floats) -> None:
    """Add what the penalty makes of each row's coefficient, from the residuals just set.

    It is `A @ dF/dS`, row by row: the product of residuals and slopes of the same rows.
    """
    stop = start + coefficient.size
    group, pushes = rows.group[start:stop], means.spare
    for b in range(rows.is_ratio.size):
        for z in range(pushes.size):
            pushes[z] = -penalty * ROOT_TWO * means.residuals[b, z] * means.scales[b, z]
        add_pushes(rows.values[b, start:stop], group, pushes, coefficient)
        if rows.is_ratio[b]:
            for z in range(pushes.size):
                pushes[z] *= -means.values[b, z] if means.scales[b, z] > 0.0 else 0.0
            add_pushes(rows.denominators[b, start:stop], group, pushes, coefficient)


@pasted
def _set_residual_slopes(rows: Rows, means: Running) -> None:
    """Set the residuals' slopes in theta."""
    n_benefits, n_groups, m = means.residual_slopes.shape
    _benefits(
        means.beside, means.beside_sizes, rows.shares, rows.constant, rows.defined, rows.is_ratio,
        means.values, means.scales,
    )  # fmt: skip
    for b in range(n_benefits):
        for z in range(n_groups):
            value, scale = means.values[b, z], means.scales[b, z]
            for k in range(m):
                slope = means.slopes[0, b, z, k]
                if rows.is_ratio[b]:
                    slope -= value * means.slopes[1, b, z, k]
                # unknown where the value is: NaN
                means.residual_slopes[b, z, k] = slope * scale if value == value else np.nan
    for k in range(m):
        _centre(means.residual_slopes[:, :, k])


@pasted
def prepare(rows: Rows, ascent: Ascent, theta: Floats, scale: Floats, means: Running) -> None:
    """Bring the slopes up to date, and the step's matrix with them."""
    if ascent.penalty > 0.0:
        _set_residual_slopes(rows, means)
    if ascent.preconditioned:
        _set_inverse(
            ascent.penalty, ascent.ridge, scale, means.curvature, means.steepness[0],
            means.residual_slopes, means.squares, means.inverse,
        )  # fmt: skip
        means.accepted[0] = means.acceptance[0]
        for k in range(theta.size):
            means.theta[k] = theta[k]
            means.accepted_slope[k] = means.acceptance_slope[k]


@pasted
def subtract_penalty(penalty: float, means: Running, gradient: Floats) -> None:
    """Subtract the penalty's gradient, `lambda r J`."""
    n_benefits, n_groups, m = means.residual_slopes.shape
    for b in range(n_benefits):
        for z in range(n_groups):
            by = penalty * means.residuals[b, z]
            for k in range(m):
                gradient[k] -= by * means.residual_slopes[b, z, k]


@compiled
def _set_inverse(
    penalty: float, ridge: float, scale: Floats, curvature: Floats, steepness: float,
    slopes: Floats, matrix: Floats, inverse: Floats,
) -> None:  # fmt: skip
    """Set the inverse of the step's matrix."""
    m = scale.shape[0]
    trace = 0.0
    for j in range(m):
        trace += scale[j, j]
    for j in range(m):
        for k in range(j + 1):
            own = (curvature[j, k] + steepness * scale[j, k]) / 2.0
            matrix[j, k] = own + ridge * scale[j, k]
            for b in range(slopes.shape[0]):
                for z in range(slopes.shape[1]):
                    matrix[j, k] += penalty * slopes[b, z, j] * slopes[b, z, k]
        matrix[j, j] += ridge * trace / m
    factorise(matrix)
    invert(matrix, inverse)
