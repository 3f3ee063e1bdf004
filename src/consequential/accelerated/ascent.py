"""The ascent of many runs at once, as a JAX program: what `learning.reference` computes.

Rows are those of `functionals`. Whatever is small (theta, slopes, matrices) is kept as lists of
(S, P) arrays and worked on entry by entry: then an iteration is one sum over the minibatch and one
elementwise kernel, and on a GPU, where launching kernels is what takes time, nothing else counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.accelerated.functionals import (
    Entries,
    Link,
    Rows,
    Settings,
    benefits_of,
    centred,
    linked,
    scores,
    summed,
)
from consequential.accelerated.people import uniform
from consequential.objective import ROOT_TWO

Array = Any

_WRITTEN_OUT = 16


class _Around(NamedTuple):
    """What reference rows say about the neighbourhood of theta."""

    theta: Entries
    residuals: Entries  # one array a benefit and group
    slopes: list[Entries]
    inverse: list[Entries]  # of the step's matrix
    acceptance: Array
    acceptance_slope: Entries


def ascend(
    rows: Rows,
    settings: Settings,
    link: Link,
    theta: Array,
    scale: Array,
    penalty: Array,
    rate: Array,
    key: Array,
) -> tuple[Array, Array]:
    """Return theta (S, P, inputs) after the ascent, and how many steps were not taken (S, P).

    `scale` is `mean(phi phi')`, (S, Q, inputs, inputs); `penalty` and `rate` are (S, P); `key` is
    each seed's, (S,), for sampled decisions.
    """
    jax = needed("jax")
    jnp, m = jax.numpy, theta.shape[-1]
    size, reach = settings.batch_size, settings.n_reference
    every = max(1, reach // (4 * size))
    n_refreshes = -(-settings.n_iterations // every)
    # without a penalty a run draws no decisions for its windows
    windows_draw = jnp.where(penalty > 0.0, 2 * reach, 0)[..., None]
    if rows.n.ndim == 0:
        rows = rows.unrolled(2 * reach, size)
    squares = [[scale[:, :, j, k] for k in range(m)] for j in range(m)]

    def taken_and_slope(eta: Array, drawn: Array) -> tuple[Array, Array]:
        propensity, derivative, score, _ = linked(link, eta)
        if not settings.sampled:
            return propensity, derivative
        numbers = uniform(key[:, None, None], drawn + jnp.arange(eta.shape[-1]))
        decision = (numbers < propensity).astype(eta.dtype)
        return decision, decision * score

    def look(theta: Entries, refresh: Array) -> _Around:
        position = refresh * every * size
        drawn = refresh * (every * size + windows_draw)
        near = rows.window(position, reach, reach)
        eta = scores(theta, near.phi)
        propensity, derivative, _, steepness = linked(link, eta)
        # computed once: pasted into each of the sums below, the exponential would be taken anew
        propensity, derivative, steepness = jax.lax.optimization_barrier(
            (propensity, derivative, steepness)
        )
        slope = taken_and_slope(eta, drawn + reach)[1] if settings.sampled else derivative
        residuals: Entries = []
        slopes: list[Entries] = []
        inverse: list[Entries] = []
        if settings.penalised:
            far = rows.window(position, 2 * reach, reach)
            taken, _ = taken_and_slope(scores(theta, far.phi), drawn)
            taken = jax.lax.optimization_barrier(taken)
            residuals = _residuals(far, settings, taken, reach)
            slopes = _slopes(near, settings, propensity, slope, reach)
        if settings.preconditioned:
            inverse = _inverse(_metric(near, settings, squares, steepness, slopes, penalty))
        return _Around(
            theta,
            residuals,
            slopes,
            inverse,
            propensity.mean(axis=-1),
            [entry / reach for entry in summed(derivative, _inputs(near))],
        )

    def iterate(j: Array, theta: Entries, rejected: Array, around: _Around) -> Any:
        batch = rows.window(j * size, 0, size)
        drawn = j * size + (j // every + 1) * windows_draw
        _, slope = taken_and_slope(scores(theta, batch.phi), drawn)
        weighted = batch.utility * slope
        gradient = [
            (weighted * batch.phi[:, :, k]).sum(axis=-1) * (rows.total / size) for k in range(m)
        ]
        moved = [now - then for now, then in zip(theta, around.theta, strict=True)]
        for residual, slopes in zip(around.residuals, around.slopes, strict=True):
            now = residual + _dot(slopes, moved)
            gradient = [g - penalty * now * slopes[k] for k, g in enumerate(gradient)]
        change = _step(settings, gradient, moved, squares, around, rate)
        finite = jnp.isfinite(change[0])
        for entry in change[1:]:
            finite = finite & jnp.isfinite(entry)
        in_time = j < settings.n_iterations
        theta = [
            jnp.where(finite & in_time, old + new, old)
            for old, new in zip(theta, change, strict=True)
        ]
        return theta, rejected + (in_time & ~finite)

    def refresh(r: Array, state: Any) -> Any:
        theta, rejected = state
        around = look(theta, r)
        if every > _WRITTEN_OUT:
            return jax.lax.fori_loop(
                0, every, lambda i, state: iterate(r * every + i, state[0], state[1], around), state
            )
        for i in range(every):  # written out: a loop of its own would cost more than its body
            theta, rejected = iterate(r * every + i, theta, rejected, around)
        return theta, rejected

    entries = [theta[..., k] for k in range(m)]
    rejected = jnp.zeros(theta.shape[:2], dtype="int64")
    entries, rejected = jax.lax.fori_loop(0, n_refreshes, refresh, (entries, rejected))
    return jnp.stack(entries, axis=-1), rejected


def _inputs(rows: Rows) -> Entries:
    return [rows.phi[:, :, k] for k in range(rows.phi.shape[2])]


def _dot(left: Entries, right: Entries) -> Array:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _residuals(rows: Rows, settings: Settings, taken: Array, n: int) -> Entries:
    """Return the residuals of the penalty, one array a benefit and group."""
    return [
        ROOT_TWO * entry
        for _, values, _, known in benefits_of(rows, settings, taken, n)
        for entry in centred(values, known)
    ]


def _slopes(
    rows: Rows, settings: Settings, propensity: Array, slope: Array, n: int
) -> list[Entries]:
    """Return the residuals' slopes in theta."""
    jnp = needed("jax").numpy
    scale, groups = rows.total / n, range(settings.n_groups)
    found = []
    for b, values, unders, known in benefits_of(rows, settings, propensity, n):
        columns = []
        for z in groups:
            own = rows.values[:, :, b]
            if settings.is_ratio[b]:
                assert rows.denominators is not None
                own = own - values[z][..., None] * rows.denominators[:, :, b]
            own = jnp.where(rows.group == z, own, 0.0)
            columns += [own * column for column in _inputs(rows)]
        sums = iter(summed(slope, columns))
        by_group = [[scale * next(sums) / unders[z] for _ in _inputs(rows)] for z in groups]
        by_input = [centred(list(entries), known) for entries in zip(*by_group, strict=True)]
        found += [[ROOT_TWO * entries[z] for entries in by_input] for z in groups]
    return found


def _metric(
    near: Rows,
    settings: Settings,
    squares: list[Entries],
    steepness: Array,
    slopes: list[Entries],
    penalty: Array,
) -> list[Entries]:
    """Return the step's matrix, its lower triangle."""
    inputs = _inputs(near)
    m, n = len(inputs), near.phi.shape[3]
    trace = sum(squares[k][k] for k in range(m)) / m
    mean = steepness.mean(axis=-1)
    products = summed(steepness, [inputs[j] * inputs[k] for j in range(m) for k in range(j + 1)])
    own_square = iter(products)
    metric = []
    for j in range(m):
        row = []
        for k in range(j + 1):
            own = next(own_square) / n
            entry = (own + mean * squares[j][k]) / 2.0 + settings.ridge * squares[j][k]
            entry = entry + (settings.ridge * trace if j == k else 0.0)
            row.append(entry + penalty * sum(each[j] * each[k] for each in slopes))
        metric.append(row)
    return metric


def _inverse(lower: list[Entries]) -> list[Entries]:
    """Return the inverse of a positive matrix, by Cholesky's factor."""
    jnp, m = needed("jax").numpy, len(lower)
    factor: list[Entries] = []
    for j in range(m):
        row: Entries = []
        for k in range(j + 1):
            left = lower[j][k] - sum(row[i] * (factor[k] if k < j else row)[i] for i in range(k))
            row.append(jnp.sqrt(left) if j == k else left / factor[k][k])
        factor.append(row)
    # columns of the factor's inverse, then inverse = their products
    columns: list[Entries] = []
    for k in range(m):
        column: Entries = [1.0 / factor[k][k]]
        for j in range(k + 1, m):
            total = sum(factor[j][i] * column[i - k] for i in range(k, j))
            column.append(-total / factor[j][j])
        columns.append(column)

    def entry(j: int, k: int) -> Array:
        return sum(columns[j][i - j] * columns[k][i - k] for i in range(max(j, k), m))

    return [[entry(j, k) for k in range(m)] for j in range(m)]


def _shortened(change: Entries, length: Array, longest: Array) -> Entries:
    jnp = needed("jax").numpy
    factor = jnp.where(length > longest, longest / length, 1.0)
    return [entry * factor for entry in change]


def _step(
    settings: Settings,
    gradient: Entries,
    moved: Entries,
    squares: list[Entries],
    around: _Around,
    rate: Array,
) -> Entries:
    """Turn gradients into changes of theta."""
    jnp = needed("jax").numpy
    if not settings.preconditioned:
        change = [rate * entry for entry in gradient]
        longest = jnp.abs(change[0])
        for entry in change[1:]:
            longest = jnp.maximum(longest, jnp.abs(entry))
        return _shortened(change, longest, settings.max_step)
    change = [rate * _dot(row, gradient) for row in around.inverse]
    square = _dot(change, [_dot(row, change) for row in squares])
    change = _shortened(change, jnp.sqrt(jnp.maximum(square, 0.0)), settings.max_step)
    accepted = around.acceptance + _dot(around.acceptance_slope, moved)
    room = jnp.maximum(jnp.minimum(accepted, 1.0 - accepted), 0.0)
    drift = jnp.abs(_dot(around.acceptance_slope, change))
    return _shortened(change, drift, settings.max_share * room)
