"""`consequential fit`: learn a policy from a decision log."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consequential.cli.arguments import Commands, Help, not_negative, share
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.forms import add_form, learner_of
from consequential.cli.questions import add_question, method_of, question_of
from consequential.cli.results import Findings, Folder, add_out

if TYPE_CHECKING:
    from consequential.estimator import FairPolicyLearner
    from consequential.evaluation import Estimate, GroupMetrics
    from consequential.learning.fitting import Fitted
    from consequential.log import DecisionLog
    from consequential.policies import DecisionRule
    from consequential.report.log import Piece

_DESCRIPTION = """\
Learn whom to accept, with what probability, from a log that has labels of accepted people only.

Writes policy.json, report.html and results.json. Figures are cross-fitted: each row is judged by a
policy that was not learned from it, so they are about policies learned in this way and not
flattered by the learning. A bound on the gap is kept on the rows learned from; the first lines say
whether it is kept among other people. With --bound-confidence 0.95 half of the log is held out to
show that, and where it cannot be shown nothing is written."""

_EXAMPLE = """\
example:
  consequential fit loans.csv --features income,debt,purpose --sensitive sex --decision approved \\
      --label repaid --propensity p --cost 0.6 --max-gap 0.02 --spline 8 --floor 0.02"""


def add_fit(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "fit",
        help="learn a fair policy from a decision log",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=Help,
    )
    add_columns(parser)
    add_question(parser, folds=True)
    bound = add_form(parser).add_mutually_exclusive_group().add_argument
    bound("--max-gap", type=not_negative, metavar="G", help="largest difference between groups")
    bound("--min-ratio", type=not_negative, metavar="R", help="smallest ratio between groups")
    bound("--penalty", type=not_negative, metavar="LAMBDA", help="the paper's lambda")
    parser.add_argument(
        "--bound-confidence",
        type=share,
        metavar="C",
        help="how sure to be that people keep --max-gap, 0.95 say: shown on held-out rows",
    )
    add_out(parser, "fit")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.evaluation import compare, group_metrics, overlap, sensitivity
    from consequential.policies import AcceptAll, Logged, RejectAll
    from consequential.report.log import (
        Piece,
        benefits_table,
        comparisons_table,
        cover_notes,
        evaluations_table,
        groups_table,
        overlap_piece,
        propensities_piece,
        sensitivity_piece,
    )

    folder = Folder.of(options)
    source = Source.read(options, seed=options.seed)
    folder.check(source)
    log = source.log()
    announce(log)
    question = question_of(options, log)
    learner = learner_of(options, question).set_params(
        max_gap=options.max_gap,
        min_ratio=options.min_ratio,
        penalty=options.penalty or 0.0,
        confidence=options.bound_confidence,
    )
    print(f"{log}\nfeatures: {', '.join(log.feature_names)}")
    judged = _judged(learner, log, options, question)
    fitted, unseen, rows = judged.fitted, judged.rule, judged.rows
    others = {"what the log did": Logged(), "accept all": AcceptAll(), "reject all": RejectAll()}
    against = {
        name: compare(unseen, other, rows, **method_of(options), **question)
        for name, other in others.items()
    }
    logged = against["what the log did"]
    shared = {name: question[name] for name in ("weighting", "confidence", "seed")}
    metrics = group_metrics(unseen, rows, **shared)
    cover = overlap(log)
    bound = _bound(options, judged.gap, metrics)
    notes = _notes(options, judged, len(log) - len(log.settled()), log.horizon)
    notes = list(dict.fromkeys([*notes, *cover_notes(cover), *logged.notes]))
    propensities = {
        "what the log did": rows.propensity,
        "the policy": rows.propensity_of(fitted.policy),
    }
    evaluations = {f"the policy, {judged.how}": logged.new}
    evaluations |= {name: each.old for name, each in against.items()}
    pieces = [
        Piece("What it is worth", evaluations_table(evaluations) + benefits_table(logged.new)),
        Piece("What it changes", comparisons_table(against)),
        Piece(f"Rates by group, {judged.how}", groups_table(metrics)),
        _certificates(fitted),
        propensities_piece(rows, propensities, "the policy"),
        overlap_piece(cover),
    ]
    numbers: dict[str, Any] = {
        "certificates": _numbers(fitted),
        "bound": bound,
        "policy_gap": judged.gap.to_dict(),
        "value": logged.new.to_dict(),
        "comparisons": {name: each.to_dict() for name, each in against.items()},
        "group_metrics": metrics.to_dict(),
        "overlap": cover.to_dict(),
    }
    if log.estimated_propensity:
        asked = {name: question[name] for name in ("cost", "fairness", "confidence", "seed")}
        doubt = sensitivity(unseen, rows, versus=Logged(), **asked)
        pieces.insert(3, sensitivity_piece(doubt, "utility, policy less log"))
        numbers["sensitivity"] = doubt.to_dict()
    if bound:
        print(bound)
    folds = f", {options.folds} folds" if options.bound_confidence is None else ""
    print(f"\n{judged.how}{folds}: {logged.new}")
    print(f"\nagainst what the log did: {logged.verdict}\n  utility {logged.utility!r}")
    for note in notes:
        if note not in logged.new.notes:
            print(f"  note: {note}")
    verdict = f"Against what the log did, {judged.how}: {logged.verdict}."
    folder.write(
        source,
        Findings(
            f"A policy learned from {source.name}",
            "\n\n".join(part for part in (bound, str(log), verdict) if part),
            log,
            numbers,
            pieces,
            notes,
            policy=fitted.policy,
        ),
    )
    print(f"policy: {(folder.path / 'policy.json').resolve()}\n{folder.said()}")
    return 0


@dataclass(frozen=True, slots=True)
class _Judged:
    """A fitted policy, and the rule and rows that say what it is worth."""

    fitted: Fitted
    rule: DecisionRule
    rows: DecisionLog
    gap: Estimate  # of the fitted policy itself
    how: str
    note: str


def _judged(
    learner: FairPolicyLearner,
    log: DecisionLog,
    options: argparse.Namespace,
    question: dict[str, Any],
) -> _Judged:
    """Fit the learner; judge it on held-out rows where it has some, else cross-fitted."""
    from sklearn.base import clone

    from consequential.evaluation import cross_fitted, deployed_gap

    whole = clone(learner).fit_log(log)
    if options.bound_confidence is not None:
        return _Judged(
            whole.result_,
            whole.policy_,
            whole.safety_.held_out,
            whole.policy_gap_,
            "on held-out rows",
            "policy.json was learned from one half of the log, and all figures come from the other",
        )
    crossed = cross_fitted(learner, log, options.folds, seed=options.seed)
    rows = log.settled()
    asked = {name: question[name] for name in ("cost", "fairness", "weighting", "confidence")}
    return _Judged(
        whole.result_,
        crossed,
        rows,
        deployed_gap(crossed, rows, seed=options.seed, **asked),
        "cross-fitted",
        "figures are cross-fitted, and policy.json was learned from all rows",
    )


def _bound(options: argparse.Namespace, gap: Estimate, metrics: GroupMetrics) -> str:
    """Say whether the bound that was asked for is kept among people the policy has not seen."""
    rates = {"demographic_parity": "selection_rate", "equal_opportunity": "true_positive_rate"}
    if options.max_gap is not None:
        asked, found = f"gap at most {options.max_gap:g}", gap
        kept = max(gap.high, -gap.low) <= options.max_gap
        broken = max(gap.low, -gap.high) > options.max_gap
    elif options.min_ratio is not None and options.fairness in rates:
        asked = f"ratio at least {options.min_ratio:g}"
        found = metrics.ratio[rates[options.fairness]]
        kept, broken = found.low >= options.min_ratio, found.high < options.min_ratio
    else:
        return ""
    said = "cannot tell whether it is kept" if not broken else "NOT KEPT"
    if options.bound_confidence is not None:
        said = f"shown to be kept with confidence {options.bound_confidence:g}"
    elif kept:
        said = "kept"
    return f"Bound ({asked}): {said} among people it was not learned from; there it is {found!r}."


def _notes(
    options: argparse.Namespace, judged: _Judged, left_out: int, horizon: int | None
) -> list[str]:
    notes = [judged.note, *judged.fitted.notes]
    if left_out:
        notes.append(
            f"{left_out} decisions younger than the horizon of {horizon} time steps are left out, "
            "accepted and rejected alike"
        )
    if judged.fitted.violation > 1e-3:
        notes.append(
            f"the constraint is missed by {judged.fitted.violation:.3g} where it was learned: no "
            "policy of this form was found that meets it"
        )
    if options.uses_sensitive:
        notes.append("the policy decides by the sensitive attribute")
    if options.floor == 0.0:
        notes.append(
            "the policy has no exploration floor: the next log may say nothing about people it "
            "rejects (--floor 0.02 keeps looking)"
        )
    return notes


def _certificates(fitted: Fitted) -> Piece:
    from consequential.report.log import Piece
    from consequential.report.page import paragraphs, table_of

    rows = [
        ["utility", f"{fitted.utility:.4f}"],
        ["gap", f"{fitted.benefit_gap:.4f}"],
        ["constraint missed by", f"{fitted.violation:.2g}"],
        ["utility without constraint or penalty", f"{fitted.unconstrained_utility:.4f}"],
        ["given up for fairness", f"{fitted.cost_of_fairness:.4f}"],
        ["converged", "yes" if fitted.converged else "no"],
        ["start it came from", fitted.start],
        ["passes over the log", str(fitted.n_passes)],
    ]
    return Piece(
        "On the rows it was learned from",
        paragraphs("These are maxima and flatter the policy; they certify the fit, no more.")
        + table_of(["", ""], rows),
    )


def _numbers(fitted: Fitted) -> dict[str, Any]:
    from consequential.cli.rules import plain

    return {
        "utility": fitted.utility,
        "benefit_gap": fitted.benefit_gap,
        "benefits": plain(fitted.benefits),
        "violation": fitted.violation,
        "unconstrained_utility": fitted.unconstrained_utility,
        "cost_of_fairness": fitted.cost_of_fairness,
        "start": fitted.start,
        "converged": fitted.converged,
        "n_passes": fitted.n_passes,
        "values": plain(fitted.values),
    }
