"""Settings and fixtures of all tests."""

from __future__ import annotations

import os

# Before NumPy is imported: matrices are small here, and more threads would only wait for one
# another, at twenty times the processor time.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_200_626)
