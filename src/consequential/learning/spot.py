"""The printed ascent, compiled: sampled decisions, plain steps, and all from the minibatch itself.

It is what `reference.ascend` does with sampled decisions, `GradientStep` and `n_reference=0`, in
three passes over a minibatch; tests hold the two together. Minibatches are copied first: what is
read together lies together, and people who count nothing fill them up, since the odd end of a
loop takes as long as several rounds of it.

With two groups the gap is one sum, of each person's value times what the group's sum is divided by,
with the sign of the group. So a minibatch has two columns beside its inputs: utility, and that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.policies.compiled import Bend, compiled, declined
from consequential.policies.uniforms import fill_uniforms

Floats = NDArray[np.float64]

# people at a time, in two vectors of four times two
_ROUND = 16

# iterations at a time
_MANY = 32

# Places are unsigned: one that might be negative would keep a loop from being vectorised. Columns
# lie in one long array: slicing it would count references, which takes longer than the sums. Many
# iterations are one function, since calling one takes as long as a third of its work. It is
# written out for as many inputs as are common, of which the first is the constant, not stored.


@compiled
def padded(size: int) -> int:
    """Return how many people a copied minibatch has, those included who count nothing."""
    return (size + _ROUND - 1) // _ROUND * _ROUND


def copied(n_rows: int, n_inputs: int, size: int, n_iterations: int) -> int:
    """Return how many numbers copies of so many rows in minibatches may have."""
    n_batches = n_rows // size
    n_kept = n_batches if n_batches < n_iterations else min(_MANY, n_iterations)
    return n_kept * padded(size) * (n_inputs + 2)


@compiled
def _copy(values: Floats, start: int, size: int, out: Floats, first: int, width: int) -> None:
    """Copy one column; those who fill it up have zeros."""
    n, source, target = np.uint64(size), np.uint64(start), np.uint64(first)
    for i in range(n):
        out[target + i] = values[source + i]
    for i in range(first + size, first + width):
        out[i] = 0.0


@compiled
def _copy_gap(
    values: Floats, group: NDArray[np.int16], start: int, size: int, share: float,
    other_share: float, out: Floats, first: int, width: int,
) -> None:  # fmt: skip
    """Copy what each person's acceptance adds to the gap of the minibatch; 0 with one group alone.

    Either group's sum is scaled up from its people here to its share of the log.
    """
    n, source, target = np.uint64(size), np.uint64(start), np.uint64(first)
    count = 0
    for i in range(n):
        count += group[source + i] == 0
    both = 0 < count < size
    one = share * size / count if both else 0.0
    other = other_share * size / (size - count) if both else 0.0
    both = one > 0.0 and other > 0.0
    one, other = one if both else 0.0, -other if both else 0.0
    for i in range(n):
        out[target + i] = values[source + i] * (one if group[source + i] == 0 else other)
    for i in range(first + size, first + width):
        out[i] = 0.0


@compiled
def _all_ones(values: Floats, n: int) -> bool:
    """Whether the first n entries are 1."""
    others = 0
    for i in range(np.uint64(n)):
        others += values[i] != 1.0
    return others == 0


class Terms(NamedTuple):
    """What a minibatch's penalty and step are made of: numbers only."""

    penalty: float
    per_batch: float  # rows of the log a row of the minibatch stands for
    gap: float  # between the groups' benefits where nobody is accepted
    rate: float
    max_step: float


@compiled
def _shortened(rate: float, longest: float, max_step: float) -> float:
    return rate * (max_step / (rate * longest)) if rate * longest > max_step else rate


@compiled
def _iterate_two(
    link: Bend, batches: Floats, at: int, draws: Floats, first_draw: int, size: int, n_times: int,
    slope: Floats, terms: Terms, theta: Floats,
) -> int:  # fmt: skip
    """Do what `_iterate` does, for a constant and one input, and a link that is not bent."""
    above, n, drawn = 1.0 - link.flat, np.uint64(slope.size), np.uint64(first_draw)
    length, beyond = np.uint64(3) * n, np.uint64(batches.size)
    a, b, b0, rejected = theta[0], theta[1], np.uint64(at) * length, 0
    full_rate = terms.rate * terms.per_batch
    for _ in range(n_times):
        u, v = b0 + n, b0 + n + n
        gap = 0.0
        for i in range(n):
            refused = declined(a + b * batches[b0 + i], above)
            taken = 1.0 if draws[drawn + i] < 1.0 - refused else 0.0
            slope[i] = taken * refused
            gap += batches[v + i] * taken
        push = terms.penalty * (terms.gap + terms.per_batch * gap)
        along_a, along_b = 0.0, 0.0
        for i in range(n):
            own = slope[i] * (batches[u + i] - push * batches[v + i])
            along_a += own
            along_b += own * batches[b0 + i]
        # mostly nothing is to be shortened or refused: one look tells, and the next can begin
        if full_rate * (abs(along_a) + abs(along_b)) < terms.max_step:
            a, b = a + full_rate * along_a, b + full_rate * along_b
        elif np.isfinite(full_rate * along_a) and np.isfinite(full_rate * along_b):
            rate = _shortened(full_rate, max(abs(along_a), abs(along_b)), terms.max_step)
            a, b = a + rate * along_a, b + rate * along_b
        else:
            rejected += 1
        b0, drawn = b0 + length, drawn + np.uint64(size)
        b0 = b0 if b0 < beyond else np.uint64(0)
    theta[0], theta[1] = a, b
    return rejected


@compiled
def _iterate_six(
    link: Bend, batches: Floats, at: int, draws: Floats, first_draw: int, size: int, n_times: int,
    eta: Floats, slope: Floats, terms: Terms, theta: Floats,
) -> int:  # fmt: skip
    """Do what `_iterate` does, for a constant and five inputs, and a link that is not bent."""
    above, n, drawn = 1.0 - link.flat, np.uint64(slope.size), np.uint64(first_draw)
    length, beyond = np.uint64(7) * n, np.uint64(batches.size)
    a, b, c, d, e, f = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
    b0, rejected, full_rate = np.uint64(at) * length, 0, terms.rate * terms.per_batch
    for _ in range(n_times):
        c0 = b0 + n
        d0 = c0 + n
        e0 = d0 + n
        f0 = e0 + n
        u = f0 + n
        v = u + n
        for i in range(n):
            eta[i] = (
                (a + b * batches[b0 + i])
                + (c * batches[c0 + i] + d * batches[d0 + i])
                + (e * batches[e0 + i] + f * batches[f0 + i])
            )
        gap = 0.0
        for i in range(n):
            refused = declined(eta[i], above)
            taken = 1.0 if draws[drawn + i] < 1.0 - refused else 0.0
            slope[i] = taken * refused
            gap += batches[v + i] * taken
        push = terms.penalty * (terms.gap + terms.per_batch * gap)
        p, q, r, s, t, w = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            own = slope[i] * (batches[u + i] - push * batches[v + i])
            p += own
            q += own * batches[b0 + i]
            r += own * batches[c0 + i]
            s += own * batches[d0 + i]
            t += own * batches[e0 + i]
            w += own * batches[f0 + i]
        bound = ((abs(p) + abs(q)) + (abs(r) + abs(s))) + (abs(t) + abs(w))
        if full_rate * bound < terms.max_step:
            a, b, c = a + full_rate * p, b + full_rate * q, c + full_rate * r
            d, e, f = d + full_rate * s, e + full_rate * t, f + full_rate * w
        elif (
            np.isfinite(full_rate * p) and np.isfinite(full_rate * q)
            and np.isfinite(full_rate * r) and np.isfinite(full_rate * s)
            and np.isfinite(full_rate * t) and np.isfinite(full_rate * w)
        ):  # fmt: skip
            longest = max(abs(p), abs(q), abs(r), abs(s), abs(t), abs(w))
            rate = _shortened(full_rate, longest, terms.max_step)
            a, b, c = a + rate * p, b + rate * q, c + rate * r
            d, e, f = d + rate * s, e + rate * t, f + rate * w
        else:
            rejected += 1
        b0, drawn = b0 + length, drawn + np.uint64(size)
        b0 = b0 if b0 < beyond else np.uint64(0)
    theta[0], theta[1], theta[2], theta[3], theta[4], theta[5] = a, b, c, d, e, f
    return rejected


@compiled
def _iterate(
    link: Bend, batches: Floats, at: int, draws: Floats, first_draw: int, size: int, n_times: int,
    eta: Floats, slope: Floats, terms: Terms, gradient: Floats, theta: Floats,
) -> int:  # fmt: skip
    """Draw decisions on one minibatch after the other and take steps.

    Return how many were not finite, and so not taken. The minibatch `at` is the first; after the
    last one they begin again.
    """
    above, n, drawn, m = 1.0 - link.flat, np.uint64(slope.size), np.uint64(first_draw), theta.size
    first, length, rejected = at * (m + 2) * slope.size, (m + 2) * slope.size, 0
    bend, full_rate = link.bend, terms.rate * terms.per_batch
    for _ in range(n_times):
        u = np.uint64(first + m * slope.size)
        v = u + n
        for i in range(n):
            eta[i] = 0.0
        for k in range(m):
            a, a0 = theta[k], np.uint64(first + k * slope.size)
            for i in range(n):
                eta[i] += a * batches[a0 + i]
        gap = 0.0
        for i in range(n):
            refused = declined(eta[i], above)
            propensity = (1.0 if eta[i] >= 0.0 else bend) * (1.0 - refused)
            taken = 1.0 if draws[drawn + i] < propensity else 0.0
            slope[i] = taken * refused
            gap += batches[v + i] * taken
        push = terms.penalty * (terms.gap + terms.per_batch * gap)
        for i in range(n):
            slope[i] *= batches[u + i] - push * batches[v + i]
        longest, finite = 0.0, True
        for k in range(m):
            total, a0 = 0.0, np.uint64(first + k * slope.size)
            for i in range(n):
                total += slope[i] * batches[a0 + i]
            gradient[k] = total
            finite = finite and bool(np.isfinite(full_rate * total))
            longest = max(longest, abs(total))
        if finite:
            rate = _shortened(full_rate, longest, terms.max_step)
            for k in range(m):
                theta[k] += rate * gradient[k]
        rejected += not finite
        first, drawn = first + length, drawn + np.uint64(size)
        first = first if first < batches.size else 0
    return rejected


@compiled
def ascend_on_the_spot(
    phi: Floats, utility: Floats, values: Floats, group: NDArray[np.int16], constant: Floats,
    defined: NDArray[np.bool_], shares: Floats, per_batch: float, link: Bend, penalty: float,
    n_iterations: int, size: int, rate: float, max_step: float, start_theta: Floats,
    key: np.uint64, draws: Floats, room: Floats,
) -> tuple[Floats, int]:  # fmt: skip
    """Return theta after the ascent, and how many steps were not finite and not taken.

    For at most one benefit, no ratio, of two groups, and links without a floor. `draws` are the
    first numbers of the key's stream; where they are too few the stream is made here. So is room
    for copies where `room` is too small.
    """
    m, n_batches, width = phi.shape[0], phi.shape[1] // size, padded(size)
    plain = (m == 2 or m == 6) and link.bend == 1.0 and _all_ones(phi[0], phi.shape[1])
    n_inputs = m - 1 if plain else m
    length = (n_inputs + 2) * width
    drawn = draws.size >= (n_iterations - 1) * size + width
    numbers = draws if drawn else np.empty((_MANY - 1) * size + width)
    # minibatches that are read once need not be kept
    kept = n_batches < n_iterations
    needed = (n_batches if kept else min(_MANY, n_iterations)) * length
    batches = room[:needed] if room.size >= needed else np.empty(needed)
    eta, slope = np.empty(width), np.empty(width)
    theta, gradient = start_theta.copy(), np.zeros(m)
    own, n_valued, gap, share, other_share = utility, 0, 0.0, 0.0, 0.0
    if penalty > 0.0 and defined[0, 0] and defined[0, 1]:
        own, n_valued, gap = values[0], size, constant[0, 0] - constant[0, 1]
        share, other_share = shares[0], shares[1]
    terms = Terms(penalty, per_batch, gap, rate, max_step)
    rejected = 0
    for j in range(0, n_iterations, _MANY):
        n_times = min(_MANY, n_iterations - j)
        for batch in range(j, min(j + n_times, n_batches)):
            start, first = batch * size, (batch if kept else batch - j) * length
            for k in range(n_inputs):
                _copy(phi[k + m - n_inputs], start, size, batches, first + k * width, width)
            _copy(utility, start, size, batches, first + n_inputs * width, width)
            _copy_gap(
                own, group, start, n_valued, share, other_share, batches,
                first + (n_inputs + 1) * width, width,
            )  # fmt: skip
        if not drawn:
            fill_uniforms(key, j * size, numbers)
        at, draw = j % n_batches if kept else 0, j * size if drawn else 0
        if not plain:
            rejected += _iterate(
                link, batches, at, numbers, draw, size, n_times, eta, slope, terms, gradient, theta
            )
        elif m == 6:
            rejected += _iterate_six(
                link, batches, at, numbers, draw, size, n_times, eta, slope, terms, theta
            )
        else:
            rejected += _iterate_two(
                link, batches, at, numbers, draw, size, n_times, slope, terms, theta
            )
    return theta, rejected
