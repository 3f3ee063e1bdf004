"""Bounds: what a learner must keep on the groups of a log, and how that is shown or reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Estimate, Evaluation, evaluate
from consequential.evaluation.contrasts import MOST_GROUPS
from consequential.evaluation.intervals import Normal
from consequential.evaluation.weighted_log import WeightedLog
from consequential.learning.constraints import GapBound, acceptance_bounds
from consequential.learning.fitting import Fitted
from consequential.learning.outcome import counted_by
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.log.attributes import attribute_of
from consequential.objective.fairness import Bound, Fairness, Together, fairness_named
from consequential.objective.objective import Objective
from consequential.policy import Policy

Floats = NDArray[np.float64]
Rates = tuple[float, ...]
_KEPT = 1e-5  # of a rate
_UNUSED = 1e-3  # distance from a bound, from which on it does not bind
_BEYOND = 40.0  # a score so far beyond the cut is all but certain
# the bounds that candidates are learned under, by the one asked for
_STRICTNESS = (0.0, 0.25, 0.5, 0.75, 1.0)
# a log so many times as long is out of reach, and the number of its rows a wild guess
_HOPELESS = 1000.0


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


class BoundNotShownError(DecisionLogError):
    """No policy could be shown to keep the bound; `policy` is the best guess there is.

    `gap` is that policy's gap on held-out rows, and `decisions` is about how many decisions in all
    would show that it keeps the bound: infinite where the gap itself is estimated to be too wide.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.05), 2000,
    ...                     np.random.default_rng(0))
    >>> learner = cq.FairPolicyLearner(
    ...     cost=world.cost, fairness="equal_opportunity", max_gap=0.02, confidence=0.95)
    >>> try:
    ...     learner.fit_log(log)
    ... except cq.BoundNotShownError as declined:
    ...     print(str(declined)[:85], declined.decisions > 2000)
    no policy can be shown to keep a gap of at most 0.02 with confidence 0.95 on this log True
    """

    def __init__(self, message: str, policy: Policy, gap: Estimate, decisions: float) -> None:
        super().__init__(message)
        self.policy, self.gap, self.decisions = policy, gap, decisions


@dataclass(frozen=True, slots=True)
class Tested:
    """A candidate and what the held-out rows say of it.

    `most` is an upper confidence bound on the size of its gap.
    """

    max_gap: float
    fitted: Fitted
    value: Evaluation
    most: float

    def decisions_needed(self, bound: float, n_log: int) -> float:
        """Return about how many decisions would show the bound, half of them held out."""
        gap = abs(self.value.benefit_gap.value)
        if not gap < bound:
            return inf
        return ceil(n_log * ((self.most - gap) / (bound - gap)) ** 2)


@dataclass(frozen=True, slots=True)
class Safety:
    """How a bound was shown to hold: the candidates that passed, in the order of their tests.

    Attributes
    ----------
    max_gap, confidence
        What was asked for: in at most one minus the confidence of logs the true gap exceeds the
        bound.
    passed
        The candidates that passed, the last of which was taken.
    held_out
        The rows that tested them: nothing was learned from these.
    """

    max_gap: float
    confidence: float
    passed: tuple[Tested, ...]
    held_out: DecisionLog = field(repr=False)

    @property
    def chosen(self) -> Tested:
        """The candidate that was taken."""
        return self.passed[-1]

    def __str__(self) -> str:
        gap = self.chosen.value.benefit_gap
        return (
            f"shown on {len(self.held_out)} held-out decisions: the gap is {gap!r} and exceeds "
            f"{self.max_gap:g} in at most {1.0 - self.confidence:.0%} of logs like this one"
        )


def safely_fitted(
    fit: Callable[[DecisionLog, float], Fitted],
    log: DecisionLog,
    objective: Objective,
    max_gap: float,
    confidence: float,
    rng: np.random.Generator,
) -> Safety:
    """Learn candidates from half of a log and test them on the other half.

    `fit` learns from rows under a bound. Raises `BoundNotShownError` where not even the strictest
    candidate passes, and where the one to be taken is worth no more than rejecting everybody.
    """
    learned, held_out = log.settled().split(0.5, by="random", rng=rng)
    passed: list[Tested] = []
    for share in _STRICTNESS:
        candidate = _tested(
            share * max_gap, fit(learned, share * max_gap), held_out, objective, confidence
        )
        if candidate.most > max_gap:
            break
        passed.append(candidate)
    # Rejecting everybody is fair, needs no log and is worth 0: a policy worth less is no answer.
    if not passed or passed[-1].value.utility.value <= 0.0:
        raise _not_shown(passed[-1] if passed else candidate, max_gap, confidence, len(log))
    return Safety(max_gap, confidence, tuple(passed), held_out)


def _tested(
    bound: float, fitted: Fitted, held_out: DecisionLog, objective: Objective, confidence: float
) -> Tested:
    assert objective.fairness is not None
    value = evaluate(
        fitted.policy,
        held_out,
        cost=objective.cost,
        fairness=objective.fairness,
        weighting=objective.weighting,
        confidence=confidence,
    )
    benefits = WeightedLog.of(objective, held_out).benefits(held_out.propensity_of(fitted.policy))
    # one side of each pair's interval errs with half of what the interval does
    intervals = Normal(2.0 * confidence - 1.0)
    return Tested(bound, fitted, value, intervals.furthest_end(benefits))


def _not_shown(tried: Tested, max_gap: float, confidence: float, n_log: int) -> BoundNotShownError:
    if tried.most <= max_gap:
        return BoundNotShownError(
            f"the only policy that can be shown to keep a gap of at most {max_gap:g} with "
            f"confidence {confidence:g} on this log is worth no more than rejecting everybody: "
            f"{tried.value.utility!r} on {tried.value.n} held-out decisions. Ask for a wider gap, "
            "or for less confidence. In Python the policy is this error's `policy`",
            tried.fitted.policy,
            tried.value.benefit_gap,
            inf,
        )
    gap, needed = tried.value.benefit_gap, tried.decisions_needed(max_gap, n_log)
    more = "more decisions will hardly show it, for the gap itself is estimated to be about as wide"
    if needed < _HOPELESS * n_log:
        more = f"about {needed:.0f} decisions in all would show it, if the gap is as estimated"
    return BoundNotShownError(
        f"no policy can be shown to keep a gap of at most {max_gap:g} with confidence "
        f"{confidence:g} on this log: on {tried.value.n} held-out decisions the gap of the best "
        f"guess is {abs(gap.value):.4f}, and with that confidence at most {tried.most:.4f}; "
        f"{more}. Ask for a wider gap, or for less confidence. In Python the best guess is this "
        "error's `policy`",
        tried.fitted.policy,
        gap,
        needed,
    )
