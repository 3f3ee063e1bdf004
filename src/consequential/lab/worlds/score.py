"""Worlds with one score: people differ in a number, so the truth can be computed."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Metrics, Population
from consequential.lab.worlds.optimum import Optimum, best_policy, best_threshold
from consequential.lab.worlds.world import World
from consequential.objective.fairness import Fairness, fairness_named
from consequential.policy import DecisionRule

Floats = NDArray[np.float64]


class ScoreWorld(World):
    """A world of one score, whose distribution and label probabilities are known.

    Examples
    --------
    What the best policy is worth, without and with a bound on the gap:

    >>> import consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> isinstance(world, cq.worlds.ScoreWorld)
    True
    >>> [round(world.optimal(max_gap=bound).utility, 4) for bound in (None, 0.05)]
    [0.092, 0.0767]
    """

    @abstractmethod
    def cells(self, n_cells: int, closer_to: float | None = None) -> Population:
        """Return the distribution as some `n_cells` points in increasing order.

        Around the score `closer_to` there are as many again, so close that its neighbours differ.
        """

    @abstractmethod
    def population_for(self, rule: DecisionRule) -> Population:
        """Return points that integrate this rule's propensity closely (six digits and more)."""

    def exact(self, rule: DecisionRule, fairness: str | Fairness = "demographic_parity") -> Metrics:
        """Return the true metrics of a rule, by integration over the score.

        Examples
        --------
        >>> import consequential as cq
        >>> world = cq.worlds.first_setting()
        >>> truth = world.exact(world.initial_policy("semi_logistic"))
        >>> round(truth.utility, 4)
        0.1638
        """
        return self.population_for(rule).metrics(rule, self.cost, fairness_named(fairness))

    def measure(
        self, rule: DecisionRule, fairness: str | Fairness = "demographic_parity"
    ) -> Metrics:
        """Return the true metrics: this world knows them."""
        return self.exact(rule, fairness)

    def optimal(
        self,
        max_gap: float | None = None,
        penalty: float = 0.0,
        fairness: str | Fairness = "demographic_parity",
        *,
        uses_sensitive: bool = False,
        among: Literal["all", "thresholds"] = "all",
    ) -> Optimum:
        """Return the best policy there is, with its metrics.

        Parameters
        ----------
        max_gap
            Bound on every pairwise difference of every benefit.
        penalty
            The lambda of `utility - lambda/2 gap^2`.
        uses_sensitive
            Whether the policy may treat equal scores of different groups differently.
        among
            `"all"` policies (a linear programme over the score), or single `"thresholds"`.

        Examples
        --------
        >>> import consequential as cq
        >>> best = cq.worlds.first_setting().optimal()
        >>> round(best.utility, 4), round(best.benefit_gap, 4)
        (0.178, 0.1576)
        """
        notion = fairness_named(fairness)
        if not (np.isfinite(penalty) and penalty >= 0):
            raise ValueError(f"the penalty is finite and not negative, not {penalty!r}")
        if max_gap is not None and not max_gap >= 0:
            raise ValueError(f"max_gap is not negative: it bounds a gap, but is {max_gap!r}")
        if among == "thresholds":
            if uses_sensitive:
                raise ValueError("single thresholds do not use the sensitive attribute")
            coarse = self.cells(2**14)
            rough = best_threshold(coarse, self.cost, notion, penalty, max_gap).threshold
            return best_threshold(self.cells(2**14, rough), self.cost, notion, penalty, max_gap)
        if among != "all":
            raise ValueError(f"among is 'all' or 'thresholds', not {among!r}")
        return best_policy(self.cells(2**16), self.cost, notion, penalty, max_gap, uses_sensitive)


class DensityWorld(ScoreWorld):
    """A score world whose groups have a density on an interval.

    Examples
    --------
    Scores between 0 and 1 that are the probability of label 1; group 1 has more of the high ones.

    >>> import numpy as np, consequential as cq
    >>> class Scores(cq.worlds.DensityWorld):
    ...     cost = 0.5
    ...     bounds = (0.0, 1.0)
    ...     def density(self, score):
    ...         return np.column_stack([np.ones_like(score), 2 * score])
    ...     def score_probability(self, score):
    ...         return score
    ...     def propose(self, n, rng):
    ...         group = rng.integers(2, size=n)
    ...         return rng.random(n) ** (1 / (1 + group)), group
    >>> best = Scores().optimal()  # accept from 0.5 on: (1/8 + 5/24) / 2
    >>> round(best.utility, 4), round(best.benefit_gap, 4)
    (0.1667, -0.25)
    """

    bounds: tuple[float, float]
    n_groups: int = 2

    @abstractmethod
    def density(self, score: Floats) -> Floats:
        """Return the density of the score within each group, one column per group."""

    @abstractmethod
    def score_probability(self, score: Floats) -> Floats:
        """Return the probability of label 1 at each score."""

    def label_probability(self, features: Floats, sensitive: NDArray[Any]) -> Floats:
        """Return the probability of label 1; it depends on the score alone."""
        return self.score_probability(features[:, 0])

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The sensitive groups, 0 and 1."""
        return tuple(range(self.n_groups))

    def cells(self, n_cells: int, closer_to: float | None = None) -> Population:
        """Return the middles of cells, with the mass around them."""
        edges = np.linspace(*self.bounds, n_cells + 1)
        if closer_to is not None:
            width = edges[1] - edges[0]
            near = np.linspace(closer_to - 2 * width, closer_to + 2 * width, n_cells + 1)
            edges = np.union1d(edges, np.clip(near, *self.bounds))
        return self._population(edges, 1)

    def population_for(self, rule: DecisionRule) -> Population:
        """Return Gauss nodes on 4096 cells that are cut where the rule jumps.

        A band of scores that is treated differently and narrower than a cell may be overlooked.
        """
        jumps = self._jumps(rule)
        if len(jumps) == 0:
            return self.regular_nodes
        return self._population(np.union1d(self._edges, jumps), 4)

    @cached_property
    def _edges(self) -> Floats:
        return np.linspace(*self.bounds, 4097)

    @cached_property
    def regular_nodes(self) -> Population:
        """Four Gauss nodes on each of 4096 equal cells: enough for a policy without jumps."""
        return self._population(self._edges, 4)

    def _population(self, edges: Floats, n_nodes: int) -> Population:
        """Return Gauss nodes in each cell, with the mass around them."""
        nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
        half = np.diff(edges)[:, None] / 2
        scores = ((edges[1:] + edges[:-1])[:, None] / 2 + half * nodes).ravel()
        mass = self.density(scores) * (half * weights).reshape(-1, 1)
        probability = np.repeat(self.score_probability(scores)[:, None], self.n_groups, axis=1)
        mass = mass / mass.sum(axis=0) / self.n_groups
        return Population(scores[:, None], mass, probability, self.groups)

    def _jumps(self, rule: DecisionRule) -> Floats:
        """Narrow the cells over which the propensity changes much down to where it does."""
        edges, fractions = self._edges, np.linspace(0.0, 1.0, 33)
        found = [edges[:0]]
        for group in self.groups if rule.uses_sensitive else self.groups[:1]:

            def propensity(scores: Floats, group: int = group) -> Floats:
                flat = scores.reshape(-1, 1)
                return rule.propensity(flat, np.full(len(flat), group)).reshape(scores.shape)

            at_edges = propensity(edges)
            steep = np.flatnonzero(np.abs(np.diff(at_edges)) > 0.02)
            low, high = edges[steep], edges[steep + 1]
            half_way = (at_edges[steep] + at_edges[steep + 1])[:, None] / 2
            rising = (at_edges[steep] < half_way[:, 0])[:, None]
            for _ in range(10 if len(steep) else 0):  # 32^10 parts of a cell: to rounding
                scores = low[:, None] + (high - low)[:, None] * fractions
                crossed = (propensity(scores) < half_way) != rising
                crossed[:, 0], crossed[:, -1] = False, True
                first = np.argmax(crossed, axis=1)
                rows = np.arange(len(steep))
                low, high = scores[rows, first - 1], scores[rows, first]
            found.append(high)
        return np.concatenate(found)
