"""`consequential demo`: a first look, in two worlds."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from consequential.cli.arguments import Commands, at_least_one

_INTRODUCTION = """
A lender sees repayment only for the loans it grants. A predictor trained on such labels, and
thresholded, never learns about the people it rejects: it gets stuck. A policy that explores,
accepting everybody with some probability and logging that probability, can be improved from its
own decisions until it finds the best rule of its kind.

Each line below is a strategy that starts from the same harsh, imperfect model and sees the same
applicants. The deterministic ones predict and threshold; the logistic and semi-logistic ones learn
the decision itself. Iterative strategies learn from the last step's data, aggregated ones from all.
"""


def add_demo(commands: Commands) -> None:
    """Add the command."""
    demo = commands.add_parser(
        "demo",
        help="run the paper's strategies in two worlds and write a report",
        description=(
            "Run the paper's six learned strategies in its first synthetic setting and on COMPAS, "
            "print a table and write one HTML page with figures."
        ),
        epilog="example: consequential demo --seeds 5 --output my-report.html",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--output", type=Path, default=Path("consequential-report.html"), help="page")
    demo.add_argument("--seeds", type=at_least_one, default=3, help="runs of each strategy")
    demo.add_argument(
        "--steps", type=at_least_one, default=30, help="time steps in the first setting"
    )
    demo.add_argument("--compas-steps", type=at_least_one, default=6, help="time steps on COMPAS")
    demo.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential import worlds
    from consequential.report import Section, write_report
    from consequential.simulation import paper_strategies, simulate

    folder = options.output.resolve().parent
    if options.output.is_dir():
        raise OSError(f"{options.output} is a folder: name a file with --output")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OSError(f"cannot write to {folder}: choose another place with --output")
    started = time.monotonic()
    first, compas = worlds.first_setting(), worlds.compas()
    sections = []
    for world, steps, text in (
        (first, options.steps, _FIRST),
        (compas, options.compas_steps, _COMPAS),
    ):
        print(f"\n{world.name}: {steps} steps, {options.seeds} x {len(paper_strategies())} runs")
        strategies = paper_strategies()
        runs = simulate(world, strategies, seeds=options.seeds, time_steps=steps, n_jobs=-1)
        best = first.optimal() if world is first else None
        if best is not None:
            print(f"best possible: utility {best.utility:.4f}, benefit gap {best.benefit_gap:.4f}")
        print(f"{runs.summary()}\n{text.strip()}")
        interrupted = runs.interrupted
        sections.append(Section(world.name[0].upper() + world.name[1:], text, runs, best))
        if interrupted:
            break
    write_report(options.output, "Learning to decide, a first look", _INTRODUCTION, sections)
    print(f"\nreport: {options.output.resolve()}  ({time.monotonic() - started:.0f} s)")
    return 130 if interrupted else 0


_FIRST = """
Utility is the average gain per applicant. The deterministic rules stay far below the best
possible, which the exploring policies approach: they find the people whom the harsh start hid.
"""

_COMPAS = """
Here the best possible is not known, and labels are themselves the product of past decisions (see
the data card). Metrics are measured on people held out from learning.
"""
