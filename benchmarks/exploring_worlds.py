"""Worlds of many features with known truth, for benchmarks/exploring.py.

`Rich` is the world that the default of `foresight` was chosen on, along with the second setting.
The others were written afterwards, before any strategy was run in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

import consequential as cq


class Rich(cq.worlds.World):
    """Twelve normal features, with curves and products of them."""

    cost = 0.5
    name = "rich"
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=1000)

    def __init__(self, seed: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.slopes, self.bends = 0.5 * rng.normal(size=12), 0.4 * rng.normal(size=12)
        self.products = np.triu(0.15 * rng.normal(size=(12, 12)), 1)

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        """Draw normal features; group 1 has more of the first."""
        group = rng.integers(2, size=n)
        features = rng.normal(size=(n, 12))
        features[:, 0] += 0.5 * group
        return features, group

    def label_probability(self, features: Any, sensitive: Any) -> Any:
        """Return labels that no line explains."""
        curves = (np.abs(features) - 0.8) @ self.bends
        products = ((features @ self.products) * features).sum(axis=1)
        return expit(features @ self.slopes + curves + products - 0.8)


class Ledger(cq.worlds.World):
    """Sixteen features of borrowers: skewed amounts, counts and flags; labels jump at thresholds.

    The start accepts by income alone, one person in eight, where two in three are worth it.
    """

    cost = 0.7
    name = "ledger"
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=1000)

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        """Draw log-normal amounts, counts and flags; group 1 has lower incomes."""
        group = rng.integers(2, size=n)
        amounts = np.exp(0.6 * rng.normal(size=(n, 6)))
        amounts[:, 0] *= np.exp(-0.3 * group)
        counts = rng.poisson([0.5, 1.0, 2.0, 4.0], size=(n, 4))
        flags = rng.random((n, 6)) < [0.1, 0.2, 0.3, 0.4, 0.5, 0.5]
        return np.hstack([amounts, counts, flags]), group

    def label_probability(self, features: Any, sensitive: Any) -> Any:
        """Return labels that depend on a ratio, on steps, and on two flags that differ."""
        income, debt, savings = features[:, 0], features[:, 1], features[:, 2]
        late, flags = features[:, 6], features[:, 10:] > 0.0
        eta = 1.5 - 1.0 * (debt / income > 1.2) - 0.8 * (debt / income > 2.5)
        eta += 0.9 * np.minimum(savings, 1.5) - 0.7 * np.minimum(late, 2.0)
        eta += np.where(flags[:, 4] != flags[:, 5], 0.8, -0.8) - 0.6 * flags[:, 1]
        return expit(eta)

    def initial_theta(self, rng: np.random.Generator) -> Any:
        """Return a model in which income alone counts."""
        theta = np.zeros(17)
        theta[:2] = -4.0, 2.2
        return theta


class Waves(cq.worlds.World):
    """Ten correlated features, labels that go up and down along two of them and around a centre.

    The start looks at two features that say nothing, and accepts one person in seven.
    """

    cost = 0.35
    name = "waves"
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=1000)

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        """Draw normal features, each correlated with the next; group 1 has less of the second."""
        group = rng.integers(2, size=n)
        features = rng.normal(size=(n, 10))
        for k in range(1, 10):
            features[:, k] = 0.5 * features[:, k - 1] + 0.75**0.5 * features[:, k]
        features[:, 1] -= 0.4 * group
        return features, group

    def label_probability(self, features: Any, sensitive: Any) -> Any:
        """Return waves along the first two features and a hill in the next three."""
        waves = 1.2 * np.sin(2.0 * features[:, 0]) + 0.8 * np.cos(3.0 * features[:, 1])
        hill = 2.0 * np.exp(-0.5 * (features[:, 2:5] ** 2).sum(axis=1))
        return expit(waves + hill + 0.5 * features[:, 5] - 1.6)

    def initial_theta(self, rng: np.random.Generator) -> Any:
        """Return a model of the last two features."""
        theta = np.zeros(11)
        theta[[0, 9, 10]] = -3.0, 0.9, 0.9
        return theta


class Heavy(cq.worlds.World):
    """Fourteen heavy-tailed features, nine of which say nothing."""

    cost = 0.55
    name = "heavy"
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=800)

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        """Draw from t, log-normal and Pareto distributions; group 1 has more of the first."""
        group = rng.integers(2, size=n)
        student = rng.standard_t(2, size=(n, 6))
        amounts = np.exp(1.2 * rng.normal(size=(n, 4)))
        features = np.hstack([student, amounts, rng.pareto(1.5, size=(n, 4))])
        features[:, 0] += 0.7 * group
        return features, group

    def label_probability(self, features: Any, sensitive: Any) -> Any:
        """Return labels that depend on logarithms, and on one feature if another is large."""
        shift, turn, amount, switch, late = features[:, [0, 1, 6, 7, 10]].T
        turned = np.clip(turn, -2.0, 2.0) * (switch > 1.0)
        eta = 0.9 * np.tanh(shift) + 0.7 * np.log(amount) - 0.8 * np.log1p(late)
        return expit(eta + 0.6 * turned - 0.1)


class Subgroup(cq.worlds.World):
    """Twelve features; hardly anybody is worth accepting but a rare group of people.

    The start rejects most of them.
    """

    cost = 0.5
    name = "subgroup"
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=1500)

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        """Draw normal features, a flag and a count; group 1 has more of the sixth."""
        group = (rng.random(n) < 0.2).astype(int)
        features = rng.normal(size=(n, 12))
        features[:, 3] = rng.random(n) < 0.12
        features[:, 4] = rng.integers(0, 5, size=n)
        features[:, 5] += 0.5 * group
        return features, group

    def label_probability(self, features: Any, sensitive: Any) -> Any:
        """Return labels that are likely only where the flag and the sixth feature say so."""
        rare = (features[:, 3] > 0.0) & (features[:, 5] > 0.0)
        eta = 0.5 * features[:, 0] + 0.3 * (features[:, 4] >= 3.0) + 3.2 * rare - 1.2
        return expit(eta - 0.4 * features[:, 1] ** 2 * (features[:, 2] > 0.0))

    def initial_theta(self, rng: np.random.Generator) -> Any:
        """Return a model of the first feature that takes the flag for a bad sign."""
        theta = np.zeros(13)
        theta[[0, 1, 4]] = -1.5, 1.5, -2.0
        return theta
