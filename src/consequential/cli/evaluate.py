"""`consequential evaluate`: what a rule would do with the people of a log."""

from __future__ import annotations

import argparse

from consequential.cli.arguments import Commands, Help
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.questions import add_question, method_of, question_of
from consequential.cli.results import Findings, Folder, add_out

_DESCRIPTION = """\
Estimate what a rule would do with all applicants of a log that another rule decided on: utility,
acceptance, each group's rates and the gap between groups, each with an interval.

A policy that was learned from this very log is flattered by it, and the page says so: judge it on
decisions that came later, or read the cross-fitted figures that `fit` writes."""

_EXAMPLE = """\
example:
  consequential evaluate june.csv --policy consequential-fit/policy.json --cost 0.6 \\
      --sensitive sex --decision approved --label repaid --propensity p"""


def add_evaluate(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "evaluate",
        help="estimate what a policy would do with the people of a decision log",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=Help,
    )
    add_columns(parser, features="Without it, those of the policy.")
    parser.add_argument(
        "--policy",
        required=True,
        metavar="RULE",
        help="a policy.json, or one of logged, accept-all, reject-all",
    )
    add_question(parser)
    add_out(parser, "evaluate")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.cli.rules import Ruled, log_for, quietly
    from consequential.evaluation import evaluate, group_metrics, overlap, sensitivity
    from consequential.report.log import (
        Piece,
        benefits_table,
        evaluations_table,
        groups_table,
        overlap_piece,
        propensities_piece,
        sensitivity_piece,
    )

    folder = Folder.of(options)
    ruled = Ruled.of(options.policy)
    source = Source.read(options, seed=options.seed)
    folder.check(source, {"policy": ruled.digest})
    log = log_for(source, ruled)
    announce(log)
    question = question_of(options, log)
    rule, notes = ruled.rule, ruled.notes_on(log, source)
    shared = {name: question[name] for name in ("weighting", "confidence", "seed")}
    method = method_of(options)
    found = quietly(lambda: evaluate(rule, log, **method, **question))
    metrics = quietly(lambda: group_metrics(rule, log, **shared))
    notes = list(dict.fromkeys([*notes, *found.notes, *metrics.notes]))
    cover = overlap(log)
    rows = log.settled()
    propensities = {"what the log did": rows.propensity, ruled.name: rows.propensity_of(rule)}
    pieces = [
        Piece("What it is worth", evaluations_table({ruled.name: found}) + benefits_table(found)),
        Piece("Rates by group", groups_table(metrics)),
        propensities_piece(rows, propensities, ruled.name),
        overlap_piece(cover),
    ]
    numbers = {
        "evaluation": found.to_dict(),
        "group_metrics": metrics.to_dict(),
        "overlap": cover.to_dict(),
    }
    if log.estimated_propensity:
        asked = {name: question[name] for name in ("cost", "fairness", "confidence", "seed")}
        doubt = quietly(lambda: sensitivity(rule, log, **asked))
        pieces.insert(2, sensitivity_piece(doubt, "utility"))
        numbers["sensitivity"] = doubt.to_dict()
    print(found)
    for note in notes:
        if note not in found.notes:
            print(f"  note: {note}")
    folder.write(
        source,
        Findings(
            f"What {ruled.name} would do",
            f"{log}",
            log,
            numbers,
            pieces,
            notes,
            files={"policy": ruled.digest},
        ),
    )
    print(folder.said())
    return 0
