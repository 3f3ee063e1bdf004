"""What several tests share: small logs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_200_626)


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
