"""Rows that the solver adds up: of a log in memory, or of a scan.

Sums over rows are additive, so a pass is a sum over chunks of rows, wherever they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import pairwise
from operator import add
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, LogScan
from consequential.objective.functionals import Coefficients
from consequential.objective.objective import Objective, Totals
from consequential.policy import Policy
from consequential.policy.links import LinkNumbers, responses

Floats = NDArray[np.float64]

# Rows that are added up before they join the total. The number is fixed, so that a sum does not
# depend on how many threads there are.
_CHUNK = 16_384
_KEPT = 4  # results that are remembered


class Passes(Protocol):
    """Sums over rows, wherever they are."""

    @property
    def n_parameters(self) -> int:
        """The length of theta."""
        ...

    def sums(self, theta: Floats, link: LinkNumbers) -> Floats:
        """Return sums by column and group: the functional, then its gradient.

        The gradient of a group's sum is that in the parameters the group is decided by.
        """
        ...

    def curvature(self, theta: Floats, link: LinkNumbers, weights: Floats) -> Floats:
        """Return the second derivative of the sums, weighted by column and group, in theta."""
        ...

    def totals(self) -> Floats:
        """Return the sums if everybody is accepted whose propensity is not fixed, and the rest."""
        ...


class Remembered:
    """Passes whose last results are kept: an ascent often returns to where it has just been."""

    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self._kept: dict[tuple[bytes, LinkNumbers], Floats] = {}

    def sums(self, theta: Floats, link: LinkNumbers) -> Floats:
        """Return sums by column and group: the functional, then its gradient."""
        key = (theta.tobytes(), link)
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = self.passes.sums(theta, link)
        return self._kept[key]

    @property
    def n_parameters(self) -> int:
        """The length of theta."""
        return self.passes.n_parameters

    def curvature(self, theta: Floats, link: LinkNumbers, weights: Floats) -> Floats:
        """Return the second derivative of the sums, weighted by column and group, in theta."""
        return self.passes.curvature(theta, link, weights)

    def totals(self) -> Floats:
        """Return the sums if everybody is accepted whose propensity is not fixed, and the rest."""
        return self.passes.totals()


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in memory: inputs without their constant, and columns of coefficients.

    `by_group` gives each group its own parameters. `fixed` is what people add to the sums whose
    propensity does not depend on theta; their columns are 0.
    """

    inputs: Floats  # (n, k)
    columns: Floats  # (columns, n)
    group: NDArray[np.intp]
    n_groups: int
    by_group: bool = False
    fixed: Floats | None = None  # by column and group

    @classmethod
    def of(
        cls,
        log: DecisionLog,
        coefficients: Coefficients,
        template: Policy,
        *,
        inputs: Floats | None = None,
        n_people: int | None = None,
    ) -> Rows:
        """Return the rows of a log, for policies like a template.

        `inputs` are given where they do not follow from the template: cross-fitted scores. With
        `n_people`, how many the whole log has, a last column counts who is accepted of them.
        """
        columns = _columns(coefficients)
        if n_people is not None:
            columns = np.vstack([columns, np.full(len(log), 1.0 / n_people)])
        n_groups = coefficients.n_groups
        fixed: Floats | None = None
        if template.overrules:
            sensitive = log.sensitive if template.uses_sensitive else None
            outside = ~template.supports(log.named_features, sensitive)
            fixed_at = template.scored(np.zeros(len(log)), log.named_features, sensitive)
            added = columns[:, outside] * fixed_at[outside]
            group = coefficients.group[outside]
            fixed = np.stack([np.bincount(group, each, n_groups) for each in added]).astype(float)
            columns[:, outside] = 0.0
        if inputs is None:
            inputs = np.ascontiguousarray(template.mapped(log.named_features))
        return cls(inputs, columns, coefficients.group, n_groups, template.uses_sensitive, fixed)

    @property
    def n_parameters(self) -> int:
        """The length of theta."""
        n_inputs: int = self.inputs.shape[1] + 1
        return n_inputs * self.n_groups if self.by_group else n_inputs

    def take(self, rows: NDArray[np.intp]) -> Rows:
        """Return some of the rows, with columns scaled up to all."""
        columns = len(self.group) / len(rows) * self.columns[:, rows]
        return Rows(
            self.inputs[rows],
            columns,
            self.group[rows],
            self.n_groups,
            self.by_group,
            self.fixed,
        )

    def sums(self, theta: Floats, link: LinkNumbers, n_threads: int | None = None) -> Floats:
        """Return sums by column and group: the functional, then its gradient."""
        n, k = self.inputs.shape
        blocks = theta.reshape(-1, k + 1)

        def chunk(start: int) -> Floats:
            inputs, columns, ends = self._sorted(slice(start, min(start + _CHUNK, n)))
            eta = np.empty(len(inputs))
            for block, mine in zip(blocks, ends if self.by_group else [slice(None)], strict=True):
                np.dot(inputs[mine], block[1:], out=eta[mine])
                eta[mine] += block[0]
            propensity, slope = responses(link, eta)
            slopes = columns * slope
            total = np.empty((len(columns), self.n_groups, k + 2))
            for z, mine in enumerate(ends):
                total[:, z, 0] = columns[:, mine] @ propensity[mine]
                total[:, z, 1] = slopes[:, mine].sum(axis=1)
                total[:, z, 2:] = slopes[:, mine] @ inputs[mine]
            return total

        total = _added_up(chunk, n, n_threads)
        if self.fixed is not None:
            total[:, :, 0] += self.fixed
        return total

    def curvature(
        self, theta: Floats, link: LinkNumbers, weights: Floats, n_threads: int | None = None
    ) -> Floats:
        """Return the second derivative of the sums, weighted by column and group, in theta."""
        n, k = self.inputs.shape
        blocks = theta.reshape(-1, k + 1)

        def chunk(start: int) -> Floats:
            here = slice(start, min(start + _CHUNK, n))
            inputs, group = self.inputs[here], self.group[here]
            of_row = blocks[group] if self.by_group else blocks
            eta = of_row[:, 0] + np.einsum(
                "ik,ik->i", inputs, np.broadcast_to(of_row[:, 1:], inputs.shape)
            )
            _, slope = responses(link, eta)
            second = -slope * np.tanh(eta / 2.0)
            weight = (weights[:, group] * self.columns[:, here]).sum(axis=0) * second
            phi = np.column_stack([np.ones(len(eta)), inputs])
            total = np.zeros((len(blocks), k + 1, k + 1))
            for z in range(len(blocks)):
                mine = slice(None) if len(blocks) == 1 else group == z
                total[z] = (phi[mine] * weight[mine, None]).T @ phi[mine]
            return total

        found = _added_up(chunk, n, n_threads)
        total = np.zeros((theta.size, theta.size))
        for z, block in enumerate(found):
            here = slice(z * (k + 1), (z + 1) * (k + 1))
            total[here, here] = (block + block.T) / 2.0
        return total

    def totals(self) -> Floats:
        """Return the sums if everybody is accepted whose propensity is not fixed, and the rest."""
        added = [np.bincount(self.group, column, self.n_groups) for column in self.columns]
        total = np.stack(added)
        return np.stack([total, np.zeros_like(total) if self.fixed is None else self.fixed])

    def _sorted(self, here: slice) -> tuple[Floats, Floats, list[slice]]:
        """Return some rows' inputs and columns in the order of the groups, and each one's rows."""
        inputs, columns, group = self.inputs[here], self.columns[:, here], self.group[here]
        ends = [0, *np.cumsum(np.bincount(group, minlength=self.n_groups)).tolist()]
        if self.n_groups > 1:
            small = group.astype(np.min_scalar_type(self.n_groups))  # sorted in linear time
            order = np.argsort(small, kind="stable")
            inputs, columns = inputs.take(order, axis=0), columns.take(order, axis=1)
        return inputs, columns, [slice(*pair) for pair in pairwise(ends)]


def _columns(coefficients: Coefficients) -> Floats:
    """The columns that are added up: utility, benefits, and the denominators of ratios."""
    ratios = [b.denominator for b in coefficients.benefits if b.denominator is not None]
    return np.stack([coefficients.utility, *(b.values for b in coefficients.benefits), *ratios])


def moments(inputs: Floats) -> tuple[Floats, Floats]:
    """Return the inputs' means and deviations; 1 for an input that does not vary."""
    # squares of distances from a point near the mean lose no digits
    n, shift = len(inputs), inputs[:_CHUNK].mean(axis=0)

    def chunk(start: int) -> Floats:
        distance = inputs[start : start + _CHUNK] - shift
        return np.stack([distance.sum(axis=0), np.einsum("ik,ik->k", distance, distance)])

    mean, square = _added_up(chunk, n) / n
    centre, scale = shift + mean, np.sqrt(np.maximum(square - mean * mean, 0.0))
    tiny = 1e-12 * np.maximum(np.abs(centre), 1.0)
    return centre, np.where(scale > tiny, scale, 1.0)


def _added_up(chunk: Callable[[int], Floats], n: int, n_threads: int | None = None) -> Floats:
    """Return the sum of a function over chunks of n rows, given where they start."""
    starts = range(0, n, _CHUNK)
    if len(starts) == 1:
        return chunk(0)
    found: list[Floats] = [np.zeros(1)] * len(starts)
    left = iter(enumerate(starts))

    def work() -> None:
        for k, start in left:  # each chunk goes to the thread that asks first
            found[k] = chunk(start)

    # this thread works too: waking another takes as long as many rows
    n_others = min(n_threads or _n_threads(), len(starts)) - 1
    others = [_pool(n_others).submit(work) for _ in range(n_others)]
    work()
    for other in others:
        other.result()
    return sum(found, np.zeros(1))


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that stay: starting one takes longer than a pass over a sample."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="sums")


def _n_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- rows of a scan, which are larger than memory


def scanned_totals(scan: LogScan, objective: Objective) -> Totals:
    """Return what the sums over a scan are divided by; one pass."""
    return reduce(add, scan.map(objective.totals, "weighing the log"))


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """The same passes over the rows of a scan: every part of it returns its sums."""

    scan: LogScan
    objective: Objective
    template: Policy
    log_totals: Totals
    counts: bool = False  # whether acceptance is counted

    @property
    def n_parameters(self) -> int:
        """The length of theta."""
        return len(self.template.theta)

    def sums(self, theta: Floats, link: LinkNumbers) -> Floats:
        """Return sums by column and group: the functional, then its gradient."""
        # one thread: parts are read in several processes already
        return self._added_up(partial(Rows.sums, theta=theta, link=link, n_threads=1))

    def curvature(self, theta: Floats, link: LinkNumbers, weights: Floats) -> Floats:
        """Return the second derivative of the sums, weighted by column and group, in theta."""
        return self._added_up(
            partial(Rows.curvature, theta=theta, link=link, weights=weights, n_threads=1)
        )

    def totals(self) -> Floats:
        """Return the sums if everybody is accepted whose propensity is not fixed, and the rest."""
        return self._added_up(Rows.totals)

    def coefficients(self) -> Coefficients:
        """Return the functionals of one part; constants are the same in every part."""
        found = self.scan.map(partial(_coefficients, self.objective, self.log_totals), "")
        return next(each for each in found if each is not None)

    def _added_up(self, of_rows: Callable[[Rows], Floats]) -> Floats:
        parts = self.scan.map(partial(_of_part, self, of_rows), "learning from the log")
        total: Floats = reduce(add, parts)
        return total


def _coefficients(objective: Objective, totals: Totals, log: DecisionLog) -> Coefficients | None:
    return objective.coefficients(log, totals) if len(log) else None


def _of_part(rows: ScannedRows, of_rows: Callable[[Rows], Floats], log: DecisionLog) -> Floats:
    if len(log) == 0:
        return np.zeros(1)
    coefficients = rows.objective.coefficients(log, rows.log_totals)
    n_people = rows.log_totals.n if rows.counts else None
    return of_rows(Rows.of(log, coefficients, rows.template, n_people=n_people))
