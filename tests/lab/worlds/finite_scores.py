"""Score worlds small enough for a reference solver, and that solver.

The reference puts every propensity into one linear programme. Squares of the benefits' deviations
are bounded by tangents until upper and lower bound meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

import consequential as cq
from consequential.evaluation import Population


class FiniteScores(cq.worlds.ScoreWorld):
    """A handful of scores, at which groups differ in mass and in label probability."""

    name = "finite scores"

    def __init__(self, people: Population, cost: float = 0.5) -> None:
        self.people_there = people
        self.cost = cost
        self.groups = people.groups

    def cells(self, n_cells, closer_to=None):
        return self.people_there

    def population_for(self, rule):
        return self.people_there

    def propose(self, n, rng):
        mass = self.people_there.mass
        at = rng.choice(mass.size, size=n, p=mass.ravel())
        point, group = np.divmod(at, len(self.groups))
        return self.people_there.points[point], np.array(self.groups, dtype=object)[group]

    def label_probability(self, features, sensitive):
        raise NotImplementedError  # no test draws labels here


def random_scores(n_points: int, n_groups: int, seed: int) -> FiniteScores:
    """Groups that lie apart in their scores and, at equal scores, in their labels."""
    rng = np.random.default_rng(seed)
    points, group = np.linspace(-2.0, 2.0, n_points)[:, None], np.arange(n_groups)
    mass = rng.random((n_points, n_groups)) * np.exp(-((points + 0.5 - group) ** 2) / 2)
    label = 1 / (1 + np.exp(-1.5 * points + 0.5 * group + rng.normal(size=mass.shape)))
    return FiniteScores(Population(points, mass / mass.sum(), label, tuple("abcd"[:n_groups])))


@dataclass(frozen=True)
class Programme:
    """Utility and benefits as linear functions of one propensity a variable."""

    utility: np.ndarray  # (variables,)
    benefits: np.ndarray  # (benefits, groups, variables)
    constants: np.ndarray  # (benefits, groups): the benefits of rejecting everybody

    @classmethod
    def of(cls, people: Population, cost: float, notion: str, uses_sensitive: bool) -> Programme:
        """Write a notion down by its definition."""
        mass = people.mass
        positives = mass * people.label_probability
        negatives = mass - positives
        zero = np.zeros_like(mass)
        # for each benefit: what acceptance adds, what there is without it, what both are shares of
        counted = {
            "demographic_parity": [(mass, zero, mass)],
            "equal_opportunity": [(positives, zero, positives)],
            "equalised_odds": [(positives, zero, positives), (negatives, zero, negatives)],
            "correctness": [(positives - negatives, negatives, mass)],
        }[notion]
        utility = positives - cost * mass
        n_points, n_groups = utility.shape
        benefits = np.zeros((len(counted), n_groups, n_points, n_groups))
        for k, (added, _, of) in enumerate(counted):
            for group in range(n_groups):
                benefits[k, group, :, group] = added[:, group] / of[:, group].sum()
        constants = np.array([there.sum(axis=0) / of.sum(axis=0) for _, there, of in counted])
        if uses_sensitive:
            return cls(utility.ravel(), benefits.reshape(*benefits.shape[:2], -1), constants)
        return cls(utility.sum(axis=1), benefits.sum(axis=-1), constants)

    def gaps(self, propensity: np.ndarray) -> np.ndarray:
        """The widest pairwise difference of each benefit."""
        return np.ptp(self.benefits @ propensity + self.constants, axis=1)

    def penalised(self, propensity: np.ndarray, penalty: float) -> float:
        """`u - lambda/2 (2/K) sum over pairs (b_z - b_z')^2`."""
        total = 0.0
        for values in self.benefits @ propensity + self.constants:
            total += sum((one - other) ** 2 for one, other in combinations(values, 2)) / len(values)
        return float(self.utility @ propensity - penalty * total)

    def best(self, max_gap: float | None = None, penalty: float = 0.0) -> float:
        """The largest penalised utility there is, from above and to 1e-7."""
        n = len(self.utility)
        rows, bounds = [], []
        spread = (self.benefits - self.benefits.mean(axis=1, keepdims=True)).reshape(-1, n)
        offset = (self.constants - self.constants.mean(axis=1, keepdims=True)).ravel()
        n_squares = len(spread) if penalty else 0
        pairs = combinations(range(self.constants.shape[1]), 2) if max_gap is not None else ()
        for one, other in pairs:
            for values, constant in zip(self.benefits, self.constants, strict=True):
                for sign in (1.0, -1.0):
                    difference = sign * (values[one] - values[other])
                    rows.append(np.concatenate([difference, np.zeros(n_squares)]))
                    bounds.append(max_gap - sign * (constant[one] - constant[other]))

        def add_tangents(at: np.ndarray) -> None:
            """`square >= at^2 + 2 at (deviation - at)`, one of them for each deviation."""
            for k in range(n_squares):
                rows.append(np.concatenate([2 * at[k] * spread[k], -np.eye(n_squares)[k]]))
                bounds.append(at[k] ** 2 - 2 * at[k] * offset[k])

        for start in np.linspace(-0.8, 0.8, 5):
            add_tangents(np.full(n_squares, start))
        while True:
            solution = linprog(
                np.concatenate([-self.utility, np.full(n_squares, penalty)]),
                A_ub=np.array(rows) if rows else None,
                b_ub=bounds or None,
                bounds=[(0, 1)] * n + [(0, None)] * n_squares,
                options={"primal_feasibility_tolerance": 1e-10},
            )
            at = (spread @ solution.x[:n] + offset)[:n_squares]
            if penalty * float((at**2 - solution.x[n:]).sum()) < 1e-7:
                return -float(solution.fun)
            add_tangents(at)
