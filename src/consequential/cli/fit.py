"""`consequential fit`: learn a policy from a decision log."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from consequential.cli.arguments import Commands, Help, not_negative
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.forms import add_form, learner_of
from consequential.cli.questions import add_question, method_of, question_of
from consequential.cli.results import Findings, Folder, add_out

if TYPE_CHECKING:
    from consequential.evaluation import Evaluation
    from consequential.learning.fitting import Fitted
    from consequential.report.log import Piece

_DESCRIPTION = """\
Learn whom to accept, with what probability, from a log that has labels of accepted people only.

Writes policy.json, report.html and results.json. Figures are cross-fitted: each row is judged by a
policy that was not learned from it, so they are about policies learned in this way and not
flattered by the learning."""

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
    add_out(parser, "fit")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from sklearn.base import clone

    from consequential.cli.rules import Unseen
    from consequential.evaluation import (
        compare,
        cross_fitted_propensities,
        group_metrics,
        overlap,
        sensitivity,
    )
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
        max_gap=options.max_gap, min_ratio=options.min_ratio, penalty=options.penalty or 0.0
    )
    print(f"{log}\nfeatures: {', '.join(log.feature_names)}")
    fitted = clone(learner).fit_log(log).result_
    rows = log.settled()
    unseen = Unseen(cross_fitted_propensities(learner, log, options.folds, seed=options.seed))
    others = {"what the log did": Logged(), "accept all": AcceptAll(), "reject all": RejectAll()}
    against = {
        name: compare(unseen, other, rows, **method_of(options), **question)
        for name, other in others.items()
    }
    logged = against["what the log did"]
    shared = {name: question[name] for name in ("weighting", "confidence", "seed")}
    metrics = group_metrics(unseen, rows, **shared)
    cover = overlap(log)
    notes = _notes(options, fitted, len(log) - len(rows), log.horizon)
    notes += _missed(options, logged.new) + cover_notes(cover)
    notes = list(dict.fromkeys([*notes, *logged.notes]))
    propensities = {
        "what the log did": rows.propensity,
        "the policy": rows.propensity_of(fitted.policy),
    }
    evaluations = {"the policy, cross-fitted": logged.new}
    evaluations |= {name: each.old for name, each in against.items()}
    pieces = [
        Piece("What it is worth", evaluations_table(evaluations) + benefits_table(logged.new)),
        Piece("What it changes", comparisons_table(against)),
        Piece("Rates by group, cross-fitted", groups_table(metrics)),
        _certificates(fitted),
        propensities_piece(rows, propensities, "the policy"),
        overlap_piece(cover),
    ]
    numbers: dict[str, Any] = {
        "certificates": _numbers(fitted),
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
    print(f"\ncross-fitted, {options.folds} folds: {logged.new}")
    print(f"\nagainst what the log did: {logged.verdict}\n  utility {logged.utility!r}")
    for note in notes:
        if note not in logged.new.notes:
            print(f"  note: {note}")
    verdict = f"Against what the log did, cross-fitted: {logged.verdict}."
    folder.write(
        source,
        Findings(
            f"A policy learned from {source.name}",
            f"{log}\n\n{verdict}",
            log,
            numbers,
            pieces,
            notes,
            policy=fitted.policy,
        ),
    )
    print(f"policy: {(folder.path / 'policy.json').resolve()}\n{folder.said()}")
    return 0


def _notes(
    options: argparse.Namespace, fitted: Fitted, left_out: int, horizon: int | None
) -> list[str]:
    notes = [
        f"figures are cross-fitted: every row is judged by a policy learned from the other "
        f"{options.folds - 1} of {options.folds} folds; policy.json was learned from all"
    ]
    if left_out:
        notes.append(
            f"{left_out} decisions younger than the horizon of {horizon} time steps are left out, "
            "accepted and rejected alike"
        )
    if not fitted.converged:
        notes.append("the fit stopped before nothing was left to gain")
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


def _missed(options: argparse.Namespace, found: Evaluation) -> list[str]:
    """Say where a bound that held in learning does not hold for other people."""
    gap, bound = found.benefit_gap, options.max_gap
    if bound is None or not (gap.low > bound or gap.high < -bound):
        return []
    return [
        f"the gap was bounded by {bound:g} where policies were learned; for people they have not "
        f"seen it is {gap!r}. More shrinkage (--l2 1e-3) or a larger log keeps bounds better"
    ]


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
