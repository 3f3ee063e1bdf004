"""One pass over a log: every functional at a theta, with its gradient.

Sums over rows are additive, so a pass is a sum over stretches of rows, wherever they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from consequential.learning.sums import add_squares
from consequential.policies.compiled import (
    Bend,
    compiled,
    compiling_reported,
    linear_scores,
    propensities_and_derivatives,
)

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

# rows whose scores are held at a time, and rows summed up before they join the total: the
# latter is fixed so that a sum does not depend on the number of threads
_TILE = 128
_STRETCH = 16_384


@dataclass(frozen=True, slots=True)
class Rows:
    """What a pass reads: inputs without their constant, and columns of coefficients.

    `apart` gives each group parameters of its own. With `squares` a last column is added, the
    sum of the squared terms of the first one, by which its variance is known. `fixed` is what
    people add to the sums whose propensity does not depend on theta; their columns are 0.
    """

    inputs: Floats  # (n, k)
    columns: Floats  # (C, n)
    group: Codes
    n_groups: int
    apart: bool = False
    squares: bool = False
    fixed: Floats | None = None  # by column, squares included, and group

    @property
    def n_parameters(self) -> int:
        """How many numbers theta has."""
        n_inputs: int = self.inputs.shape[1] + 1
        return n_inputs * self.n_groups if self.apart else n_inputs

    def take(self, rows: NDArray[np.intp]) -> Rows:
        """Return some of the rows, their columns scaled up to all."""
        scale = len(self.group) / len(rows)
        return Rows(
            self.inputs[rows],
            scale * self.columns[:, rows],
            self.group[rows],
            self.n_groups,
            self.apart,
            self.squares,
            self.fixed,
        )

    def sums(self, theta: Floats, link: Bend, n_threads: int | None = None) -> Floats:
        """Return sums over rows by column and group: the functional, then its gradient.

        The gradient of a group's sum is that in the parameters the group is decided by.
        """
        n, k = self.inputs.shape
        blocks = np.ascontiguousarray(theta).reshape(-1, k + 1)

        def stretch(start: int) -> Floats:
            n_columns = len(self.columns) + self.squares
            total = np.zeros((n_columns, self.n_groups, k + 2))
            add_stretch(*self._read(), blocks, link, start, min(start + _STRETCH, n), total)
            return total

        with compiling_reported("the solver"):
            total = _added_up(stretch, n, n_threads)
        if self.fixed is not None:
            total[:, :, 0] += self.fixed
        return total

    def curvature(
        self, theta: Floats, link: Bend, weights: Floats, n_threads: int | None = None
    ) -> Floats:
        """Return the second derivative of `sums`, weighted by column and group, in theta."""
        n, k = self.inputs.shape
        blocks = np.ascontiguousarray(theta).reshape(-1, k + 1)

        def stretch(start: int) -> Floats:
            total = np.zeros((len(blocks), k + 1, k + 1))
            stop = min(start + _STRETCH, n)
            add_curvature(*self._read(), blocks, link, weights, start, stop, total)
            return total

        with compiling_reported("the solver"):
            triangles = _added_up(stretch, n, n_threads)
        total = np.zeros((theta.size, theta.size))
        for z, triangle in enumerate(triangles):
            here = slice(z * (k + 1), (z + 1) * (k + 1))
            total[here, here] = np.tril(triangle) + np.tril(triangle, -1).T
        return total

    def totals(self) -> Floats:
        """Return the columns' sums by group, and after them what is fixed.

        Together they are `sums` where everybody is accepted whose propensity is not fixed.
        """
        squares = [self.columns[0] ** 2] if self.squares else []
        columns = [*self.columns, *squares]
        total = np.stack([np.bincount(self.group, column, self.n_groups) for column in columns])
        return np.stack([total, np.zeros_like(total) if self.fixed is None else self.fixed])

    def _read(self) -> tuple[Floats, Floats, Codes, bool, bool]:
        return self.inputs, self.columns, self.group, self.apart, self.squares


def moments(inputs: Floats) -> tuple[Floats, Floats]:
    """Return the inputs' means and deviations; 1 for an input that does not vary."""
    # near the mean squares lose no digits
    n, shift = len(inputs), inputs[:_STRETCH].mean(axis=0)

    def stretch(start: int) -> Floats:
        total = np.zeros((2, inputs.shape[1]))
        _add_moments(inputs, shift, start, min(start + _STRETCH, n), total[0], total[1])
        return total

    mean, square = _added_up(stretch, n) / n
    centre, scale = shift + mean, np.sqrt(np.maximum(square - mean * mean, 0.0))
    tiny = 1e-12 * np.maximum(np.abs(centre), 1.0)
    return centre, np.where(scale > tiny, scale, 1.0)


def _added_up(stretch: Callable[[int], Floats], n: int, n_threads: int | None = None) -> Floats:
    """Return the sum of what a function says of stretches of n rows, given where they start."""
    starts = range(0, n, _STRETCH)
    found: list[Floats] = [np.zeros(1)] * len(starts)
    left = iter(enumerate(starts))

    def work() -> None:
        for k, start in left:  # each goes to the thread that asks for it first
            found[k] = stretch(start)

    # this thread works as well: to wake another takes as long as many rows
    n_others = min(n_threads or _n_threads(), len(starts)) - 1
    others = [_pool(n_others).submit(work) for _ in range(n_others)]
    work()
    for other in others:
        other.result()
    return sum(found, np.zeros(1))


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that stay: a pass over a sample is shorter than their start."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="passes")


def _n_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@compiled
def _add_moments(
    inputs: Floats, shift: Floats, start: int, stop: int, sums: Floats, squares: Floats
) -> None:
    """Add how far rows are beyond a shift, and the squares of it."""
    k = np.uint64(shift.size)
    for i in range(np.uint64(start), np.uint64(stop)):
        for j in range(k):
            beyond = inputs[i, j] - shift[j]
            sums[j] += beyond
            squares[j] += beyond * beyond


@compiled
def _turn(inputs: Floats, first: int, length: int, phi: Floats) -> None:
    """Copy rows so that each input lies along people, where every loop can run."""
    k, whole = inputs.shape[1], length - length % 4
    for i in range(0, whole, 4):  # four people at a time, whose numbers are stored as one vector
        one, two = inputs[first + i], inputs[first + i + 1]
        three, four = inputs[first + i + 2], inputs[first + i + 3]
        for j in range(k):
            column = phi[j + 1]
            column[i], column[i + 1] = one[j], two[j]
            column[i + 2], column[i + 3] = three[j], four[j]
    for i in range(whole, length):
        for j in range(k):
            phi[j + 1, i] = inputs[first + i, j]


@compiled
def _look_at(
    inputs: Floats, group: Codes, apart: bool, theta: Floats, link: Bend, first: int, phi: Floats,
    eta: Floats, chance: Floats, slope: Floats, room: Floats,
) -> None:  # fmt: skip
    """Fill in inputs, of which the constant is there, scores, propensities and their slopes."""
    _turn(inputs, first, eta.size, phi)
    linear_scores(theta[0], phi, 0, eta)
    for z in range(1, theta.shape[0] if apart else 1):
        linear_scores(theta[z], phi, 0, room)
        for i in range(eta.size):
            eta[i] = room[i] if group[first + i] == z else eta[i]
    propensities_and_derivatives(link, eta, chance, slope, room)


@compiled
def _weigh(
    column: Floats, chance: Floats, slope: Floats, group: Codes, z: int, weighted: Floats
) -> float:
    """Fill in `column * slope` of one group, and return its sum of `column * chance`."""
    total = 0.0
    for i in range(weighted.size):
        value = column[i] if group[i] == z else 0.0
        weighted[i] = value * slope[i]
        total += value * chance[i]
    return total


@compiled
def _add_products(weighted: Floats, first: int, n_rows: int, phi: Floats, sums: Floats) -> None:
    """Add the products of four weighted columns with all inputs, two at a time.

    Loading is the cost.
    """
    n, m = np.uint64(n_rows), phi.shape[0]
    p, q, r, s = weighted[first], weighted[first + 1], weighted[first + 2], weighted[first + 3]
    for j in range(0, m, 2):
        beside = min(j + 1, m - 1)
        one, two = phi[j], phi[beside]
        a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            a += p[i] * one[i]
            b += q[i] * one[i]
            c += r[i] * one[i]
            d += s[i] * one[i]
            e += p[i] * two[i]
            f += q[i] * two[i]
            g += r[i] * two[i]
            h += s[i] * two[i]
        sums[first, j] += a
        sums[first + 1, j] += b
        sums[first + 2, j] += c
        sums[first + 3, j] += d
        if beside > j:
            sums[first, beside] += e
            sums[first + 1, beside] += f
            sums[first + 2, beside] += g
            sums[first + 3, beside] += h


@compiled
def add_stretch(
    inputs: Floats,
    columns: Floats,
    group: Codes,
    apart: bool,
    squares: bool,
    theta: Floats,
    link: Bend,
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    """Add the rows from `start` to `stop` to `sums[column, group]`: value, then gradient."""
    m, n_columns, n_groups = inputs.shape[1] + 1, sums.shape[0], sums.shape[1]
    phi, scores = np.ones((m, _TILE)), np.empty((4, _TILE))
    n_weighted = (n_columns * n_groups + 3) // 4 * 4
    weighted, products = np.zeros((n_weighted, _TILE)), np.zeros((n_weighted, m))
    for first in range(start, stop, _TILE):
        n = min(_TILE, stop - first)
        eta, chance, slope, room = scores[0, :n], scores[1, :n], scores[2, :n], scores[3, :n]
        _look_at(inputs, group, apart, theta, link, first, phi, eta, chance, slope, room)
        for c in range(n_columns):
            column = columns[min(c, columns.shape[0] - 1), first : first + n]
            if c == columns.shape[0]:
                # (A pi)^2, whose derivative is 2 A^2 pi g'
                column = room
                for i in range(n):
                    column[i] = columns[0, first + i] ** 2 * chance[i]
                    slope[i] *= 2.0
            for z in range(n_groups):
                sums[c, z, 0] += _weigh(
                    column, chance, slope, group[first : first + n], z,
                    weighted[c * n_groups + z, :n],
                )  # fmt: skip
        for k in range(0, n_weighted, 4):
            _add_products(weighted, k, n, phi, products)
    for c in range(n_columns):
        for z in range(n_groups):
            for j in range(m):
                sums[c, z, 1 + j] += products[c * n_groups + z, j]


@compiled
def add_curvature(
    inputs: Floats,
    columns: Floats,
    group: Codes,
    apart: bool,
    squares: bool,
    theta: Floats,
    link: Bend,
    weights: Floats,
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    """Add the rows' second derivatives to `sums[block]`, at least to its lower triangle.

    They are a number a row, made from the weights of its columns, times the squares of its inputs.
    """
    n_columns = columns.shape[0]
    phi, scores = np.ones((inputs.shape[1] + 1, _TILE)), np.empty((5, _TILE))
    for first in range(start, stop, _TILE):
        n = min(_TILE, stop - first)
        eta, chance, slope, room = scores[0, :n], scores[1, :n], scores[2, :n], scores[3, :n]
        of_row = scores[4, :n]
        _look_at(inputs, group, apart, theta, link, first, phi, eta, chance, slope, room)
        for i in range(n):
            total, z = 0.0, group[first + i]
            for c in range(n_columns):
                total += weights[c, z] * columns[c, first + i]
            bent = -slope[i] * np.tanh(eta[i] / 2.0)
            of_row[i] = total * bent
            if squares:
                # (A pi)^2 has the second derivative 2 A^2 (pi'^2 + pi pi'')
                change = slope[i] * slope[i] + chance[i] * bent
                of_row[i] += weights[n_columns, z] * 2.0 * columns[0, first + i] ** 2 * change
        for z in range(sums.shape[0]):
            for i in range(n):
                room[i] = of_row[i] if not apart or group[first + i] == z else 0.0
            add_squares(room, phi, 0, sums[z])
