"""`consequential frontier`: how much utility each bound on the gap leaves."""

from __future__ import annotations

import argparse
import sys

from consequential.cli.arguments import Commands, Help, add_cluster, not_negative, where
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.forms import add_form, learner_of
from consequential.cli.questions import add_question, question_of
from consequential.cli.results import Findings, Folder, add_out

_DESCRIPTION = """\
Trace how much utility each bound on the gap leaves: policies are learned under one bound after
another, and judged on rows they were not learned from. Interrupted, it keeps what is done."""

_EXAMPLE = """\
example:
  consequential frontier loans.csv --features income,debt --sensitive sex --decision approved \\
      --label repaid --propensity p --cost 0.6 --max-gaps 0 0.02 0.05 0.1"""


def add_frontier(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "frontier",
        help="trace utility against the gap between groups",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=Help,
    )
    add_columns(parser)
    add_question(parser, methods=False, folds=True)
    parser.add_argument(
        "--max-gaps",
        nargs="+",
        type=not_negative,
        default=[0.0, 0.01, 0.02, 0.05, 0.1, 0.15],
        metavar="G",
        help="bounds to try; no bound at all comes last",
    )
    add_form(parser)
    add_cluster(parser)
    add_out(parser, "frontier")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.evaluation import overlap
    from consequential.report.log import cover_notes, frontier_piece, overlap_piece
    from consequential.tradeoff import frontier

    folder = Folder.of(options)
    source = Source.read(options, seed=options.seed)
    folder.check(source)
    log = source.log()
    announce(log)
    question = question_of(options, log)
    learner = learner_of(options, question)
    print(f"{log}\nfeatures: {', '.join(log.feature_names)}")
    with where(options):
        found = frontier(
            log,
            learner=learner,
            feature_map=learner.feature_map,
            max_gaps=[*sorted(set(options.max_gaps)), None],
            folds=options.folds,
            progress=sys.stderr.isatty(),
            **question,
        )
    cover = overlap(log)
    print(found)
    notes = [*found.notes, *cover_notes(cover)]
    folder.write(
        source,
        Findings(
            "Utility against the gap between groups",
            f"{log}",
            log,
            {"frontier": found.to_dict(), "overlap": cover.to_dict()},
            [frontier_piece(found), overlap_piece(cover)],
            notes,
        ),
    )
    print(folder.said())
    interrupted = any(note.startswith("interrupted") for note in found.notes)
    return 130 if interrupted else 0
