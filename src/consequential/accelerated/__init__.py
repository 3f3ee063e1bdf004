"""What JAX adds: sweeps on a GPU, any differentiable policy. `pip install '.[jax]'`."""

from consequential.accelerated.differentiable import DifferentiablePolicy, UpdateDifferentiable

__all__ = ["DifferentiablePolicy", "UpdateDifferentiable"]
