"""The compiled ascent: the loop of `UpdatePolicy`, near the machine's limit.

What it computes is what reference.py and steps.py say in NumPy; tests hold the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.learning.matrices import solve
from consequential.learning.sums import Rows, buffers
from consequential.learning.windows import (
    STRETCH,
    Around,
    Ascent,
    add_gradient,
    first_stretch,
    look_around,
    nowhere,
    set_residuals,
)
from consequential.policies.compiled import Bend, compiled, pasted

Floats = NDArray[np.float64]


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
def ascend(
    rows: Rows, link: Bend, ascent: Ascent, start_theta: Floats, scale: Floats, key: np.uint64
) -> tuple[Floats, int]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    m, n = rows.phi.shape
    shape = rows.constant.shape
    room = buffers(STRETCH)
    around = nowhere(m, shape[0], shape[1])
    theta, gradient, change = start_theta.copy(), np.empty(m), np.empty(m)
    drawn, rejected = 0, 0
    refresh_every = max(1, ascent.n_reference // (4 * ascent.batch_size))
    for j in range(ascent.n_iterations):
        position = j * ascent.batch_size
        refresh = ascent.penalty > 0.0 or ascent.preconditioned
        if refresh and j % refresh_every == 0:
            if ascent.penalty > 0.0:
                set_residuals(rows, link, ascent, theta, position, key, drawn, room, around)
                drawn += ascent.n_reference
            look_around(rows, link, ascent, theta, position, scale, key, drawn, room, around)
            if ascent.penalty > 0.0:
                drawn += ascent.n_reference
        gradient[:] = 0.0
        done = 0
        while done < ascent.batch_size:
            start, some = first_stretch(position + done, ascent.batch_size - done, n)
            add_gradient(rows, link, ascent, theta, start, some, key, drawn + done, room, gradient)
            done += some
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
