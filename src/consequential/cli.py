"""Commands: `consequential demo`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from consequential import __version__

_INTRODUCTION = """
A lender sees repayment only for the loans it grants. A predictor trained on such labels, and
thresholded, never learns about the people it rejects: it gets stuck. A policy that explores,
accepting everybody with some probability and logging that probability, can be improved from its
own decisions until it finds the best rule of its kind.

Each line below is a strategy that starts from the same harsh, imperfect model and sees the same
applicants. The deterministic ones predict and threshold; the logistic and semi-logistic ones learn
the decision itself. Iterative strategies learn from the last step's data, aggregated ones from all.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"consequential: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="consequential",
        description="Learn to decide when labels exist only for the people you accept.",
        epilog="example: consequential demo",
    )
    parser.add_argument("--version", action="version", version=f"consequential {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
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
    demo.add_argument("--seeds", type=_at_least_one, default=3, help="runs of each strategy")
    demo.add_argument(
        "--steps", type=_at_least_one, default=30, help="time steps in the first setting"
    )
    demo.add_argument("--compas-steps", type=_at_least_one, default=6, help="time steps on COMPAS")
    demo.set_defaults(run=_demo)
    return parser


def _at_least_one(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _demo(options: argparse.Namespace) -> int:
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
