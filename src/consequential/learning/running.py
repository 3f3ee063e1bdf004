"""Running means of what minibatches say about an objective: compiled.

The NumPy counterpart is `reference._Running`; tests hold the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.learning.matrices import factorise, invert
from consequential.objective import NOBODY, ROOT_TWO
from consequential.policies.compiled import compiled

Floats = NDArray[np.float64]


# These functions take arrays one by one, and slice them inside: taking them out of a tuple, or
# slicing them, in the loop that calls would cost more than the sums, for counting references.
# Every group is counted directly. The difference between everybody and the other groups would be
# about 1e-16 instead of 0 where nobody is there, and the group's benefit would count as defined.


@compiled
def _absorb_sums(
    values: Floats, b: int, start: int, taken: Floats, groups: NDArray[np.int16], weight: float,
    scale: float, sums: Floats, part: int, sizes: Floats,
) -> None:  # fmt: skip
    """Bring `scale sum_i values_i taken_i`, group by group, into means; groups' shares too."""
    n = taken.size
    own, group = values[b, start : start + n], groups[start : start + n]
    for z in range(sums.shape[2]):
        here, counted = 0.0, 0.0
        for i in range(n):
            here += own[i] * taken[i] if group[i] == z else 0.0
            counted += 1.0 if group[i] == z else 0.0
        sums[part, b, z] += weight * (scale * here - sums[part, b, z])
        if b == 0 and part == 0:
            sizes[z] += weight * (counted / n - sizes[z])


@compiled
def _absorb_slopes(
    values: Floats, b: int, start: int, slope: Floats, phi: Floats, groups: NDArray[np.int16],
    weight: float, scale: float, room: Floats, sums: Floats, part: int,
) -> None:  # fmt: skip
    """Bring `scale sum_i values_i slope_i phi_i`, group by group, into means."""
    n_groups, m = sums.shape[2:]
    n = slope.size
    stop = start + n
    own, group = values[b, start:stop], groups[start:stop]
    for i in range(n):
        room[i] = own[i] * slope[i]
    for k in range(0, m, 2):
        beside = min(k + 1, m - 1)
        column, next_column = phi[k, start:stop], phi[beside, start:stop]
        for z in range(n_groups):
            one, other = 0.0, 0.0
            for i in range(n):
                member = room[i] if group[i] == z else 0.0
                one += member * column[i]
                other += member * next_column[i]
            sums[part, b, z, k] += weight * (scale * one - sums[part, b, z, k])
            if beside > k:
                sums[part, b, z, beside] += weight * (scale * other - sums[part, b, z, beside])


@compiled
def absorb_levels(
    values: Floats, denominators: Floats, is_ratio: NDArray[np.bool_], group: NDArray[np.int16],
    start: int, taken: Floats, weight: float, scale: float, levels: Floats, sizes: Floats,
) -> None:  # fmt: skip
    """Bring a minibatch into the means of benefits."""
    for b in range(is_ratio.size):
        _absorb_sums(values, b, start, taken, group, weight, scale, levels, 0, sizes)
        if is_ratio[b]:
            _absorb_sums(denominators, b, start, taken, group, weight, scale, levels, 1, sizes)


@compiled
def absorb_slopes(
    values: Floats, denominators: Floats, is_ratio: NDArray[np.bool_], group: NDArray[np.int16],
    phi: Floats, start: int, slope: Floats, taken: Floats, weight: float, scale: float,
    room: Floats, slopes: Floats, beside: Floats, sizes: Floats,
) -> None:  # fmt: skip
    """Bring a minibatch into the means of the benefits' slopes, and of benefits beside them."""
    for b in range(is_ratio.size):
        _absorb_slopes(values, b, start, slope, phi, group, weight, scale, room, slopes, 0)
        if b == 0 or is_ratio[b]:
            _absorb_sums(values, b, start, taken, group, weight, scale, beside, 0, sizes)
        if is_ratio[b]:
            _absorb_sums(denominators, b, start, taken, group, weight, scale, beside, 1, sizes)
            _absorb_slopes(
                denominators, b, start, slope, phi, group, weight, scale, room, slopes, 1
            )


@compiled
def absorb_metric(
    phi: Floats, start: int, derivative: Floats, steepness: Floats, propensity: Floats,
    weight: float, curvature: Floats, acceptance_slope: Floats, mean_steepness: Floats,
    acceptance: Floats,
) -> None:  # fmt: skip
    """Bring a minibatch into the means that a step's metric is made of."""
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


@compiled
def follow(
    change: Floats, acceptance: Floats, acceptance_slope: Floats, levels: Floats,
    level_sizes: Floats, beside: Floats, beside_sizes: Floats, slopes: Floats,
) -> None:  # fmt: skip
    """Bring the means to where theta goes next."""
    _, n_benefits, n_groups = levels.shape
    for k in range(change.size):
        acceptance[0] += acceptance_slope[k] * change[k]
    for z in range(n_groups):
        ratio = level_sizes[z] / beside_sizes[z] if beside_sizes[z] > 0.0 else 0.0
        for part in range(2):
            for b in range(n_benefits):
                drift = 0.0
                for k in range(change.size):
                    drift += slopes[part, b, z, k] * change[k]
                beside[part, b, z] += drift
                levels[part, b, z] += ratio * drift


@compiled
def _benefits(
    sums: Floats, sizes: Floats, shares: Floats, constant: Floats, defined: NDArray[np.bool_],
    is_ratio: NDArray[np.bool_], values: Floats, scales: Floats,
) -> None:  # fmt: skip
    """Set benefits, and what their slopes are multiplied by: 0 where they are not known."""
    n_benefits, n_groups = values.shape
    for z in range(n_groups):
        scale = shares[z] / sizes[z] if sizes[z] > 0.0 else 0.0
        for b in range(n_benefits):
            below = sums[1, b, z] * scale if is_ratio[b] else 1.0
            known = defined[b, z] and sizes[z] > 0.0 and below > NOBODY
            above = constant[b, z] + sums[0, b, z] * scale
            values[b, z] = above / below if known else 0.0
            scales[b, z] = scale / below if known else 0.0


@compiled
def set_residuals(
    sums: Floats, sizes: Floats, shares: Floats, constant: Floats, defined: NDArray[np.bool_],
    is_ratio: NDArray[np.bool_], values: Floats, scales: Floats, residuals: Floats,
) -> None:  # fmt: skip
    """Set the residuals r of the penalty, `lambda/2 sum r^2`."""
    n_benefits, n_groups = values.shape
    _benefits(sums, sizes, shares, constant, defined, is_ratio, values, scales)
    for b in range(n_benefits):
        total, n_known = 0.0, 0.0
        for z in range(n_groups):
            total += values[b, z]
            n_known += 1.0 if scales[b, z] > 0.0 else 0.0
        mean = total / max(n_known, 1.0)
        for z in range(n_groups):
            known = scales[b, z] > 0.0
            residuals[b, z] = ROOT_TWO * (values[b, z] - mean) if known else 0.0


@compiled
def set_residual_slopes(
    sums: Floats, sizes: Floats, shares: Floats, constant: Floats, defined: NDArray[np.bool_],
    is_ratio: NDArray[np.bool_], values: Floats, scales: Floats, slopes: Floats, out: Floats,
) -> None:  # fmt: skip
    """Set the residuals' slopes in theta."""
    n_benefits, n_groups, m = out.shape
    _benefits(sums, sizes, shares, constant, defined, is_ratio, values, scales)
    for b in range(n_benefits):
        n_known = 0.0
        for z in range(n_groups):
            n_known += 1.0 if scales[b, z] > 0.0 else 0.0
            for k in range(m):
                below = values[b, z] * slopes[1, b, z, k] if is_ratio[b] else 0.0
                out[b, z, k] = scales[b, z] * (slopes[0, b, z, k] - below)
        for k in range(m):
            total = 0.0
            for z in range(n_groups):
                total += out[b, z, k]
            mean = total / max(n_known, 1.0)
            for z in range(n_groups):
                known = scales[b, z] > 0.0
                out[b, z, k] = ROOT_TWO * (out[b, z, k] - mean) if known else 0.0


@compiled
def push(
    utility: Floats, values: Floats, denominators: Floats, is_ratio: NDArray[np.bool_],
    groups: NDArray[np.int16], start: int, penalty: float, residuals: Floats, benefits: Floats,
    scales: Floats, pushes: Floats, coefficient: Floats,
) -> None:  # fmt: skip
    """Set each row's coefficient in the objective, from the residuals just set.

    It is `A @ dF/dS`, row by row: the product of residuals and slopes of the same rows.
    """
    n = coefficient.size
    own = utility[start : start + n]
    for i in range(n):
        coefficient[i] = own[i]
    for b in range(is_ratio.size):
        for z in range(pushes.size):
            pushes[z] = -penalty * ROOT_TWO * residuals[b, z] * scales[b, z]
        _add_pushes(values, b, start, groups, pushes, coefficient)
        if is_ratio[b]:
            for z in range(pushes.size):
                pushes[z] *= -benefits[b, z]
            _add_pushes(denominators, b, start, groups, pushes, coefficient)


@compiled
def _add_pushes(
    values: Floats, b: int, start: int, groups: NDArray[np.int16], pushes: Floats,
    coefficient: Floats,
) -> None:  # fmt: skip
    """Add to each row's coefficient `values_i` times its group's push."""
    stop = start + coefficient.size
    own, group = values[b, start:stop], groups[start:stop]
    for z in range(pushes.size):
        push = pushes[z]
        for i in range(coefficient.size):
            coefficient[i] += push * own[i] if group[i] == z else 0.0


@compiled
def subtract_penalty(
    penalty: float, residuals: Floats, residual_slopes: Floats, gradient: Floats
) -> None:
    """Subtract the penalty's gradient, `lambda r J`."""
    n_benefits, n_groups, m = residual_slopes.shape
    for b in range(n_benefits):
        for z in range(n_groups):
            by = penalty * residuals[b, z]
            for k in range(m):
                gradient[k] -= by * residual_slopes[b, z, k]


@compiled
def set_inverse(
    penalty: float, ridge: float, scale: Floats, curvature: Floats, steepness: Floats,
    slopes: Floats, matrix: Floats, inverse: Floats,
) -> None:  # fmt: skip
    """Set the inverse of the step's matrix."""
    m = scale.shape[0]
    trace = 0.0
    for j in range(m):
        trace += scale[j, j]
    for j in range(m):
        for k in range(j + 1):
            own = (curvature[j, k] + steepness[0] * scale[j, k]) / 2.0
            matrix[j, k] = own + ridge * scale[j, k]
            for b in range(slopes.shape[0]):
                for z in range(slopes.shape[1]):
                    matrix[j, k] += penalty * slopes[b, z, j] * slopes[b, z, k]
        matrix[j, j] += ridge * trace / m
    factorise(matrix)
    invert(matrix, inverse)
