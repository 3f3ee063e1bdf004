"""Tasks: work that ends in files of results, done in blocks of seeds that can be resumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from consequential.lab.paper.lending_example import LendingTable, lending_example
from consequential.lab.paper.studies import Scale, Study
from consequential.lab.results_folder import ResultsFolder
from consequential.lab.simulation import Run, Runs, Strategy
from consequential.lab.simulation.replay import Experiment
from consequential.lab.simulation.simulate import checked_experiment, gathered, is_compiled, stream
from consequential.lab.worlds import TableWorld, World
from consequential.lab.worlds.lending import Lending
from consequential.objective.fairness import fairness_named
from consequential.workers import spread

Progress = Callable[[float], None]  # is called with the amount of work done since, in seeds
Parts = Iterator[tuple[int, Sequence[Runs | LendingTable]]]  # a block's number, a part of each file

_BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Work that ends in one file, or in several that are about the same people."""

    content: ClassVar[type[Runs] | type[LendingTable]]  # of a file, and of a part of it
    name: str
    files: Sequence[str]
    blocks: Sequence[Sequence[int]]  # of seeds
    seconds: float = 1.0  # about how long a seed takes on one core

    @abstractmethod
    def run(self, numbers: Sequence[int], n_jobs: int | None, progress: Progress) -> Parts:
        """Do blocks; yield each when it is done."""

    @abstractmethod
    def joined(self, parts: Sequence[Any]) -> Runs | LendingTable:
        """Return the content of one file, which does not depend on how work was cut into blocks."""


@dataclass(frozen=True, kw_only=True)
class Simulation(Task):
    """Strategies in a world, some for each file; it stores runs, or only their last policies."""

    content = Runs
    world: Callable[[], World]
    strategies: Sequence[Sequence[Strategy]]
    penalties: Sequence[float]
    time_steps: int | None
    fairness: str = "demographic_parity"
    last_only: bool = False

    def run(self, numbers: Sequence[int], n_jobs: int | None, progress: Progress) -> Parts:
        """Simulate seeds; a strategy that several files have in common runs once."""
        distinct, names = _distinct(self.strategies)
        experiment, seeds = checked_experiment(
            self.world(),
            distinct,
            seeds=[seed for number in numbers for seed in self.blocks[number]],
            penalties=self.penalties,
            time_steps=self.time_steps,
            fairness=self.fairness,
            last_only=self.last_only,
        )
        # in Python strategies run one after the other: finish a block before the next begins
        groups = [numbers] if is_compiled(experiment, seeds) else [[number] for number in numbers]
        for group in groups:
            for number, runs in self._blocks_of_runs(experiment, group, n_jobs, progress):
                if self.last_only:
                    runs = _last_policies(runs, experiment.world, self.fairness)
                parts = []
                for strategies, own in zip(self.strategies, names, strict=True):
                    part = [replace(r, strategy=own[r.strategy]) for r in runs if r.strategy in own]
                    each = replace(experiment, strategies=tuple(strategies))
                    parts.append(gathered(each, self.blocks[number], part))
                yield number, parts

    def _blocks_of_runs(
        self, experiment: Experiment, numbers: Sequence[int], n_jobs: int | None, progress: Progress
    ) -> Iterator[tuple[int, list[Run]]]:
        """Yield the runs of each block, once all of its seeds are done."""
        seeds = [seed for number in numbers for seed in self.blocks[number]]
        n_runs = len(experiment.strategies) * len(experiment.penalties)
        done: dict[int, list[Run]] = {seed: [] for seed in seeds}
        waiting = list(numbers)
        for n_steps, runs in stream(experiment, seeds, n_jobs):
            progress(n_steps / (n_runs * experiment.time_steps))
            for run in runs:
                done[run.seed].append(run)
            for number in tuple(waiting):
                block = self.blocks[number]
                if all(len(done[seed]) == n_runs for seed in block):
                    waiting.remove(number)
                    yield number, [run for seed in block for run in done.pop(seed)]

    def joined(self, parts: Sequence[Runs]) -> Runs:
        """Return all runs, by strategy, penalty and seed."""
        names = list(dict.fromkeys(each.name for own in self.strategies for each in own))
        runs = sorted(
            (run for part in parts for run in part.runs),
            key=lambda run: (names.index(run.strategy), run.penalty, run.seed),
        )
        return replace(parts[0], runs=tuple(runs))


def _last_policies(runs: Sequence[Run], world: World, fairness: str) -> list[Run]:
    """Return the last step of runs, measured on all rows too where people are a table."""
    people = world.population("all") if isinstance(world, TableWorld) else None
    found = []
    for run in runs:
        metrics = {name: path[-1:] for name, path in run.metrics.items()}
        if people is not None:
            assert run.policy is not None  # only files can lack it
            truth = people.metrics(run.policy, world.cost, fairness_named(fairness))
            metrics["table_utility"] = np.array([truth.utility])
            metrics["table_benefit_gap"] = np.array([truth.benefit_gap])
        thetas = None if run.thetas is None else run.thetas[-1:]
        found.append(replace(run, metrics=metrics, thetas=thetas))
    return found


@dataclass(frozen=True, kw_only=True)
class LendingExample(Task):
    """The lending example."""

    content = LendingTable
    world: Callable[[], Lending]

    def run(self, numbers: Sequence[int], n_jobs: int | None, progress: Progress) -> Parts:
        """Do one block of seeds after the other."""
        example = partial(lending_example, self.world())
        for number in numbers:
            pieces = []
            for piece in spread(example, [[seed] for seed in self.blocks[number]]):
                pieces.append(piece)
                progress(1.0)
            yield number, [LendingTable.joined(pieces)]

    def joined(self, parts: Sequence[LendingTable]) -> LendingTable:
        """Return all rows, by score, threshold and seed."""
        return LendingTable.joined(parts)


def _distinct(
    strategies: Sequence[Sequence[Strategy]],
) -> tuple[list[Strategy], list[dict[str, str]]]:
    """Return each strategy once, under a unique name, and each file's names by unique name.

    Strategies of two files may be equal, or differ and yet have the same name.
    """
    known: dict[Strategy, str] = {}
    for number, own in enumerate(strategies):
        for each in own:
            taken = each.name in known.values()
            known.setdefault(each, f"{each.name} ({number})" if taken else each.name)
    named = [
        each if each.name == name else replace(each, named=name)  # type: ignore[type-var]
        for each, name in known.items()
    ]
    return named, [{known[each]: each.name for each in own} for own in strategies]


def tasks_of(study: Study, scale: Scale) -> list[Task]:
    """Return the work of a study: columns about the same people together, the authors' apart."""
    blocks, seconds = study.blocks(scale), study.seconds_per_seed(scale) / len(study.columns)
    if study.kind == "lending":
        about: Any = {"world": study.world}
        return [
            LendingExample(
                name=study.name, files=study.files, blocks=blocks, seconds=seconds, **about
            )
        ]
    shared = tuple(column for column in study.columns if column != "authors")
    worlds = {shared: study.world}
    if study.authors is not None:
        worlds["authors",] = study.authors
    return [
        Simulation(
            name=study.name,
            files=[f"{study.name}-{column}" for column in columns],
            blocks=blocks,
            seconds=seconds * len(columns),
            world=world,
            strategies=[study.strategies(column) for column in columns],
            penalties=study.penalties(scale),
            time_steps=study.time_steps(scale),
            last_only=study.kind == "penalty",
        )
        for columns, world in worlds.items()
    ]


def complete(
    store: ResultsFolder, tasks: Sequence[Task], *, n_jobs: int | None = None, progress: bool = True
) -> None:
    """Do what is missing of some tasks, block by block; each is stored as soon as it is done."""
    missing = {
        task.files[0]: [
            k
            for k in range(len(task.blocks))
            if not all(store.result(f).exists() or store.part(f, k).exists() for f in task.files)
        ]
        for task in tasks
    }
    if not all(store.result(file).exists() for task in tasks for file in task.files):
        store.check_surroundings()
    work = sum(task.seconds * len(task.blocks[k]) for task in tasks for k in missing[task.files[0]])
    with (
        tqdm(total=work, bar_format=_BAR, smoothing=0.1, disable=not progress or not work) as bar,
        # with one thread of linear algebra the order of sums, and so the last bits, is fixed
        threadpool_limits(limits=1, user_api="blas"),
    ):
        for task in tasks:
            bar.set_description_str(task.name)

            def advance(n_seeds: float, weight: float = task.seconds) -> None:
                bar.update(min(n_seeds * weight, work - bar.n))  # rounding must not exceed 100%

            _complete_one(store, task, missing[task.files[0]], n_jobs, advance)


def _complete_one(
    store: ResultsFolder, task: Task, numbers: Sequence[int], n_jobs: int | None, progress: Progress
) -> None:
    for file in task.files:
        store.result(file).parent.mkdir(exist_ok=True)
        if numbers:
            store.part(file, 0).parent.mkdir(parents=True, exist_ok=True)
    for k, parts in task.run(numbers, n_jobs, progress) if numbers else ():
        for file, part in zip(task.files, parts, strict=True):
            part.save(store.part(file, k))
    for file in task.files:
        if not store.result(file).exists():
            parts = [
                store.read(store.part(file, k), task.content.load) for k in range(len(task.blocks))
            ]
            task.joined(parts).save(store.result(file))
        store.remove_parts(file)
