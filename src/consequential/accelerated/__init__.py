"""What JAX adds: sweeps on a GPU, any differentiable policy. `pip install consequential[jax]`."""

from consequential.accelerated.differentiable import UpdateDifferentiable
from consequential.accelerated.policy import DifferentiablePolicy

__all__ = ["DifferentiablePolicy", "UpdateDifferentiable"]
