"""Tasks: work on the same people that ends in results files, in parts by blocks of seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from consequential.paper.finals import Finals
from consequential.paper.lending_example import LendingTable, lending_example
from consequential.paper.studies import Scale, Study, blocks
from consequential.simulation import Run, Runs, Strategy
from consequential.simulation.replay import Experiment
from consequential.simulation.simulate import checked_experiment, gathered, is_compiled, stream
from consequential.workers import spread
from consequential.worlds import World
from consequential.worlds.lending import Lending

Tick = Callable[[float], None]  # is told how much was done since the last time, in seeds


class Kept(Protocol):
    """What a file holds, or a part of it."""

    def save(self, path: Path) -> None:
        """Write it whole, or not at all."""
        ...


@dataclass(frozen=True)
class Task(ABC):
    """Work that ends in one file, or in several."""

    name: str
    files: Sequence[str]
    blocks: Sequence[Sequence[int]]  # of seeds
    seconds: float  # a seed takes about so long on one core

    @abstractmethod
    def run(
        self, numbers: Sequence[int], n_jobs: int | None, tick: Tick
    ) -> Iterator[tuple[int, Sequence[Kept]]]:
        """Do blocks; yield the number of each that is done, and what each file keeps of it."""

    @abstractmethod
    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write one file that does not depend on how the work was cut."""


@dataclass(frozen=True)
class Simulation(Task):
    """Strategies in a world, some for each file; runs are kept whole."""

    world: Callable[[], World]
    strategies: Sequence[Sequence[Strategy]]
    penalties: Sequence[float]
    time_steps: int | None
    fairness: str = "demographic_parity"
    last_only: ClassVar[bool] = False

    def run(
        self, numbers: Sequence[int], n_jobs: int | None, tick: Tick
    ) -> Iterator[tuple[int, Sequence[Kept]]]:
        """Simulate seeds; what several files have in common runs once."""
        together, names = _together(self.strategies)
        plan, seeds = checked_experiment(
            self.world(),
            together,
            seeds=[seed for number in numbers for seed in self.blocks[number]],
            penalties=self.penalties,
            time_steps=self.time_steps,
            fairness=self.fairness,
            last_only=self.last_only,
        )
        # in Python one strategy comes after the other: there a block is done before the next begins
        groups = [numbers] if is_compiled(plan, seeds) else [[number] for number in numbers]
        for group in groups:
            for number, runs in self._blocks_of_runs(plan, group, n_jobs, tick):
                block = self.blocks[number]
                pieces = [
                    gathered(
                        replace(plan, strategies=tuple(strategies)),
                        block,
                        [
                            replace(run, strategy=own[run.strategy])
                            for run in runs
                            if run.strategy in own
                        ],
                    )
                    for strategies, own in zip(self.strategies, names, strict=True)
                ]
                yield number, [self._kept(piece, plan.world) for piece in pieces]

    def _blocks_of_runs(
        self, plan: Experiment, numbers: Sequence[int], n_jobs: int | None, tick: Tick
    ) -> Iterator[tuple[int, list[Run]]]:
        """Yield the runs of each block, once all of its seeds are done."""
        seeds = [seed for number in numbers for seed in self.blocks[number]]
        n_runs = len(plan.strategies) * len(plan.penalties)
        done: dict[int, list[Run]] = {seed: [] for seed in seeds}
        waiting = list(numbers)
        for n_steps, runs in stream(plan, seeds, n_jobs):
            tick(n_steps / (n_runs * plan.time_steps))
            for run in runs:
                done[run.seed].append(run)
            for number in tuple(waiting):
                block = self.blocks[number]
                if all(len(done[seed]) == n_runs for seed in block):
                    waiting.remove(number)
                    yield number, [run for seed in block for run in done.pop(seed)]

    def _kept(self, runs: Runs, world: World) -> Kept:
        return runs

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all runs, by strategy, penalty and seed."""
        pieces = [Runs.load(part) for part in parts]
        names = self._names()
        runs = sorted(
            (run for piece in pieces for run in piece.runs),
            key=lambda run: (names.index(run.strategy), run.penalty, run.seed),
        )
        replace(pieces[0], runs=tuple(runs)).save(path)

    def _names(self) -> list[str]:
        """The strategies' order, which is the same in all files."""
        return list(dict.fromkeys(each.name for own in self.strategies for each in own))


@dataclass(frozen=True)
class Ends(Simulation):
    """Strategies in a world, of which the last policies are kept."""

    last_only = True

    def _kept(self, runs: Runs, world: World) -> Kept:
        return Finals.of(runs.runs, world, self.fairness)

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all rows, by strategy, penalty and seed."""
        Finals.join([Finals.load(part) for part in parts], self._names()).save(path)


@dataclass(frozen=True)
class LendingExample(Task):
    """The lending example."""

    world: Callable[[], Lending]

    def run(
        self, numbers: Sequence[int], n_jobs: int | None, tick: Tick
    ) -> Iterator[tuple[int, Sequence[Kept]]]:
        """Do one block of seeds after the other."""
        for number in numbers:
            pieces = []
            for piece in spread(partial(_lending_example, self.world()), self.blocks[number]):
                pieces.append(piece)
                tick(1.0)
            yield number, [LendingTable.join(pieces)]

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all rows, by score, threshold and seed."""
        LendingTable.join([LendingTable.load(part) for part in parts]).save(path)


def _lending_example(world: Lending, seed: int) -> LendingTable:
    return lending_example(world, [seed])


def _together(
    strategies: Sequence[Sequence[Strategy]],
) -> tuple[list[Strategy], list[dict[str, str]]]:
    """Return each strategy once, under a name of its own, and the names that files have for them.

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


def task_of(studies: Sequence[Study], scale: Scale) -> Task:
    """Return the work that a study is, all of its columns: they are about the same people."""
    first, files = studies[0], [study.file for study in studies]
    seconds = sum(study.seconds_a_seed(scale) for study in studies)
    about = (first.name, files, blocks(studies, scale), seconds)
    if first.kind == "lending":
        return LendingExample(*about, first.world)  # type: ignore[arg-type]  # its world is Lending
    kind = Simulation if first.kind == "time" else Ends
    strategies = [study.strategies() for study in studies]
    return kind(*about, first.world, strategies, first.penalties(scale), scale.time_steps)
