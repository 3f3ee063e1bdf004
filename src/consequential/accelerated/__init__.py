"""What JAX adds: any differentiable policy. `pip install consequential[jax]`."""

from consequential.accelerated.differentiable import DifferentiableUpdate, UpdateDifferentiable
from consequential.accelerated.policy import DifferentiablePolicy

__all__ = ["DifferentiablePolicy", "DifferentiableUpdate", "UpdateDifferentiable"]
