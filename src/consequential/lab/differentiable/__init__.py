"""Policies without a formula: any that JAX can differentiate. `pip install '.[jax]'`."""

from consequential.lab.differentiable.differentiable import (
    DifferentiablePolicy,
    UpdateDifferentiable,
)

__all__ = ["DifferentiablePolicy", "UpdateDifferentiable"]
