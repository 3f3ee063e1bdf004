"""`consequential reproduce`: the paper's experiments, figures and claims."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from consequential.cli.arguments import Commands, Help, add_cluster, at_least_one, named, where
from consequential.tables import text_table

if TYPE_CHECKING:
    from consequential.paper.studies import Scale

_DESCRIPTION = """\
Run the paper's experiments, draw its figures, judge its claims and write one page, report.html.

Every study is run twice: with the estimators as printed and with the corrected ones. Names are of
studies or of figures; `more` stands for studies the paper does not have, `all` for everything, and
without a name the paper's own are run. Results are kept as they come: stop at any time, and the
same command goes on where it was."""

_EXAMPLES = """\
examples:
  consequential reproduce --quick                      everything, small: half a minute
  consequential reproduce                              the paper's size
  consequential reproduce first-time evolution         two of them
  consequential reproduce --list                       what there is"""


def add_reproduce(commands: Commands) -> None:
    """Add the command."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and write its figures, claims and a report",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=Help,
    )
    add = reproduce.add_argument
    add("names", nargs="*", metavar="NAME", help="a study or a figure, `more` or `all`")
    add("--seeds", type=at_least_one, default=argparse.SUPPRESS, help="runs of each (default: 30)")
    add(
        "--penalties",
        type=at_least_one,
        default=argparse.SUPPRESS,
        help="how many values of lambda, from 10^-0.5 to 10^4 (default: 19)",
    )
    add("--quick", action="store_true", help="few seeds, penalties and time steps")
    add("--out", type=Path, default=Path("consequential-paper"), help="folder for results")
    add("--jobs", type=at_least_one, default=argparse.SUPPRESS, help="threads (default: all cores)")
    add_cluster(reproduce)
    add("--list", action="store_true", help="say what there is, and do nothing")
    reproduce.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.paper.reproduce import reproduce

    names, scale = _studies(options.names), _scale(options)
    if options.list:
        print(_listed(names if options.names else _studies(["all"]), scale))
        return 0
    started = time.monotonic()
    try:
        with where(options):
            page = reproduce(names, options.out, scale, n_jobs=getattr(options, "jobs", None))
    except KeyboardInterrupt:
        print(kept(options.out), file=sys.stderr)
        return 130
    print(f"report: {page.resolve()}  ({time.monotonic() - started:.0f} s)")
    return 0


def kept(out: Path) -> str:
    """Say what an interruption left, and how to go on."""
    return f"interrupted: what is done is kept in {out}; the same command goes on from there"


def _scale(options: argparse.Namespace) -> Scale:
    from dataclasses import replace

    from consequential.paper.studies import FULL, QUICK

    asked = {name: getattr(options, name) for name in ("seeds", "penalties") if name in options}
    return replace(QUICK if options.quick else FULL, **asked)


def _studies(names: list[str]) -> list[str]:
    """Return the studies that names stand for, in the order of the paper."""
    from consequential.paper.figures import FIGURES
    from consequential.paper.studies import MORE, NAMES, OF_PAPER

    known: dict[str, tuple[str, ...]] = {name: (name,) for name in NAMES}
    for name, figure in FIGURES.items():
        known.setdefault(name, figure.studies)
    known |= {"more": MORE, "all": NAMES}
    wanted = [study for name in names for study in named("study or figure", name, known)]
    return [study for study in NAMES if study in (wanted if names else OF_PAPER)]


def _listed(names: list[str], scale: Scale) -> str:
    from consequential.paper.figures import FIGURES
    from consequential.paper.studies import STUDIES

    lines = [["study", "paper's figure", "columns", "about", "what it shows"]]
    for name in names:
        study = STUDIES[name]
        work = sum(map(len, study.blocks(scale))) * study.seconds_per_seed(scale)
        columns = ", ".join(study.columns)
        lines.append([name, study.figure or "-", columns, _duration(work), study.shows])
    figures = [["figure", "drawn from"]]
    for name, figure in FIGURES.items():
        if set(figure.studies) <= set(names):
            figures.append([name, ", ".join(figure.studies) or "the worlds alone"])
    tables = [text_table(lines, ruled=True), [""], text_table(figures, ruled=True)]
    return "\n".join(line for table in tables for line in table)


def _duration(seconds: float) -> str:
    """Return how long work takes with all cores."""
    here = seconds / (os.cpu_count() or 1)
    if here < 90:
        return f"{max(here, 1):.0f} s"
    return f"{here / 60:.0f} min" if here < 5400 else f"{here / 3600:.1f} h"
