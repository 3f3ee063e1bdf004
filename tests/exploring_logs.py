"""Random logs of policies that explore."""

from __future__ import annotations

import numpy as np

import consequential as cq


def exploring_log(
    n: int = 400, n_groups: int = 2, n_features: int = 2, seed: int = 0, **columns: object
) -> cq.DecisionLog:
    """A random log of an exploring policy, every group and label kind present."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_features))
    group = rng.integers(n_groups, size=n)
    propensity = 0.1 + 0.8 * rng.random(n)
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < 1 / (1 + np.exp(-features[:, 0])), np.nan)
    return cq.DecisionLog.from_arrays(
        features, decision, propensity, label, group, groups=range(n_groups), **columns
    )
