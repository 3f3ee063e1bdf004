"""The ascent of many runs at once, as a JAX program: what `learning.ascent` computes.

Rows are those of `functionals`. Whatever is small (theta, running means, matrices) is kept as lists
of (S, P) arrays and worked on entry by entry: then an iteration is one sum over the minibatch and
a few elementwise kernels, and on a GPU, where launching kernels is what takes time, nothing else
counts.
"""

from __future__ import annotations

from functools import partial
from math import lcm
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
    sums_by_group,
)
from consequential.accelerated.people import uniform
from consequential.objective import ROOT_TWO

Array = Any

_WRITTEN_OUT = 16


class _Means(NamedTuple):
    """Running means; see `learning.running`. Groups' sums are one array a benefit and group."""

    levels: tuple[Entries, ...]  # numerators and denominators
    level_sizes: Entries
    beside: tuple[Entries, ...]
    beside_sizes: Entries
    slopes: tuple[list[Entries], ...]
    curvature: Entries  # the lower triangle, row by row
    steepness: Array
    acceptance: Array
    acceptance_slope: Entries


class _Prepared(NamedTuple):
    """What steps are made of, brought up to date every so often."""

    theta: Entries
    residual_slopes: list[Entries]
    inverse: list[Entries]
    accepted: Array
    accepted_slope: Entries


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
    jnp, m, size = jax.numpy, theta.shape[-1], settings.batch_size
    looks = settings.penalised or settings.preconditioned
    squares = [[scale[:, :, j, k] for k in range(m)] for j in range(m)]
    lightest = 1.0 if settings.on_the_spot else 2.0 / (settings.memory + 1.0)

    def absorb(means: _Means, batch: Rows, seen: _Seen, j: Array, side: int) -> _Means:
        weight = jnp.maximum(lightest, 1.0 / ((j + settings.n_before) // 2 + 1))
        faded = partial(_faded, weight)
        if (settings.on_the_spot or side == 0) and settings.penalised:
            levels = sums_by_group(batch, settings, seen.taken, size)
            means = means._replace(
                levels=faded(means.levels, levels),
                level_sizes=faded(means.level_sizes, batch.sizes),
            )
        if settings.on_the_spot or side == 1:
            means = means._replace(**_slopes(means, batch, settings, seen, faded))
        return means

    def prepared(means: _Means, theta: Entries) -> _Prepared:
        residual_slopes = _residual_slopes(rows, settings, means) if settings.penalised else []
        inverse: list[Entries] = []
        if settings.preconditioned:
            metric = _metric(settings, squares, means, residual_slopes, penalty)
            inverse = _inverse(metric)
        return _Prepared(theta, residual_slopes, inverse, means.acceptance, means.acceptance_slope)

    def iterate(j: Array, side: int, refresh: Any, steps: bool, state: Any) -> Any:
        """Take one minibatch; `side` and `refresh` (if not an array) are known beforehand."""
        theta, rejected, means, ready = state
        batch = rows.batch(j, size)
        seen = _seen(batch, settings, link, theta, key, (j + settings.n_before) * size)
        if looks and settings.on_the_spot:
            means = absorb(means, batch, seen, j, side)
        change = [jnp.zeros_like(entry) for entry in theta]
        if steps:
            if looks and refresh is not False:
                fresh = prepared(means, theta)
                ready = (
                    fresh
                    if refresh is True
                    else jax.tree.map(lambda new, old: jnp.where(refresh, new, old), fresh, ready)
                )
            weighted = batch.utility * seen.slope
            gradient = [total * (rows.total / size) for total in summed(weighted, _inputs(batch))]
            if settings.penalised:
                for residual, slopes in zip(
                    _residuals(rows, settings, means), ready.residual_slopes, strict=True
                ):
                    gradient = [g - penalty * residual * slopes[k] for k, g in enumerate(gradient)]
            change = _step(settings, gradient, theta, squares, ready, rate)
            finite = jnp.isfinite(change[0])
            for entry in change[1:]:
                finite = finite & jnp.isfinite(entry)
            in_time = j < settings.n_iterations
            change = [jnp.where(finite & in_time, entry, 0.0) for entry in change]
            rejected = rejected + (in_time & ~finite)
        if looks and not settings.on_the_spot:
            means = _followed(absorb(means, batch, seen, j, side), settings, change)
        theta = [old + new for old, new in zip(theta, change, strict=True)]
        return theta, rejected, means, ready

    every = settings.refresh_every
    length = lcm(2, every)
    written_out = length <= _WRITTEN_OUT

    def several(block: Array, state: Any) -> Any:
        for i in range(length if written_out else 2):
            j = block * (length if written_out else 2) + i
            refresh = i % every == 0 if written_out else j % every == 0
            state = iterate(j, i % 2, refresh, True, state)
        return state

    def look(block: Array, state: Any) -> Any:
        for i in range(2):
            state = iterate(2 * block - settings.n_before + i, i, False, False, state)
        return state

    entries = [theta[..., k] for k in range(m)]
    means = _nothing(settings, entries)
    state = entries, jnp.zeros(theta.shape[:2], dtype="int64"), means, prepared(means, entries)
    if looks and settings.n_before:
        state = jax.lax.fori_loop(0, settings.n_before // 2, look, state)
    n_blocks = -(-settings.n_iterations // (length if written_out else 2))
    entries, rejected, _, _ = jax.lax.fori_loop(0, n_blocks, several, state)
    return jnp.stack(entries, axis=-1), rejected


class _Seen(NamedTuple):
    """What a minibatch's rows are at theta, (S, P, B)."""

    propensity: Array
    derivative: Array
    steepness: Array
    taken: Array
    slope: Array


def _seen(
    batch: Rows, settings: Settings, link: Link, theta: Entries, key: Array, drawn: Array
) -> _Seen:
    jax = needed("jax")
    eta = scores(theta, batch.phi)
    propensity, derivative, score, steepness = linked(link, eta)
    taken, slope = propensity, derivative
    if settings.sampled:
        numbers = uniform(key[:, None, None], drawn + jax.numpy.arange(eta.shape[-1]))
        taken = (numbers < propensity).astype(eta.dtype)
        slope = taken * score
    # computed once: pasted into each of the sums, the exponential would be taken anew
    return _Seen(*jax.lax.optimization_barrier((propensity, derivative, steepness, taken, slope)))


def _inputs(rows: Rows) -> Entries:
    return [rows.phi[:, :, k] for k in range(rows.phi.shape[2])]


def _dot(left: Entries, right: Entries) -> Array:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _faded(weight: Array, old: Any, new: Any) -> Any:
    return needed("jax").tree.map(lambda was, now: was + weight * (now - was), old, new)


def _nothing(settings: Settings, theta: Entries) -> _Means:
    """Return means of nothing yet."""
    none = needed("jax").numpy.zeros_like(theta[0])
    m, n_groups = len(theta), settings.n_groups
    n = len(settings.is_ratio) * n_groups if settings.penalised else 0

    def zeros(count: int) -> Entries:
        return [none] * count

    return _Means(
        (zeros(n), zeros(n)),
        zeros(n_groups),
        (zeros(n), zeros(n)),
        zeros(n_groups),
        ([zeros(m)] * n, [zeros(m)] * n),
        zeros(m * (m + 1) // 2),
        none,
        none,
        zeros(m),
    )


def _slopes(
    means: _Means, batch: Rows, settings: Settings, seen: _Seen, faded: Any
) -> dict[str, Any]:
    """Return the means of slopes and of the step's metric with a minibatch in them."""
    inputs, size = _inputs(batch), settings.batch_size
    found: dict[str, Any] = {}
    if settings.penalised:
        taken = seen.taken if settings.on_the_spot else seen.propensity
        by_input = [sums_by_group(batch, settings, seen.slope * column, size) for column in inputs]
        slopes = tuple(
            [list(each) for each in zip(*(sums[part] for sums in by_input), strict=True)]
            for part in range(2)
        )
        found["slopes"] = faded(means.slopes, slopes)
        found["beside"] = faded(means.beside, sums_by_group(batch, settings, taken, size))
        found["beside_sizes"] = faded(means.beside_sizes, batch.sizes)
    if settings.preconditioned:
        pairs = [inputs[j] * inputs[k] for j in range(len(inputs)) for k in range(j + 1)]
        sums = summed(seen.steepness, pairs)
        found["curvature"] = faded(means.curvature, [total / size for total in sums])
        found["steepness"] = faded(means.steepness, seen.steepness.mean(axis=-1))
        found["acceptance"] = faded(means.acceptance, seen.propensity.mean(axis=-1))
        sums = summed(seen.derivative, inputs)
        found["acceptance_slope"] = faded(means.acceptance_slope, [s / size for s in sums])
    return found


def _followed(means: _Means, settings: Settings, change: Entries) -> _Means:
    """Bring the means to where theta goes next."""
    jnp = needed("jax").numpy
    acceptance = means.acceptance + _dot(means.acceptance_slope, change)
    if not settings.penalised:
        return means._replace(acceptance=acceptance)
    ratio = [
        jnp.where(beside > 0.0, level / jnp.where(beside > 0.0, beside, 1.0), 0.0)
        for level, beside in zip(means.level_sizes, means.beside_sizes, strict=True)
    ]
    drift = tuple([_dot(slopes, change) for slopes in part] for part in means.slopes)
    n_groups = settings.n_groups
    return means._replace(
        acceptance=acceptance,
        beside=tuple(
            [was + by for was, by in zip(sums, moved, strict=True)]
            for sums, moved in zip(means.beside, drift, strict=True)
        ),
        levels=tuple(
            [was + ratio[k % n_groups] * by for k, (was, by) in enumerate(zip(*pair, strict=True))]
            for pair in zip(means.levels, drift, strict=True)
        ),
    )


def _residuals(rows: Rows, settings: Settings, means: _Means) -> Entries:
    """Return the residuals of the penalty, one array a benefit and group."""
    return [
        ROOT_TWO * entry
        for values, _, known in benefits_of(rows, settings, means.levels, means.level_sizes)
        for entry in centred(values, known)
    ]


def _residual_slopes(rows: Rows, settings: Settings, means: _Means) -> list[Entries]:
    """Return the residuals' slopes in theta."""
    n_groups, found = settings.n_groups, []
    benefits = benefits_of(rows, settings, means.beside, means.beside_sizes)
    for b, (values, scales, known) in enumerate(benefits):
        by_group = []
        for z in range(n_groups):
            over, under = (part[b * n_groups + z] for part in means.slopes)
            by_group.append(
                [
                    scales[z] * (a - values[z] * d if settings.is_ratio[b] else a)
                    for a, d in zip(over, under, strict=True)
                ]
            )
        by_input = [centred(list(entries), known) for entries in zip(*by_group, strict=True)]
        found += [[ROOT_TWO * entries[z] for entries in by_input] for z in range(n_groups)]
    return found


def _metric(
    settings: Settings,
    squares: list[Entries],
    means: _Means,
    slopes: list[Entries],
    penalty: Array,
) -> list[Entries]:
    """Return the step's matrix, its lower triangle."""
    m = len(squares)
    trace = sum(squares[k][k] for k in range(m)) / m
    own_square = iter(means.curvature)
    metric = []
    for j in range(m):
        row = []
        for k in range(j + 1):
            own = next(own_square)
            entry = (own + means.steepness * squares[j][k]) / 2.0 + settings.ridge * squares[j][k]
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
    theta: Entries,
    squares: list[Entries],
    ready: _Prepared,
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
    change = [rate * _dot(row, gradient) for row in ready.inverse]
    square = _dot(change, [_dot(row, change) for row in squares])
    change = _shortened(change, jnp.sqrt(jnp.maximum(square, 0.0)), settings.max_step)
    moved = [now - then for now, then in zip(theta, ready.theta, strict=True)]
    accepted = ready.accepted + _dot(ready.accepted_slope, moved)
    room = jnp.maximum(jnp.minimum(accepted, 1.0 - accepted), 0.0)
    drift = jnp.abs(_dot(ready.accepted_slope, change))
    return _shortened(change, drift, settings.max_share * room)
