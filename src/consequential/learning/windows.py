"""What stretches of rows say about an objective at theta: compiled.

The NumPy counterpart is `reference._Look`; tests hold the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.matrices import factorise
from consequential.learning.sums import (
    Buffers,
    Rows,
    add_benefit_sums,
    add_products,
    add_slopes_by_group,
    add_squares,
    set_benefits,
    set_deviations,
)
from consequential.objective import ROOT_TWO
from consequential.policies.compiled import (
    Bend,
    compiled,
    derivatives,
    drawn_decisions,
    exponential,
    linear_scores,
    pasted,
    propensities,
    propensities_and_derivatives,
)
from consequential.policies.uniforms import fill_uniforms

Floats = NDArray[np.float64]

STRETCH = 512  # rows at a time: what is computed for them stays in the fastest cache


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
def first_stretch(start: int, length: int, n: int) -> tuple[int, int]:
    """Return where a window of the circle begins and how long it is before it wraps or is long."""
    begin = start % n
    return begin, min(length, n - begin, STRETCH)


@compiled
def _add_gradient_of_two(
    phi: Floats, utility: Floats, link: Bend, theta: Floats, start: int, length: int,
    gradient: Floats,
) -> None:  # fmt: skip
    """Add to the gradient of two inputs, in one pass: the commonest case."""
    constant, score = phi[0, start : start + length], phi[1, start : start + length]
    coefficient = utility[start : start + length]
    above, below = (1.0 - link.floor) * (1.0 - link.flat), (1.0 - link.floor) * link.bend
    one, other = 0.0, 0.0
    for i in range(length):
        eta = theta[0] * constant[i] + theta[1] * score[i]
        e = exponential(-abs(eta))
        q = 1.0 / (1.0 + e)
        weighted = coefficient[i] * (above if eta >= 0.0 else below) * (e * q * q)
        one += weighted * constant[i]
        other += weighted * score[i]
    gradient[0] += one
    gradient[1] += other


@pasted
def add_gradient(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, start: int, length: int,
    key: np.uint64, drawn: int, room: Buffers, gradient: Floats,
) -> None:  # fmt: skip
    """Add a stretch of rows to the utility's gradient."""
    if theta.size == 2 and not ascent.sampled:
        _add_gradient_of_two(rows.phi, rows.utility, link, theta, start, length, gradient)
    else:
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
def set_residuals(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, position: int, key: np.uint64,
    drawn: int, room: Buffers, around: Around,
) -> None:  # fmt: skip
    """Set the residuals r of the penalty, `lambda/2 sum r^2`, from the far window."""
    n, length = rows.phi.shape[1], ascent.n_reference
    numerators, denominators = around.numerators, around.denominators
    numerators[:] = 0.0
    denominators[:] = 0.0
    done = 0
    while done < length:
        start, some = first_stretch(position - 2 * length + done, length - done, n)
        eta, taken = room.eta[:some], room.propensity[:some]
        linear_scores(theta, rows.phi, start, eta)
        if ascent.sampled:
            uniforms = room.uniforms[:some]
            fill_uniforms(key, drawn + done, uniforms)
            drawn_decisions(link, eta, uniforms, taken, room.derivative[:some])
        else:
            propensities(link, eta, taken)
        add_benefit_sums(rows, taken, start, numerators, denominators)
        done += some
    set_benefits(rows, rows.total / length, numerators, denominators, around.benefits)
    set_deviations(around.benefits, around.residuals)
    for b in range(numerators.shape[0]):
        for z in range(numerators.shape[1]):
            around.residuals[b, z] *= ROOT_TWO


@pasted
def _add_benefit_slopes(
    rows: Rows, slope: Floats, start: int, benefits: Floats, weighted: Floats, slopes: Floats
) -> None:
    """Add a stretch of rows to the benefits' slopes, given the slopes of decisions."""
    stop = start + slope.size
    group = rows.group[start:stop]
    for b in range(benefits.shape[0]):
        values = rows.values[b, start:stop]
        for i in range(slope.size):
            weighted[i] = values[i] * slope[i]
        if rows.is_ratio[b]:
            denominators = rows.denominators[b, start:stop]
            for i in range(slope.size):
                ratio = benefits[b, group[i]]
                if not np.isnan(ratio):
                    weighted[i] -= ratio * denominators[i] * slope[i]
        add_slopes_by_group(weighted, rows.phi, start, group, slopes[b])


@pasted
def _centre_slopes(slopes: Floats, benefits: Floats, denominators: Floats, scale: float) -> None:
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
                    slopes[b, z, k] = ROOT_TWO * (slopes[b, z, k] - mean)


@compiled
def _look_of_two(
    phi: Floats, start: int, link: Bend, theta: Floats, propensity: Floats, derivative: Floats,
    curvature: Floats, acceptance_slope: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Do for two inputs, in one pass, what `look_around` does for any number.

    Fills in propensities and derivatives, adds to curvature and acceptance slope, and returns
    the sums of propensities and of the logistic derivative.
    """
    n = propensity.size
    constant, score = phi[0, start : start + n], phi[1, start : start + n]
    bend, flat, floor = link
    above, below = (1.0 - floor) * (1.0 - flat), (1.0 - floor) * bend
    accepted, steep, one, other, h00, h01, h11 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        eta = theta[0] * constant[i] + theta[1] * score[i]
        e = exponential(-abs(eta))
        q = 1.0 / (1.0 + e)
        base = q + flat * (1.0 - q) if eta >= 0.0 else bend * e * q
        chance = floor + (1.0 - floor) * base
        steepness = e * q * q
        slope = (above if eta >= 0.0 else below) * steepness
        propensity[i] = chance
        derivative[i] = slope
        accepted += chance
        steep += steepness
        one += slope * constant[i]
        other += slope * score[i]
        h00 += steepness * constant[i] * constant[i]
        h01 += steepness * constant[i] * score[i]
        h11 += steepness * score[i] * score[i]
    acceptance_slope[0] += one
    acceptance_slope[1] += other
    curvature[0, 0] += h00
    curvature[1, 0] += h01
    curvature[1, 1] += h11
    return accepted, steep


@compiled
def _add_benefit_of_two(
    values: Floats, propensity: Floats, derivative: Floats, phi: Floats, start: int,
    group: NDArray[np.int16], sums: Floats, slopes: Floats,
) -> None:  # fmt: skip
    """Add a linear benefit's sums and slopes for two inputs, a pass a group."""
    n = values.size
    constant, score = phi[0, start : start + n], phi[1, start : start + n]
    for z in range(sums.size):
        total, one, other = 0.0, 0.0, 0.0
        for i in range(n):
            value = values[i] if group[i] == z else 0.0
            total += value * propensity[i]
            one += value * derivative[i] * constant[i]
            other += value * derivative[i] * score[i]
        sums[z] += total
        slopes[z, 0] += one
        slopes[z, 1] += other


@pasted
def look_around(
    rows: Rows, link: Bend, ascent: Ascent, theta: Floats, position: int, scale: Floats,
    key: np.uint64, drawn: int, room: Buffers, around: Around,
) -> None:  # fmt: skip
    """Set what the near window says about the neighbourhood of theta."""
    n, length, m = rows.phi.shape[1], ascent.n_reference, theta.size
    penalised = ascent.penalty > 0.0
    # slopes of ratios need the ratios first, and sampled slopes are draws of their own
    at_once = not ascent.sampled and not rows.is_ratio.any()
    numerators, denominators = around.numerators, around.denominators
    benefits, curvature = around.benefits, around.factor
    numerators[:] = 0.0
    denominators[:] = 0.0
    curvature[:] = 0.0
    around.acceptance_slope[:] = 0.0
    around.slopes[:] = 0.0
    around.theta[:] = theta
    accepted, steep, done = 0.0, 0.0, 0
    while done < length:
        start, some = first_stretch(position - length + done, length - done, n)
        eta, propensity = room.eta[:some], room.propensity[:some]
        derivative, steepness = room.derivative[:some], room.steepness[:some]
        if at_once and m == 2:
            more_accepted, more_steep = _look_of_two(
                rows.phi, start, link, theta, propensity, derivative, curvature,
                around.acceptance_slope,
            )  # fmt: skip
            accepted += more_accepted
            steep += more_steep
            if penalised:
                for b in range(benefits.shape[0]):
                    _add_benefit_of_two(
                        rows.values[b, start : start + some], propensity, derivative, rows.phi,
                        start, rows.group[start : start + some], numerators[b], around.slopes[b],
                    )  # fmt: skip
            done += some
            continue
        linear_scores(theta, rows.phi, start, eta)
        propensities_and_derivatives(link, eta, propensity, derivative, steepness)
        if ascent.preconditioned:
            add_squares(steepness, rows.phi, start, room.weighted[:some], curvature)
            add_products(derivative, rows.phi, start, around.acceptance_slope)
            for i in range(some):
                accepted += propensity[i]
                steep += steepness[i]
        if penalised:
            add_benefit_sums(rows, propensity, start, numerators, denominators)
            if at_once:
                _add_benefit_slopes(
                    rows, derivative, start, benefits, room.weighted[:some], around.slopes
                )
        done += some
    if penalised:
        set_benefits(rows, rows.total / length, numerators, denominators, benefits)
        done = 0
        while done < length and not at_once:
            start, some = first_stretch(position - length + done, length - done, n)
            eta, slope = room.eta[:some], room.derivative[:some]
            linear_scores(theta, rows.phi, start, eta)
            if ascent.sampled:
                uniforms = room.uniforms[:some]
                fill_uniforms(key, drawn + done, uniforms)
                drawn_decisions(link, eta, uniforms, room.propensity[:some], slope)
            else:
                derivatives(link, eta, slope)
            _add_benefit_slopes(rows, slope, start, benefits, room.weighted[:some], around.slopes)
            done += some
        _centre_slopes(around.slopes, benefits, denominators, rows.total / length)
    if ascent.preconditioned:
        around.acceptance[0] = accepted / length
        for k in range(m):
            around.acceptance_slope[k] /= length
        _set_factor(ascent, scale, steep / length, 1.0 / length, around)


@compiled
def _set_factor(
    ascent: Ascent, scale: Floats, steepness: float, per_row: float, around: Around
) -> None:
    """Turn the sum of squares into the step's matrix, and that into its Cholesky factor."""
    matrix, slopes, m = around.factor, around.slopes, scale.shape[0]
    trace = 0.0
    for j in range(m):
        trace += scale[j, j]
    for j in range(m):
        for k in range(j + 1):
            own = matrix[j, k] * per_row + steepness * scale[j, k]
            matrix[j, k] = own / 2.0 + ascent.ridge * scale[j, k]
            for b in range(slopes.shape[0]):
                for z in range(slopes.shape[1]):
                    matrix[j, k] += ascent.penalty * slopes[b, z, j] * slopes[b, z, k]
        matrix[j, j] += ascent.ridge * trace / m
    factorise(matrix)
