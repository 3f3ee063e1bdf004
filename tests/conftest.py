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


def residual_slopes(objective, policy, rows):
    """Return what an ascent takes for the slopes of its penalty's residuals, from all rows."""
    from consequential.learning.reference import Circle, _Batch, _Running
    from consequential.policies.uniforms import UniformStream

    phi, coefficients = policy.inputs(rows.features), objective.coefficients(rows)
    scale = phi.T @ phi / len(phi)
    circle = Circle(phi, scale, coefficients, coefficients.shares(), len(phi), 0)
    running = _Running(circle, objective)
    running.absorb(_Batch(circle, objective, policy, policy.theta, 0, UniformStream(0)))
    return running.prepared(cq.PreconditionedStep(), policy.theta, 0.1)[0]
