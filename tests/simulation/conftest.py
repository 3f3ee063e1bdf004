"""Fixtures of the simulation's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def quick_jax():
    """Return JAX if it is installed, compiling with few optimisations: programs here are small."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_disable_most_optimizations", True)
    yield jax
    jax.config.update("jax_disable_most_optimizations", False)
