"""The response of a policy: its decisions on rows, and their gradients in theta.

Theta of a linear policy is a list of numbers, one per input: mapped over many runs, each number
becomes an array of one shape, and XLA fuses everything done with such arrays into a few kernels. On
a GPU starting kernels is what takes time. Theta of a differentiable policy is a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.accelerated.people import uniforms
from consequential.kernels.links import LinkNumbers

jax = needed("jax")
jnp = jax.numpy
Array = Any
Theta = Any  # a list of numbers or a vector, and so are gradients
Entries = list[Array]  # numbers


class Surroundings(NamedTuple):
    """What a preconditioned step needs to know about the neighbourhood of theta."""

    curvature: Entries  # the lower triangle of mean(s x x'), row by row
    steepness: Array  # mean(s), with s the derivative of the logistic function
    acceptance: Array  # the mean propensity, and its gradient
    acceptance_slope: Entries


class Response(NamedTuple):
    """What a policy does with rows at theta."""

    propensity: Array
    decision: Array  # the propensity, or a decision drawn with it
    gradients: Callable[[Entries], list[Theta]]  # of `sum_i weights_i decision_i`
    around: Surroundings | None


Respond = Callable[[Theta, Any, Array], Response]  # of theta, inputs, and where to draw from


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


def linear_scores(theta: Entries, inputs: Array) -> Array:
    """Return `theta . inputs`, as sums that fuse with what follows."""
    return sum(entry * column for entry, column in zip(theta, inputs, strict=True))


def linear_response(link: LinkNumbers, key: Array | None) -> Respond:
    """Return the response of a linear policy; with a key, decisions are drawn."""

    def respond(theta: Entries, inputs: Array, position: Array) -> Response:
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

        def gradients(weights: Entries) -> list[Entries]:
            return [[(each * slope * column).sum() for column in inputs] for each in weights]

        around = Surroundings(
            [
                (steepness * inputs[j] * inputs[k]).sum() / size
                for j in range(len(inputs))
                for k in range(j + 1)
            ],
            steepness.mean(),
            propensity.mean(),
            [(derivative * column).sum() / size for column in inputs],
        )
        return Response(propensity, decision, gradients, around)

    return respond


def differentiable_response(
    function: Callable[..., Any], unravel: Callable[[Array], Any], floor: Array
) -> Respond:
    """Return the response of a `DifferentiablePolicy`, for theta as a vector.

    Inputs have rows along their last axis.
    """

    def respond(theta: Array, inputs: tuple[Array, ...], position: Array) -> Response:
        def propensities(theta: Array) -> Array:
            return floor + (1.0 - floor) * function(unravel(theta), *(part.T for part in inputs))

        propensity, pull = jax.vjp(propensities, theta)

        def gradients(weights: Entries) -> list[Array]:
            return list(jax.vmap(pull)(jnp.stack(weights))[0])

        return Response(propensity, propensity, gradients, None)

    return respond
