"""The compiled ascent: the loop of `UpdatePolicy`, near the machine's limit.

What it computes is what reference.py and steps.py say in NumPy; tests hold the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.pair import ascend_for_two_groups
from consequential.learning.running import (
    absorb_levels,
    absorb_metric,
    absorb_slopes,
    follow,
    push,
    set_inverse,
    set_residual_slopes,
    set_residuals,
    subtract_penalty,
)
from consequential.learning.spot import ascend_on_the_spot
from consequential.learning.sums import Rows, set_batch, set_gradient, set_gradient_of_two
from consequential.policies.compiled import Bend, compiled

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
def _shorten(change: Floats, length: float, longest: float) -> None:
    if length > longest:
        for k in range(change.size):
            change[k] *= longest / length


@compiled
def _plain_step(gradient: Floats, rate: float, max_step: float, change: Floats) -> None:
    """Set the change of theta to the paper's."""
    longest = 0.0
    for k in range(change.size):
        change[k] = rate * gradient[k]
        longest = max(longest, abs(change[k]))
    _shorten(change, longest, max_step)


@compiled
def _preconditioned_step(
    gradient: Floats, rate: float, max_step: float, max_share: float, theta: Floats, scale: Floats,
    inverse: Floats, then: Floats, accepted: Floats, accepted_slope: Floats, change: Floats,
) -> None:  # fmt: skip
    """Set the change of theta to a `PreconditionedStep`."""
    m = change.size
    square, drift, now = 0.0, 0.0, accepted[0]
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
    _shorten(change, np.sqrt(max(square, 0.0)), max_step)
    for k in range(m):
        drift += accepted_slope[k] * change[k]
        now += accepted_slope[k] * (theta[k] - then[k])
    room = max(min(now, 1.0 - now), 0.0)
    _shorten(change, abs(drift), max_share * room)


@compiled
def _add_where_finite(change: Floats, theta: Floats) -> bool:
    """Add a change to theta, or make it none; return whether it was finite."""
    finite = True
    for k in range(theta.size):
        finite = finite and np.isfinite(change[k])
    for k in range(theta.size):
        change[k] = change[k] if finite else 0.0
        theta[k] += change[k]
    return finite


@compiled
def prepared(ascent: Ascent, n_rows: int, penalty: float, rate: float) -> tuple[int, Ascent]:
    """Return how many rows are passed over, and the ascent with sizes that fit so many rows."""
    a = ascent
    batch_size = min(a.batch_size, max(1, n_rows // 2))
    wanted = a.n_iterations + a.n_reference // batch_size
    n_batches = min(n_rows // batch_size, wanted + wanted % 2)
    if n_batches > 1:
        n_batches -= n_batches % 2
    return n_batches * batch_size, Ascent(
        a.n_iterations, batch_size, a.n_reference, penalty, a.sampled, a.preconditioned, rate,
        a.ridge, a.max_step, a.max_share,
    )  # fmt: skip


@compiled
def ascend(
    rows: Rows, link: Bend, ascent: Ascent, start_theta: Floats, scale: Floats, key: np.uint64,
    draws: Floats, copies: Floats,
) -> tuple[Floats, int]:  # fmt: skip
    """Return theta after the ascent, and how many steps were not finite and not taken.

    `draws` are the first numbers of the key's stream, for who has them already; or none. `copies`
    is room for copies of minibatches, for who has it; or none.
    """
    # arrays are taken out of their tuples once: in the loop, counting references costs too much
    phi, utility, values, denominators = rows.phi, rows.utility, rows.values, rows.denominators
    is_ratio, group, constant, defined = rows.is_ratio, rows.group, rows.constant, rows.defined
    shares, penalty, size, sampled = rows.shares, ascent.penalty, ascent.batch_size, ascent.sampled
    (m, n), (n_benefits, n_groups) = phi.shape, constant.shape
    n_batches, per_batch = n // size, rows.total / size
    penalised, preconditioned = penalty > 0.0, ascent.preconditioned
    looks = penalised or preconditioned
    on_the_spot = ascent.n_reference == 0 or n_batches == 1
    pushed = on_the_spot and penalised and not preconditioned
    # most ascents have code of their own, which does the same in fewer passes
    paired = not penalised or (n_benefits == 1 and n_groups == 2 and not is_ratio[0])
    if on_the_spot and sampled and paired and not preconditioned and link.floor == 0.0:
        return ascend_on_the_spot(
            phi, utility, values, group, constant, defined, shares, per_batch, link, penalty,
            ascent.n_iterations, size, ascent.rate, ascent.max_step, start_theta, key, draws,
            copies,
        )  # fmt: skip
    memory = max(1.0, ascent.n_reference / size)
    lightest = 1.0 if on_the_spot else 2.0 / (memory + 1.0)
    every = max(1, int(memory / 4.0))
    before = 0 if on_the_spot else min(n_batches, 2 * max(1, int(memory / 2.0)))
    if preconditioned and paired and not (sampled or on_the_spot):
        return ascend_for_two_groups(
            phi, utility, values, group, constant, defined, shares, per_batch, link, penalty,
            ascent.n_iterations, size, memory, before, ascent.rate, ascent.ridge, ascent.max_step,
            ascent.max_share, start_theta, scale,
        )  # fmt: skip
    # one entry a row of the minibatch
    eta, steepness, room, weighted = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    propensity, derivative = np.empty(size), np.empty(size)
    taken, slope = propensity, derivative
    if sampled:
        taken, slope = np.empty(size), np.empty(size)
    # running means; see reference._Running
    levels, level_sizes = np.zeros((2, n_benefits, n_groups)), np.zeros(n_groups)
    beside, beside_sizes = np.zeros((2, n_benefits, n_groups)), np.zeros(n_groups)
    slopes, curvature = np.zeros((2, n_benefits, n_groups, m)), np.zeros((m, m))
    mean_steepness, acceptance, acceptance_slope = np.zeros(1), np.zeros(1), np.zeros(m)
    # what steps are made of
    residuals, benefits = np.zeros((n_benefits, n_groups)), np.zeros((n_benefits, n_groups))
    scales, residual_slopes = np.zeros(residuals.shape), np.zeros((n_benefits, n_groups, m))
    square, inverse, by_group = np.zeros((m, m)), np.zeros((m, m)), np.zeros(n_groups)
    then, accepted, accepted_slope = np.zeros(m), np.zeros(1), np.zeros(m)
    theta, gradient, change = start_theta.copy(), np.zeros(m), np.zeros(m)
    n_levels, n_slopes, rejected, at = 0, 0, 0, n_batches - before
    for j in range(-before, ascent.n_iterations):
        at = at if at < n_batches else 0
        start = at * size
        levelled = penalised and (on_the_spot or at % 2 == 0)
        sloped = looks and not pushed and (on_the_spot or at % 2 == 1)
        n_levels += levelled
        n_slopes += sloped
        at += 1
        if j < 0 and not (levelled or sloped):
            continue
        if m == 2 and not (sampled or sloped or pushed):
            set_gradient_of_two(phi, utility, link, theta, start, propensity, gradient)
        else:
            set_batch(
                phi, link, theta, start, sampled, sloped, key, (j + before) * size, eta,
                propensity, derivative, steepness, taken, slope, room,
            )  # fmt: skip
            coefficient, first = utility, start
            if pushed:
                absorb_levels(
                    values, denominators, is_ratio, group, start, taken, 1.0, per_batch, levels,
                    level_sizes,
                )  # fmt: skip
                set_residuals(
                    levels, level_sizes, shares, constant, defined, is_ratio, benefits, scales,
                    residuals,
                )  # fmt: skip
                push(
                    utility, values, denominators, is_ratio, group, start, penalty, residuals,
                    benefits, scales, by_group, weighted,
                )  # fmt: skip
                coefficient, first = weighted, 0
            set_gradient(phi, start, coefficient, first, slope, room, gradient)
        for moment in range(2):
            # on the spot a minibatch counts before the step it belongs to, otherwise after it
            absorbs = moment == (0 if on_the_spot else 1)
            if absorbs and levelled and not pushed:
                absorb_levels(
                    values, denominators, is_ratio, group, start, taken,
                    max(lightest, 1.0 / n_levels), per_batch, levels, level_sizes,
                )  # fmt: skip
            if absorbs and sloped and penalised:
                absorb_slopes(
                    values, denominators, is_ratio, group, phi, start, slope,
                    taken if on_the_spot else propensity, max(lightest, 1.0 / n_slopes),
                    per_batch, room, slopes, beside, beside_sizes,
                )  # fmt: skip
            if absorbs and sloped and preconditioned:
                absorb_metric(
                    phi, start, derivative, steepness, propensity, max(lightest, 1.0 / n_slopes),
                    curvature, acceptance_slope, mean_steepness, acceptance,
                )  # fmt: skip
            if moment == 1 or j < 0:
                continue
            for k in range(m):
                gradient[k] *= per_batch
            if penalised and not pushed:
                if j % every == 0:
                    set_residual_slopes(
                        beside, beside_sizes, shares, constant, defined, is_ratio, benefits,
                        scales, slopes, residual_slopes,
                    )  # fmt: skip
                set_residuals(
                    levels, level_sizes, shares, constant, defined, is_ratio, benefits, scales,
                    residuals,
                )  # fmt: skip
                subtract_penalty(penalty, residuals, residual_slopes, gradient)
            if preconditioned:
                if j % every == 0:
                    set_inverse(
                        penalty, ascent.ridge, scale, curvature, mean_steepness, residual_slopes,
                        square, inverse,
                    )  # fmt: skip
                    accepted[0] = acceptance[0]
                    for k in range(m):
                        then[k] = theta[k]
                        accepted_slope[k] = acceptance_slope[k]
                _preconditioned_step(
                    gradient, ascent.rate, ascent.max_step, ascent.max_share, theta, scale,
                    inverse, then, accepted, accepted_slope, change,
                )  # fmt: skip
            else:
                _plain_step(gradient, ascent.rate, ascent.max_step, change)
            rejected += not _add_where_finite(change, theta)
        if looks and not on_the_spot and j >= 0:
            follow(
                change, acceptance, acceptance_slope, levels, level_sizes, beside, beside_sizes,
                slopes,
            )  # fmt: skip
    return theta, rejected
