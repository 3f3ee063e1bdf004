"""Mixing: the best convex combination of deterministic policies, by column generation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TOLERANCE = 1e-8  # in the objective
_SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Mixing:
    """Maximise `utility - penalty sum deviation^2` with every pairwise gap within `max_gap`.

    `utility` and the `rows` of the deviations are linear in the propensities (one an entry of
    `utility`); `offsets` are the deviations of rejecting everybody. Deviations come in blocks of
    `n_groups`, one block a benefit.

    The master programme mixes the policies found so far; squares are bounded by their tangents.
    Its dual prices say which deterministic policy would improve the mixture most.
    """

    utility: Floats  # (points, 1 or groups)
    rows: Floats  # (deviations, points, 1 or groups)
    offsets: Floats  # (deviations,)
    n_groups: int
    penalty: float
    max_gap: float | None

    def solve(self) -> Floats:
        """Return the best propensities."""
        everybody, nobody = np.ones_like(self.utility), np.zeros_like(self.utility)
        columns = [everybody, nobody, self.best_for(np.zeros_like(self.offsets))]
        tangents: list[tuple[int, float]] = []
        tolerance = _TOLERANCE * min(max(1.0, self.penalty), 100.0)
        for _ in range(_MOST_ROUNDS):
            gains = np.array([float((self.utility * column).sum()) for column in columns])
            spread = np.array([self.deviations(column) for column in columns])  # (columns, k)
            shares, squares, excess, prices, value = self._master(gains, spread, tangents)
            at = shares @ spread
            improved = self.best_for(prices)
            reduced = float((self.utility * improved).sum()) - prices @ (
                self.deviations(improved) - self.offsets
            )
            improvement = float(reduced - value)
            underestimate = self.penalty * float((at**2 - squares).sum())
            if max(improvement, underestimate) <= tolerance:
                break
            if improvement > tolerance:
                columns.append(improved)
            if underestimate > tolerance:
                tangents += list(enumerate(at.tolist()))
        else:
            if max(improvement, underestimate) > 1e-3:
                raise RuntimeError(
                    f"no optimum found in {_MOST_ROUNDS} rounds; for a penalty as large as "
                    f"{self.penalty:g} ask for max_gap=0 instead"
                )
        if excess > 1e-7:
            raise ValueError(f"no policy keeps every gap within {self.max_gap}")
        mixed = np.tensordot(shares, np.stack(columns[: len(shares)]), axes=1)
        return np.clip(mixed, 0.0, 1.0)

    def best_for(self, prices: Floats) -> Floats:
        """Return the deterministic policy that is best when deviations have these prices."""
        worth = self.utility - np.tensordot(prices, self.rows, axes=1)
        return (worth > 0).astype(np.float64)

    def deviations(self, propensity: Floats) -> Floats:
        """Return the deviations of a policy."""
        return np.tensordot(self.rows, propensity, axes=2) + self.offsets

    def _master(
        self, gains: Floats, spread: Floats, tangents: list[tuple[int, float]]
    ) -> tuple[Floats, Floats, float, Floats, float]:
        """Return shares, bounds on squares, excess over max_gap, prices and their target value."""
        from scipy.optimize import linprog

        n, k = spread.shape
        # variables: shares, squares, and an excess over max_gap that is too dear to stay
        unit = max(float(np.ptp(spread)), 1e-12)
        worth = np.concatenate([gains, np.full(k, -self.penalty), [-1e3]])
        limits, bounds, slopes = [], [], []
        for one, other in self._pairs() if self.max_gap is not None else ():
            direction = np.zeros(k)
            direction[one], direction[other] = 1.0, -1.0
            for sign in (1.0, -1.0):
                limits.append(np.concatenate([sign * spread @ direction, np.zeros(k), [-unit]]))
                bounds.append(self.max_gap)
                slopes.append(sign * direction)
        for index, at in tangents:
            direction = np.zeros(k)
            direction[index] = 2.0 * at
            limits.append(np.concatenate([spread @ direction, -np.eye(k)[index], [0.0]]))
            bounds.append(at**2)
            slopes.append(direction)
        solution = linprog(
            -worth,
            A_ub=np.array(limits) if limits else None,
            b_ub=np.array(bounds) if limits else None,
            A_eq=np.concatenate([np.ones(n), np.zeros(k + 1)])[None, :],
            b_eq=[1.0],
            method="highs",
            options=_SOLVER,
        )
        duals = -solution.ineqlin.marginals if limits else np.zeros(0)
        prices = duals @ np.array(slopes) if limits else np.zeros(k)
        # a column enters if utility - prices . deviations exceeds the convexity row's dual
        target = -float(solution.eqlin.marginals[0]) + float(prices @ self.offsets)
        shares, squares = solution.x[:n], solution.x[n : n + k]
        return shares, squares, float(solution.x[-1]), prices, target

    def _pairs(self) -> list[tuple[int, int]]:
        blocks = range(0, len(self.offsets), self.n_groups)
        pairs = combinations(range(self.n_groups), 2)
        return [(block + one, block + other) for one, other in pairs for block in blocks]
