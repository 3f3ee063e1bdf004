"""Batch sums: the pass over rows, in which functionals and their gradients are added up.

Every functional of a policy is `sum_i column_i pi_i`, and its gradient
`sum_i column_i pi'_i inputs_i`. Columns and inputs have one row per column and per input, so that
every loop runs along the rows of the log. Minibatches, chunks of a large log and whole logs are all
added up here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import linear_scores, propensities, response
from consequential.lab.kernels.random import fill_uniforms
from consequential.objective.functionals import NOBODY
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]

CHUNK = 1024


class Benefits(NamedTuple):
    """How the sums of columns become benefits: `(constant + numerator) / denominator`."""

    constant: Floats  # (benefits, groups)
    defined: NDArray[np.bool_]  # (benefits, groups)
    is_ratio: NDArray[np.bool_]  # (benefits,): whether there is a denominator
    shares: Floats  # (groups,): of all rows of the log


class BatchRows(NamedTuple):
    """Rows of a log in the order in which they are read.

    A benefit has a column for each group, 0 for the rows of other groups: first the numerators of
    all benefits, then, if any benefit is a ratio, the denominators. Coefficients are those of the
    whole log of `total` rows, of which these may be a part.
    """

    inputs: Floats  # (inputs, n)
    utility: Floats  # (n,)
    columns: Floats  # (numerators and denominators x benefits x groups, n)
    batch_shares: Floats  # (minibatches, groups): the groups' shares of each minibatch
    benefits: Benefits
    total: float


# Each function below takes arrays one by one: taking one out of a tuple costs two atomic operations
# for Numba's reference counts, as long as a short loop. Indices are unsigned, because a possibly
# negative index would keep a loop from being vectorised.


@compiled
def batch_shares(group: Codes, size: int, n_groups: int) -> Floats:
    """Return the groups' shares of minibatches of a size, (minibatches, groups)."""
    shares = np.empty((group.size // size, n_groups))
    for at in range(shares.shape[0]):
        first = np.uint64(at * size)
        for z in range(n_groups):
            count = 0
            for i in range(np.uint64(size)):
                count += group[first + i] == z
            shares[at, z] = count / size
    return shares


@compiled
def draw(
    link: LinkNumbers, eta: Floats, key: np.uint64, position: int, decision: Floats, slope: Floats
) -> None:
    """Draw decisions with the propensities of scores, and set `d g'/g`."""
    fill_uniforms(key, position, slope)
    for i in range(decision.size):
        propensity, derivative, _ = response(eta[i], link)
        decision[i] = 1.0 if slope[i] < propensity else 0.0
        slope[i] = decision[i] * (derivative / propensity)


@compiled
def _updated(old: float, keep: float, new: float) -> float:
    return new if keep == 0.0 else keep * old + new  # `old` may be infinite if it is not kept


@compiled
def update_sums(
    columns: Floats, start: int, weights: Floats, keep: float, factor: float, out: Floats
) -> None:
    """Set `out[c]` to `keep out[c] + factor sum_i columns[c, start + i] weights_i`."""
    first, n, n_columns = np.uint64(start), np.uint64(weights.size), out.size
    for c in range(0, n_columns, 2):  # two at a time: loading is what the sums cost
        beside = min(c + 1, n_columns - 1)
        one, other = 0.0, 0.0
        for i in range(n):
            one += columns[c, first + i] * weights[i]
            other += columns[beside, first + i] * weights[i]
        out[c] = _updated(out[c], keep, factor * one)
        if beside > c:
            out[beside] = _updated(out[beside], keep, factor * other)


@compiled
def weigh(columns: Floats, start: int, weights: Floats, n_columns: int, out: Floats) -> None:
    """Set the first rows of `out` to `columns[c, start + i] weights_i`."""
    first = np.uint64(start)
    for c in range(n_columns):
        for i in range(np.uint64(weights.size)):
            out[c, i] = columns[c, first + i] * weights[i]


@compiled
def weigh_row(column: Floats, start: int, weights: Floats, out: Floats) -> None:
    """Set the first row of `out` to `column[start + i] weights_i`."""
    first = np.uint64(start)
    for i in range(np.uint64(weights.size)):
        out[0, i] = column[first + i] * weights[i]


@compiled
def update_products(
    left: Floats, right: Floats, start: int, n_rows: int, keep: float, factor: float, out: Floats,
    lower: bool,
) -> None:  # fmt: skip
    """Set `out[j, k]` to `keep out[j, k] + factor sum_i left[j, i] right[k, start + i]`.

    The sum is over `n_rows` rows. With `lower` only the lower triangle of `out` is complete.
    """
    first, n = np.uint64(start), np.uint64(n_rows)
    n_left, n_columns = out.shape
    for j in range(0, n_left, 2):
        below = j + 1
        for k in range(0, min(j + 2, n_columns) if lower else n_columns, 2):
            beside = min(k + 1, n_columns - 1)
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            if below < n_left:
                for i in range(n):
                    a += left[j, i] * right[k, first + i]
                    b += left[j, i] * right[beside, first + i]
                    c += left[below, i] * right[k, first + i]
                    d += left[below, i] * right[beside, first + i]
                out[below, k] = _updated(out[below, k], keep, factor * c)
                if beside > k:
                    out[below, beside] = _updated(out[below, beside], keep, factor * d)
            else:
                for i in range(n):
                    a += left[j, i] * right[k, first + i]
                    b += left[j, i] * right[beside, first + i]
            out[j, k] = _updated(out[j, k], keep, factor * a)
            if beside > k:
                out[j, beside] = _updated(out[j, beside], keep, factor * b)


@compiled
def set_benefits(
    constant: Floats, defined: NDArray[np.bool_], is_ratio: NDArray[np.bool_], sums: Floats,
    scales: Floats, values: Floats, factors: Floats,
) -> None:  # fmt: skip
    """Set benefits from the sums of their columns, and the factors of their slopes.

    `scales` is what each group's sums are multiplied by. Both are 0 where a benefit is undefined.
    """
    n_benefits, n_groups = values.shape
    for b in range(n_benefits):
        for z in range(n_groups):
            numerator = constant[b, z] + scales[z] * sums[b * n_groups + z]
            denominator = 1.0
            if is_ratio[b]:
                denominator = scales[z] * sums[(n_benefits + b) * n_groups + z]
            known = defined[b, z] and scales[z] > 0.0 and denominator > NOBODY
            values[b, z] = numerator / denominator if known else 0.0
            factors[b, z] = scales[z] / denominator if known else 0.0


@compiled
def centre(values: Floats, factors: Floats) -> None:
    """Subtract the mean over the groups whose benefit is known; 0 for the others."""
    for b in range(values.shape[0]):
        total, n_known = 0.0, 0.0
        for z in range(values.shape[1]):
            total += values[b, z]
            n_known += 1.0 if factors[b, z] > 0.0 else 0.0
        mean = total / max(n_known, 1.0)
        for z in range(values.shape[1]):
            values[b, z] = values[b, z] - mean if factors[b, z] > 0.0 else 0.0


@compiled
def objective_value(
    rows: BatchRows, link: LinkNumbers, theta: Floats, n_rows: int, penalty: float
) -> float:
    """Return the objective estimated on the first rows."""
    columns, shape = rows.columns, rows.benefits.constant.shape
    scores, chances = np.empty(CHUNK), np.empty(CHUNK)
    utility, sums = 0.0, np.zeros(columns.shape[0])
    for start in range(0, n_rows, CHUNK):
        n = min(CHUNK, n_rows - start)
        eta, propensity = scores[:n], chances[:n]
        linear_scores(theta, rows.inputs, start, eta)
        propensities(link, eta, propensity)
        for i in range(n):
            utility += rows.utility[start + i] * propensity[i]
        if penalty > 0.0:
            update_sums(columns, start, propensity, 1.0, 1.0, sums)
    value = utility * (rows.total / n_rows)
    if penalty > 0.0:
        scales = np.empty(shape[1])
        for z in range(shape[1]):
            scales[z] = rows.total / n_rows
        values, factors = np.empty(shape), np.empty(shape)
        constant, defined, is_ratio, _ = rows.benefits
        set_benefits(constant, defined, is_ratio, sums, scales, values, factors)
        centre(values, factors)
        for b in range(shape[0]):
            for z in range(shape[1]):
                value -= penalty * values[b, z] * values[b, z]
    return value
