"""Training: from a learner's options and a log to what the learner has learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from consequential.evaluation import CrossFitted, Estimate, Evaluation, evaluate
from consequential.evaluation.contrasts import normal_quantile
from consequential.evaluation.evaluate import deployed_gap
from consequential.learning.bounds import (
    Safety,
    asked_bounds,
    compared_in,
    first_bound,
    gap_bounds,
    notion_of,
    rate_bounds,
    safely_fitted,
)
from consequential.learning.candidates import METHODS, Candidates, chosen_among, inside_bounds
from consequential.learning.constraints import Constraint, GapBound
from consequential.learning.fitting import Fitted, UnexploredLogError, fit_policy
from consequential.learning.inputs import check_options, signs_of, template_for, unexplored
from consequential.learning.modelled import Modelled
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective.fairness import Bound
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.objective.weightings.predicted import ModelOnly, Predicted
from consequential.policy import Policy
from consequential.policy.scores import Scores

_SAMPLED = 500_000  # rows of a scan that models are fitted to
_COMPARED = 20_000  # rows on which policies of folds are compared with the one of all rows


@dataclass(frozen=True, slots=True)
class Learned:
    """A fitted policy, and what is known of it from rows it was not learned from."""

    result: Fitted
    value: Evaluation | None = None
    policy_gap: Estimate | None = None
    policy_gaps: dict[Bound, Estimate] | None = None
    cross_fitted: CrossFitted | None = None
    weighting: Weighting | None = None
    safety: Safety | None = None


def learned(
    learner: Any,
    log: DecisionLog | LogScan,
    *,
    folds: int | None = None,
) -> Learned:
    """Learn a policy as the learner's options say."""
    check_options(learner, log)
    rng = np.random.default_rng(learner.random_state)
    try:
        if learner.confidence is not None:
            assert isinstance(log, DecisionLog)  # check_options has refused a scan
            return _learned_safely(learner, log, rng)
        if learner.method == "direct":
            bounds = gap_bounds(asked_bounds(learner), log)
            return Learned(_searched(learner, log, bounds, rng))
        rows = log.sample(_SAMPLED, rng) if isinstance(log, LogScan) else log
        modelled = inside_bounds(Modelled.of(learner, rows, folds))
        name, crossed, candidates = chosen_among(modelled, methods_of(learner))
        found = modelled.at_capacity(METHODS[name](modelled, rng))
    except UnexploredLogError as error:
        raise DecisionLogError(unexplored(log, error)) from None
    policy = replace(found.policy, learned_from=log.fingerprint)
    result = replace(found, policy=policy, candidates=candidates)
    return cross_evaluated(learner, result, crossed, modelled.log, modelled.doubly_robust)


def cross_evaluated(
    learner: Any,
    result: Fitted,
    crossed: CrossFitted,
    log: DecisionLog,
    weighting: Weighting | None,
) -> Learned:
    """Add what cross-fitted policies are worth, each on the rows it was not learned from.

    The interval of their utility is widened to one of the policy of all rows, which may be worth
    more.
    """
    asked: dict[str, Any] = {"cost": learner.cost, "weighting": weighting}
    first = first_bound(learner)
    value = evaluate(crossed, compared_in(log, first), fairness=first.notion, **asked)
    more, error = _learned_from_the_rest(learner, result.policy, crossed, log, weighting)
    utility = value.utility.widened(error, normal_quantile(value.confidence))
    value = replace(value, utility=replace(utility, high=utility.high + more))
    propensity = log.settled().propensity_of(result.policy)
    gaps = {
        bound: deployed_gap(
            crossed, compared_in(log, bound), propensity, fairness=bound.notion, **asked
        )
        for bound in dict.fromkeys((first, *asked_bounds(learner)))
    }
    kept = {bound: gaps[bound] for bound in asked_bounds(learner)}
    unsure = [
        f"the gap of {bound.notion.name} among people has a standard error of "
        f"{gap.standard_error:.2g}, more than its bound of {bound.max_gap:g}: the log cannot tell "
        "whether it is kept"
        for bound, gap in kept.items()
        if gap.standard_error > bound.max_gap > 0.0
    ]
    result = replace(result, remarks=(*result.remarks, *unsure))
    return Learned(result, value, gaps[first], kept or None, crossed, weighting)


def _learned_from_the_rest(
    learner: Any, policy: Policy, crossed: CrossFitted, log: DecisionLog, weighting: Any
) -> tuple[float, float]:
    """Estimate how much more a policy of all rows is worth than policies of folds, and an error.

    It is what these lose by the model that the policy decides by. Fitted to n - m of n rows, a
    parameter has a variance of s / (n - m) in place of s / n, and the square of its distance to the
    parameter of all rows has the mean s / (n - m) - s / n, the same excess. Near an optimum utility
    falls with such squares, so the loss by the model is an estimate of the true one. The error is
    that of the same difference measured by the log's labels. Where policies differ, labels of each
    fold decide on rows of the others, and an error that takes rows for independent lacks as much.
    A search over features has no model, and its interval stays that of the folds' policies.
    """
    if not isinstance(policy.feature_map, Scores) or not crossed.policies:
        return 0.0, 0.0
    kept = np.linspace(0, len(log) - 1, min(len(log), _COMPARED)).astype(np.intp)
    rows = log.take(kept)
    predicted = policy.feature_map.transform(rows.features, rows.group)[:, 0]
    modelled = Objective(learner.cost, weighting=Predicted(weighting=ModelOnly(), values=predicted))
    measured = Objective(learner.cost, weighting=weighting)
    propensity = rows.propensity_of(policy)
    apart = np.stack([propensity - rows.propensity_of(each) for each in crossed.policies])
    more = float(apart.mean(axis=0) @ modelled.coefficients(rows).utility)
    squares = (apart**2).mean(axis=0) * measured.coefficients(log).utility[kept] ** 2
    return max(more, 0.0), float(len(log) * squares.mean()) ** 0.5


def cross_fitted_under(
    learner: Any, log: DecisionLog, bounds: Sequence[float | None], folds: int
) -> Iterator[CrossFitted]:
    """Yield cross-fitted policies under one bound after another; models are fitted once.

    The method is chosen once, without a bound. Monotone rules for a model, which cannot go by what
    features say of the group, may be the best without a bound and poor under one: then it is
    chosen under each.
    """
    modelled = Modelled.of(learner, log, folds, bounded=True)
    name, crossed, _ = chosen_among(replace(modelled, bounds=()), methods_of(learner))

    def bounded(max_gap: float) -> Modelled:
        return replace(modelled, bounds=_on_gap(learner, max_gap, log))

    for bound in bounds:
        if bound is None:
            yield crossed
        elif learner.monotone and not learner.uses_sensitive:
            yield chosen_among(bounded(bound), methods_of(learner))[1]
        else:
            yield bounded(bound).crossed(METHODS[name], name)


def methods_of(learner: Any) -> tuple[str, ...]:
    """Return the methods that a learner compares."""
    return ("model", "scores", "direct") if learner.method == "auto" else (learner.method,)


def _learned_safely(learner: Any, log: DecisionLog, rng: np.random.Generator) -> Learned:
    """Learn under a bound that is shown to hold on rows which nothing was learned from."""

    @cache  # the models do not depend on the bound
    def contest(rows: DecisionLog) -> tuple[Modelled, str, Candidates]:
        modelled = Modelled.of(learner, rows, None)
        name, _, candidates = chosen_among(modelled, methods_of(learner))
        return modelled, name, candidates

    def fit(rows: DecisionLog, bound: float) -> Fitted:
        if learner.method == "direct":
            return _searched(learner, rows, _on_gap(learner, bound, rows), rng)
        modelled, name, candidates = contest(rows)
        bounded = replace(modelled, bounds=_on_gap(learner, bound, rows))
        found = modelled.at_capacity(METHODS[name](bounded, rng))
        return replace(found, candidates=candidates)

    objective = Objective(learner.cost, learner.fairness, weighting=learner.weighting)
    safety = safely_fitted(fit, log, objective, learner.max_gap, learner.confidence, rng)
    chosen = safety.chosen
    gap = chosen.value.benefit_gap
    return Learned(chosen.fitted, chosen.value, gap, {first_bound(learner): gap}, safety=safety)


def _on_gap(learner: Any, max_gap: float, log: DecisionLog) -> tuple[GapBound, ...]:
    """Return the bound on the gap of the learner's notion, looser or stricter than its own."""
    return gap_bounds((Bound(learner.fairness, max_gap),), log)


def _searched(
    learner: Any,
    log: DecisionLog | LogScan,
    bounds: tuple[GapBound, ...],
    rng: np.random.Generator,
) -> Fitted:
    """Search over the features by weighted labels."""
    most, least = rate_bounds(learner, log)
    return fit_policy(
        log,
        template_for(learner, log),
        Objective(learner.cost, notion_of(learner), learner.penalty, weighting=learner.weighting),
        Constraint(min_ratio=learner.min_ratio, most=most, least=least, bounds=bounds),
        l2=learner.l2,
        n_starts=learner.n_starts,
        max_passes=learner.max_passes,
        signs=signs_of(learner, log),
        unsupported=learner.unsupported,
        rng=rng,
    )
