"""Passes over a log that is larger than memory: every piece returns its sums and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from consequential.learning.passes import Rows
from consequential.learning.problem import Columns, rows_of
from consequential.log import DecisionLog, LogScan
from consequential.objective import Objective, Whole
from consequential.policies import Policy
from consequential.policies.compiled import Bend

Floats = NDArray[np.float64]


def whole_of(scan: LogScan, objective: Objective) -> Whole:
    """Return what the sums over a scan are divided by; one pass."""
    return reduce(add, scan.map(objective.whole, "weighing the log"))


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """What `Rows` is for rows in memory, for those of a scan."""

    scan: LogScan
    objective: Objective
    template: Policy
    whole: Whole
    squares: bool = False

    @property
    def n_parameters(self) -> int:
        """How many numbers theta has."""
        return len(self.template.theta)

    def sums(self, theta: Floats, link: Bend) -> Floats:
        """Return sums over all rows by column and group: the functional, then its gradient."""
        return self._added_up(_PieceSums(theta, link))

    def curvature(self, theta: Floats, link: Bend, weights: Floats) -> Floats:
        """Return the second derivative of the sums, weighted by column and group, in theta."""
        return self._added_up(_PieceCurvature(theta, link, weights))

    def totals(self) -> Floats:
        """Return the sums where everybody is accepted who can be, and what is fixed."""
        return self._added_up(Rows.totals)

    def _added_up(self, of_rows: Callable[[Rows], Floats]) -> Floats:
        piece = _Piece(self.objective, self.template, self.whole, self.squares, of_rows)
        total: Floats = reduce(add, self.scan.map(piece, "learning from the log"))
        return total

    def columns(self) -> Columns:
        """Return what is known of the functionals beside their rows: the same for every piece."""
        found = self.scan.map(_PieceColumns(self.objective, self.whole), "")
        return next(columns for columns in found if columns is not None)


@dataclass(frozen=True, slots=True)
class _PieceColumns:
    objective: Objective
    whole: Whole

    def __call__(self, log: DecisionLog) -> Columns | None:
        return Columns.of(self.objective.coefficients(log, self.whole)) if len(log) else None


@dataclass(frozen=True, slots=True)
class _Piece:
    """What the rows of a piece add to the sums over all."""

    objective: Objective
    template: Policy
    whole: Whole
    squares: bool
    of_rows: Callable[[Rows], Floats]

    def __call__(self, log: DecisionLog) -> Floats:
        if len(log) == 0:
            return np.zeros(1)
        coefficients = self.objective.coefficients(log, self.whole)
        return self.of_rows(rows_of(log, coefficients, self.template, squares=self.squares))


@dataclass(frozen=True, slots=True)
class _PieceSums:
    theta: Floats
    link: Bend

    def __call__(self, rows: Rows) -> Floats:
        return rows.sums(self.theta, self.link, n_threads=1)


@dataclass(frozen=True, slots=True)
class _PieceCurvature:
    theta: Floats
    link: Bend
    weights: Floats

    def __call__(self, rows: Rows) -> Floats:
        return rows.curvature(self.theta, self.link, self.weights, n_threads=1)
