"""The ascent of a differentiable policy as a JAX function: what `learning.ascent` computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import lax, tree, vjp, vmap
from jax import numpy as jnp
from jax.flatten_util import ravel_pytree

from consequential.lab.algorithm.ascent import Schedule, ratio, residual_slopes, residuals
from consequential.lab.kernels.batch_sums import BatchRows

Array = Any


class BatchMeans(NamedTuple):
    """Running means over minibatches, see `learning.ascent.Means`."""

    levels: Array  # sums of columns, over minibatches of even number
    level_shares: Array
    sums: Array  # the same over minibatches of odd number, as all below
    shares: Array
    slopes: Array  # gradients of the sums, (columns, theta)

    def follow(self, change: Array) -> BatchMeans:
        """Move the means to where theta goes next."""
        drift = self.slopes @ change
        scale = jnp.tile(ratio(self.level_shares, self.shares), drift.size // self.shares.size)
        return self._replace(levels=self.levels + scale * drift, sums=self.sums + drift)


class _State(NamedTuple):
    theta: Array
    rejected: Array  # how many steps were not finite and not taken
    means: BatchMeans
    residual_slopes: Array
    optimiser: Any


def ascend(
    theta: Any,
    rows: BatchRows,
    *,
    function: Callable[..., Any],
    floor: Array,
    optimiser: Any,
    schedule: Schedule,
    penalty: Array,
    n_iterations: Array,
    n_batches: Array,
) -> tuple[Any, Array]:
    """Return theta after the ascent, and how many steps were not finite and not taken.

    Inputs are what `function` is called with after theta, one row per person. Without columns there
    is no penalty. The rows may be padded after `n_batches` minibatches.
    """
    size, in_batch, n_before = schedule.batch_size, schedule.in_batch, schedule.n_before
    penalised, per_batch = len(rows.columns) > 0, rows.total / size
    flat, unravel = ravel_pytree(theta)

    def minibatch(j: Array, theta: Array) -> tuple[BatchRows, Array, Callable[[Array], Array]]:
        """Return minibatch j, its propensities, and the gradients of `weights @ propensities`.

        Its sums are scaled to the whole log.
        """
        number = j % n_batches

        def cut(array: Array, axis: int = -1) -> Array:
            return lax.dynamic_slice_in_dim(array, number * size, size, axis)

        batch = rows._replace(
            inputs=tree.map(lambda part: cut(part, 0), rows.inputs),
            utility=per_batch * cut(rows.utility),
            columns=per_batch * cut(rows.columns),
            batch_shares=lax.dynamic_index_in_dim(rows.batch_shares, number, keepdims=False),
        )

        def propensities(theta: Array) -> Array:
            return floor + (1.0 - floor) * function(unravel(theta), *batch.inputs)

        propensity, pull = vjp(propensities, theta)
        return batch, propensity, lambda weights: vmap(pull)(weights)[0]

    def absorb(
        means: BatchMeans, batch: BatchRows, propensity: Array, gradients: Any, j: Array
    ) -> BatchMeans:
        """Bring a minibatch into the means."""

        def levels(means: BatchMeans) -> BatchMeans:
            return means._replace(
                levels=batch.columns @ propensity, level_shares=batch.batch_shares
            )

        def slopes(means: BatchMeans) -> BatchMeans:
            return means._replace(
                sums=batch.columns @ propensity,
                shares=batch.batch_shares,
                slopes=gradients(batch.columns),
            )

        if in_batch:
            return levels(slopes(means))
        newest = lax.cond(j % 2 == 0, levels, slopes, means)
        weight = jnp.maximum(2.0 / (schedule.memory + 1.0), 1.0 / ((j + n_before) // 2 + 1))
        moved = (old + weight * (new - old) for old, new in zip(means, newest, strict=True))
        return BatchMeans(*moved)

    def look(j: Array, state: _State) -> _State:
        """Bring a minibatch into the means before the first step."""
        return state._replace(means=absorb(state.means, *minibatch(j, state.theta), j))

    def iterate(j: Array, state: _State) -> _State:
        """Take one step."""
        theta, rejected, means, slopes, optimising = state
        batch, propensity, gradients = minibatch(j, theta)
        (gradient,) = gradients(batch.utility[None])
        if penalised:
            if in_batch:
                means = absorb(means, batch, propensity, gradients, j)
            slopes = lax.cond(
                j % schedule.refresh_every == 0,
                lambda: residual_slopes(rows.benefits, means.sums, means.shares, means.slopes),
                lambda: slopes,
            )
            residual = residuals(rows.benefits, means.levels, means.level_shares)
            gradient = gradient - penalty * (residual @ slopes)
        # optax descends
        change, after = optimiser.update(unravel(-gradient), optimising, unravel(theta))
        change = ravel_pytree(change)[0]
        finite = jnp.isfinite(change).all()
        change = jnp.where(finite, change, 0.0)
        if penalised and not in_batch:
            means = absorb(means, batch, propensity, gradients, j).follow(change)
        return _State(
            theta + change,
            rejected + ~finite,
            means,
            slopes,
            tree.map(lambda new, old: jnp.where(finite, new, old), after, optimising),
        )

    n_columns, n_residuals = len(rows.columns), rows.benefits.constant.size if penalised else 0
    sums, shares = jnp.zeros(n_columns), jnp.zeros(rows.batch_shares.shape[1])
    means = BatchMeans(sums, shares, sums, shares, jnp.zeros((n_columns, flat.size)))
    state = _State(
        flat, jnp.zeros((), int), means, jnp.zeros((n_residuals, flat.size)), optimiser.init(theta)
    )
    if penalised:
        state = lax.fori_loop(-n_before, 0, look, state)
    state = lax.fori_loop(0, n_iterations, iterate, state)
    return unravel(state.theta), state.rejected
