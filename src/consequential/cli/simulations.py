"""Simulations: the commands that run strategies in worlds, and the paper's experiments."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal

from consequential.cli.parser import needing_lab

with needing_lab():
    import consequential.lab.kernels.jit  # noqa: F401

from consequential.cli.log_options import named
from consequential.cli.results import check_writable, cluster_of
from consequential.lab import simulation, worlds
from consequential.lab.paper import reproduction, tasks
from consequential.lab.paper.figures import FIGURES
from consequential.lab.paper.studies import FULL, MORE, NAMES, OF_PAPER, QUICK, STUDIES, Scale
from consequential.lab.paper.tasks import Simulation
from consequential.lab.results_folder import ResultsFolder
from consequential.lab.simulation import (
    LearnToDecide,
    LearnToPredict,
    Runs,
    Strategy,
    paper_strategies,
)
from consequential.lab.simulation.page import Section, write_report
from consequential.lab.worlds import ScoreWorld, World
from consequential.objective.fairness import fairness_named
from consequential.tables import text_table

_WORLDS = ("first_setting", "second_setting", "lending", "compas", "german", "taiwan", "drift")
_RUNS_PER_PART = 60

_INTRODUCTION = """
A lender sees repayment only for the loans it grants. A predictor trained on such labels, and
thresholded, never learns about the people it rejects: it gets stuck. A policy that explores,
accepting everybody with some probability and logging that probability, can be improved from its
own decisions until it finds the best rule of its kind.

Each line below is a strategy that starts from the same harsh, imperfect model and sees the same
applicants. The deterministic ones predict and threshold; the logistic and semi-logistic ones learn
the decision itself. Iterative strategies learn from the last step's data, aggregated ones from all.
"""

_FIRST = """
Utility is the average gain per applicant. The deterministic rules stay far below the best
possible, which the exploring policies approach: they find the people whom the harsh start hid.
"""

_COMPAS = """
Here the best possible is not known, and labels are themselves the product of past decisions (see
the data card). Metrics are measured on people held out from learning.
"""


def demo(options: argparse.Namespace) -> int:
    """Run the paper's strategies in two worlds, print a table of each and write a page."""
    if options.output.is_dir():
        raise OSError(f"{options.output} is a folder: name a file with --output")
    check_writable(options.output.resolve().parent, "--output")
    started = time.monotonic()
    first, compas, strategies = worlds.first_setting(), worlds.compas(), paper_strategies()
    sections = []
    for world, steps, best, text in (
        (first, options.steps, first.optimal(), _FIRST),
        (compas, options.compas_steps, None, _COMPAS),
    ):
        print(f"\n{world.name}: {steps} steps, {options.seeds} x {len(strategies)} runs")
        size = {"seeds": options.seeds, "time_steps": steps}
        runs = simulation.simulate(world, strategies, **size, n_jobs=-1)
        if best is not None:
            print(f"best possible: utility {best.utility:.4f}, benefit gap {best.benefit_gap:.4f}")
        print(f"{runs.summary()}\n{text.strip()}")
        sections.append(Section(world.name[0].upper() + world.name[1:], text, runs, best))
        if runs.interrupted:
            break
    write_report(options.output, "Learning to decide, a first look", _INTRODUCTION, sections)
    print(f"\nreport: {options.output.resolve()}  ({time.monotonic() - started:.0f} s)")
    return 130 if runs.interrupted else 0


def simulate(options: argparse.Namespace) -> int:
    """Run strategies in a world; errors in a file of the user's are told with their line."""
    try:
        return _simulate(options)
    except (Exception, SystemExit) as error:
        file = options.world.rpartition(":")[0]
        # as text, which has the frames of other processes too
        frames = "".join(traceback.format_exception(error))
        _, place, last = frames.rpartition(f'File "{os.path.abspath(file)}", line ')
        if not file or not place:
            raise
        why = f"{type(error).__name__}: {error}"
        line = last.splitlines()[0].partition(",")[0]
        raise ValueError(f"an error in {file}, line {line}: {why}") from error


def _simulate(options: argparse.Namespace) -> int:
    """Store results as they come, so that the command can be stopped and go on."""
    world, about = _world(options)
    strategies = _strategies(options)
    fairness_named(options.fairness)  # an unknown name is an error now, not after the work
    penalties = sorted(set(options.penalties))
    steps = options.steps or world.parameters.time_steps
    size = min(10, max(1, _RUNS_PER_PART // (len(strategies) * len(penalties))))
    task = Simulation(
        name="runs",
        files=["runs"],
        blocks=[range(k, min(k + size, options.seeds)) for k in range(0, options.seeds, size)],
        world=lambda: world,
        strategies=[strategies],
        penalties=penalties,
        time_steps=steps,
        fairness=options.fairness,
    )
    parameters = about | {
        "strategies": [strategy.name for strategy in strategies],
        "penalties": penalties,
        "seeds": options.seeds,
        "time_steps": steps,
        "fairness": options.fairness,
        "normalisation": options.normalisation,
    }

    def write() -> Path:
        store = ResultsFolder.opened(options.out, "simulate", parameters)
        tasks.complete(store, [task], n_jobs=options.jobs)
        runs = store.read(store.result("runs"), Runs.load)
        print(runs.summary())
        return _write_page(options.out / "report.html", world, runs)

    return _write_resumable(options, write)


def _write_resumable(options: argparse.Namespace, write: Callable[[], Path]) -> int:
    """Write results that are kept as they come, print where their page is; return the exit code."""
    started = time.monotonic()
    try:
        with cluster_of(options):
            page = write()
    except KeyboardInterrupt:
        kept = f"what is done is kept in {options.out}; the same command goes on from there"
        print(f"interrupted: {kept}", file=sys.stderr)
        return 130
    print(f"report: {page.resolve()}  ({time.monotonic() - started:.0f} s)")
    return 0


def _strategies(options: argparse.Namespace) -> list[Strategy]:
    normalisation = options.normalisation
    decisions: Literal["expected", "sampled"]
    decisions = "sampled" if normalisation == "paper" else "expected"
    six = paper_strategies(normalisation)
    others: list[Strategy] = [
        strategy
        for sequence in ("iterative", "aggregated")
        for strategy in (
            LearnToPredict(sequence, fair=True),
            LearnToDecide("smooth_semi_logistic", sequence, normalisation, decisions),
        )
    ]
    known = {each.name.replace(",", "").replace(" ", "-"): each for each in [*six, *others]}
    asked = dict.fromkeys(options.strategies or ())
    return [named("strategy", name, known) for name in asked] or six


def _world(options: argparse.Namespace) -> tuple[World, dict[str, Any]]:
    """Return the world, and what the manifest says about it."""
    name, label = options.world, options.label
    if label is not None and name != "compas":
        raise ValueError(f"--label is for compas: {name} has one label only")
    if ".py:" in name:
        return _own_world(name)
    known: dict[str, Callable[[], World]] = {each: getattr(worlds, each) for each in _WORLDS}
    if label is not None:
        known["compas"] = partial(worlds.compas, label=label)
    return named("world", name, known)(), {"world": name, "label": label}


def _own_world(reference: str) -> tuple[World, dict[str, Any]]:
    """Make a world of a class in a file; the manifest has the file's digest."""
    path, _, name = reference.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no file {path!r} to read the world {name!r} from")
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None  # a name that ends in .py has a loader
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, World)
        if value.__module__ == module.__name__
    }
    if not classes:
        raise ValueError(f"{path} has no world: write a subclass of consequential.lab.worlds.World")
    kind = named(f"world in {path}:", name, classes)
    try:
        world = kind()
    except TypeError as error:
        raise ValueError(f"{reference} cannot be made without arguments: {error}") from error
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return world, {"world": f"{file.name}:{name}", "file_sha256": digest}


def _write_page(path: Path, world: World, runs: Runs) -> Path:
    best = None
    if isinstance(world, ScoreWorld) and not world.drifts:
        best = world.optimal(fairness=runs.fairness)
    seeds = len(runs.seeds)
    text = (
        f"{len(runs.strategies)} strategies, {seeds} run{'s' * (seeds > 1)} of each; figures show "
        f"the penalty {runs.penalties[0]:g}."
    )
    title = f"Strategies in {runs.world}"
    write_report(path, title, text, [Section(runs.world, "", runs, best)])
    return path


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
    return _write_resumable(options, work)


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
