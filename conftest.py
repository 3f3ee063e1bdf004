"""Settings and fixtures of all tests, those in docstrings and on pages included."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile

# Before NumPy is imported: matrices are small here, and more threads would only wait for one
# another, at twenty times the processor time.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

_FONTS = "MPLCONFIGDIR"  # where matplotlib keeps its list of fonts


def pytest_configure(config: pytest.Config) -> None:
    """Make a list of fonts for this run, before any worker or tested process needs it.

    The list in the user's home may be missing or, written while an environment was being removed,
    incomplete: matplotlib then writes to standard error, which tests of commands read.
    """
    if _FONTS not in os.environ:
        folder = tempfile.mkdtemp(prefix="consequential-fonts-")
        os.environ[_FONTS] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        import matplotlib.font_manager  # noqa: F401


def pytest_collection() -> None:
    """Collect tests without collecting garbage: all that is imported stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was imported out of later searches for garbage, which go through every object."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator that is the same for every test."""
    return np.random.default_rng(20_200_626)
