"""Metrics of a policy where every person's label, or its probability, is known."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.objective.fairness import Fairness, benefit_gap
from consequential.objective.functionals import Coefficients, Tally
from consequential.policy import DecisionRule

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a policy does in a population.

    `benefits` maps each group to its benefit under the fairness notion asked for (the first
    one, where a notion has several); `benefit_gap` is their difference.
    """

    utility: float
    benefit_gap: float
    acceptance: float
    benefits: dict[Hashable, float]


@dataclass(frozen=True, slots=True)
class Population:
    """Points with the mass of each group there, and the probability of label 1.

    It may be a quadrature rule, an enumerated distribution or a labelled table.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.evaluation import Population
    >>> two_points = Population(np.array([[0.0], [1.0]]), np.array([[0.5], [0.5]]),
    ...                         np.array([[0.2], [0.9]]), ("everyone",))
    >>> round(two_points.metrics(cq.AcceptAll(), 0.5, cq.fairness.DemographicParity()).utility, 4)
    0.05
    """

    points: Floats  # (m, k)
    mass: Floats  # (m, groups), summing to one
    label_probability: Floats  # (m, groups)
    groups: tuple[Hashable, ...]

    def coefficients(self, cost: float, fairness: Fairness) -> Coefficients:
        """Utility and benefits as functionals of the propensities, point by point and group."""
        people = self.mass.ravel()
        positives = people * self.label_probability.ravel()
        group = np.tile(np.arange(len(self.groups)), len(self.points))
        tally = Tally(people, positives, people - positives, group, self.mass.sum(axis=0))
        gain = positives - cost * people
        return Coefficients(gain, fairness.benefits(tally), group, len(self.groups))

    def propensity(self, policy: DecisionRule) -> Floats:
        """Return the policy's propensity at every point for every group."""
        if not policy.uses_sensitive:
            return np.repeat(policy.propensity(self.points)[:, None], len(self.groups), axis=1)
        columns = [
            policy.propensity(self.points, np.full(len(self.points), group, dtype=object))
            for group in self.groups
        ]
        return np.column_stack(columns)

    def metrics(self, policy: DecisionRule, cost: float, fairness: Fairness) -> Metrics:
        """Return the policy's metrics in this population."""
        return self.metrics_at(self.propensity(policy), cost, fairness)

    def metrics_at(self, propensity: Floats, cost: float, fairness: Fairness) -> Metrics:
        """Return the metrics of propensities given by point and group."""
        sums = self.coefficients(cost, fairness).sums(propensity.ravel())
        benefits = sums.benefits
        return Metrics(
            utility=sums.utility,
            benefit_gap=benefit_gap(benefits),
            acceptance=float((self.mass * propensity).sum()),
            benefits=dict(zip(self.groups, benefits[0].tolist(), strict=True)),
        )
