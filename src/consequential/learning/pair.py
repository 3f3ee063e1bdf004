"""The ascent for two groups, compiled: expected decisions and preconditioned steps.

It is what `kernel.ascend` does where the penalty is about one benefit of two groups, no ratio: then
all that residuals and their slopes come to is the gap between the groups, and the slope of the
gap. Tests hold it together with `reference.ascend`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.learning.matrices import factorise, invert
from consequential.learning.sums import add_squares, gradient_of_two
from consequential.policies.compiled import Bend, compiled, in_expectation, pasted, sides

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]

# what is found in a minibatch, a number an input: the gradient of utility, the slopes of either
# group's sum of values times propensities, and that of acceptance
_GRADIENT, _OWN, _OTHER, _ACCEPTED = range(4)

# Places are unsigned: one that might be negative would keep a loop from being vectorised. Rows are
# told apart by where they start: slicing would count references, which takes longer than the sums.
# A loop that writes to more than two arrays, or reads many beside, would not be vectorised either.


@compiled
def _levels_of_two(
    phi: Floats, utility: Floats, values: Floats, group: Codes, start: int, size: int, link: Bend,
    theta: Floats, found: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Set the gradient for two inputs; return what `_levels` returns."""
    above, below = sides(link)
    floor = link.floor
    first, n = np.uint64(start), np.uint64(size)
    a, b = theta[0], theta[1]
    one, other, own_level, other_level, count = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        x, y = phi[0, first + i], phi[1, first + i]
        propensity, slope, _ = in_expectation(a * x + b * y, above, below, floor)
        weighted = utility[first + i] * slope
        one += weighted * x
        other += weighted * y
        level = values[first + i] * propensity
        member = group[first + i] == 0
        own_level += level if member else 0.0
        other_level += 0.0 if member else level
        count += 1.0 if member else 0.0
    found[_GRADIENT, 0], found[_GRADIENT, 1] = one, other
    return own_level, other_level, count


@compiled
def _slopes_of_two(
    phi: Floats, utility: Floats, values: Floats, group: Codes, start: int, link: Bend,
    theta: Floats, derivative: Floats, steepness: Floats, found: Floats, squares: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Set, for two inputs, the gradient and what `_slopes` sets; return what it returns."""
    above, below = sides(link)
    floor = link.floor
    first, n = np.uint64(start), np.uint64(derivative.size)
    a, b = theta[0], theta[1]
    one, other, acceptance, steep = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        x, y = phi[0, first + i], phi[1, first + i]
        propensity, slope, logistic = in_expectation(a * x + b * y, above, below, floor)
        derivative[i] = slope
        steepness[i] = logistic
        weighted = utility[first + i] * slope
        one += weighted * x
        other += weighted * y
        acceptance += propensity
        steep += logistic
    found[_GRADIENT, 0], found[_GRADIENT, 1] = one, other
    xx, xy, yy, dx, dy, count = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    own_x, own_y, other_x, other_y = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        x, y = phi[0, first + i], phi[1, first + i]
        scaled = steepness[i] * y
        xx += steepness[i] * x * x
        xy += scaled * x
        yy += scaled * y
        dx += derivative[i] * x
        dy += derivative[i] * y
        weighted = values[first + i] * derivative[i]
        member = group[first + i] == 0
        owned, others = weighted if member else 0.0, 0.0 if member else weighted
        own_x += owned * x
        own_y += owned * y
        other_x += others * x
        other_y += others * y
        count += 1.0 if member else 0.0
    squares[0, 0], squares[1, 0], squares[1, 1] = xx, xy, yy
    found[_ACCEPTED, 0], found[_ACCEPTED, 1] = dx, dy
    found[_OWN, 0], found[_OWN, 1] = own_x, own_y
    found[_OTHER, 0], found[_OTHER, 1] = other_x, other_y
    return acceptance, steep, count


@pasted
def _score(phi: Floats, start: int, theta: Floats, eta: Floats) -> None:
    """Fill in the scores of the rows from `start` on."""
    first, n, m = np.uint64(start), np.uint64(eta.size), theta.size
    if m == 6:
        a, b, c, d, e, f = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
        for i in range(n):
            eta[i] = (
                (a * phi[0, first + i] + b * phi[1, first + i])
                + (c * phi[2, first + i] + d * phi[3, first + i])
                + (e * phi[4, first + i] + f * phi[5, first + i])
            )
        return
    a = theta[0]
    for i in range(n):
        eta[i] = a * phi[0, first + i]
    for k in range(1, m - 1, 2):
        a, b = theta[k], theta[k + 1]
        for i in range(n):
            eta[i] += a * phi[k, first + i] + b * phi[k + 1, first + i]
    if m % 2 == 0:
        a = theta[m - 1]
        for i in range(n):
            eta[i] += a * phi[m - 1, first + i]


@pasted
def _add_up(weights: Floats, phi: Floats, start: int, sums: Floats, row: int) -> None:
    """Set a row to `sum_i weights_i phi_i`."""
    first, n, m = np.uint64(start), np.uint64(weights.size), sums.shape[1]
    if m == 6:
        a, b, c, d, e, f = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            own = weights[i]
            a += own * phi[0, first + i]
            b += own * phi[1, first + i]
            c += own * phi[2, first + i]
            d += own * phi[3, first + i]
            e += own * phi[4, first + i]
            f += own * phi[5, first + i]
        sums[row, 0], sums[row, 1], sums[row, 2] = a, b, c
        sums[row, 3], sums[row, 4], sums[row, 5] = d, e, f
        return
    for k in range(0, m, 2):
        beside = min(k + 1, m - 1)
        a, b = 0.0, 0.0
        for i in range(n):
            a += weights[i] * phi[k, first + i]
            b += weights[i] * phi[beside, first + i]
        sums[row, k], sums[row, beside] = a, b


@compiled
def _levels(
    phi: Floats, utility: Floats, values: Floats, group: Codes, start: int, link: Bend,
    theta: Floats, eta: Floats, room: Floats, found: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Set the gradient; return each group's sum of values times propensities, and a size."""
    above, below = sides(link)
    floor = link.floor
    first, n = np.uint64(start), np.uint64(eta.size)
    _score(phi, start, theta, eta)
    own, other, count = 0.0, 0.0, 0.0
    for i in range(n):
        propensity, slope, _ = in_expectation(eta[i], above, below, floor)
        room[i] = utility[first + i] * slope
        level = values[first + i] * propensity
        member = group[first + i] == 0
        own += level if member else 0.0
        other += 0.0 if member else level
        count += 1.0 if member else 0.0
    _add_up(room, phi, start, found, _GRADIENT)
    return own, other, count


@compiled
def _slopes(
    phi: Floats, utility: Floats, values: Floats, group: Codes, start: int, link: Bend,
    theta: Floats, eta: Floats, derivative: Floats, steepness: Floats, room: Floats,
    found: Floats, squares: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Set the gradient, the slopes of both groups' sums, of acceptance, and squares of the metric.

    Return the sums of propensities and of the logistic function's slopes, and the first group's
    size.
    """
    above, below = sides(link)
    floor = link.floor
    first, n, m = np.uint64(start), np.uint64(eta.size), theta.size
    _score(phi, start, theta, eta)
    acceptance, steep, count = 0.0, 0.0, 0.0
    for i in range(n):
        propensity, slope, logistic = in_expectation(eta[i], above, below, floor)
        derivative[i], steepness[i] = slope, logistic
        acceptance += propensity
        steep += logistic
    for i in range(n):
        room[i] = utility[first + i] * derivative[i]
    _add_up(room, phi, start, found, _GRADIENT)
    for i in range(n):
        member = group[first + i] == 0
        room[i] = values[first + i] * derivative[i] if member else 0.0
        count += 1.0 if member else 0.0
    _add_up(room, phi, start, found, _OWN)
    for i in range(n):
        room[i] = 0.0 if group[first + i] == 0 else values[first + i] * derivative[i]
    _add_up(room, phi, start, found, _OTHER)
    _add_up(derivative, phi, start, found, _ACCEPTED)
    for j in range(m):
        for k in range(m):
            squares[j, k] = 0.0
    add_squares(steepness, phi, start, squares)
    return acceptance, steep, count


@compiled
def _set_inverse(
    penalty: float, ridge: float, scale: Floats, curvature: Floats, steepness: float,
    gap_slope: Floats, matrix: Floats, inverse: Floats,
) -> None:  # fmt: skip
    """Set the inverse of the step's matrix."""
    m = scale.shape[0]
    trace = 0.0
    for j in range(m):
        trace += scale[j, j]
    for j in range(m):
        for k in range(j + 1):
            own = (curvature[j, k] + steepness * scale[j, k]) / 2.0 + ridge * scale[j, k]
            matrix[j, k] = own + penalty * gap_slope[j] * gap_slope[k]
        matrix[j, j] += ridge * trace / m
    factorise(matrix)
    invert(matrix, inverse)


@compiled
def _step(
    gradient: Floats, rate: float, max_step: float, max_share: float, theta: Floats, scale: Floats,
    inverse: Floats, then: Floats, accepted: float, accepted_slope: Floats, change: Floats,
) -> bool:  # fmt: skip
    """Take a `PreconditionedStep`; return whether it was finite, and where it is not take none."""
    m = change.size
    square, drift, now = 0.0, 0.0, accepted
    for j in range(m):
        total = 0.0
        for k in range(m):
            total += inverse[j, k] * gradient[k]
        change[j] = rate * total
    for j in range(m):
        total = 0.0
        for k in range(m):
            total += scale[j, k] * change[k]
        square += change[j] * total
        drift += accepted_slope[j] * change[j]
        now += accepted_slope[j] * (theta[j] - then[j])
    length = np.sqrt(max(square, 0.0))
    shortened = max_step / length if length > max_step else 1.0
    room = max_share * max(min(now, 1.0 - now), 0.0)
    drift = abs(drift * shortened)
    shortened *= room / drift if drift > room else 1.0
    finite = True
    for k in range(m):
        change[k] *= shortened
        finite = finite and np.isfinite(change[k])
    for k in range(m):
        change[k] = change[k] if finite else 0.0
        theta[k] += change[k]
    return finite


@compiled
def ascend_for_two_groups(
    phi: Floats, utility: Floats, values: Floats, group: Codes, constant: Floats,
    defined: NDArray[np.bool_], shares: Floats, per_batch: float, link: Bend, penalty: float,
    n_iterations: int, size: int, memory: float, before: int, rate: float, ridge: float,
    max_step: float, max_share: float, start_theta: Floats, scale: Floats,
) -> tuple[Floats, int]:  # fmt: skip
    """Return theta after the ascent, and how many steps were not finite and not taken.

    For at most one benefit, no ratio. `memory` is how many minibatches a running mean is worth,
    and so many `before` the first step are looked at.
    """
    m, n_batches, penalised = phi.shape[0], phi.shape[1] // size, penalty > 0.0
    lightest, every = 2.0 / (memory + 1.0), max(1, int(memory / 4.0))
    eta, room, derivative, steepness = (
        np.empty(size), np.empty(size), np.empty(size), np.empty(size),
    )  # fmt: skip
    own = values[0] if penalised else utility
    base = constant[0, 0] - constant[0, 1] if penalised else 0.0
    known = penalised and defined[0, 0] and defined[0, 1]
    # running means; see reference._Running
    level, other_level, share, other_share = 0.0, 0.0, 0.0, 0.0
    share_beside, other_beside, mean_steepness, acceptance = 0.0, 0.0, 0.0, 0.0
    slopes, curvature, acceptance_slope = np.zeros((2, m)), np.zeros((m, m)), np.zeros(m)
    # what a minibatch says, and what steps are made of
    found, squares = np.zeros((4, m)), np.zeros((m, m))
    matrix, inverse, gap_slope = np.zeros((m, m)), np.zeros((m, m)), np.zeros(m)
    then, accepted, accepted_slope = np.zeros(m), 0.0, np.zeros(m)
    theta, gradient, change = start_theta.copy(), np.zeros(m), np.zeros(m)
    one, other, count, total, steep = 0.0, 0.0, 0.0, 0.0, 0.0
    n_levels, n_slopes, rejected, at = 0, 0, 0, n_batches - before
    for j in range(-before, n_iterations):
        at = at if at < n_batches else 0
        start, sloped = at * size, at % 2 == 1
        at += 1
        if sloped:
            if m == 2:
                total, steep, count = _slopes_of_two(
                    phi, utility, own, group, start, link, theta, derivative, steepness, found,
                    squares,
                )  # fmt: skip
            else:
                total, steep, count = _slopes(
                    phi, utility, own, group, start, link, theta, eta, derivative, steepness, room,
                    found, squares,
                )  # fmt: skip
        elif m == 2 and not penalised:
            found[_GRADIENT, 0], found[_GRADIENT, 1] = gradient_of_two(
                phi, utility, start, size, link, theta
            )
        elif m == 2:
            one, other, count = _levels_of_two(
                phi, utility, own, group, start, size, link, theta, found
            )
        else:
            one, other, count = _levels(
                phi, utility, own, group, start, link, theta, eta, room, found
            )
        if j >= 0:
            if j % every == 0:
                both = known and share_beside > 0.0 and other_beside > 0.0
                for k in range(m):
                    gap_slope[k] = (
                        slopes[0, k] * shares[0] / share_beside
                        - slopes[1, k] * shares[1] / other_beside
                        if both
                        else 0.0
                    )
                    then[k], accepted_slope[k] = theta[k], acceptance_slope[k]
                accepted = acceptance
                _set_inverse(
                    penalty, ridge, scale, curvature, mean_steepness, gap_slope, matrix, inverse
                )
            gap = 0.0
            if known and share > 0.0 and other_share > 0.0:
                gap = base + level * shares[0] / share - other_level * shares[1] / other_share
            for k in range(m):
                gradient[k] = per_batch * found[_GRADIENT, k] - penalty * gap * gap_slope[k]
            finite = _step(
                gradient, rate, max_step, max_share, theta, scale, inverse, then, accepted,
                accepted_slope, change,
            )  # fmt: skip
            rejected += not finite
        if sloped:
            n_slopes += 1
            weight = max(lightest, 1.0 / n_slopes)
            keep, mean = 1.0 - weight, weight / size
            for k in range(m):
                slopes[0, k] = keep * slopes[0, k] + weight * per_batch * found[_OWN, k]
                slopes[1, k] = keep * slopes[1, k] + weight * per_batch * found[_OTHER, k]
                acceptance_slope[k] = keep * acceptance_slope[k] + mean * found[_ACCEPTED, k]
                for i in range(k + 1):
                    curvature[k, i] = keep * curvature[k, i] + mean * squares[k, i]
            share_beside = keep * share_beside + mean * count
            other_beside = keep * other_beside + mean * (size - count)
            mean_steepness = keep * mean_steepness + mean * steep
            acceptance = keep * acceptance + mean * total
        else:
            n_levels += 1
            weight = max(lightest, 1.0 / n_levels)
            keep, mean = 1.0 - weight, weight / size
            level = keep * level + weight * per_batch * one
            other_level = keep * other_level + weight * per_batch * other
            share = keep * share + mean * count
            other_share = keep * other_share + mean * (size - count)
        if j >= 0:
            # the means follow theta to first order
            drift, other_drift = 0.0, 0.0
            for k in range(m):
                acceptance += acceptance_slope[k] * change[k]
                drift += slopes[0, k] * change[k]
                other_drift += slopes[1, k] * change[k]
            level += share / share_beside * drift if share_beside > 0.0 else 0.0
            other_level += other_share / other_beside * other_drift if other_beside > 0.0 else 0.0
    return theta, rejected
