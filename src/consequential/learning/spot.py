"""The printed ascent, compiled: sampled decisions, plain steps, and all from the minibatch itself.

It is what `reference.ascend` does with sampled decisions, `GradientStep` and `n_reference=0`, in
three passes over a minibatch; tests hold the two together. Minibatches that are read many times are
copied first: what is read together lies together, and people who count nothing fill them up, since
the odd end of a loop takes as long as several rounds of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.policies.compiled import Bend, compiled, sigmoids
from consequential.policies.uniforms import fill_uniforms

Floats = NDArray[np.float64]

# people at a time, in two vectors of four times two
_ROUND = 16
# columns of a minibatch after its inputs: utility, and the benefit's values group by group
_GROUPS = 2

# Places are unsigned: one that might be negative would keep a loop from being vectorised. Columns
# lie in one long array: slicing it would count references, which takes longer than the sums.


@compiled
def padded(size: int) -> int:
    """Return how many people a copied minibatch has, those included who count nothing."""
    return (size + _ROUND - 1) // _ROUND * _ROUND


@compiled
def _copy(values: Floats, start: int, size: int, out: Floats, first: int, width: int) -> None:
    """Copy one column; those who fill it up have zeros."""
    n, source, target = np.uint64(size), np.uint64(start), np.uint64(first)
    for i in range(n):
        out[target + i] = values[source + i]
    for i in range(first + size, first + width):
        out[i] = 0.0


@compiled
def _copy_group(
    values: Floats, group: NDArray[np.int16], z: int, start: int, size: int, out: Floats,
    first: int, width: int,
) -> float:  # fmt: skip
    """Copy what is a group's own of a column; return how many people that are."""
    n, source, target = np.uint64(size), np.uint64(start), np.uint64(first)
    count = 0.0
    for i in range(n):
        member = 1.0 if group[source + i] == z else 0.0
        out[target + i] = values[source + i] * member
        count += member
    for i in range(first + size, first + width):
        out[i] = 0.0
    return count


@compiled
def _score(batch: Floats, first: int, theta: Floats, eta: Floats) -> None:
    """Fill in each person's score."""
    n, m = np.uint64(eta.size), theta.size
    if m == 6:
        a, b, c, d, e, f = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
        a0 = np.uint64(first)
        b0 = a0 + n
        c0 = b0 + n
        d0 = c0 + n
        e0 = d0 + n
        f0 = e0 + n
        for i in range(n):
            eta[i] = (
                (a * batch[a0 + i] + b * batch[b0 + i])
                + (c * batch[c0 + i] + d * batch[d0 + i])
                + (e * batch[e0 + i] + f * batch[f0 + i])
            )
        return
    if m == 1:
        for i in range(n):
            eta[i] = 0.0
    else:
        a, b, a0 = theta[0], theta[1], np.uint64(first)
        b0 = a0 + n
        for i in range(n):
            eta[i] = a * batch[a0 + i] + b * batch[b0 + i]
    for k in range(2, m - 1, 2):
        a, b, a0 = theta[k], theta[k + 1], np.uint64(first + k * eta.size)
        b0 = a0 + n
        for i in range(n):
            eta[i] += a * batch[a0 + i] + b * batch[b0 + i]
    if m % 2:
        a, a0 = theta[m - 1], np.uint64(first + (m - 1) * eta.size)
        for i in range(n):
            eta[i] += a * batch[a0 + i]


@compiled
def _draw(
    link: Bend, eta: Floats, draws: Floats, first_draw: int, batch: Floats, first: int,
    slope: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Draw decisions d; fill in `d g'/g`, and return the sums of the benefit's values times d."""
    n, u, v = np.uint64(eta.size), np.uint64(first_draw), np.uint64(first)
    w = v + n
    bend, flat, _ = link
    above = 1.0 - flat
    one, other = 0.0, 0.0
    for i in range(n):
        larger, smaller = sigmoids(eta[i])
        up = eta[i] >= 0.0
        propensity = larger + flat * (1.0 - larger) if up else bend * smaller
        taken = 1.0 if draws[u + i] < propensity else 0.0
        slope[i] = taken * (smaller * above if up else larger)
        one += batch[v + i] * taken
        other += batch[w + i] * taken
    return one, other


@compiled
def _set_gradient(
    batch: Floats, first: int, slope: Floats, push: float, other_push: float, room: Floats,
    gradient: Floats,
) -> None:  # fmt: skip
    """Set `sum_i coefficient_i slope_i phi_i`; coefficients are utility and pushes times values."""
    n, m = np.uint64(slope.size), gradient.size
    u = np.uint64(first + m * slope.size)
    v = u + n
    w = v + n
    if m == 6:
        a0 = np.uint64(first)
        b0 = a0 + n
        c0 = b0 + n
        d0 = c0 + n
        e0 = d0 + n
        f0 = e0 + n
        a, b, c, d, e, f = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            own = slope[i] * (batch[u + i] + push * batch[v + i] + other_push * batch[w + i])
            a += own * batch[a0 + i]
            b += own * batch[b0 + i]
            c += own * batch[c0 + i]
            d += own * batch[d0 + i]
            e += own * batch[e0 + i]
            f += own * batch[f0 + i]
        gradient[0], gradient[1], gradient[2] = a, b, c
        gradient[3], gradient[4], gradient[5] = d, e, f
        return
    if m == 2:
        a0 = np.uint64(first)
        b0 = a0 + n
        a, b = 0.0, 0.0
        for i in range(n):
            own = slope[i] * (batch[u + i] + push * batch[v + i] + other_push * batch[w + i])
            a += own * batch[a0 + i]
            b += own * batch[b0 + i]
        gradient[0], gradient[1] = a, b
        return
    for i in range(n):
        room[i] = slope[i] * (batch[u + i] + push * batch[v + i] + other_push * batch[w + i])
    for k in range(0, m, 2):
        a0, b0 = (
            np.uint64(first + k * slope.size),
            np.uint64(first + min(k + 1, m - 1) * slope.size),
        )
        a, b = 0.0, 0.0
        for i in range(n):
            a += room[i] * batch[a0 + i]
            b += room[i] * batch[b0 + i]
        gradient[k] = a
        if k + 1 < m:
            gradient[k + 1] = b


@compiled
def _pushes(
    penalty: float, benefit: float, other_benefit: float, scale: float, other_scale: float
) -> tuple[float, float]:
    """Return what each group's values are multiplied by: the penalty's slope in its benefit."""
    known, other_known = scale > 0.0, other_scale > 0.0
    # with one group alone, or none, nothing deviates from the mean
    apart = benefit - other_benefit if known and other_known else 0.0
    return -penalty * apart * scale, penalty * apart * other_scale


@compiled
def _step(rate: float, max_step: float, gradient: Floats, change: Floats, theta: Floats) -> bool:
    """Take the paper's step and return whether it was finite; where it is not none is taken."""
    longest, finite = 0.0, True
    for k in range(theta.size):
        change[k] = rate * gradient[k]
        longest = max(longest, abs(change[k]))
    ratio = max_step / longest if longest > max_step else 1.0
    for k in range(theta.size):
        change[k] *= ratio
        finite = finite and np.isfinite(change[k])
    if finite:
        for k in range(theta.size):
            theta[k] += change[k]
    return finite


@compiled
def ascend_on_the_spot(
    phi: Floats, utility: Floats, values: Floats, group: NDArray[np.int16], constant: Floats,
    defined: NDArray[np.bool_], shares: Floats, per_batch: float, link: Bend, penalty: float,
    n_iterations: int, size: int, rate: float, max_step: float, start_theta: Floats,
    key: np.uint64, draws: Floats,
) -> tuple[Floats, int]:  # fmt: skip
    """Return theta after the ascent, and how many steps were not finite and not taken.

    For at most one benefit, no ratio, of two groups, and links without a floor. `draws` are the
    first numbers of the key's stream; where they are too few the stream is made here.
    """
    m, n_batches, width = phi.shape[0], phi.shape[1] // size, padded(size)
    length, penalised = (m + 1 + _GROUPS) * width, penalty > 0.0
    drawn = draws.size >= (n_iterations - 1) * size + width
    numbers = draws if drawn else np.empty(width)
    # minibatches that are read once need not be kept
    n_copies = n_batches if n_batches < n_iterations else 1
    batches, scales = np.empty(n_copies * length), np.zeros(_GROUPS * n_copies)
    eta, slope, room = np.empty(width), np.empty(width), np.empty(width)
    theta, gradient, change = start_theta.copy(), np.zeros(m), np.zeros(m)
    own, n_valued, base, other_base = utility, 0, 0.0, 0.0
    if penalised:
        own, n_valued, base, other_base = values[0], size, constant[0, 0], constant[0, 1]
    push, other_push = 0.0, 0.0
    rejected, at = 0, 0
    for j in range(n_iterations):
        at = at if at < n_batches else 0
        copy = at if n_copies > 1 else 0
        start, first = at * size, copy * length
        at += 1
        if j < n_batches:
            for k in range(m):
                _copy(phi[k], start, size, batches, first + k * width, width)
            _copy(utility, start, size, batches, first + m * width, width)
            for z in range(_GROUPS):
                count = _copy_group(
                    own, group, z, start, n_valued, batches, first + (m + 1 + z) * width, width
                )
                known = count > 0.0 and defined[0, z]
                scales[_GROUPS * copy + z] = shares[z] * size / count if known else 0.0
        if not drawn:
            fill_uniforms(key, j * size, numbers)
        _score(batches, first, theta, eta)
        one, other = _draw(
            link, eta, numbers, j * size if drawn else 0, batches, first + (m + 1) * width, slope
        )
        if penalised:
            scale, other_scale = scales[_GROUPS * copy], scales[_GROUPS * copy + 1]
            push, other_push = _pushes(
                penalty, base + per_batch * scale * one,
                other_base + per_batch * other_scale * other, scale, other_scale,
            )  # fmt: skip
        _set_gradient(batches, first, slope, push, other_push, room, gradient)
        rejected += not _step(rate * per_batch, max_step, gradient, change, theta)
    return theta, rejected
