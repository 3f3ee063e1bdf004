"""Fit: the command that learns a policy from a decision log."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from sklearn.base import clone

from consequential.cli.request import Request, exploration_notes, log_command
from consequential.cli.results import Findings
from consequential.evaluation import (
    Estimate,
    GroupMetrics,
    compare,
    cross_fitted,
    deployed_gap,
    group_metrics,
    overlap,
)
from consequential.learning.fitting import Fitted
from consequential.log import DecisionLog
from consequential.policies import AcceptAll, DecisionRule, Logged, RejectAll
from consequential.report import propensity_figures


@log_command
def fit(request: Request) -> Findings:
    """Learn a policy from a log, and say what it is worth."""
    options, log = request.options, request.log
    question = request.question()
    tested = _fit(request)
    rule, rows, policy = tested.rule, tested.rows, tested.fitted.policy
    others = {"what the log did": Logged(), "accept all": AcceptAll(), "reject all": RejectAll()}
    against = {
        name: compare(rule, other, rows, **request.interval, **question)
        for name, other in others.items()
    }
    logged = against["what the log did"]
    metrics = group_metrics(rule, rows, **request.question("weighting", "confidence", "seed"))
    exploration = overlap(log)
    bound = _bound(request, tested.gap, metrics)
    folds = f", {options.folds} folds" if options.bound_confidence is None else ""
    evaluated = f"{tested.how}{folds}: {logged.new}"
    verdict = f"against what the log did: {logged.verdict}\n  utility {logged.utility!r}"
    introduction = [str(log), f"Against what the log did, {tested.how}: {logged.verdict}."]
    notes = [*_notes(request, tested), *exploration_notes(exploration), *logged.notes]
    propensities = {
        "what the log did": rows.propensity,
        "the policy": rows.propensity_of(policy),
    }
    return Findings(
        text=f"{bound}\n\n{evaluated}\n\n{verdict}" if bound else f"\n{evaluated}\n\n{verdict}",
        title=f"A policy learned from {request.source.name}",
        introduction="\n\n".join([bound, *introduction] if bound else introduction),
        results={
            "certificates": _certificates(tested.fitted),
            "bound": bound,
            "policy_gap": tested.gap,
            "value": logged.new,
            "comparisons": against,
            "group_metrics": metrics,
            "overlap": exploration,
            **request.sensitivity(rule, rows, versus=Logged()),
        },
        notes=notes,
        page={
            "how": tested.how,
            "evaluations": {f"the policy, {tested.how}": logged.new}
            | {name: each.old for name, each in against.items()},
            "propensities": propensity_figures(rows, propensities, "the policy"),
        },
        policy=policy,
    )


@dataclass(frozen=True, slots=True)
class _Tested:
    """A fitted policy, and the rule and rows that its value is estimated with."""

    fitted: Fitted
    rule: DecisionRule
    rows: DecisionLog
    gap: Estimate  # of the fitted policy itself
    how: str
    note: str


def _fit(request: Request) -> _Tested:
    """Fit a policy; test it on held-out rows if a bound must be shown, else cross-fitted."""
    options, log = request.options, request.log
    learner = request.learner(
        max_gap=options.max_gap,
        min_ratio=options.min_ratio,
        penalty=options.penalty or 0.0,
        confidence=options.bound_confidence,
    )
    request.print_log()
    fit = clone(learner).fit_log(log)
    if options.bound_confidence is not None:
        return _Tested(
            fitted=fit.result_,
            rule=fit.policy_,
            rows=fit.safety_.held_out,
            gap=fit.policy_gap_,
            how="on held-out rows",
            note="policy.json was learned from one half of the log, and all figures come from the "
            "other",
        )
    rule, rows = cross_fitted(learner, log, options.folds, seed=options.seed), log.settled()
    return _Tested(
        fitted=fit.result_,
        rule=rule,
        rows=rows,
        gap=deployed_gap(rule, rows, **request.question()),
        how="cross-fitted",
        note="figures are cross-fitted, and policy.json was learned from all rows",
    )


def _certificates(fitted: Fitted) -> dict[str, Any]:
    """Return the figures on the rows the policy was learned from."""
    names = {each.name for each in fields(fitted)} - {"policy", "fallback"} | {"cost_of_fairness"}
    return {name: getattr(fitted, name) for name in sorted(names)}


def _bound(request: Request, gap: Estimate, metrics: GroupMetrics) -> str:
    """Say whether the bound that was asked for is kept among people the policy has not seen."""
    options, fairness = request.options, request.fairness
    rates = {"demographic_parity": "selection_rate", "equal_opportunity": "true_positive_rate"}
    if options.max_gap is not None:
        asked, found = f"gap at most {options.max_gap:g}", gap
        kept = max(gap.high, -gap.low) <= options.max_gap
        broken = max(gap.low, -gap.high) > options.max_gap
    elif options.min_ratio is not None and fairness in rates:
        asked = f"ratio at least {options.min_ratio:g}"
        found = metrics.ratio[rates[fairness]]
        kept, broken = found.low >= options.min_ratio, found.high < options.min_ratio
    else:
        return ""
    if options.bound_confidence is not None:
        verdict = f"shown to be kept with confidence {options.bound_confidence:g}"
    elif kept:
        verdict = "kept"
    else:
        verdict = "NOT KEPT" if broken else "cannot tell whether it is kept"
    return (
        f"Bound ({asked}): {verdict} among people it was not learned from; there it is {found!r}."
    )


def _notes(request: Request, tested: _Tested) -> list[str]:
    options, log, fitted = request.options, request.log, tested.fitted
    notes = [tested.note, *fitted.notes]
    if left_out := len(log) - len(log.settled()):
        notes.append(
            f"{left_out} decisions younger than the horizon of {log.horizon} time steps are left "
            "out, accepted and rejected alike"
        )
    if fitted.violation > 1e-3:
        notes.append(
            f"the constraint is missed by {fitted.violation:.3g} where it was learned: no policy "
            "of this form was found that meets it"
        )
    if options.uses_sensitive:
        notes.append("the policy decides by the sensitive attribute")
    if options.floor == 0.0:
        notes.append(
            "the policy has no exploration floor: the next log may say nothing about people it "
            "rejects (--floor 0.02 keeps looking)"
        )
    return notes
