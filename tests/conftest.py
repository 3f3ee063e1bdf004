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


def means_at(objective, policy, rows, coefficients=None):
    """Return an ascent's running means, made of all rows at the policy's theta."""
    from consequential.kernels.random import UniformStream
    from consequential.learning.ascent import Means, Minibatch, Schedule
    from consequential.learning.update import compiled_rows

    n, of_log = len(rows), objective.coefficients(rows) if coefficients is None else coefficients
    phi = policy.inputs(rows.features)
    batches = compiled_rows(phi, of_log, objective.coefficients(rows).shares(), n)
    ascent = cq.UpdatePolicy(objective, 1, n).numbers(n, 0.1)
    means = Means(batches, Schedule(1, n, 0), penalised=True)
    means.absorb(Minibatch(batches, 0, policy, policy.theta, ascent, UniformStream(0)))
    return means


def residual_slopes(objective, policy, rows):
    """Return what an ascent takes for the slopes of its penalty's residuals, from all rows."""
    return means_at(objective, policy, rows).residual_slopes()
