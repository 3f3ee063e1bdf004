"""The compiled ascent: the loop of `UpdatePolicy`, near the machine's limit.

What it computes is what reference.py and steps.py say in NumPy; tests hold the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.learning.running import (
    Ascent,
    Running,
    absorb_levels,
    absorb_metric,
    absorb_slopes,
    follow,
    prepare,
    push,
    running,
    set_residuals,
    subtract_penalty,
)
from consequential.learning.sums import Rows, batch_of, gradient_of_two, set_batch, set_gradient
from consequential.policies.compiled import Bend, compiled, pasted

Floats = NDArray[np.float64]


@pasted
def _shorten(change: Floats, length: float, longest: float) -> None:
    if length > longest:
        for k in range(change.size):
            change[k] *= longest / length


@pasted
def _step(ascent: Ascent, gradient: Floats, theta: Floats, scale: Floats, means: Running,
          change: Floats) -> bool:  # fmt: skip
    """Turn a gradient into a change of theta; return whether it is finite."""
    if ascent.preconditioned:
        square, drift, accepted = 0.0, 0.0, means.accepted[0]
        for j in range(theta.size):
            total = 0.0
            for k in range(theta.size):
                total += means.inverse[j, k] * gradient[k]
            change[j] = ascent.rate * total
        for j in range(theta.size):
            total = 0.0
            for k in range(theta.size):
                total += scale[j, k] * change[k]
            square += change[j] * total
        _shorten(change, np.sqrt(max(square, 0.0)), ascent.max_step)
        for k in range(theta.size):
            drift += means.accepted_slope[k] * change[k]
            accepted += means.accepted_slope[k] * (theta[k] - means.theta[k])
        room = max(min(accepted, 1.0 - accepted), 0.0)
        _shorten(change, abs(drift), ascent.max_share * room)
    else:
        longest = 0.0
        for k in range(theta.size):
            change[k] = ascent.rate * gradient[k]
            longest = max(longest, abs(change[k]))
        _shorten(change, longest, ascent.max_step)
    finite = True
    for k in range(theta.size):
        finite = finite and np.isfinite(change[k])
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
    rows: Rows, link: Bend, ascent: Ascent, start_theta: Floats, scale: Floats, key: np.uint64
) -> tuple[Floats, int]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    m, n_batches = rows.phi.shape[0], rows.phi.shape[1] // ascent.batch_size
    n_benefits, n_groups = rows.constant.shape
    batch = batch_of(ascent.batch_size, ascent.sampled)
    means = running(m, n_benefits, n_groups)
    theta, gradient, change = start_theta.copy(), np.zeros(m), np.zeros(m)
    penalised = ascent.penalty > 0.0
    looks = penalised or ascent.preconditioned
    on_the_spot = ascent.n_reference == 0 or n_batches == 1
    pushed = on_the_spot and penalised and not ascent.preconditioned
    memory = max(1.0, ascent.n_reference / ascent.batch_size)
    lightest = 1.0 if on_the_spot else 2.0 / (memory + 1.0)
    every = max(1, int(memory / 4.0))
    before = 0
    if not on_the_spot:
        before = min(n_batches, 2 * max(1, int(memory / 2.0)))
    n_levels, n_slopes, rejected = 0, 0, 0
    at = n_batches - before
    for j in range(-before, ascent.n_iterations):
        at = at if at < n_batches else 0
        start = at * ascent.batch_size
        levelled = penalised and (on_the_spot or at % 2 == 0)
        sloped = looks and not pushed and (on_the_spot or at % 2 == 1)
        n_levels += levelled
        n_slopes += sloped
        if j >= 0 or levelled or sloped:
            if m == 2 and not (ascent.sampled or sloped or pushed):
                gradient_of_two(rows.phi, rows.utility, link, theta, start, batch, gradient)
            else:
                drawn = (j + before) * ascent.batch_size
                set_batch(rows, link, theta, start, ascent.sampled, sloped, key, drawn, batch)
                coefficient = rows.utility[start : start + ascent.batch_size]
                if pushed:
                    absorb_levels(rows, start, batch, 1.0, means)
                    set_residuals(rows, means)
                    batch.coefficient[:] = coefficient
                    coefficient = batch.coefficient
                    push(rows, start, ascent.penalty, means, coefficient)
                set_gradient(rows.phi, start, coefficient, batch.slope, batch.room, gradient)
            for k in range(m):
                gradient[k] *= rows.total / ascent.batch_size
        for moment in range(2):
            # on the spot a minibatch counts before the step it belongs to, otherwise after it
            if moment == (0 if on_the_spot else 1) and not pushed:
                if levelled:
                    weight = max(lightest, 1.0 / n_levels)
                    absorb_levels(rows, start, batch, weight, means)
                if sloped:
                    weight = max(lightest, 1.0 / n_slopes)
                    if penalised:
                        taken = batch.taken if on_the_spot else batch.propensity
                        absorb_slopes(rows, start, batch, taken, weight, means)
                    if ascent.preconditioned:
                        absorb_metric(rows, start, batch, weight, means)
            if moment == 0 and j >= 0:
                if looks and not pushed:
                    if j % every == 0:
                        prepare(rows, ascent, theta, scale, means)
                    if penalised:
                        set_residuals(rows, means)
                        subtract_penalty(ascent.penalty, means, gradient)
                if not _step(ascent, gradient, theta, scale, means, change):
                    rejected += 1
                    for k in range(m):
                        change[k] = 0.0
        if looks and not on_the_spot:
            follow(change, means)
        for k in range(m):
            theta[k] += change[k]
        at += 1
    return theta, rejected
