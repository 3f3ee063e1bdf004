"""`consequential overlap`: whether a log explores, and for whom it does not."""

from __future__ import annotations

import argparse

from consequential.cli.arguments import Commands, Help, share
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.results import Findings, Folder, add_out

_DESCRIPTION = """\
Say whether a decision log explores, and for whom it does not.

A log can answer questions about a rule only where the people it would accept had a chance of being
accepted. Labels play no part. Start here."""

_EXAMPLE = """\
example:
  consequential overlap loans.csv --features income,debt,purpose --sensitive sex \\
      --decision approved --propensity p"""


def add_overlap(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "overlap",
        help="say whether a decision log explores, and for whom not",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=Help,
    )
    add_columns(parser, label=False)
    add = parser.add_argument
    add("--floor", type=share, default=0.01, help="the smallest propensity that counts")
    add("--confidence", type=share, default=0.95, help="of upper bounds on shares of people")
    add_out(parser, "overlap")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.evaluation import overlap
    from consequential.report.log import overlap_piece, propensities_piece

    folder = Folder.of(options)
    source = Source.read(options)
    folder.check(source)
    log = source.log()
    announce(log)
    found = overlap(log, floor=options.floor, confidence=options.confidence)
    print(found)
    rules = {"what the log did": log.propensity}
    folder.write(
        source,
        Findings(
            "Does this log explore?",
            f"{log}",
            log,
            found.to_dict(),
            [overlap_piece(found), propensities_piece(log, rules, "what the log did")],
        ),
    )
    print(folder.said())
    return 0
