"""Analyses: the commands about a decision log."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from typing import Any

from consequential import evaluation, planning, tradeoff
from consequential.cli.request import (
    Request,
    decided,
    exploration_notes,
    left_out,
    log_command,
    money_notes,
    outcome_months,
    per_month,
    with_earnings,
)
from consequential.cli.results import Findings, cluster_of
from consequential.evaluation import CrossFitted, Estimate, Evaluation, GroupMetrics
from consequential.evaluation.effects import feature_effects
from consequential.evaluation.evaluate import deployed_gap
from consequential.evaluation.swaps import swap_set
from consequential.learning.bounds import asked_bounds, compared_in, first_bound
from consequential.learning.fitting import Fitted
from consequential.log import DecisionLog
from consequential.objective.fairness import Bound
from consequential.objective.weightings import Weighting
from consequential.plotting import svg_of
from consequential.policy import AcceptAll, DecisionRule, Logged, RejectAll
from consequential.report import propensity_figures


@log_command
def overlap(request: Request) -> Findings:
    """Say whether a log explores, and for whom it does not."""
    options, log = request.options, request.log
    found = evaluation.overlap(log, floor=options.floor, confidence=options.confidence)
    logged = "what the log did"
    return Findings(
        text=str(found),
        title="Does this log explore?",
        introduction=decided(log),
        results=found,
        page={"propensities": propensity_figures(log, {logged: log.propensity}, logged)},
    )


@log_command
def evaluate(request: Request) -> Findings:
    """Estimate what a rule would do with the people of a log."""
    log, name, rule = request.log, request.rules["policy"].name, request.rules["policy"].rule
    notes = request.rules["policy"].notes(log, request.source)
    found = evaluation.evaluate(rule, log, **request.interval, **request.question())
    asked = request.question("weighting", "confidence", "seed")
    metrics = evaluation.group_metrics(rule, log, **asked)
    rows = log.settled()
    propensities = {"what the log did": rows.propensity, name: rows.propensity_of(rule)}
    earned = request.earnings(rule, log)
    return Findings(
        text=with_earnings(str(found), earned),
        title=f"What {name} would do",
        introduction=decided(log),
        results={
            "evaluation": found,
            **earned,
            "group_metrics": metrics,
            "overlap": evaluation.overlap(log),
            **request.sensitivity(rule, log),
        },
        notes=[*money_notes(found, earned), *notes, *found.notes, *metrics.notes],
        page={"rule": name, "propensities": propensity_figures(rows, propensities, name)},
    )


@log_command
def compare(request: Request) -> Findings:
    """Estimate whether one rule is better than another."""
    log, new, old = request.log, request.rules["new"], request.rules["old"]
    notes = [*new.notes(log, request.source), *old.notes(log, request.source)]
    asked = request.interval | request.question()
    found = evaluation.compare(new.rule, old.rule, log, **asked)
    rows = log.settled()
    # two policies may have files of the same name
    names = {"new": f"new: {new.name}", "old": f"old: {old.name}"}
    propensities = {
        names["old"]: rows.propensity_of(old.rule),
        names["new"]: rows.propensity_of(new.rule),
    }
    earned = request.earnings(new.rule, log, old.rule)
    return Findings(
        text=with_earnings(str(found), earned),
        title=f"Is {new.name} better than {old.name}?",
        introduction=f"{found.verdict[0].upper()}{found.verdict[1:]}.",
        results={
            "comparison": found,
            **earned,
            "overlap": evaluation.overlap(log),
            **request.sensitivity(new.rule, log, versus=old.rule),
        },
        notes=[*money_notes(found.new, earned, "the new rule"), *notes, *found.notes],
        page=names | {"propensities": propensity_figures(rows, propensities, names["new"])},
    )


@log_command
def frontier(request: Request) -> Findings:
    """Trace how much utility each bound on the gap leaves."""
    options, log, learner = request.options, request.log, request.learner()
    request.print_log()
    with cluster_of(options):
        found = tradeoff.frontier(
            log,
            learner=learner,
            feature_map=learner.feature_map,
            max_gaps=[*sorted(set(options.max_gaps)), None],
            folds=options.folds,
            progress=sys.stderr.isatty(),
            **request.question(),
        )
    exploration = evaluation.overlap(log)
    return Findings(
        text=str(found),
        title="Utility against the gap between groups",
        introduction=decided(log),
        results={"frontier": found, "overlap": exploration},
        notes=[*left_out(log), *found.notes, *exploration_notes(exploration)],
        page={"plot": svg_of(found.plot(), "frontier")},
        interrupted=any(note.startswith("interrupted") for note in found.notes),
    )


@log_command
def plan(request: Request) -> Findings:
    """Say what exploring costs, and how long until an improvement is proven."""
    options, log, candidate = request.options, request.log, request.rules.get("candidate")
    notes = [] if candidate is None else candidate.notes(log, request.source)
    asked = ("floors", "changed", "success_rate", "power", "confidence")
    money, months = request.money, options.outcome_months
    found = planning.plan(
        log,
        cost=request.cost,
        improvement=options.improvement / (1.0 if money is None else money.worth),
        candidate=None if candidate is None else candidate.rule,
        rate=options.rate or per_month(options, log),
        horizon=outcome_months(options, log) if months is None else months,
        method=options.method,
        **{name: getattr(options, name) for name in asked},
    )
    if money is not None:
        found = found.in_money(money.worth, money.unit)
    return Findings(
        text=f"{found}\nin words: {found.sentences[0]}",
        title="What exploring costs",
        introduction="A floor of 0.02 accepts two of a hundred people whom the rule in force would "
        "reject, besides those it accepts. It costs something with every decision. The larger it "
        "is, the sooner a rule is proven better that accepts people now rejected; for a rule that "
        "only rejects more it changes nothing.",
        results=found,
        notes=[*notes, *left_out(log), *found.notes],
    )


# --- fit


@log_command
def fit(request: Request) -> Findings:
    """Learn a policy from a log, and say what it is worth."""
    options, log = request.options, request.log
    tested = _fit(request)
    if options.method == "normal":  # the other intervals are made for weights alone
        request = replace(request, learned_weighting=tested.weighting)
    question = request.question()
    rule, rows, policy = tested.rule, tested.rows, tested.fitted.policy
    others = {
        "what the log did": Logged(),
        "accept all": AcceptAll(),
        "reject all": RejectAll().with_floor(options.floor),  # as among the candidates
    }
    against = {
        name: evaluation.compare(
            rule, other, request.compared(rows), **request.interval, **question
        )
        for name, other in others.items()
    }
    logged = against["what the log did"]
    metrics = evaluation.group_metrics(
        rule, rows, **request.question("weighting", "confidence", "seed")
    )
    swaps = swap_set(rule, rows, **request.question("confidence", "seed"))
    exploration = evaluation.overlap(log)
    bound = "\n".join(
        [*_bounds(request, tested, metrics, logged.new), *_capacity(request, metrics, logged.new)]
    ).strip()
    folds = f", {options.folds} folds" if options.bound_confidence is None else ""
    evaluated = f"{tested.how}{folds}: {logged.new}"
    verdict = f"against what the log did: {logged.verdict}\n  utility {logged.utility!r}"
    candidates = tested.fitted.candidates
    floored = f"Rejecting all accepts {options.floor:.2%}, the floor." if options.floor else ""
    beside = (
        "The past rule and plain regression, which accepts whoever a logistic regression on "
        "accepted people predicts to be worth the cost, are for comparison only: they have no "
        f"floor and are never taken. {floored}"
    ).strip()
    compared = ""
    if candidates:
        compared = f"candidates, cross-fitted (95% intervals)\n{candidates}\n{beside}"
    changes = f"who changes (before: as logged; after: expected)\n{swaps}"
    earned = request.earnings(rule, rows)
    introduction = [decided(log), f"Against what the log did, {tested.how}: {logged.verdict}."]
    notes = [
        *money_notes(logged.new, earned),
        *exploration_notes(exploration),
        *_notes(request, tested),
        *logged.notes,
    ]
    if isinstance(rule, CrossFitted):  # the note that figures are cross-fitted says it
        notes = [note for note in notes if not note.startswith("cross-fitted:")]
    propensities = {
        "what the log did": rows.propensity,
        "the policy": rows.propensity_of(policy),
    }
    return Findings(
        text=with_earnings(
            "\n\n".join(part for part in (bound, compared, evaluated, verdict, changes) if part),
            earned,
        ),
        title=f"A policy learned from {request.source.name}",
        introduction="\n\n".join([bound, *introduction] if bound else introduction),
        results={
            "certificates": _certificates(tested.fitted),
            "bound": bound,
            "candidates": candidates,
            "policy_gap": next(iter(tested.gaps.values())),
            **({"policy_gaps": tested.gaps} if request.bounds else {}),
            "value": logged.new,
            "comparisons": against,
            **earned,
            "swaps": swaps,
            "group_metrics": metrics,
            "effects": feature_effects(policy, rows),
            "overlap": exploration,
            **request.sensitivity(rule, rows, versus=Logged()),
        },
        notes=notes,
        page={
            "how": tested.how,
            "beside": beside,
            "floored": floored,
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
    gaps: dict[Bound, Estimate]  # of the fitted policy itself, under each bound
    how: str
    note: str
    weighting: Weighting | None = None


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
    if options.bound_confidence is not None:
        fit = learner.fit_log(log)
        return _Tested(
            fitted=fit.result_,
            rule=fit.policy_,
            rows=fit.safety_.held_out,
            gaps=fit.policy_gaps_,
            how="on held-out rows",
            note="policy.json was learned from one half of the log, and all figures come from the "
            "other",
        )
    fit, rows = learner.fit_log(log, folds=options.folds), log.settled()
    propensity = rows.propensity_of(fit.policy_)
    asked = request.question("cost", "confidence", "seed") | {"weighting": fit.weighting_}
    gaps = {
        bound: deployed_gap(
            fit.cross_fitted_, compared_in(rows, bound), propensity, fairness=bound.notion, **asked
        )
        for bound in asked_bounds(learner) or (first_bound(learner),)
    }
    return _Tested(
        fitted=fit.result_,
        rule=fit.cross_fitted_,
        rows=rows,
        gaps=gaps,
        how="cross-fitted",
        note="figures are cross-fitted, and policy.json was learned from all rows",
        weighting=fit.weighting_,
    )


def _certificates(fitted: Fitted) -> dict[str, Any]:
    """Return the figures on the rows the policy was learned from."""
    others = {"policy", "fallback", "candidates", "remarks"}
    names = {each.name for each in fields(fitted)} - others | {"cost_of_fairness"}
    return {name: getattr(fitted, name) for name in sorted(names)}


def _bounds(
    request: Request, tested: _Tested, metrics: GroupMetrics, value: Evaluation
) -> list[str]:
    """Say whether the bounds that were asked for are kept among people the policy has not seen."""
    options, fairness = request.options, request.fairness
    rates = {"demographic_parity": "selection_rate", "equal_opportunity": "true_positive_rate"}
    asked: list[tuple[str, Estimate, bool, bool]] = []  # what, how much, surely kept or broken
    if options.max_gap is not None or request.bounds:
        for bound, gap in tested.gaps.items():
            kept = max(gap.high, -gap.low) <= bound.max_gap
            broken = max(gap.low, -gap.high) > bound.max_gap
            what = str(bound) if request.bounds else f"gap at most {bound.max_gap:g}"
            asked.append((what, gap, kept, broken))
    elif options.min_ratio is not None and fairness in rates:
        found, least = metrics.ratio[rates[fairness]], options.min_ratio
        asked.append((f"ratio at least {least:g}", found, found.low >= least, found.high < least))
    lines: list[str] = []
    for what, found, kept, broken in asked:
        verdict = "NOT KEPT" if broken else "cannot tell whether it is kept"
        if options.bound_confidence is not None:
            verdict = f"shown to be kept with confidence {options.bound_confidence:g}"
        elif kept:
            verdict = "kept"
        # two groups are clear, and `value` is about the first bound
        apart = value.furthest_apart if len(value.benefits) > 2 and not lines else None
        between = "" if apart is None else f" between {apart[0]}, the highest, and {apart[1]}"
        lines.append(
            f"Bound ({what}): {verdict} among people it was not learned from; there it is "
            f"{found!r}{between}."
        )
    if lines and options.min_ratio is None and options.bound_confidence is None:
        lines.append(
            "Gaps here are those of this policy; gaps in tables are those of policies learned like "
            "it from other rows."
        )
    return lines


def _capacity(request: Request, metrics: GroupMetrics, value: Evaluation) -> list[str]:
    """Say whether the bounds on acceptance are kept among people the policy has not seen."""
    lines = []
    for option, words in {"max_acceptance": "at most", "min_acceptance": "at least"}.items():
        asked = request.acceptance(option)
        shares = asked if isinstance(asked, dict) else {} if asked is None else {"": asked}
        for group, share in shares.items():
            of_group = f" of {group}" if isinstance(asked, dict) else ""
            found = metrics.by_group["selection_rate"][group] if of_group else value.acceptance
            least = words == "at least"
            verdict = "kept up to chance"
            if found.value >= share if least else found.value <= share:
                verdict = "kept"
            elif found.high < share if least else found.low > share:
                verdict = "NOT KEPT"
            lines.append(
                f"Capacity (accept {words} {share:g}{of_group}): {verdict} among people it was not "
                f"learned from; there it is {found!r}."
            )
    return lines


def _notes(request: Request, tested: _Tested) -> list[str]:
    options, log, fitted = request.options, request.log, tested.fitted
    notes = [*left_out(log), tested.note, *fitted.notes]
    if options.uses_sensitive:
        notes.append("the policy decides by the sensitive attribute")
    if options.floor == 0.0:
        notes.append(
            "the policy has no exploration floor: the next log may say nothing about people it "
            "rejects (--floor 0.02 keeps looking)"
        )
    return notes
