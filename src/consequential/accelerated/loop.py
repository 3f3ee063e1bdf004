"""The ascent as one compiled loop: what `learning.ascent` computes, with autodiff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.accelerated.backend import needed, pad, round_length
from consequential.accelerated.policy import People
from consequential.functionals import NOBODY, Coefficients
from consequential.objective import ROOT_TWO

Floats = NDArray[np.float64]


class _Rows(NamedTuple):
    """One entry a row in every array; a benefit is a column of `values` and `divisors`."""

    people: People
    utility: Any
    values: Any
    divisors: Any
    group: Any


class _Circle(NamedTuple):
    """Rows in random order, padded, and what each benefit of each group adds to its sums."""

    rows: _Rows
    n_rows: Any  # the rest is padding and never read
    constants: Any
    ones: Any  # one where a benefit has no denominator
    defined: Any
    shares: Any  # of the groups, in the whole log
    n_batches: Any
    n_before: Any  # minibatches that are looked at before the first step


class _Means(NamedTuple):
    """Running means; see `learning.ascent`."""

    levels: Any  # (2, benefits, groups): numerators and denominators
    level_sizes: Any
    beside: Any
    beside_sizes: Any
    slopes: Any  # (2, benefits, groups, parameters), of `beside`
    residual_slopes: Any  # (benefits x groups, parameters), brought up to date every so often


def circle_of(
    people: People,
    coefficients: Coefficients,
    shares: Floats,
    *,
    n_batches: int,
    n_before: int,
    penalised: bool,
) -> _Circle:
    """Return the rows for the loop; without a penalty there are no benefits to look at."""
    benefits = coefficients.benefits if penalised else ()
    n, n_groups = len(coefficients.utility), coefficients.n_groups
    values, divisors = np.zeros((n, len(benefits))), np.zeros((n, len(benefits)))
    constants, defined = np.zeros((len(benefits), n_groups)), np.zeros((len(benefits), n_groups))
    ones = np.ones_like(constants)
    for k, benefit in enumerate(benefits):
        values[:, k], constants[k], defined[k] = benefit.values, benefit.constant, benefit.defined
        if benefit.denominator is not None:
            divisors[:, k], ones[k] = benefit.denominator, 0.0
    rows = _Rows(people, coefficients.utility, values, divisors, coefficients.group)
    length = round_length(n)
    padded = needed("jax").tree.map(lambda column: pad(column, length), rows)
    return _Circle(padded, n, constants, ones, defined > 0, shares, n_batches, n_before)


def ascend(
    theta: Any,
    circle: _Circle,
    *,
    floor: Any,
    penalty: Any,
    n_iterations: Any,
    function: Callable[..., Any],
    optimiser: Any,
    sizes: tuple[int, int],
    on_the_spot: bool,
) -> tuple[Any, Any]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    jax = needed("jax")
    jnp, (batch_size, n_reference) = jax.numpy, sizes
    n_batches, n_before = circle.n_batches, circle.n_before
    flat, pytree = needed("jax.flatten_util").ravel_pytree(theta)
    memory = max(1.0, n_reference / batch_size)
    lightest = 1.0 if on_the_spot else 2.0 / (memory + 1.0)
    refresh_every = max(1, int(memory / 4))
    penalised = circle.constants.size > 0
    scale = circle.n_rows / batch_size

    def batch_of(j: Any) -> _Rows:
        start = j % n_batches * batch_size
        cut: _Rows = jax.tree.map(
            lambda column: jax.lax.dynamic_slice_in_dim(column, start, batch_size), circle.rows
        )
        return cut

    def propensity(flat: Any, rows: _Rows) -> Any:
        return floor + (1.0 - floor) * function(pytree(flat), *rows.people)

    def utility(flat: Any, rows: _Rows) -> Any:
        return scale * (rows.utility @ propensity(flat, rows))

    def member(rows: _Rows) -> Any:
        return (rows.group[:, None] == jnp.arange(circle.constants.shape[1])).astype(flat.dtype)

    def sums(flat: Any, rows: _Rows) -> Any:
        weights = scale * propensity(flat, rows)[:, None]
        return jnp.stack([(rows.values * weights).T, (rows.divisors * weights).T]) @ member(rows)

    def benefits(sums: Any, sizes: Any) -> tuple[Any, Any, Any]:
        there = sizes > 0.0
        factor = jnp.where(there, circle.shares / jnp.where(there, sizes, 1.0), 0.0)
        numerators, denominators = sums * factor
        denominators = denominators + circle.ones
        known = circle.defined & there & (denominators > NOBODY)
        divisor = jnp.where(known, denominators, 1.0)
        return (
            (numerators + circle.constants) / divisor,
            jnp.where(known, factor, 0.0) / divisor,
            known,
        )

    def centred(values: Any, known: Any) -> Any:
        kept = jnp.where(known, values, 0.0)
        mean = kept.sum(1, keepdims=True) / jnp.maximum(known.sum(1, keepdims=True), 1)
        return ROOT_TWO * jnp.where(known, kept - mean, 0.0)

    def residuals(means: _Means) -> Any:
        values, _, known = benefits(means.levels, means.level_sizes)
        return centred(values, known).ravel()

    def residual_slopes(means: _Means) -> Any:
        values, factor, known = benefits(means.beside, means.beside_sizes)
        above, below = means.slopes
        slopes = factor[..., None] * (above - values[..., None] * below)
        return centred(slopes, known[..., None]).reshape(-1, flat.size)

    def absorb(means: _Means, flat: Any, rows: _Rows, j: Any) -> _Means:
        weight = jnp.maximum(lightest, 1.0 / ((j + n_before) // 2 + 1))

        def faded(old: Any, new: Any) -> Any:
            return old + weight * (new - old)

        def by_levels() -> _Means:
            return means._replace(
                levels=faded(means.levels, sums(flat, rows)),
                level_sizes=faded(means.level_sizes, member(rows).mean(0)),
            )

        def by_slopes(means: _Means) -> _Means:
            return means._replace(
                beside=faded(means.beside, sums(flat, rows)),
                beside_sizes=faded(means.beside_sizes, member(rows).mean(0)),
                slopes=faded(means.slopes, jax.jacrev(sums)(flat, rows)),
            )

        if on_the_spot:
            return by_slopes(by_levels())
        found: _Means = jax.lax.cond(j % 2 == 0, by_levels, lambda: by_slopes(means))
        return found

    def follow(means: _Means, change: Any) -> _Means:
        there = means.beside_sizes > 0.0
        ratio = means.level_sizes / jnp.where(there, means.beside_sizes, 1.0)
        drift = means.slopes @ change
        return means._replace(
            beside=means.beside + drift,
            levels=means.levels + jnp.where(there, ratio, 0.0) * drift,
        )

    def look(i: Any, means: _Means) -> _Means:
        j = i - n_before
        return absorb(means, flat, batch_of(j), j)

    def iterate(j: Any, carried: Any) -> Any:
        flat, state, means, rejected = carried
        rows = batch_of(j)
        gradient = jax.grad(utility)(flat, rows)
        if penalised:
            if on_the_spot:
                means = absorb(means, flat, rows, j)
            fresh = jnp.where(j % refresh_every == 0, residual_slopes(means), means.residual_slopes)
            means = means._replace(residual_slopes=fresh)
            gradient = gradient - penalty * (residuals(means) @ means.residual_slopes)
        # optax descends
        change, moved = optimiser.update(pytree(-gradient), state, pytree(flat))
        step = needed("jax.flatten_util").ravel_pytree(change)[0]
        finite = jnp.isfinite(step).all()
        step = jnp.where(finite, step, 0.0)
        if penalised and not on_the_spot:
            means = follow(absorb(means, flat, rows, j), step)
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state)
        return flat + step, state, means, rejected + ~finite

    shape = (2, *circle.constants.shape)
    none = jnp.zeros(shape), jnp.zeros(shape[2])
    slopes = jnp.zeros((*shape, flat.size))
    means = _Means(*none, *none, slopes, jnp.zeros((circle.constants.size, flat.size)))
    if penalised:
        means = jax.lax.fori_loop(0, n_before, look, means)
    start = flat, optimiser.init(theta), means, jnp.zeros((), int)
    flat, _, _, rejected = jax.lax.fori_loop(0, n_iterations, iterate, start)
    return pytree(flat), rejected
