"""What JAX adds: any differentiable policy. `pip install consequential[jax]`."""

from consequential.accelerated.differentiable import (
    DifferentiablePolicy,
    DifferentiableUpdate,
    UpdateDifferentiable,
)

__all__ = ["DifferentiablePolicy", "DifferentiableUpdate", "UpdateDifferentiable"]
