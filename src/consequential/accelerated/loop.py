"""The ascent as one compiled loop: what `learning.reference` computes, with autodiff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from consequential.accelerated.backend import needed, pad, round_length
from consequential.accelerated.policy import People
from consequential.objective import NOBODY, ROOT_TWO, Coefficients


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

    def stretch(self, start: Any, length: int) -> tuple[_Rows, Any]:
        """Return some consecutive rows, and how much they stand for each."""
        jax = needed("jax")
        at = (start + jax.numpy.arange(length)) % self.n_rows
        return jax.tree.map(lambda column: column[at], self.rows), self.n_rows / length


def circle_of(people: People, coefficients: Coefficients, *, penalised: bool) -> _Circle:
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
    return _Circle(padded, n, constants, ones, defined > 0)


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
) -> tuple[Any, Any]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    jax = needed("jax")
    jnp, (batch_size, n_reference) = jax.numpy, sizes
    flat, pytree = needed("jax.flatten_util").ravel_pytree(theta)
    refresh_every = max(1, n_reference // (4 * batch_size))
    n_residuals = circle.constants.size

    def propensity(flat: Any, rows: _Rows) -> Any:
        return floor + (1.0 - floor) * function(pytree(flat), *rows.people)

    def utility(flat: Any, start: Any) -> Any:
        rows, scale = circle.stretch(start, batch_size)
        return scale * (rows.utility @ propensity(flat, rows))

    def residuals(flat: Any, start: Any) -> Any:
        rows, scale = circle.stretch(start, n_reference)
        weights = scale * propensity(flat, rows)[:, None]
        member = rows.group[:, None] == jnp.arange(circle.constants.shape[1])
        numerators = (rows.values * weights).T @ member + circle.constants
        denominators = (rows.divisors * weights).T @ member + circle.ones
        known = circle.defined & (denominators > NOBODY)
        # the inner choice keeps a division by nobody out of the derivative too
        benefits = jnp.where(known, numerators / jnp.where(known, denominators, 1.0), 0.0)
        mean = benefits.sum(1, keepdims=True) / jnp.maximum(known.sum(1, keepdims=True), 1)
        return ROOT_TWO * jnp.where(known, benefits - mean, 0.0).ravel()

    def look(flat: Any, position: Any) -> tuple[Any, Any, Any]:
        far, near = position - 2 * n_reference, position - n_reference
        return residuals(flat, far), jax.jacrev(residuals)(flat, near), flat

    def iterate(j: Any, carried: Any) -> Any:
        flat, state, around, rejected = carried
        position = j * batch_size
        gradient = jax.grad(utility)(flat, position)
        if n_residuals:
            around = jax.lax.cond(
                j % refresh_every == 0, lambda: look(flat, position), lambda: around
            )
            found, slopes, at = around
            gradient = gradient - penalty * ((found + slopes @ (flat - at)) @ slopes)
        # optax descends
        change, moved = optimiser.update(pytree(-gradient), state, pytree(flat))
        step = needed("jax.flatten_util").ravel_pytree(change)[0]
        finite = jnp.isfinite(step).all()
        flat = jnp.where(finite, flat + step, flat)
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state)
        return flat, state, around, rejected + ~finite

    nowhere = jnp.zeros(n_residuals), jnp.zeros((n_residuals, flat.size)), flat
    start = flat, optimiser.init(theta), nowhere, jnp.zeros((), int)
    flat, _, _, rejected = jax.lax.fori_loop(0, n_iterations, iterate, start)
    return pytree(flat), rejected
