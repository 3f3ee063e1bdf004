"""Analyses: the commands that ask about a decision log without choosing a policy."""

from __future__ import annotations

import sys

from consequential import evaluation, planning, tradeoff
from consequential.cli.options import cluster_of
from consequential.cli.request import Request, exploration_notes, log_command
from consequential.cli.results import Findings
from consequential.plotting import svg_of
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
        introduction=str(log),
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
    return Findings(
        text=str(found),
        title=f"What {name} would do",
        introduction=str(log),
        results={
            "evaluation": found,
            "group_metrics": metrics,
            "overlap": evaluation.overlap(log),
            **request.sensitivity(rule, log),
        },
        notes=[*notes, *found.notes, *metrics.notes],
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
    return Findings(
        text=str(found),
        title=f"Is {new.name} better than {old.name}?",
        introduction=f"{found.verdict[0].upper()}{found.verdict[1:]}.",
        results={
            "comparison": found,
            "overlap": evaluation.overlap(log),
            **request.sensitivity(new.rule, log, versus=old.rule),
        },
        notes=[*notes, *found.notes],
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
        introduction=str(log),
        results={"frontier": found, "overlap": exploration},
        notes=[*found.notes, *exploration_notes(exploration)],
        page={"plot": svg_of(found.plot(), "frontier")},
        interrupted=any(note.startswith("interrupted") for note in found.notes),
    )


@log_command
def plan(request: Request) -> Findings:
    """Say what exploring costs, and how long until an improvement is proven."""
    options, log, candidate = request.options, request.log, request.rules.get("candidate")
    notes = [] if candidate is None else candidate.notes(log, request.source)
    asked = ("improvement", "floors", "changed", "success_rate", "rate", "power", "confidence")
    found = planning.plan(
        log,
        cost=request.cost,
        candidate=None if candidate is None else candidate.rule,
        horizon=options.outcome_months,
        method=options.method,
        **{name: getattr(options, name) for name in asked},
    )
    return Findings(
        text=str(found),
        title="What exploring costs",
        introduction="A floor accepts everybody with at least that probability. It costs something "
        "with every decision. The larger it is, the sooner a rule is proven better that accepts "
        "people now rejected; for a rule that only rejects more it changes nothing.",
        results=found,
        notes=[*notes, *found.notes],
    )
