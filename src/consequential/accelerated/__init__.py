"""Policies without a formula: any that JAX can differentiate. `pip install '.[jax]'`."""

from consequential.accelerated.differentiable import DifferentiablePolicy, UpdateDifferentiable

__all__ = ["DifferentiablePolicy", "UpdateDifferentiable"]
