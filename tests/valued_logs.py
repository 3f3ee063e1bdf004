"""Logs of values whose truth is known: repaid loans gain, others lose, both by features."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

import consequential as cq


def chances(x):
    """Return the probability of a gain."""
    return expit(1.0 + 1.2 * x[:, 0])


def expected(x):
    """Return E[v | x]: its sign is not that of P(v > 0) - 1/2, nor of any function of that."""
    gain, loss = 100.0 * np.exp(0.4 * x[:, 1]), 300.0 * np.exp(-0.5 * x[:, 1])
    return chances(x) * gain - (1.0 - chances(x)) * loss


def valued_columns(n, seed=0):
    """Return columns of a log in which x0 decides who is accepted."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    propensity = 0.1 + 0.8 * expit(x[:, 0])
    decision = rng.random(n) < propensity
    gain, loss = 100.0 * np.exp(0.4 * x[:, 1]), 300.0 * np.exp(-0.5 * x[:, 1])
    value = np.where(rng.random(n) < chances(x), gain, -loss) * rng.gamma(4.0, 0.25, n)
    return {
        "features": x,
        "decision": decision,
        "propensity": propensity,
        "value": np.where(decision, value, np.nan),
        "sensitive": np.where(rng.random(n) < 0.5, "a", "b"),
    }


def valued_log(n, seed=0, **options):
    """Return such a log."""
    return cq.DecisionLog.from_arrays(**valued_columns(n, seed), **options)


def two_valued(log, cost):
    """Return a log of labels as one of values, 1 - cost and -cost."""
    value = np.where(log.label == 1.0, 1.0 - cost, np.where(log.label == 0.0, -cost, np.nan))
    return cq.DecisionLog.from_arrays(
        log.features, log.decision, log.propensity, sensitive=log.sensitive, value=value
    )
