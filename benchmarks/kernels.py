"""The gradient kernel beside the least it could cost, and other single kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
from consequential.learning.kernel import Ascent, ascend
from consequential.learning.matrices import mean_squares
from consequential.learning.sums import Rows, gradient_of_two
from measure import alternately

from consequential.policies.compiled import compiled, derivatives, exponential_ratio

_N, _BATCH, _TIMES = 2**15, 512, 40
LOGISTIC = LinkNumbers(1.0, 0.0, 0.0)


@compiled
def _floor(x, a, b, times):
    """One exponential a sample and the gradient's multiply-adds; nothing else."""
    one, other = 0.0, 0.0
    for repeat in range(times):
        shift = 1e-3 * repeat
        for i in range(x.size):
            above, below = exponential_ratio(-abs(shift + b * x[i]))
            weighted = a[i] * above / below
            one += weighted
            other += weighted * x[i]
    return one + other


@numba.njit
def _scalar(x, a, b, times):
    """The same by the library's exponential, one sample at a time."""
    one, other = 0.0, 0.0
    for repeat in range(times):
        shift = 1e-3 * repeat
        for i in range(x.size):
            weighted = a[i] * math.exp(-abs(shift + b * x[i]))
            one += weighted
            other += weighted * x[i]
    return one + other


@compiled
def _gradients(phi, utility, link, theta, size, times):
    one, other = 0.0, 0.0
    for repeat in range(times):
        theta[0] = 1e-3 * repeat
        for start in range(0, utility.size, size):
            first, second = gradient_of_two(phi, utility, start, size, link, theta)
            one += first
            other += second
    return one + other


def some_rows(n: int, n_features: int) -> Rows:
    rng = np.random.default_rng(0)
    phi = np.ones((n_features + 1, n))
    phi[1:] = rng.normal(size=(n_features, n))
    group = rng.integers(2, size=n)
    return Rows(
        phi,
        rng.normal(size=n) / n,
        np.where(group == 0, 1.0, 1.0)[None] * 2.0 / n,
        np.zeros((0, n)),
        np.array([False]),
        group.astype(np.int16),
        np.zeros((1, 2)),
        np.ones((1, 2), dtype=bool),
        0.0,
        float(n),
        np.bincount(group) / n,
    )


def some_ascent(n: int, batch_size: int, penalty: float) -> Ascent:
    return Ascent(n // batch_size, batch_size, 1024, penalty, False, True, 0.1, 1e-3, 0.1, 0.5)


def ascent_of(*, n_rows: int, n_features: int) -> Callable[[], object]:
    """Return an ascent that passes once over so many rows, from where another has led.

    First steps are long and take more time each; how many they are does not grow with rows.
    """
    rows, ascent = some_rows(n_rows, n_features), some_ascent(n_rows, 256, 10.0)
    scale, theta = mean_squares(rows.phi), np.zeros(n_features + 1)
    none, key = np.empty(0), np.uint64(1)
    near, _ = ascend(rows, LOGISTIC, ascent, theta, scale, key, none, none)
    return lambda: ascend(rows, LOGISTIC, ascent, near, scale, key, none, none)


def arithmetic_in_threads(n: int) -> Callable[[], object]:
    """Return the same amount of pure arithmetic, split among threads."""
    eta, out = np.random.default_rng(0).normal(size=1024), [np.empty(1024) for _ in range(2)]
    work = _repeated

    def task() -> None:
        with ThreadPoolExecutor(n) as pool:
            list(pool.map(lambda k: work(LOGISTIC, eta, out[k], 60_000 // n), range(n)))

    return task


@compiled
def _repeated(link, eta, out, times):
    for _ in range(times):
        derivatives(link, eta, out)


def gradient_kernel(report, repeats: int) -> None:
    """Samples a second of the gradient, its floor, and whether both are vectorised."""
    rows, theta = some_rows(_N, 1), np.array([0.0, 0.7])
    x, a = np.ascontiguousarray(rows.phi[1]), rows.utility
    took = alternately(
        {
            "floor": lambda: _floor(x, a, 0.7, _TIMES),
            "gradient": lambda: _gradients(rows.phi, a, LOGISTIC, theta, _BATCH, _TIMES),
            "scalar": lambda: _scalar(x, a, 0.7, _TIMES),
        },
        4 * repeats + 1,
    )
    each = {name: 1e9 * seconds / (_N * _TIMES) for name, seconds in took.items()}
    report.figures["million sample gradients a second"] = 1e3 / each["gradient"]
    report.say(
        f"| million sample gradients a second, one thread | {1e3 / each['gradient']:.3g} | | |"
    )
    report.say(f"| floor, ns a sample | {each['floor']:.3g} | | |")
    report.promise(
        "gradient kernel against its floor", each["gradient"] / each["floor"], at_most=1.6
    )
    report.promise(
        "floor against a scalar loop (vectorised?)", each["floor"] / each["scalar"], at_most=0.7
    )
