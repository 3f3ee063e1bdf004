"""`consequential simulate`: strategies of your choice in a world of your choice."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consequential.cli.arguments import (
    Commands,
    Help,
    add_cluster,
    at_least_one,
    named,
    not_negative,
    where,
)
from consequential.cli.reproduce import kept

if TYPE_CHECKING:
    from consequential.simulation import Runs, Strategy
    from consequential.worlds import World

_WORLDS = ("first_setting", "second_setting", "lending", "compas", "german", "taiwan", "drift")
_RUNS_A_PART = 60

_DESCRIPTION = """\
Run strategies in a world, print a table and write results and a page with figures.

WORLD is one of {worlds},
or a world of your own: path/to/file.py:ClassName, a subclass of consequential.worlds.World that
can be made without arguments. Results are kept as they come: stop at any time, and the same command
goes on where it was."""

_EXAMPLES = """\
examples:
  consequential simulate second_setting --seeds 5 --steps 50
  consequential simulate compas --strategies logistic-aggregated --penalties 0 1 10 --steps 20
  consequential simulate my_world.py:MyWorld --fairness equal_opportunity --out my-results"""


def add_simulate(commands: Commands) -> None:
    """Add the command."""
    simulate = commands.add_parser(
        "simulate",
        help="run strategies in a world, one of yours too, and write a report",
        description=_DESCRIPTION.format(worlds=", ".join(_WORLDS)),
        epilog=_EXAMPLES,
        formatter_class=Help,
    )
    add = simulate.add_argument
    add("world", metavar="WORLD", help="where people come from")
    add(
        "--strategies",
        nargs="+",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="for example logistic-iterative, deterministic-aggregated (default: the paper's six)",
    )
    add(
        "--penalties",
        nargs="+",
        type=not_negative,
        metavar="LAMBDA",
        default=[0.0],
        help="how dear a gap is",
    )
    add("--seeds", type=at_least_one, default=10, help="runs of each")
    add(
        "--steps",
        type=at_least_one,
        default=argparse.SUPPRESS,
        help="time steps (default: the world's)",
    )
    add("--fairness", metavar="NAME", default="demographic_parity", help="punished and measured")
    add(
        "--normalisation",
        choices=("applicants", "paper"),
        default="applicants",
        help="estimators that are right, or as printed",
    )
    add(
        "--label",
        choices=("no_rearrest", "rearrest"),
        default=argparse.SUPPRESS,
        help="what y = 1 means on COMPAS (default: no_rearrest)",
    )
    add("--out", type=Path, default=Path("consequential-simulation"), help="folder for results")
    add("--jobs", type=at_least_one, default=argparse.SUPPRESS, help="threads (default: all cores)")
    add_cluster(simulate)
    simulate.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from consequential.objective import fairness_named
    from consequential.paper.tasks import Simulation, complete
    from consequential.simulation import Runs
    from consequential.store import Store

    started = time.monotonic()
    maker, about = _world(options)
    world = maker()
    strategies = _strategies(options)
    fairness_named(options.fairness)  # says which there are
    penalties = sorted(set(options.penalties))
    steps = getattr(options, "steps", world.parameters.time_steps)
    size = min(10, max(1, _RUNS_A_PART // (len(strategies) * len(penalties))))
    blocks = [range(k, min(k + size, options.seeds)) for k in range(0, options.seeds, size)]
    task = Simulation(
        name="runs",
        files=["runs"],
        blocks=blocks,
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
    with Store.opened(options.out, "simulate", parameters) as store:
        try:
            with where(options):
                complete(store, [task], n_jobs=getattr(options, "jobs", None))
        except KeyboardInterrupt:
            print(kept(options.out), file=sys.stderr)
            return 130
        runs = Runs.load(store.result("runs"))
        print(runs.summary())
        page = options.out / "report.html"
        _write_page(page, world, runs)
    print(f"report: {page.resolve()}  ({time.monotonic() - started:.0f} s)")
    return 0


def _strategies(options: argparse.Namespace) -> list[Strategy]:
    from consequential.simulation import LearnToDecide, LearnToPredict, paper_strategies

    six = paper_strategies(options.normalisation)
    drawn: Literal["expected", "sampled"] = "expected"
    if options.normalisation == "paper":
        drawn = "sampled"
    others: list[Strategy] = [
        strategy
        for sequence in ("iterative", "aggregated")
        for strategy in (
            LearnToPredict(sequence, fair=True),
            LearnToDecide("smooth_semi_logistic", sequence, options.normalisation, drawn),
        )
    ]
    known = {
        strategy.name.replace(",", "").replace(" ", "-"): strategy for strategy in [*six, *others]
    }
    names = dict.fromkeys(getattr(options, "strategies", ()))
    return [named("strategy", name, known) for name in names] or six


def _world(options: argparse.Namespace) -> tuple[Callable[[], World], dict[str, Any]]:
    """Return how to make the world, and what the manifest says about it."""
    from consequential import worlds

    name = options.world
    if "label" in options and name != "compas":
        raise ValueError(f"--label is for compas: {name} has one label only")
    if ".py:" in name:
        return _own_world(name)
    known: dict[str, Callable[[], World]] = {each: getattr(worlds, each) for each in _WORLDS}
    if "label" in options:
        known["compas"] = partial(worlds.compas, label=options.label)
    about = {"world": name, "label": getattr(options, "label", None)}
    return named("world", name, known), about


def _own_world(reference: str) -> tuple[Callable[[], World], dict[str, Any]]:
    """Read a class from a file; the file's digest tells one version of it from another."""
    import hashlib
    from importlib.util import module_from_spec, spec_from_file_location

    from consequential.worlds import World

    where, _, name = reference.rpartition(":")
    file = Path(where)
    if not file.is_file():
        raise FileNotFoundError(f"no file {where!r} to read the world {name!r} from")
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
        raise ValueError(f"{where} has no world: write a subclass of consequential.worlds.World")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    about = {"world": f"{file.name}:{name}", "file_sha256": digest}
    kind = named(f"world in {where}:", name, classes)

    def made() -> World:
        try:
            return kind()
        except TypeError as error:
            raise ValueError(f"{reference} cannot be made without arguments: {error}") from error

    return made, about


def _write_page(path: Path, world: World, runs: Runs) -> None:
    from consequential.report import Section, write_report
    from consequential.worlds import ScoreWorld

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
