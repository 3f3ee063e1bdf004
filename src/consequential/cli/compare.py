"""`consequential compare`: whether one rule is better than another."""

from __future__ import annotations

import argparse

from consequential.cli.arguments import Commands, Help
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.questions import add_question, method_of, question_of
from consequential.cli.results import Findings, Folder, add_out

_DESCRIPTION = """\
Estimate how much better a new rule is than an old one, row by row on the same log.

Where the two agree nothing is uncertain, so the difference is known far better than either value.
`logged` is what the log did: the rule in force. With --method any_time you may look as often as you
like while the log grows."""

_EXAMPLE = """\
example:
  consequential compare june.csv --new consequential-fit/policy.json --old logged --cost 0.6 \\
      --sensitive sex --decision approved --label repaid --propensity p"""


def add_compare(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare",
        help="say whether one policy is better than another on a decision log",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=Help,
    )
    add_columns(parser, features="Without it, those of the policies.")
    rules = "a policy.json, or one of logged, accept-all, reject-all"
    parser.add_argument("--new", required=True, metavar="RULE", help=rules)
    parser.add_argument("--old", default="logged", metavar="RULE", help=rules)
    add_question(parser)
    add_out(parser, "compare")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.cli.rules import Ruled, log_for, quietly
    from consequential.evaluation import compare, overlap, sensitivity
    from consequential.report.log import (
        Piece,
        comparisons_table,
        evaluations_table,
        overlap_piece,
        propensities_piece,
        sensitivity_piece,
    )

    folder = Folder.of(options)
    new, old = Ruled.of(options.new), Ruled.of(options.old)
    digests = {"new": new.digest, "old": old.digest}
    source = Source.read(options, seed=options.seed)
    folder.check(source, digests)
    log = log_for(source, new, old)
    announce(log)
    question = question_of(options, log)
    one, other = new.rule, old.rule
    about = [*new.notes_on(log, source), *old.notes_on(log, source)]
    method = method_of(options)
    found = quietly(lambda: compare(one, other, log, **method, **question))
    notes = list(dict.fromkeys([*about, *found.notes]))
    cover = overlap(log)
    rows = log.settled()
    # two policies may have files of one name
    names = (f"new: {new.name}", f"old: {old.name}")
    propensities = {names[1]: rows.propensity_of(other), names[0]: rows.propensity_of(one)}
    pieces = [
        Piece("What changes", comparisons_table({names[1]: found})),
        Piece("Both by themselves", evaluations_table({names[0]: found.new, names[1]: found.old})),
        propensities_piece(rows, propensities, names[0]),
        overlap_piece(cover),
    ]
    numbers = {"comparison": found.to_dict(), "overlap": cover.to_dict()}
    if log.estimated_propensity:
        asked = {name: question[name] for name in ("cost", "fairness", "confidence", "seed")}
        doubt = quietly(lambda: sensitivity(one, log, versus=other, **asked))
        pieces.insert(2, sensitivity_piece(doubt, "utility, new less old"))
        numbers["sensitivity"] = doubt.to_dict()
    print(found)
    for note in notes:
        if note not in found.notes:
            print(f"  note: {note}")
    folder.write(
        source,
        Findings(
            f"Is {new.name} better than {old.name}?",
            f"{found.verdict[0].upper()}{found.verdict[1:]}.",
            log,
            numbers,
            pieces,
            notes,
            files=digests,
        ),
    )
    print(folder.said())
    return 0
