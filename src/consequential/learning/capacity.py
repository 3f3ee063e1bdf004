"""Capacity: where a policy's cut lies if its acceptance rates keep their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.policy import Policy

Floats = NDArray[np.float64]
Rates = tuple[float, ...]

_KEPT = 1e-5  # of a rate
_UNUSED = 1e-3  # distance from a bound, from which on it does not bind
_BEYOND = 40.0  # a score so far beyond the cut is all but certain


def worst_excess(propensity: Floats, log: DecisionLog, bounds: Rates, *, upper: bool) -> float:
    """Return by how much acceptance exceeds its bounds; below 0 where all of them are kept.

    The bounds are those of each group, then of everybody: see `acceptance_bounds`. Those that are
    not `upper` bounds are exceeded by accepting too few.
    """
    sizes = np.bincount(log.group, minlength=len(log.groups))
    accepted = np.bincount(log.group, propensity, len(log.groups))
    rates = np.append(accepted / np.maximum(sizes, 1), propensity.mean())
    return float((rates - np.array(bounds)).max() if upper else (np.array(bounds) - rates).max())


def at_rate(
    policy: Policy, log: DecisionLog, bounds: Rates, crossed: Floats, *, upper: bool
) -> Policy:
    """Return the policy with its cut moved to where acceptance reaches a bound and keeps all.

    A policy over scores is fitted to cross-fitted ones, whose propensities are `crossed`. The
    models it decides with saw all rows, and their scores are distributed a little differently.
    Where no bound is reached in either, the policy stays as it is. No labels are needed.
    """
    from scipy.optimize import brentq

    if not bounds:
        return policy
    sensitive = log.sensitive if policy.uses_sensitive else None
    scores = policy.linear_score(log.named_features, sensitive)

    def excess(shift: float) -> float:
        propensity = policy.scored(scores + shift, log.named_features, sensitive)
        return worst_excess(propensity, log, bounds, upper=upper) + _KEPT

    reach = float(np.abs(scores).max()) + _BEYOND
    apart = worst_excess(crossed, log, bounds, upper=upper) < -_UNUSED
    if (apart and excess(0.0) <= 0.0) or excess(-reach) * excess(reach) > 0.0:
        return policy
    blocks = policy.theta.reshape(max(len(policy.groups), 1), -1).copy()
    blocks[:, 0] += brentq(excess, -reach, reach, xtol=1e-9 * reach)
    return replace(policy, theta=blocks.ravel())
