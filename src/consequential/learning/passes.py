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
    propensities_and_derivatives,
)

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

# rows whose scores are held at a time, and rows summed up before they join the total: the
# latter is fixed so that a sum does not depend on the number of threads
_TILE = 256
_STRETCH = 16_384


@dataclass(frozen=True, slots=True)
class Rows:
    """What a pass reads: inputs without their constant, and columns of coefficients.

    `apart` gives each group parameters of its own. With `squares` a last column is added, the
    sum of the squared terms of the first one, by which its variance is known.
    """

    inputs: Floats  # (n, k)
    columns: Floats  # (C, n)
    group: Codes
    n_groups: int
    apart: bool = False
    squares: bool = False

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
            add_stretch(
                self.inputs,
                self.columns,
                self.group,
                self.apart,
                self.squares,
                blocks,
                link,
                start,
                min(start + _STRETCH, n),
                total,
            )
            return total

        with compiling_reported("the solver"):
            return _added_up(stretch, n, n_threads)

    def curvature(
        self, theta: Floats, link: Bend, weights: Floats, n_threads: int | None = None
    ) -> Floats:
        """Return the second derivative of `sums`, weighted by column and group, in theta."""
        n, k = self.inputs.shape
        blocks = np.ascontiguousarray(theta).reshape(-1, k + 1)

        def stretch(start: int) -> Floats:
            total = np.zeros((len(blocks), k + 1, k + 1))
            add_curvature(
                self.inputs,
                self.columns,
                self.group,
                self.apart,
                self.squares,
                blocks,
                link,
                weights,
                start,
                min(start + _STRETCH, n),
                total,
            )
            return total

        with compiling_reported("the solver"):
            triangles = _added_up(stretch, n, n_threads)
        total = np.zeros((theta.size, theta.size))
        for z, triangle in enumerate(triangles):
            here = slice(z * (k + 1), (z + 1) * (k + 1))
            total[here, here] = np.tril(triangle) + np.tril(triangle, -1).T
        return total


def moments(inputs: Floats) -> tuple[Floats, Floats]:
    """Return the inputs' means and deviations; 1 for an input that does not vary."""
    n, shift = len(inputs), inputs[:_STRETCH].mean(axis=0)

    def stretch(start: int) -> Floats:
        # near the mean squares lose no digits
        part = inputs[start : start + _STRETCH] - shift
        return np.stack([part.sum(axis=0), np.einsum("ij,ij->j", part, part)])

    mean, square = _added_up(stretch, n) / n
    centre, scale = shift + mean, np.sqrt(np.maximum(square - mean * mean, 0.0))
    tiny = 1e-12 * np.maximum(np.abs(centre), 1.0)
    return centre, np.where(scale > tiny, scale, 1.0)


def _added_up(stretch: Callable[[int], Floats], n: int, n_threads: int | None = None) -> Floats:
    """Return the sum of what a function says of stretches of n rows, given where they start."""
    starts = range(0, n, _STRETCH)
    if len(starts) == 1 or n_threads == 1:
        return sum(map(stretch, starts), np.zeros(1))
    return sum(_pool(n_threads or _n_threads()).map(stretch, starts), np.zeros(1))


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that stay: a pass over a sample is shorter than their start."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="passes")


def _n_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@compiled
def _turn(inputs: Floats, first: int, length: int, turned: Floats) -> None:
    """Copy rows so that each input lies along people, where every loop can run."""
    k, whole = inputs.shape[1], length - length % 4
    for i in range(0, whole, 4):  # four people at a time, whose numbers are stored as one vector
        one, two = inputs[first + i], inputs[first + i + 1]
        three, four = inputs[first + i + 2], inputs[first + i + 3]
        for j in range(k):
            column = turned[j]
            column[i], column[i + 1] = one[j], two[j]
            column[i + 2], column[i + 3] = three[j], four[j]
    for i in range(whole, length):
        for j in range(k):
            turned[j, i] = inputs[first + i, j]


@compiled
def _scores(turned: Floats, weights: Floats, eta: Floats) -> None:
    for i in range(eta.size):
        eta[i] = weights[0]
    k = weights.size - 1
    for j in range(0, k - 1, 2):
        one, other = turned[j, : eta.size], turned[j + 1, : eta.size]
        a, b = weights[1 + j], weights[2 + j]
        for i in range(eta.size):
            eta[i] += a * one[i] + b * other[i]
    if k % 2:
        one, a = turned[k - 1, : eta.size], weights[k]
        for i in range(eta.size):
            eta[i] += a * one[i]


@compiled
def _scores_apart(turned: Floats, theta: Floats, group: Codes, eta: Floats, room: Floats) -> None:
    for z in range(theta.shape[0]):
        _scores(turned, theta[z], room)
        for i in range(eta.size):
            eta[i] = room[i] if group[i] == z else eta[i]


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
def _add_pair(one: Floats, other: Floats, turned: Floats, sums: Floats, more: Floats) -> None:
    """Add the products of two weighted columns with every input; loading inputs is the cost."""
    a, b = 0.0, 0.0
    for i in range(one.size):
        a += one[i]
        b += other[i]
    sums[0] += a
    more[0] += b
    for j in range(sums.size - 1):
        column = turned[j, : one.size]
        a, b = 0.0, 0.0
        for i in range(one.size):
            a += one[i] * column[i]
            b += other[i] * column[i]
        sums[1 + j] += a
        more[1 + j] += b


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
    k, n_columns, n_groups = inputs.shape[1], sums.shape[0], sums.shape[1]
    turned = np.empty((k, _TILE))
    eta, chance, slope = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE)
    room, spare = np.empty(_TILE), np.zeros(k + 1)
    weighted = np.empty((n_groups + 1, _TILE))
    for first in range(start, stop, _TILE):
        length = min(_TILE, stop - first)
        here = group[first : first + length]
        _turn(inputs, first, length, turned)
        if apart:
            _scores_apart(turned, theta, here, eta[:length], room[:length])
        else:
            _scores(turned, theta[0], eta[:length])
        propensities_and_derivatives(
            link, eta[:length], chance[:length], slope[:length], room[:length]
        )
        for c in range(n_columns):
            column = columns[min(c, columns.shape[0] - 1), first : first + length]
            if c == columns.shape[0]:
                # (A pi)^2, whose derivative is 2 A^2 pi g'
                column = room[:length]
                for i in range(length):
                    column[i] = columns[0, first + i] ** 2 * chance[i]
                    slope[i] *= 2.0
            for z in range(n_groups):
                sums[c, z, 0] += _weigh(
                    column, chance[:length], slope[:length], here, z, weighted[z, :length]
                )
            for z in range(0, n_groups, 2):
                pair = weighted[z + 1, :length]
                more = sums[c, z + 1, 1:] if z + 1 < n_groups else spare
                if z + 1 == n_groups:
                    pair[:] = 0.0
                _add_pair(weighted[z, :length], pair, turned, sums[c, z, 1:], more)


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
    k, n_columns = inputs.shape[1], columns.shape[0]
    phi, room = np.ones((k + 1, _TILE)), np.empty(_TILE)
    eta, chance, slope, of_row = (
        np.empty(_TILE), np.empty(_TILE), np.empty(_TILE), np.empty(_TILE),
    )  # fmt: skip
    for first in range(start, stop, _TILE):
        length = min(_TILE, stop - first)
        here = group[first : first + length]
        _turn(inputs, first, length, phi[1:])
        if apart:
            _scores_apart(phi[1:], theta, here, eta[:length], room[:length])
        else:
            _scores(phi[1:], theta[0], eta[:length])
        propensities_and_derivatives(
            link, eta[:length], chance[:length], slope[:length], room[:length]
        )
        for i in range(length):
            total, z = 0.0, here[i]
            for c in range(n_columns):
                total += weights[c, z] * columns[c, first + i]
            bent = -slope[i] * np.tanh(eta[i] / 2.0)
            of_row[i] = total * bent
            if squares:
                # (A pi)^2 has the second derivative 2 A^2 (pi'^2 + pi pi'')
                change = slope[i] * slope[i] + chance[i] * bent
                of_row[i] += weights[n_columns, z] * 2.0 * columns[0, first + i] ** 2 * change
        for z in range(sums.shape[0]):
            for i in range(length):
                room[i] = of_row[i] if not apart or here[i] == z else 0.0
            add_squares(room[:length], phi, 0, sums[z])
