"""The ascent of one run as a JAX function: what `learning.ascent` computes, for any policy.

Sweeps map it over seeds and penalties; then every number here is an array with one entry per run.
Column sums and their means are lists of numbers for that reason, see `response`.
"""

from __future__ import annotations

from math import lcm
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.accelerated.response import Array, Entries, Respond, Response, Theta
from consequential.accelerated.steps import Step, dot
from consequential.kernels import NOBODY, ROOT_TWO
from consequential.kernels.batch_sums import Benefits, Rows
from consequential.learning.ascent import Schedule

jax = needed("jax")
jnp, tree = jax.numpy, jax.tree

_MOST_UNROLLED = 16  # iterations in the body of the loop


class Means(NamedTuple):
    """Running means over minibatches, see `learning.ascent.Means`."""

    levels: Entries  # sums of columns, over minibatches of even number
    level_shares: Entries
    sums: Entries  # the same over minibatches of odd number, as all below
    shares: Entries
    slopes: list[Theta]  # gradients of the sums
    around: Any  # `Surroundings`, if the step looks at them

    def follow(self, change: Theta) -> Means:
        """Move the means to where theta goes next."""
        drift = [dot(slope, change) for slope in self.slopes]
        ratio = [
            _ratio(level, own) for level, own in zip(self.level_shares, self.shares, strict=True)
        ]
        around = self.around
        if around is not None:
            acceptance = around.acceptance + dot(around.acceptance_slope, change)
            around = around._replace(acceptance=acceptance)
        return self._replace(
            levels=[each + ratio[c % len(ratio)] * drift[c] for c, each in enumerate(self.levels)],
            sums=[each + drift[c] for c, each in enumerate(self.sums)],
            around=around,
        )

    def residuals(self, benefits: Benefits) -> Entries:
        """Return the residuals r of the penalty, `lambda/2 sum r^2`."""
        values, factors = group_benefits(benefits, self.levels, self.level_shares)
        return [ROOT_TWO * each for each in centred(values, factors, len(self.level_shares))]

    def residual_slopes(self, benefits: Benefits) -> list[Theta]:
        """Return the gradients of the residuals."""
        values, factors = group_benefits(benefits, self.sums, self.shares)
        numerators, denominators = self.slopes[: len(values)], self.slopes[len(values) :]
        slopes = [
            tree.map(lambda s, f=f: f * s, s) for s, f in zip(numerators, factors, strict=True)
        ]
        for at, below in enumerate(denominators):
            by = factors[at] * values[at]
            slopes[at] = tree.map(lambda s, d, by=by: s - by * d, slopes[at], below)
        centred_slopes = centred(slopes, factors, len(self.shares))
        return [tree.map(lambda s: ROOT_TWO * s, slope) for slope in centred_slopes]


def group_benefits(benefits: Benefits, sums: Entries, shares: Entries) -> tuple[Entries, Entries]:
    """Return the groups' benefits and the factors of their slopes, both 0 where undefined.

    Sums are scaled to the groups' shares of the whole log.
    """
    constant, defined, is_ratio, log_shares = benefits
    values, factors = [], []
    for at in range(constant.size):
        b, z = divmod(at, len(shares))
        scale, denominator = _ratio(log_shares[z], shares[z]), 1.0
        if len(sums) > constant.size:
            denominator = jnp.where(is_ratio[b], scale * sums[constant.size + at], 1.0)
        known = defined[b, z] & (scale > 0.0) & (denominator > NOBODY)
        divisor = jnp.where(known, denominator, 1.0)
        values.append(jnp.where(known, (constant[b, z] + scale * sums[at]) / divisor, 0.0))
        factors.append(jnp.where(known, scale / divisor, 0.0))
    return values, factors


def centred(values: list[Any], factors: Entries, n_groups: int) -> list[Any]:
    """Subtract the mean over the groups whose benefit is known; 0 for the others."""
    found = []
    for first in range(0, len(values), n_groups):
        own = values[first : first + n_groups]
        known = [factor > 0.0 for factor in factors[first : first + n_groups]]
        n_known = jnp.maximum(sum(each.astype("int32") for each in known), 1)
        mean = tree.map(lambda *each, n=n_known: sum(each) / n, *own)
        found += [
            tree.map(lambda v, m, k=k: jnp.where(k, v - m, 0.0), value, mean)
            for value, k in zip(own, known, strict=True)
        ]
    return found


def _ratio(numerator: Array, denominator: Array) -> Array:
    """The quotient, 0 where nobody is there to divide by."""
    there = denominator > 0.0
    return jnp.where(there, numerator / jnp.where(there, denominator, 1.0), 0.0)


def column_sums(columns: Array, weights: Array) -> Entries:
    """Return `sum_i column_i weights_i` for each column."""
    return [(column * weights).sum() for column in columns]


class _State(NamedTuple):
    theta: Theta
    rejected: Array
    means: Means
    residual_slopes: list[Theta]
    step: Any


def ascend(
    rows: Rows,
    respond: Respond,
    step: Step,
    schedule: Schedule,
    theta: Theta,
    *,
    penalty: Array,
    n_iterations: Array,
    n_batches: Array,
) -> tuple[Theta, Array]:
    """Return theta after the ascent, and how many steps were not finite and not taken.

    Without columns there is no penalty. The rows may be padded after `n_batches` minibatches.
    """
    size, in_batch, n_before = schedule.batch_size, schedule.in_batch, schedule.n_before
    penalised, per_batch = len(rows.columns) > 0, rows.total / size
    looks_around = step.refresh is not None
    looks = penalised or looks_around

    def minibatch(j: Array, theta: Theta) -> tuple[Rows, Response]:
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

        def blend(old: Any, new: Any) -> Any:
            return new if in_batch else tree.map(lambda a, b: a + weight * (b - a), old, new)

        shares = list(batch.batch_shares)
        if penalised and (in_batch or not odd):
            levels = column_sums(batch.columns, response.decision)
            means = means._replace(
                levels=blend(means.levels, levels),
                level_shares=blend(means.level_shares, shares),
            )
        if penalised and (in_batch or odd):
            counted = response.decision if in_batch else response.propensity
            means = means._replace(
                sums=blend(means.sums, column_sums(batch.columns, counted)),
                shares=blend(means.shares, shares),
                slopes=blend(means.slopes, response.gradients(list(batch.columns))),
            )
        if looks_around and (in_batch or odd):
            means = means._replace(around=blend(means.around, response.around))
        return means

    def refreshed(state: _State, now: Any) -> _State:
        """Update what steps are made of, if now is the time."""
        fresh, slopes = state, []
        if penalised:
            slopes = state.means.residual_slopes(rows.benefits)
            fresh = fresh._replace(residual_slopes=slopes)
        if step.refresh is not None:
            fresh = fresh._replace(step=step.refresh(state.means.around, slopes))
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
        (gradient,) = response.gradients([batch.utility])
        if penalised:
            residuals = state.means.residuals(rows.benefits)
            for residual, slope in zip(residuals, state.residual_slopes, strict=True):
                by = penalty * residual
                gradient = tree.map(lambda g, s, by=by: g - by * s, gradient, slope)
        change, after = step.change(gradient, state.theta, state.step)
        all_finite = tree.map(lambda leaf: jnp.isfinite(leaf).all(), change)
        finite, in_time = tree.reduce(jnp.logical_and, all_finite), j < n_iterations
        change = tree.map(lambda leaf: jnp.where(finite & in_time, leaf, 0.0), change)
        means = state.means
        if looks and not in_batch:
            means = absorb(means, batch, response, j, odd).follow(change)
        return state._replace(
            theta=tree.map(jnp.add, state.theta, change),
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

    state = _start(rows, respond, step, theta)
    if looks and n_before:
        state = jax.lax.fori_loop(0, n_before // 2, look_twice, state)
    state = jax.lax.fori_loop(0, -(-n_iterations // length), advance, state)
    return state.theta, state.rejected


def _start(rows: Rows, respond: Respond, step: Step, theta: Theta) -> _State:
    """Return the state before the first minibatch."""
    zero, n_columns = jnp.zeros(()), len(rows.columns)
    shares = [zero] * (rows.batch_shares.shape[1] if n_columns else 0)
    sums, slope = [zero] * n_columns, tree.map(jnp.zeros_like, theta)
    around = None
    if step.refresh is not None:
        around = tree.map(jnp.zeros_like, respond(theta, rows.inputs, 0).around)
    means = Means(sums, shares, sums, shares, [slope] * n_columns, around)
    residual_slopes = [slope] * (rows.benefits.constant.size if n_columns else 0)
    return _State(theta, jnp.zeros((), int), means, residual_slopes, step.start(theta))
