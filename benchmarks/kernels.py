"""Kernels: one pass of an ascent beside the least it could cost, and others by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
from measure import alternately

from consequential.lab.kernels.batch_sums import (
    BatchRows,
    Benefits,
    batch_shares,
    update_products,
    weigh_row,
)
from consequential.lab.kernels.compiled_ascent import Ascent, ascend
from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import exponential_ratio, linear_scores, responses
from consequential.lab.kernels.matrices import mean_squares
from consequential.policy.links import LinkNumbers

_N, _BATCH, _TIMES = 2**15, 512, 40
LOGISTIC = LinkNumbers(1.0, 0.0, 0.0)


@compiled
def _floor(x, a, b, times):
    """One exponential per sample and the gradient's multiply-adds; nothing else."""
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
def _gradients(inputs, utility, link, theta, size, times):
    """Take the gradient of the utility from one minibatch after the other, as an ascent does."""
    eta, propensity = np.empty(size), np.empty(size)
    derivative, steepness = np.empty(size), np.empty(size)
    weighted, gradient = np.empty((1, size)), np.zeros((1, theta.size))
    total = 0.0
    for repeat in range(times):
        theta[0] = 1e-3 * repeat
        for start in range(0, utility.size, size):
            linear_scores(theta, inputs, start, eta)
            responses(link, eta, propensity, derivative, steepness)
            weigh_row(utility, start, derivative, weighted)
            update_products(weighted, inputs, start, size, 0.0, 1.0, gradient, False)
            total += gradient.sum()
    return total


def some_rows(n: int, n_features: int, batch_size: int) -> BatchRows:
    """Return rows of two groups, for demographic parity."""
    rng = np.random.default_rng(0)
    inputs = np.ones((n_features + 1, n))
    inputs[1:] = rng.normal(size=(n_features, n))
    group = rng.integers(2, size=n).astype(np.int16)
    sizes = np.bincount(group)
    columns = np.stack([(group == z) / sizes[z] for z in range(2)])
    benefits = Benefits(np.zeros((1, 2)), np.ones((1, 2), dtype=bool), np.array([False]), sizes / n)
    shares = batch_shares(group, batch_size, 2)
    return BatchRows(inputs, rng.normal(size=n) / n, columns, shares, benefits, float(n))


def some_ascent(n: int, batch_size: int, penalty: float) -> Ascent:
    return Ascent(n // batch_size, batch_size, 1024, penalty, False, True, 0.1, 1e-3, 0.1, 0.5)


def ascent_of(*, n_rows: int, n_features: int) -> Callable[[], object]:
    """Return an ascent that passes once over so many rows, from where another has led.

    First steps are long and take more time each; how many they are does not grow with rows.
    """
    rows, ascent = some_rows(n_rows, n_features, 256), some_ascent(n_rows, 256, 10.0)
    scale, theta, key = mean_squares(rows.inputs), np.zeros(n_features + 1), np.uint64(1)
    near, _ = ascend(rows, LOGISTIC, ascent, theta, scale, key)
    return lambda: ascend(rows, LOGISTIC, ascent, near, scale, key)


def arithmetic_in_threads(n: int) -> Callable[[], object]:
    """Return the same amount of pure arithmetic, split among threads."""
    eta = np.random.default_rng(0).normal(size=1024)

    def task() -> None:
        with ThreadPoolExecutor(n) as pool:
            list(pool.map(lambda _: _repeated(LOGISTIC, eta, 60_000 // n), range(n)))

    return task


@compiled
def _repeated(link, eta, times):
    propensity, derivative, steepness = np.empty(eta.size), np.empty(eta.size), np.empty(eta.size)
    for _ in range(times):
        responses(link, eta, propensity, derivative, steepness)


def gradient_kernel(report, repeats: int) -> None:
    """Samples per second of the gradient, its floor, and whether both are vectorised."""
    rows, theta = some_rows(_N, 1, _BATCH), np.array([0.0, 0.7])
    x, a = np.ascontiguousarray(rows.inputs[1]), rows.utility
    took = alternately(
        {
            "floor": lambda: _floor(x, a, 0.7, _TIMES),
            "gradient": lambda: _gradients(rows.inputs, a, LOGISTIC, theta, _BATCH, _TIMES),
            "scalar": lambda: _scalar(x, a, 0.7, _TIMES),
        },
        4 * repeats + 1,
    )
    each = {name: 1e9 * seconds / (_N * _TIMES) for name, seconds in took.items()}
    report.figures["million sample gradients per second"] = 1e3 / each["gradient"]
    report.say(
        f"| million sample gradients per second, one thread | {1e3 / each['gradient']:.3g} | | |"
    )
    report.say(f"| floor, ns per sample | {each['floor']:.3g} | | |")
    report.promise(
        "gradient kernel against its floor", each["gradient"] / each["floor"], at_most=3.0
    )
    report.promise(
        "floor against a scalar loop (vectorised?)", each["floor"] / each["scalar"], at_most=0.7
    )
