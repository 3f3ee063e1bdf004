"""The ascent of one run as a JAX function: what `learning.ascent` computes, for any policy.

Theta is a vector. Sweeps map the ascent over seeds and penalties.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.kernels.batch_sums import Rows
from consequential.learning.ascent import Schedule, ratio, residual_slopes, residuals

jax = needed("jax")
jnp, tree = jax.numpy, jax.tree
Array = Any

_MOST_UNROLLED = 16  # iterations in the body of the loop


class Surroundings(NamedTuple):
    """What a preconditioned step needs to know about the neighbourhood of theta."""

    curvature: Array  # mean(s x x'), with s the derivative of the logistic function
    steepness: Array  # mean(s)
    acceptance: Array  # the mean propensity, and its gradient
    acceptance_slope: Array


class Response(NamedTuple):
    """What a policy does with rows at theta."""

    propensity: Array
    decision: Array  # the propensity, or a decision drawn with it
    gradients: Callable[[Array], Array]  # of `weights @ decision`, one row per row of weights
    around: Surroundings | None


Respond = Callable[[Array, Any, Array], Response]  # of theta, inputs, and where to draw from


class Step(NamedTuple):
    """From a gradient to a change of theta, with a state that the ascent carries along."""

    start: Callable[[Array], Any]  # the state before the first step
    change: Callable[[Array, Array, Any], tuple[Array, Any]]  # of gradient, theta and state
    # the state at theta, from surroundings and residual slopes; None if it does not depend on them
    refresh: Callable[[Surroundings, Array], Any] | None = None


def products(left: Array, right: Array) -> Array:
    """Return `left @ right.T`, or with two vectors their product.

    A sum of products fuses with what is computed before and after it; a matrix product calls a
    library. With matrix products sweeps of both settings took 1.2 times as long on a GPU.
    """
    if right.ndim > 1:
        left = left[..., None, :]
    return (left * right).sum(axis=-1)


class Means(NamedTuple):
    """Running means over minibatches, see `learning.ascent.Means`."""

    levels: Array  # sums of columns, over minibatches of even number
    level_shares: Array
    sums: Array  # the same over minibatches of odd number, as all below
    shares: Array
    slopes: Array  # gradients of the sums, (columns, theta)
    around: Surroundings | None  # if the step looks at them

    def follow(self, change: Array) -> Means:
        """Move the means to where theta goes next."""
        drift = products(self.slopes, change)
        n_repeats = drift.size // max(self.shares.size, 1)
        scale = jnp.tile(ratio(self.level_shares, self.shares), n_repeats)
        around = self.around
        if around is not None:
            acceptance = around.acceptance + products(around.acceptance_slope, change)
            around = around._replace(acceptance=acceptance)
        return self._replace(
            levels=self.levels + scale * drift, sums=self.sums + drift, around=around
        )


class _State(NamedTuple):
    theta: Array
    rejected: Array
    means: Means
    residual_slopes: Array
    step: Any


def ascend(
    rows: Rows,
    respond: Respond,
    step: Step,
    schedule: Schedule,
    theta: Array,
    *,
    penalty: Array,
    n_iterations: Array,
    n_batches: Array,
) -> tuple[Array, Array]:
    """Return theta after the ascent, and how many steps were not finite and not taken.

    Without columns there is no penalty. The rows may be padded after `n_batches` minibatches.
    """
    size, in_batch, n_before = schedule.batch_size, schedule.in_batch, schedule.n_before
    penalised, per_batch = len(rows.columns) > 0, rows.total / size
    looks_around = step.refresh is not None
    looks = penalised or looks_around

    def minibatch(j: Array, theta: Array) -> tuple[Rows, Response]:
        """Return minibatch j, its sums scaled to the whole log, and the response to it."""
        number = j % n_batches

        def cut(array: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(array, number * size, size, axis=-1)

        batch = rows._replace(
            inputs=tree.map(cut, rows.inputs),
            utility=per_batch * cut(rows.utility),
            columns=per_batch * cut(rows.columns),
            batch_shares=jax.lax.dynamic_index_in_dim(rows.batch_shares, number, keepdims=False),
        )
        return batch, respond(theta, batch.inputs, (j + n_before) * size)

    def absorb(means: Means, batch: Rows, response: Response, j: Array, odd: bool) -> Means:
        """Bring a minibatch into the means."""
        weight = jnp.maximum(2.0 / (schedule.memory + 1.0), 1.0 / ((j + n_before) // 2 + 1))
        new = {}
        if penalised and (in_batch or not odd):
            new["levels"] = products(batch.columns, response.decision)
            new["level_shares"] = batch.batch_shares
        if penalised and (in_batch or odd):
            counted = response.decision if in_batch else response.propensity
            new["sums"] = products(batch.columns, counted)
            new["shares"] = batch.batch_shares
            new["slopes"] = response.gradients(batch.columns)
        if looks_around and (in_batch or odd):
            new["around"] = response.around
        if not in_batch:
            old = {name: getattr(means, name) for name in new}
            new = tree.map(lambda a, b: a + weight * (b - a), old, new)
        return means._replace(**new)

    def refreshed(state: _State, now: Any) -> _State:
        """Update what steps are made of, if now is the time."""
        fresh, means = state, state.means
        if penalised:
            slopes = residual_slopes(rows.benefits, means.sums, means.shares, means.slopes)
            fresh = fresh._replace(residual_slopes=slopes)
        if step.refresh is not None:
            metric = step.refresh(means.around, fresh.residual_slopes)  # type: ignore[arg-type]
            fresh = fresh._replace(step=metric)
        return fresh if now is True else tree.map(lambda a, b: jnp.where(now, a, b), fresh, state)

    def look(j: Array, odd: bool, state: _State) -> _State:
        """Bring a minibatch into the means before the first step."""
        batch, response = minibatch(j, state.theta)
        return state._replace(means=absorb(state.means, batch, response, j, odd))

    def iterate(j: Array, odd: bool, refresh: Any, state: _State) -> _State:
        """Take one step; `refresh` is an array if it is not known beforehand."""
        batch, response = minibatch(j, state.theta)
        if looks and in_batch:
            state = state._replace(means=absorb(state.means, batch, response, j, odd))
        if looks and refresh is not False:
            state = refreshed(state, refresh)
        (gradient,) = response.gradients(batch.utility[None])
        if penalised:
            residual = residuals(rows.benefits, state.means.levels, state.means.level_shares)
            gradient = gradient - penalty * products(state.residual_slopes.T, residual)
        change, after = step.change(gradient, state.theta, state.step)
        finite, in_time = jnp.isfinite(change).all(), j < n_iterations
        change = jnp.where(finite & in_time, change, 0.0)
        means = state.means
        if looks and not in_batch:
            means = absorb(means, batch, response, j, odd).follow(change)
        return state._replace(
            theta=state.theta + change,
            rejected=state.rejected + (in_time & ~finite),
            means=means,
            step=tree.map(lambda a, b: jnp.where(finite, a, b), after, state.step),
        )

    # Which minibatches are odd and when to refresh are known if the loop's body has several
    # iterations: then no branch of it is computed in vain.
    every = schedule.refresh_every
    unrolled = lcm(2, every) <= _MOST_UNROLLED
    length = lcm(2, every) if unrolled else 2

    def look_twice(block: Array, state: _State) -> _State:
        first = 2 * block - n_before
        return look(first + 1, True, look(first, False, state))

    def advance(block: Array, state: _State) -> _State:
        for i in range(length):
            j = block * length + i
            state = iterate(j, i % 2 == 1, i % every == 0 if unrolled else j % every == 0, state)
        return state

    n_columns, n_residuals = len(rows.columns), rows.benefits.constant.size if penalised else 0
    sums, shares = jnp.zeros(n_columns), jnp.zeros(rows.batch_shares.shape[1])
    around = respond(theta, rows.inputs, 0).around if looks_around else None
    state = _State(
        theta,
        jnp.zeros((), int),
        Means(
            sums,
            shares,
            sums,
            shares,
            jnp.zeros((n_columns, theta.size)),
            tree.map(jnp.zeros_like, around),
        ),
        jnp.zeros((n_residuals, theta.size)),
        step.start(theta),
    )
    if looks and n_before:
        state = jax.lax.fori_loop(0, n_before // 2, look_twice, state)
    state = jax.lax.fori_loop(0, -(-n_iterations // length), advance, state)
    return state.theta, state.rejected
