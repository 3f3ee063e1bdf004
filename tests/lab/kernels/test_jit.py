"""The compiler: its cache, without a place for one, and switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import numba
import pytest

from consequential.lab.kernels import jit

TINY = """
from consequential.lab.kernels.jit import compiled

@compiled
def twice(x):
    return 2.0 * x
"""

# a simulation, small enough for plain Python
SMALL = """
import numpy as np
import consequential as cq

world = cq.worlds.second_setting()
strategy = cq.lab.LearnToDecide("logistic")
runs = cq.simulate(world, strategy, seeds=1, time_steps=1, n_proposals=40, progress=False)
print(*runs.runs[0].thetas[-1])
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that imports a kernel anew, as another process would."""
    file = tmp_path / "tiny.py"
    file.write_text(TINY)

    def imported():
        spec = spec_from_file_location("tiny", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.twice

    return imported


def is_from_cache(kernel) -> bool:
    assert kernel(1.5) == 3.0
    return bool(kernel.stats.cache_hits)


def test_a_kernel_is_compiled_once(load):
    assert [is_from_cache(load()) for _ in range(2)] == [False, True]


def test_without_a_place_for_the_cache_every_process_compiles(load, tmp_path, monkeypatch):
    # as in a container whose installation and home are read-only, also for root
    (tmp_path / "__pycache__").touch()
    monkeypatch.setenv("HOME", os.devnull)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(jit, "_once", jit._once)
    assert [is_from_cache(load()) for _ in range(2)] == [False, False]
    assert "NUMBA_CACHE_DIR" in jit._once  # which is what a long compilation says


def test_without_compilation_the_numbers_are_the_same():
    def numbers(**changes):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SMALL],
            env=os.environ | changes, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return [float(word) for word in done.stdout.split()]

    assert numbers(NUMBA_DISABLE_JIT="1") == pytest.approx(numbers(), rel=1e-6)
