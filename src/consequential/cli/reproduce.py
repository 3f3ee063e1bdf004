"""Reproduce: the command that runs the paper's experiments, figures and claims."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from consequential.cli.options import named
from consequential.cli.results import write_resumable
from consequential.paper import reproduction
from consequential.paper.figures import FIGURES
from consequential.paper.studies import (
    FULL,
    MORE,
    NAMES,
    OF_PAPER,
    QUICK,
    STUDIES,
    Scale,
)
from consequential.tables import text_table


def reproduce(options: argparse.Namespace) -> int:
    """Run studies and write their page, or list them."""
    names = _studies(options.names)
    asked = {"seeds": options.seeds, "penalties": options.penalties}
    given = {name: number for name, number in asked.items() if number is not None}
    scale = replace(QUICK if options.quick else FULL, **given)
    if options.list:
        print(_listed(names if options.names else NAMES, scale))
        return 0
    work = partial(reproduction.reproduce, names, options.out, scale, n_jobs=options.jobs)
    return write_resumable(options, work)


def _studies(names: list[str]) -> list[str]:
    """Return the studies that names stand for, in the order of the paper."""
    known: dict[str, tuple[str, ...]] = {name: (name,) for name in NAMES}
    for name, figure in FIGURES.items():
        known.setdefault(name, figure.studies)
    known |= {"more": MORE, "all": NAMES}
    wanted = [study for name in names for study in named("study or figure", name, known)]
    return [study for study in NAMES if study in (wanted if names else OF_PAPER)]


def _listed(names: Sequence[str], scale: Scale) -> str:
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
