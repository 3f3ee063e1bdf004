"""Steps as JAX functions: from a gradient to a change of theta, see consequential.steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.accelerated.response import Array, Entries, Surroundings, Theta
from consequential.kernels.ascent import Ascent

jax = needed("jax")
jnp = jax.numpy


class Step(NamedTuple):
    """A step, with a state that the ascent carries along."""

    start: Callable[[Theta], Any]  # the state before the first step
    change: Callable[[Theta, Theta, Any], tuple[Theta, Any]]  # of gradient, theta and state
    # the state at theta, from surroundings and residual slopes; None if it does not depend on them
    refresh: Callable[[Surroundings, list[Any]], Any] | None = None


class Metric(NamedTuple):
    """The state of a preconditioned step."""

    inverse: list[Entries]
    acceptance: Array  # expected, by its slope at the last refresh
    acceptance_slope: Entries


def optax_step(optimiser: Any, unravel: Callable[[Array], Any]) -> Step:
    """Return the step of an optax optimiser, for theta as a vector; it works on a pytree."""
    ravel = needed("jax.flatten_util").ravel_pytree

    def change(gradient: Array, theta: Array, state: Any) -> tuple[Array, Any]:
        # optax descends
        change, state = optimiser.update(unravel(-gradient), state, unravel(theta))
        return ravel(change)[0], state

    return Step(lambda theta: optimiser.init(unravel(theta)), change)


def plain_step(numbers: Ascent) -> Step:
    """Return the step of `GradientStep`."""

    def change(gradient: Entries, theta: Entries, state: tuple[()]) -> Any:
        change = [numbers.rate * entry for entry in gradient]
        longest = jax.tree.reduce(jnp.maximum, [jnp.abs(entry) for entry in change])
        return _shortened(change, longest, numbers.max_step), state

    return Step(lambda theta: (), change)


def preconditioned_step(numbers: Ascent, scale: Array) -> Step:
    """Return the step of `PreconditionedStep`; `scale` is `mean(x x')`."""
    m = len(scale)
    squares = [[scale[j, k] for k in range(m)] for j in range(m)]
    trace = sum(squares[k][k] for k in range(m))

    def start(theta: Entries) -> Metric:
        none = [jnp.zeros(())] * m
        return Metric([none] * m, none[0], none)

    def refresh(around: Surroundings, residual_slopes: list[Entries]) -> Metric:
        lower, curvature = [], iter(around.curvature)
        for j in range(m):
            row = [
                (next(curvature) + around.steepness * squares[j][k]) / 2.0
                + numbers.ridge * squares[j][k]
                + numbers.penalty * sum(slope[j] * slope[k] for slope in residual_slopes)
                for k in range(j + 1)
            ]
            row[j] = row[j] + numbers.ridge * trace / m
            lower.append(row)
        return Metric(_inverse(lower), around.acceptance, around.acceptance_slope)

    def change(gradient: Entries, theta: Entries, state: Metric) -> tuple[Entries, Metric]:
        change = [numbers.rate * dot(row, gradient) for row in state.inverse]
        square = dot(change, [dot(row, change) for row in squares])
        change = _shortened(change, jnp.sqrt(jnp.maximum(square, 0.0)), numbers.max_step)
        distance = jnp.maximum(jnp.minimum(state.acceptance, 1.0 - state.acceptance), 0.0)
        drift = jnp.abs(dot(state.acceptance_slope, change))
        change = _shortened(change, drift, numbers.max_share * distance)
        acceptance = state.acceptance + dot(state.acceptance_slope, change)
        return change, state._replace(acceptance=acceptance)

    return Step(start, change, refresh)


def dot(left: Theta, right: Theta) -> Array:
    """Return the sum of products of all entries."""
    return sum(jax.tree.leaves(jax.tree.map(lambda a, b: (a * b).sum(), left, right)))


def _shortened(change: Entries, length: Array, longest: Array) -> Entries:
    factor = jnp.where(length > longest, longest / length, 1.0)
    return [entry * factor for entry in change]


def _inverse(lower: list[Entries]) -> list[Entries]:
    """Return the inverse of a positive matrix, by Cholesky's factor."""
    m, factor = len(lower), list[Entries]()
    for j in range(m):
        row: Entries = []
        for k in range(j + 1):
            left = lower[j][k] - sum(row[i] * (factor[k] if k < j else row)[i] for i in range(k))
            row.append(jnp.sqrt(left) if j == k else left / factor[k][k])
        factor.append(row)
    columns: list[Entries] = []  # of the factor's inverse, from the diagonal on
    for k in range(m):
        column: Entries = [1.0 / factor[k][k]]
        for j in range(k + 1, m):
            total = sum(factor[j][i] * column[i - k] for i in range(k, j))
            column.append(-total / factor[j][j])
        columns.append(column)

    def entry(j: int, k: int) -> Array:
        return sum(columns[j][i - j] * columns[k][i - k] for i in range(max(j, k), m))

    return [[entry(j, k) for k in range(m)] for j in range(m)]
