"""`consequential plan`: what exploring costs, and how long until something is proven."""

from __future__ import annotations

import argparse

from consequential.cli.arguments import Commands, Help, not_negative, share
from consequential.cli.columns import Source, add_columns, announce
from consequential.cli.questions import cost_of
from consequential.cli.results import Findings, Folder, add_out

_DESCRIPTION = """\
Say what an exploration floor costs and when an improvement can be proven under it.

For a log whose rule left nothing to chance, give the decision itself as the propensity:
`--propensity approved --decision approved`. About people whom such a rule never accepts nothing is
known; --success-rate says what you assume."""

_EXAMPLE = """\
example:
  consequential plan loans.csv --features income,debt --decision approved --label repaid \\
      --propensity approved --cost 0.6 --improvement 0.01 --rate 5000 --outcome-months 12"""


def add_plan(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="say what exploring costs and when an improvement is proven",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=Help,
    )
    add_columns(parser)
    add = parser.add_argument_group("question").add_argument
    add("--cost", type=share, metavar="C", help="what accepting costs (or --cost-column)")
    add(
        "--improvement",
        type=not_negative,
        required=True,
        metavar="GAIN",
        help="the gain in utility per decision that should be proven",
    )
    add(
        "--floors",
        nargs="+",
        type=share,
        default=[0.01, 0.02, 0.05, 0.1],
        metavar="EPS",
        help="exploration floors to compare",
    )
    add("--candidate", metavar="RULE", help="a policy.json to be proven better (default: any)")
    add(
        "--changed",
        type=share,
        default=0.1,
        help="without a candidate: on what share of people the better rule decides differently",
    )
    add(
        "--success-rate",
        type=not_negative,
        help="assumed share of label 1 among people whom the log never accepts",
    )
    add("--rate", type=not_negative, help="decisions a month")
    add("--outcome-months", type=not_negative, default=0.0, help="months until an outcome is known")
    add("--power", type=share, default=0.8, help="probability of a proof if the gain is real")
    add("--confidence", type=share, default=0.95, help="of the interval that proves it")
    add(
        "--method",
        choices=("normal", "any_time"),
        default="normal",
        help="of that interval: one look at the end, or as many as you like",
    )
    add_out(parser, "plan")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.cli.rules import Ruled, log_for
    from consequential.planning import plan
    from consequential.report.log import Piece, plan_table

    folder = Folder.of(options)
    candidate = None if options.candidate is None else Ruled.of(options.candidate)
    digests = {} if candidate is None else {"candidate": candidate.digest}
    source = Source.read(options)
    folder.check(source, digests)
    log = source.log() if candidate is None else log_for(source, candidate)
    announce(log)
    rule = None if candidate is None else candidate.rule
    notes = [] if candidate is None else candidate.notes_on(log, source)
    found = plan(
        log,
        cost=cost_of(options, log),
        improvement=options.improvement,
        floors=options.floors,
        candidate=rule,
        changed=options.changed,
        success_rate=options.success_rate,
        rate=options.rate,
        horizon=options.outcome_months,
        power=options.power,
        confidence=options.confidence,
        method=options.method,
    )
    print(found)
    notes += [note for note in found.notes if note not in notes]
    folder.write(
        source,
        Findings(
            "What exploring costs",
            "A floor accepts everybody with at least that probability. It costs something with "
            "every decision. The larger it is, the sooner a rule is proven better that accepts "
            "people now rejected; for a rule that only rejects more it changes nothing.",
            log,
            found.to_dict(),
            [Piece("Floors compared", plan_table(found))],
            notes,
            files=digests,
        ),
    )
    print(folder.said())
    return 0
