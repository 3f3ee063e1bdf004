"""Bounds: what a learner is asked to keep on the groups of one log, and the cut that keeps rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contrasts import MOST_GROUPS
from consequential.learning import GapBound, acceptance_bounds
from consequential.learning.outcome import counted_by
from consequential.log import DecisionLog, LogScan
from consequential.log.attributes import attribute_of
from consequential.objective.fairness import Bound, Fairness, Together, fairness_named
from consequential.policy import Policy


def asked_bounds(learner: Any) -> tuple[Bound, ...]:
    """Return the bounds on gaps that a learner is asked to keep."""
    if learner.bounds:
        return tuple(learner.bounds)
    return () if learner.max_gap is None else (Bound(learner.fairness, learner.max_gap),)


def notion_of(learner: Any) -> Fairness:
    """Return the notion with all benefits that a learner compares."""
    notions = tuple(dict.fromkeys(bound.notion for bound in learner.bounds or ()))
    if len(notions) > 1:
        return Together(notions)
    return notions[0] if notions else fairness_named(learner.fairness)


def first_bound(learner: Any) -> Bound:
    """Return what a learner's figures are about: its first bound, or its notion without one."""
    return (*asked_bounds(learner), Bound(learner.fairness, 1.0))[0]


def gap_bounds(bounds: Sequence[Bound], log: DecisionLog | LogScan) -> tuple[GapBound, ...]:
    """Return bounds as the solver takes them: positions of benefits, and of groups in a log."""
    notions = tuple(dict.fromkeys(bound.notion for bound in bounds))
    shapes = Together(notions).shapes() if len(notions) > 1 else ()
    found = []
    for bound in bounds:
        rows = tuple(map(shapes.index, Together((bound.notion,)).shapes())) if shapes else None
        merged = None if bound.by is None else attribute_of(log, bound.by)
        if merged is not None and len(set(merged)) == len(merged):
            merged = None  # the log's groups are those of the attribute
        found.append(GapBound(bound.max_gap, rows, counted_by(bound.notion), merged))
    return tuple(found)


def compared_in(log: DecisionLog, bound: Bound) -> DecisionLog:
    """Return a log with the groups that a bound compares."""
    return log if bound.by is None else log.by(bound.by)


def rate_bounds(learner: Any, log: DecisionLog | LogScan) -> tuple[Rates, Rates]:
    """Return the largest and the smallest acceptance rates that a learner may end with."""
    most = acceptance_bounds(learner.max_acceptance, log.groups)
    least = acceptance_bounds(learner.min_acceptance, log.groups, option="min_acceptance")
    return most, least


def _check_number(n_groups: int) -> None:
    if n_groups > MOST_GROUPS:
        raise ValueError(
            f"{n_groups} groups cannot be compared pair by pair, only {MOST_GROUPS}: merge small "
            "ones in the sensitive column"
        )


def check_bounds(learner: Any, log: DecisionLog | LogScan) -> None:
    """Raise an error for bounds that make no sense, alone, together or with this log."""
    most, least = rate_bounds(learner, log)
    for rate in most:
        if rate < learner.floor:
            raise ValueError(
                f"floor={learner.floor:g} accepts more people than max_acceptance allows, "
                f"{rate:g}: choose a smaller floor"
            )
    for low, high in zip(least, most, strict=False):
        if low > high:
            raise ValueError(
                f"min_acceptance asks for {low:g} where max_acceptance allows {high:g}: for an "
                "exact share make them equal"
            )
    if learner.max_gap is not None or learner.min_ratio is not None or learner.penalty:
        _check_number(len(log.groups))
    if not learner.bounds:
        return
    for each in learner.bounds:
        if not isinstance(each, Bound):
            raise TypeError(
                "bounds is a list of fairness.Bound, such as "
                f'[Bound("demographic_parity", 0.02)], not of {each!r}'
            )
    others = {"max_gap": None, "min_ratio": None, "confidence": None, "penalty": 0.0}
    for name, unused in (others | {"fairness": "demographic_parity"}).items():
        if getattr(learner, name) != unused:
            raise ValueError(
                f"{name}= does not go with bounds=, of which each has a notion and a gap of its "
                "own: leave it out"
            )
    for bound, solved in zip(learner.bounds, gap_bounds(learner.bounds, log), strict=True):
        _check_number(len(solved.names(log.groups)))
        if solved.merged is not None and any(
            shape.denominator is not None for shape in Together((bound.notion,)).shapes()
        ):
            raise ValueError(
                f"{bound.notion.name} compares ratios, and a group's is no mean of its parts': it "
                f"can be bounded in a log whose only sensitive column is {bound.by!r}, or without "
                "by="
            )


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
