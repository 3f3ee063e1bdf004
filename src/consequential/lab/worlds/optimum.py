"""The best policy a known distribution allows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.evaluation import Metrics, Population
from consequential.objective.fairness import Fairness
from consequential.objective.objective import deviations
from consequential.policy import DecisionRule, ThresholdPolicy, as_features, logistic_model
from consequential.policy.group_codes import sensitive_codes

Floats = NDArray[np.float64]

_TOLERANCE = 1e-8  # in the objective
_SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Optimum(Metrics):
    """The best policy and its metrics; `threshold` is where a single cut lies.

    Examples
    --------
    >>> import consequential as cq
    >>> best = cq.worlds.first_setting().optimal(among="thresholds")
    >>> round(best.threshold, 2), round(best.utility, 4)
    (-0.3, 0.178)
    """

    policy: DecisionRule
    threshold: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PiecewisePolicy(DecisionRule):
    """A propensity for every interval of the score, the same or not for each group.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> policy = cq.worlds.PiecewisePolicy(
    ...     np.array([0.0, 1.0]), np.array([[0.0], [0.5], [1.0]]), groups=(0, 1))
    >>> policy.propensity([[-1.0], [0.3], [2.0]])
    array([0. , 0.5, 1. ])
    """

    edges: Floats  # (m - 1,), increasing: where one interval ends and the next begins
    propensities: Floats  # (m, 1), or (m, groups) where the sensitive attribute is used
    groups: tuple[Hashable, ...]

    @property
    def uses_sensitive(self) -> bool:
        """Whether groups have propensities of their own."""
        return bool(self.propensities.shape[1] > 1)

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return the propensity of the interval that each score lies in."""
        interval = np.searchsorted(self.edges, as_features(features)[:, 0], side="right")
        column: NDArray[np.intp] | int = 0
        if self.uses_sensitive:
            column = sensitive_codes(sensitive, self.groups, len(interval))
        found: Floats = self.propensities[interval, column]
        return found


def best_threshold(
    cells: Population, cost: float, fairness: Fairness, penalty: float, max_gap: float | None
) -> Optimum:
    """Return the best rule `accept where score >= t`, over every t between the points."""
    coefficients = cells.coefficients(cost, fairness)
    shape = cells.mass.shape

    def tail_sums(values: Floats) -> Floats:
        """Return the sum over all points from each on, by group; a last row for nobody."""
        by_point = values.reshape(shape)
        return np.vstack([np.cumsum(by_point[::-1], axis=0)[::-1], np.zeros(shape[1])])

    utility = tail_sums(coefficients.utility).sum(axis=1)
    value, feasible = utility, np.ones(len(utility), dtype=np.bool_)
    for benefit in coefficients.benefits:
        by_group = tail_sums(benefit.values) + benefit.constant
        if benefit.denominator is not None:
            accepted = tail_sums(benefit.denominator)
            nobody = np.full_like(by_group, np.nan)
            by_group = np.divide(by_group, accepted, out=nobody, where=accepted > 0)
        value = value - penalty * (deviations(by_group) ** 2).sum(axis=1)
        if max_gap is not None:
            known = np.isfinite(by_group)
            highest = np.where(known, by_group, -np.inf).max(axis=1)
            lowest = np.where(known, by_group, np.inf).min(axis=1)
            feasible &= highest - lowest <= max_gap + 1e-12
    if not feasible.any():
        raise ValueError(f"no threshold keeps every gap within {max_gap}")
    best = int(np.argmax(np.where(feasible, value, -np.inf)))
    scores = cells.points[:, 0]
    beyond = [scores[-1] + max(float(np.ptp(scores)), 1.0) / len(scores)]
    edges = np.concatenate([scores[:1], (scores[1:] + scores[:-1]) / 2, beyond])
    threshold = float(edges[best])
    policy = ThresholdPolicy(logistic_model([-threshold, 1.0]), 0.5)
    accepts = np.arange(len(scores)) >= best
    everyone = np.repeat(accepts[:, None].astype(np.float64), shape[1], axis=1)
    truth = cells.metrics_at(everyone, cost, fairness)
    return _optimum(truth, policy, threshold)


def best_policy(
    cells: Population,
    cost: float,
    fairness: Fairness,
    penalty: float,
    max_gap: float | None,
    uses_sensitive: bool,
) -> Optimum:
    """Return the best of all policies.

    Utility and benefits are linear in the propensities, so the best policy for given prices of
    the benefits' deviations accepts exactly where what remains is positive. Columns of such
    policies are generated and mixed until no prices improve on the mixture.
    """
    coefficients = cells.coefficients(cost, fairness)
    if any(benefit.denominator is not None for benefit in coefficients.benefits):
        raise ValueError(
            f"{fairness.name} is a ratio in the policy, so the best of all policies is not a "
            'linear programme; use among="thresholds"'
        )
    n_points, n_groups = cells.mass.shape

    def over_variables(values: Floats) -> Floats:
        by_point = values.reshape(n_points, n_groups)
        return by_point if uses_sensitive else by_point.sum(axis=1, keepdims=True)

    utility = over_variables(coefficients.utility)
    rows = np.stack(
        [
            over_variables(benefit.values * ((coefficients.group == group) - 1.0 / n_groups))
            for benefit in coefficients.benefits
            for group in range(n_groups)
        ]
    )
    offsets = np.concatenate(
        [deviations(benefit.constant[None, :])[0] for benefit in coefficients.benefits]
    )
    mixture = Mixing(utility, rows, offsets, n_groups, penalty, max_gap).solve()
    table = np.broadcast_to(mixture, (n_points, n_groups))
    change = np.flatnonzero(np.any(np.diff(mixture, axis=0) != 0, axis=1))
    scores = cells.points[:, 0]
    edges = (scores[change] + scores[change + 1]) / 2
    policy = PiecewisePolicy(edges, mixture[np.append(change, n_points - 1)], cells.groups)
    return _optimum(cells.metrics_at(table, cost, fairness), policy, None)


def _optimum(truth: Metrics, policy: DecisionRule, threshold: float | None) -> Optimum:
    return Optimum(
        truth.utility, truth.benefit_gap, truth.acceptance, truth.benefits, policy, threshold
    )


@dataclass(frozen=True, slots=True)
class Mixing:
    """Maximise `utility - penalty sum deviation^2` with every pairwise gap within `max_gap`.

    The best convex combination of deterministic policies, by column generation. `utility` and the
    `rows` of the deviations are linear in the propensities, one per entry of `utility`; `offsets`
    are the deviations of rejecting everybody. Deviations come in blocks of `n_groups`, one block
    per benefit.

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
        limits = self._gap_limits()
        tolerance = _TOLERANCE * min(max(1.0, self.penalty), 100.0)
        for _ in range(_MOST_ROUNDS):
            gains = np.array([float((self.utility * column).sum()) for column in columns])
            spread = np.array([self.deviations(column) for column in columns])  # (columns, k)
            found, prices, value = self._master(gains, spread, limits)
            shares, squares, excess = found[: len(columns)], found[len(columns) : -1], found[-1]
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
                k = len(at)
                tangents = np.diag(2.0 * at), -np.eye(k), np.zeros(k), at**2
                limits = np.vstack([limits, np.column_stack(tangents)])
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

    def _gap_limits(self) -> Floats:
        """Return one row per limit: factors of the deviations, the squares, the excess; a bound."""
        k = len(self.offsets)
        if self.max_gap is None:
            return np.empty((0, 2 * k + 2))
        unit, rest = np.eye(k), [*np.zeros(k), -1.0, self.max_gap]
        rows = [
            [*(sign * (unit[block + one] - unit[block + other])), *rest]
            for one, other in combinations(range(self.n_groups), 2)
            for block in range(0, k, self.n_groups)
            for sign in (1.0, -1.0)
        ]
        return np.array(rows).reshape(-1, 2 * k + 2)

    def _master(
        self, gains: Floats, spread: Floats, limits: Floats
    ) -> tuple[Floats, Floats, float]:
        """Return shares, squares and the excess over max_gap; prices and their target value."""
        from scipy.optimize import linprog

        n, k = spread.shape
        slopes, squares, excess, bounds = np.split(limits, [k, 2 * k, 2 * k + 1], axis=1)
        unit = max(float(np.ptp(spread)), 1e-12)
        solution = linprog(
            # an excess over max_gap is too expensive to stay
            -np.concatenate([gains, np.full(k, -self.penalty), [-1e3]]),
            A_ub=np.hstack([slopes @ spread.T, squares, unit * excess]),
            b_ub=bounds[:, 0],
            A_eq=np.concatenate([np.ones(n), np.zeros(k + 1)])[None, :],
            b_eq=[1.0],
            method="highs",
            options=_SOLVER,
        )
        prices = -solution.ineqlin.marginals @ slopes
        # a column enters if utility - prices . deviations exceeds the convexity row's dual
        target = -float(solution.eqlin.marginals[0]) + float(prices @ self.offsets)
        return solution.x, prices, target
