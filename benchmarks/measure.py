"""Timing: alternately, in one run, and compared as ratios."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).parent.parent / "src"


def alternately(
    tasks: dict[str, Callable[[], object]],
    repeats: int,
    of: Callable[[list[float]], float] = statistics.median,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median (or other) seconds of each task, in turns so that noise hits all alike."""
    for task in tasks.values():
        task()  # compiles, and fills caches
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            start = clock()
            task()
            seconds[name].append(clock() - start)
    return {name: of(values) for name, values in seconds.items()}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of log seconds in log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def in_fresh_process(code: str) -> str:
    """Run code in a new interpreter and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()


def machine() -> str:
    """Say where this was measured."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    flags = ""
    if info.exists():
        text = info.read_text()
        names = [line.split(":")[1].strip() for line in text.splitlines() if "model name" in line]
        model = names[0] if names else model
        flags = ", AVX-512" if "avx512f" in text else ", AVX2" if "avx2" in text else ""
    return f"{os.cpu_count()} cores, {model}{flags}, Python {platform.python_version()}"
