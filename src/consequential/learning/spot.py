"""The printed ascent, compiled: sampled decisions, plain steps, and all from the minibatch itself.

It is what `reference.ascend` does with sampled decisions, `GradientStep` and `n_reference=0`, in
three passes over a minibatch; tests hold the two together. Minibatches that are read many times are
copied first: what is read together lies together, and people who count nothing fill them up, since
the odd end of a loop takes as long as several rounds of it.
"""

from __future__ import annotations

from typing import NamedTuple

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
# lie in one long array: slicing it would count references, which takes longer than the sums. An
# iteration is one function for the same reason, written out for as many inputs as are common.


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


class Terms(NamedTuple):
    """What a minibatch's penalty and step are made of: numbers only."""

    penalty: float
    per_batch: float  # rows of the log a row of the minibatch stands for
    gap: float  # between the groups' benefits where nobody is accepted
    rate: float
    max_step: float


@compiled
def _push(terms: Terms, one: float, other: float, scale: float, other_scale: float) -> float:
    """Return the penalty's slope in the gap, from what the groups' values add up to."""
    gap = terms.gap + terms.per_batch * (scale * one - other_scale * other)
    # with one group alone there is no gap
    return terms.penalty * gap if scale > 0.0 and other_scale > 0.0 else 0.0


@compiled
def _shortened(rate: float, longest: float, max_step: float) -> float:
    return rate * (max_step / (rate * longest)) if rate * longest > max_step else rate


@compiled
def _iterate_two(
    link: Bend, batches: Floats, first: int, draws: Floats, first_draw: int, slope: Floats,
    terms: Terms, scale: float, other_scale: float, theta: Floats,
) -> bool:  # fmt: skip
    """Do what `_iterate` does, for two inputs."""
    bend, flat, _ = link
    above, n, drawn = 1.0 - flat, np.uint64(slope.size), np.uint64(first_draw)
    a0 = np.uint64(first)
    b0 = a0 + n
    u = b0 + n
    v = u + n
    w = v + n
    a, b = theta[0], theta[1]
    one, other = 0.0, 0.0
    for i in range(n):
        eta = a * batches[a0 + i] + b * batches[b0 + i]
        larger, smaller = sigmoids(eta)
        propensity = larger + flat * (1.0 - larger) if eta >= 0.0 else bend * smaller
        taken = 1.0 if draws[drawn + i] < propensity else 0.0
        slope[i] = taken * (smaller * above if eta >= 0.0 else larger)
        one += batches[v + i] * taken
        other += batches[w + i] * taken
    push = _push(terms, one, other, scale, other_scale)
    push, other_push = -push * scale, push * other_scale
    along_a, along_b = 0.0, 0.0
    for i in range(n):
        own = slope[i] * (batches[u + i] + push * batches[v + i] + other_push * batches[w + i])
        along_a += own * batches[a0 + i]
        along_b += own * batches[b0 + i]
    rate = terms.rate * terms.per_batch
    finite = bool(np.isfinite(rate * along_a) and np.isfinite(rate * along_b))
    if finite:
        rate = _shortened(rate, max(abs(along_a), abs(along_b)), terms.max_step)
        theta[0], theta[1] = a + rate * along_a, b + rate * along_b
    return finite


@compiled
def _iterate_six(
    link: Bend, batches: Floats, first: int, draws: Floats, first_draw: int, eta: Floats,
    slope: Floats, terms: Terms, scale: float, other_scale: float, gradient: Floats,
    theta: Floats,
) -> bool:  # fmt: skip
    """Do what `_iterate` does, for six inputs."""
    bend, flat, _ = link
    above, n, drawn = 1.0 - flat, np.uint64(slope.size), np.uint64(first_draw)
    a0 = np.uint64(first)
    b0 = a0 + n
    c0 = b0 + n
    d0 = c0 + n
    e0 = d0 + n
    f0 = e0 + n
    u = f0 + n
    v = u + n
    w = v + n
    a, b, c, d, e, f = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
    for i in range(n):
        eta[i] = (
            (a * batches[a0 + i] + b * batches[b0 + i])
            + (c * batches[c0 + i] + d * batches[d0 + i])
            + (e * batches[e0 + i] + f * batches[f0 + i])
        )
    one, other = 0.0, 0.0
    for i in range(n):
        larger, smaller = sigmoids(eta[i])
        propensity = larger + flat * (1.0 - larger) if eta[i] >= 0.0 else bend * smaller
        taken = 1.0 if draws[drawn + i] < propensity else 0.0
        slope[i] = taken * (smaller * above if eta[i] >= 0.0 else larger)
        one += batches[v + i] * taken
        other += batches[w + i] * taken
    push = _push(terms, one, other, scale, other_scale)
    push, other_push = -push * scale, push * other_scale
    a, b, c, d, e, f = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        own = slope[i] * (batches[u + i] + push * batches[v + i] + other_push * batches[w + i])
        a += own * batches[a0 + i]
        b += own * batches[b0 + i]
        c += own * batches[c0 + i]
        d += own * batches[d0 + i]
        e += own * batches[e0 + i]
        f += own * batches[f0 + i]
    gradient[0], gradient[1], gradient[2] = a, b, c
    gradient[3], gradient[4], gradient[5] = d, e, f
    rate, longest, finite = terms.rate * terms.per_batch, 0.0, True
    for k in range(6):
        finite = finite and bool(np.isfinite(rate * gradient[k]))
        longest = max(longest, abs(gradient[k]))
    if finite:
        rate = _shortened(rate, longest, terms.max_step)
        for k in range(6):
            theta[k] += rate * gradient[k]
    return finite


@compiled
def _iterate(
    link: Bend, batches: Floats, first: int, draws: Floats, first_draw: int, eta: Floats,
    slope: Floats, terms: Terms, scale: float, other_scale: float, gradient: Floats,
    theta: Floats,
) -> bool:  # fmt: skip
    """Draw decisions on a minibatch and take a step; return whether it was finite, and so taken."""
    bend, flat, _ = link
    above, n, drawn, m = 1.0 - flat, np.uint64(slope.size), np.uint64(first_draw), theta.size
    u = np.uint64(first + m * slope.size)
    v = u + n
    w = v + n
    for i in range(n):
        eta[i] = 0.0
    for k in range(m):
        a, a0 = theta[k], np.uint64(first + k * slope.size)
        for i in range(n):
            eta[i] += a * batches[a0 + i]
    one, other = 0.0, 0.0
    for i in range(n):
        larger, smaller = sigmoids(eta[i])
        propensity = larger + flat * (1.0 - larger) if eta[i] >= 0.0 else bend * smaller
        taken = 1.0 if draws[drawn + i] < propensity else 0.0
        # g'/g is sigma(-eta), exact where g itself underflows
        slope[i] = taken * (smaller * above if eta[i] >= 0.0 else larger)
        one += batches[v + i] * taken
        other += batches[w + i] * taken
    push = _push(terms, one, other, scale, other_scale)
    push, other_push = -push * scale, push * other_scale
    for i in range(n):
        slope[i] *= batches[u + i] + push * batches[v + i] + other_push * batches[w + i]
    rate, longest, finite = terms.rate * terms.per_batch, 0.0, True
    for k in range(m):
        total, a0 = 0.0, np.uint64(first + k * slope.size)
        for i in range(n):
            total += slope[i] * batches[a0 + i]
        gradient[k] = total
        finite = finite and bool(np.isfinite(rate * total))
        longest = max(longest, abs(total))
    if finite:
        rate = _shortened(rate, longest, terms.max_step)
        for k in range(m):
            theta[k] += rate * gradient[k]
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
    eta, slope = np.empty(width), np.empty(width)
    theta, gradient = start_theta.copy(), np.zeros(m)
    own, n_valued, gap = utility, 0, 0.0
    if penalised:
        own, n_valued, gap = values[0], size, constant[0, 0] - constant[0, 1]
    terms = Terms(penalty, per_batch, gap, rate, max_step)
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
        draw = j * size if drawn else 0
        scale, other_scale = scales[_GROUPS * copy], scales[_GROUPS * copy + 1]
        if m == 6:
            taken = _iterate_six(
                link, batches, first, numbers, draw, eta, slope, terms, scale, other_scale,
                gradient, theta,
            )  # fmt: skip
        elif m == 2:
            taken = _iterate_two(
                link, batches, first, numbers, draw, slope, terms, scale, other_scale, theta
            )
        else:
            taken = _iterate(
                link, batches, first, numbers, draw, eta, slope, terms, scale, other_scale,
                gradient, theta,
            )  # fmt: skip
        rejected += not taken
    return theta, rejected
