"""Compiled sums over rows: everything an objective and a step look at.

What they compute is what `objective` says in NumPy; tests hold the two together. Inputs are
stored one row an input (`phi[k, i]`), so that every loop runs along people, and sums are taken
over short stretches that stay in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.objective import NOBODY
from consequential.policies.compiled import (
    Bend,
    compiled,
    drawn_decisions,
    in_expectation,
    linear_scores,
    pasted,
    propensities,
    propensities_and_derivatives,
    sides,
)
from consequential.policies.uniforms import fill_uniforms

Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """Functionals of a log's rows, in the order they are read in.

    Coefficients are those of the whole log of `total` rows, of which these may be a part.
    """

    phi: Floats  # (inputs, n)
    utility: Floats  # (n,)
    values: Floats  # (benefits, n)
    denominators: Floats  # (benefits, n), or (0, n) where no benefit is a ratio
    is_ratio: NDArray[np.bool_]  # (benefits,)
    group: NDArray[np.int16]  # (n,)
    constant: Floats  # (benefits, groups)
    defined: NDArray[np.bool_]  # (benefits, groups)
    utility_constant: float
    total: float
    shares: Floats  # (groups,), of all rows of the log


# Loops run over slices that begin at 0: an index that might be negative would not vectorise.
# They take two columns or two groups at a time: loading them is what a sum costs.


@compiled
def add_by_group(values: Floats, taken: Floats, group: NDArray[np.int16], sums: Floats) -> None:
    """Add `sum_i values_i taken_i`, group by group."""
    for z in range(0, sums.size, 2):
        one, other = 0.0, 0.0
        for i in range(taken.size):
            product = values[i] * taken[i]
            one += product if group[i] == z else 0.0
            other += product if group[i] == z + 1 else 0.0
        sums[z] += one
        if z + 1 < sums.size:
            sums[z + 1] += other


@compiled
def add_products(weighted: Floats, phi: Floats, start: int, sums: Floats) -> None:
    """Add `sum_i weighted_i phi_i`."""
    stop = start + weighted.size
    for k in range(0, sums.size - 1, 2):
        column, next_column = phi[k, start:stop], phi[k + 1, start:stop]
        one, other = 0.0, 0.0
        for i in range(weighted.size):
            one += weighted[i] * column[i]
            other += weighted[i] * next_column[i]
        sums[k] += one
        sums[k + 1] += other
    if sums.size % 2:
        column = phi[sums.size - 1, start:stop]
        one = 0.0
        for i in range(weighted.size):
            one += weighted[i] * column[i]
        sums[sums.size - 1] += one


@compiled
def add_squares(weights: Floats, phi: Floats, start: int, sums: Floats) -> None:
    """Add at least the lower triangle of `sum_i weights_i phi_i phi_i'`, four entries at a time."""
    first, n, m = np.uint64(start), np.uint64(weights.size), sums.shape[0]
    for j in range(0, m, 2):
        below = min(j + 1, m - 1)
        for k in range(0, j + 1, 2):
            beside = min(k + 1, m - 1)
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                own = weights[i] * phi[j, first + i]
                next_ = weights[i] * phi[below, first + i]
                a += own * phi[k, first + i]
                b += own * phi[beside, first + i]
                c += next_ * phi[k, first + i]
                d += next_ * phi[beside, first + i]
            sums[j, k] += a
            if beside > k:
                sums[j, beside] += b
            if below > j:
                sums[below, k] += c
                if beside > k:
                    sums[below, beside] += d


@pasted
def add_benefit_sums(
    rows: Rows, taken: Floats, start: int, numerators: Floats, denominators: Floats
) -> None:
    """Add a stretch of rows to the sums of all benefits."""
    stop = start + taken.size
    group = rows.group[start:stop]
    for b in range(numerators.shape[0]):
        add_by_group(rows.values[b, start:stop], taken, group, numerators[b])
        if rows.is_ratio[b]:
            add_by_group(rows.denominators[b, start:stop], taken, group, denominators[b])


@pasted
def set_benefits(
    rows: Rows, scale: float, numerators: Floats, denominators: Floats, benefits: Floats
) -> None:
    """Turn sums over some rows, in place, into functionals and benefits; NaN where undefined."""
    for b in range(benefits.shape[0]):
        for z in range(benefits.shape[1]):
            numerators[b, z] = rows.constant[b, z] + scale * numerators[b, z]
            denominators[b, z] = scale * denominators[b, z] if rows.is_ratio[b] else 1.0
            usable = rows.defined[b, z] and denominators[b, z] > NOBODY
            benefits[b, z] = numerators[b, z] / denominators[b, z] if usable else np.nan


@pasted
def set_deviations(benefits: Floats, deviations: Floats) -> None:
    """Each group's benefit less the groups' mean; 0 where it is undefined."""
    for b in range(benefits.shape[0]):
        mean, known = 0.0, 0
        for z in range(benefits.shape[1]):
            if not np.isnan(benefits[b, z]):
                mean += benefits[b, z]
                known += 1
        mean /= max(known, 1)
        for z in range(benefits.shape[1]):
            defined = not np.isnan(benefits[b, z])
            deviations[b, z] = benefits[b, z] - mean if defined else 0.0


@compiled
def _sums_of_two_groups(
    link: Bend, eta: Floats, utility: Floats, values: Floats, group: NDArray[np.int16], start: int
) -> tuple[float, float, float]:
    """Return sums of utility and of either group's values, each times propensities."""
    above, below = sides(link)
    first, floor = np.uint64(start), link.floor
    total, own, other = 0.0, 0.0, 0.0
    for i in range(np.uint64(eta.size)):
        propensity, _, _ = in_expectation(eta[i], above, below, floor)
        total += utility[first + i] * propensity
        level = values[0, first + i] * propensity
        member = group[first + i] == 0
        own += level if member else 0.0
        other += 0.0 if member else level
    return total, own, other


@compiled
def objective_value(rows: Rows, link: Bend, theta: Floats, n: int, penalty: float) -> float:
    """Return the objective estimated on the first n rows."""
    shape = rows.constant.shape
    numerators, denominators = np.zeros(shape), np.zeros(shape)
    benefits, spread = np.empty(shape), np.empty(shape)
    etas, chances = np.empty(min(n, 1024)), np.empty(min(n, 1024))
    utility = 0.0
    paired = penalty > 0.0 and shape == (1, 2) and not rows.is_ratio[0]
    for start in range(0, n, 1024):
        length = min(1024, n - start)
        eta, propensity = etas[:length], chances[:length]
        linear_scores(theta, rows.phi, start, eta)
        if paired:
            gained, one, other = _sums_of_two_groups(
                link, eta, rows.utility, rows.values, rows.group, start
            )
            utility += gained
            numerators[0, 0] += one
            numerators[0, 1] += other
            continue
        propensities(link, eta, propensity)
        coefficient = rows.utility[start : start + length]
        for i in range(length):
            utility += coefficient[i] * propensity[i]
        if penalty > 0.0:
            add_benefit_sums(rows, propensity, start, numerators, denominators)
    value = rows.utility_constant + utility * (rows.total / n)
    if penalty > 0.0:
        set_benefits(rows, rows.total / n, numerators, denominators, benefits)
        set_deviations(benefits, spread)
        for b in range(shape[0]):
            for z in range(shape[1]):
                value -= penalty * spread[b, z] * spread[b, z]
    return value


@compiled
def gradient_of_two(
    phi: Floats, utility: Floats, start: int, size: int, link: Bend, theta: Floats
) -> tuple[float, float]:
    """Return `sum_i utility_i g'_i phi_i` for two inputs, over so many rows from `start` on."""
    above, below = sides(link)
    first, n, a, b = np.uint64(start), np.uint64(size), theta[0], theta[1]
    upper_one, upper_other, lower_one, lower_other = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        x, y = phi[0, first + i], phi[1, first + i]
        eta = a * x + b * y
        _, _, steepness = in_expectation(eta, 1.0, 1.0, 0.0)
        weighted = utility[first + i] * steepness
        upper, lower = weighted if eta >= 0.0 else 0.0, 0.0 if eta >= 0.0 else weighted
        upper_one += upper * x
        upper_other += upper * y
        lower_one += lower * x
        lower_other += lower * y
    # a link's two sides are two numbers: what is on either side can be added up first
    return above * upper_one + below * lower_one, above * upper_other + below * lower_other


@compiled
def set_gradient_of_two(
    phi: Floats, utility: Floats, link: Bend, theta: Floats, start: int, propensity: Floats,
    gradient: Floats,
) -> None:  # fmt: skip
    """Set `sum_i utility_i g'_i phi_i` for two inputs, in one pass; fill in propensities."""
    above, below = sides(link)
    first, n, floor, a, b = (
        np.uint64(start), np.uint64(propensity.size), link.floor, theta[0], theta[1],
    )  # fmt: skip
    one, other = 0.0, 0.0
    for i in range(n):
        x, y = phi[0, first + i], phi[1, first + i]
        propensity[i], slope, _ = in_expectation(a * x + b * y, above, below, floor)
        weighted = utility[first + i] * slope
        one += weighted * x
        other += weighted * y
    gradient[0], gradient[1] = one, other


@compiled
def set_batch(
    phi: Floats, link: Bend, theta: Floats, start: int, sampled: bool, sloped: bool,
    key: np.uint64, drawn: int, eta: Floats, propensity: Floats, derivative: Floats,
    steepness: Floats, taken: Floats, slope: Floats, room: Floats,
) -> None:  # fmt: skip
    """Fill in what a minibatch's rows are at theta; expectations where anything reads them."""
    linear_scores(theta, phi, start, eta)
    if sloped or not sampled:
        propensities_and_derivatives(link, eta, propensity, derivative, steepness)
    if sampled:
        fill_uniforms(key, drawn, room)
        drawn_decisions(link, eta, room, taken, slope)


@compiled
def set_gradient(
    phi: Floats, start: int, coefficients: Floats, first: int, slope: Floats, room: Floats,
    gradient: Floats,
) -> None:  # fmt: skip
    """Set `sum_i coefficient_i slope_i phi_i`, coefficients being read from the first one on."""
    coefficient = coefficients[first : first + slope.size]
    for i in range(slope.size):
        room[i] = coefficient[i] * slope[i]
    for k in range(gradient.size):
        gradient[k] = 0.0
    add_products(room, phi, start, gradient)
