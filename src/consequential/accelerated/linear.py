"""Linear policies as JAX functions: their response to rows, and their steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.ascent import Respond, Response, Step, Surroundings, products
from consequential.accelerated.backend import needed
from consequential.accelerated.people import uniforms
from consequential.kernels.ascent import Ascent
from consequential.links import LinkNumbers

jax = needed("jax")
jnp = jax.numpy
Array = Any


def responses(link: LinkNumbers, eta: Array) -> tuple[Array, Array, Array, Array]:
    """Return propensity, its derivative, their quotient, and the logistic derivative."""
    e = jnp.exp(-jnp.abs(eta))
    q = 1.0 / (1.0 + e)
    up = eta >= 0.0
    base = jnp.where(up, q + link.flat * (1.0 - q), link.below * e * q)
    propensity = link.floor + (1.0 - link.floor) * base
    steepness = e * q * q
    derivative = jnp.where(up, 1.0 - link.flat, link.below) * (1.0 - link.floor) * steepness
    plain = jnp.where(up, e * q * (1.0 - link.flat), q)
    quotient = jnp.where(link.floor > 0.0, derivative / propensity, plain)
    return propensity, derivative, quotient, steepness


def linear_scores(theta: Array, inputs: Array) -> Array:
    """Return `theta @ inputs`."""
    return (theta[:, None] * inputs).sum(axis=0)


def linear_response(link: LinkNumbers, key: Array | None) -> Respond:
    """Return the response of a linear policy; with a key, decisions are drawn."""

    def respond(theta: Array, inputs: Array, position: Array) -> Response:
        size = inputs.shape[1]
        propensity, derivative, quotient, steepness = responses(link, linear_scores(theta, inputs))
        decision, slope = propensity, derivative
        if key is not None:
            drawn = uniforms(key, position + jnp.arange(size)) < propensity
            decision = drawn.astype(propensity.dtype)
            slope = decision * quotient
        # computed once: fused into each of the sums, the exponential would be taken several times
        propensity, derivative, steepness, decision, slope = jax.lax.optimization_barrier(
            (propensity, derivative, steepness, decision, slope)
        )
        around = Surroundings(
            products(steepness * inputs, inputs) / size,
            steepness.mean(),
            propensity.mean(),
            products(inputs, derivative) / size,
        )
        return Response(
            propensity, decision, lambda weights: products(weights * slope, inputs), around
        )

    return respond


def plain_step(numbers: Ascent) -> Step:
    """Return the step of `GradientStep`."""

    def change(gradient: Array, theta: Array, state: tuple[()]) -> Any:
        change = numbers.rate * gradient
        return _shortened(change, jnp.abs(change).max(), numbers.max_step), state

    return Step(lambda theta: (), change)


class Metric(NamedTuple):
    """The state of a preconditioned step."""

    inverse: Array
    acceptance: Array  # expected, by its slope at the last refresh
    acceptance_slope: Array


def preconditioned_step(numbers: Ascent, scale: Array) -> Step:
    """Return the step of `PreconditionedStep`; `scale` is `mean(x x')`."""
    m = len(scale)
    ridge = numbers.ridge * (scale + jnp.trace(scale) / m * jnp.eye(m))

    def start(theta: Array) -> Metric:
        return Metric(jnp.zeros((m, m)), jnp.zeros(()), jnp.zeros(m))

    def refresh(around: Surroundings, slopes: Array) -> Metric:
        metric = (around.curvature + around.steepness * scale) / 2.0 + ridge
        inverse = _inverse(metric + numbers.penalty * products(slopes.T, slopes.T))
        return Metric(inverse, around.acceptance, around.acceptance_slope)

    def change(gradient: Array, theta: Array, state: Metric) -> tuple[Array, Metric]:
        change = numbers.rate * products(state.inverse, gradient)
        square = products(change, products(scale, change))
        change = _shortened(change, jnp.sqrt(jnp.maximum(square, 0.0)), numbers.max_step)
        distance = jnp.maximum(jnp.minimum(state.acceptance, 1.0 - state.acceptance), 0.0)
        drift = jnp.abs(products(state.acceptance_slope, change))
        change = _shortened(change, drift, numbers.max_share * distance)
        acceptance = state.acceptance + products(state.acceptance_slope, change)
        return change, state._replace(acceptance=acceptance)

    return Step(start, change, refresh)


def _shortened(change: Array, length: Array, longest: Array) -> Array:
    return change * jnp.where(length > longest, longest / length, 1.0)


def _inverse(matrix: Array) -> Array:
    """Return the inverse of a small positive matrix, by Gauss-Jordan elimination.

    It fuses with what is around it. `jnp.linalg.inv` calls a library: with it a sweep of the first
    setting took twice as long on a GPU.
    """
    for k in range(len(matrix)):
        pivot = jnp.arange(len(matrix)) == k
        row = jnp.where(pivot, 1.0, matrix[k]) / matrix[k, k]
        column = jnp.where(pivot, 0.0, matrix[:, k])[:, None]
        matrix = jnp.where(pivot[:, None], row, jnp.where(pivot, 0.0, matrix) - column * row)
    return matrix
