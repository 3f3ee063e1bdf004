"""Tasks: what becomes one results file, cut into parts by blocks of seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from consequential.paper.finals import Finals
from consequential.paper.lending_example import LendingTable, lending_example
from consequential.paper.studies import Scale, Study
from consequential.simulation import Runs, Strategy
from consequential.simulation.simulate import gathered, planned, stream
from consequential.workers import spread
from consequential.worlds import World
from consequential.worlds.lending import Lending

Tick = Callable[[float], None]  # is told which share of a part was done since the last time


@dataclass(frozen=True)
class Task(ABC):
    """Work that ends in one file."""

    file: str
    blocks: Sequence[Sequence[int]]  # of seeds
    seconds: float  # a seed takes about so long on one core

    @abstractmethod
    def run(self, block: Sequence[int], path: Path, n_jobs: int | None, tick: Tick) -> None:
        """Do a block of seeds and write it."""

    @abstractmethod
    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write one file that does not depend on how the work was cut."""


@dataclass(frozen=True)
class Simulation(Task):
    """Strategies in a world, kept whole."""

    world: Callable[[], World]
    strategies: Sequence[Strategy]
    penalties: Sequence[float]
    time_steps: int | None
    fairness: str = "demographic_parity"
    last_only: ClassVar[bool] = False
    _made: list[World] = field(default_factory=list, init=False, repr=False)

    def _world(self) -> World:
        if not self._made:
            self._made.append(self.world())
        return self._made[0]

    def simulate(self, block: Sequence[int], n_jobs: int | None, tick: Tick) -> Runs:
        """Run a block of seeds."""
        plan, seeds = planned(
            self._world(),
            self.strategies,
            seeds=block,
            penalties=self.penalties,
            time_steps=self.time_steps,
            fairness=self.fairness,
            last_only=self.last_only,
        )
        total = len(seeds) * len(plan.strategies) * len(plan.penalties) * plan.time_steps
        done = []
        for n_steps, runs in stream(plan, seeds, n_jobs):
            done += runs
            tick(n_steps / total)
        return gathered(plan, seeds, done)

    def run(self, block: Sequence[int], path: Path, n_jobs: int | None, tick: Tick) -> None:
        """Do a block of seeds and write its runs."""
        self.simulate(block, n_jobs, tick).save(path)

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all runs, by strategy, penalty and seed."""
        pieces = [Runs.load(part) for part in parts]
        names = [strategy.name for strategy in self.strategies]
        runs = sorted(
            (run for piece in pieces for run in piece.runs),
            key=lambda run: (names.index(run.strategy), run.penalty, run.seed),
        )
        replace(pieces[0], runs=tuple(runs)).save(path)


@dataclass(frozen=True)
class Ends(Simulation):
    """Strategies in a world, of which the last policies are kept."""

    last_only = True

    def run(self, block: Sequence[int], path: Path, n_jobs: int | None, tick: Tick) -> None:
        """Do a block of seeds and write where its runs ended."""
        runs = self.simulate(block, n_jobs, tick).runs
        Finals.of(runs, self._world(), self.fairness).save(path)

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all rows, by strategy, penalty and seed."""
        names = [strategy.name for strategy in self.strategies]
        Finals.join([Finals.load(part) for part in parts], names).save(path)


@dataclass(frozen=True)
class LendingExample(Task):
    """The lending example."""

    world: Callable[[], Lending]

    def run(self, block: Sequence[int], path: Path, n_jobs: int | None, tick: Tick) -> None:
        """Do a block of seeds and write their rows."""
        pieces = []
        for piece in spread(partial(_lending_example, self.world()), block):
            pieces.append(piece)
            tick(1.0 / len(block))
        LendingTable.join(pieces).save(path)

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all rows, by score, threshold and seed."""
        LendingTable.join([LendingTable.load(part) for part in parts]).save(path)


def _lending_example(world: Lending, seed: int) -> LendingTable:
    return lending_example(world, [seed])


def task_of(study: Study, scale: Scale) -> Task:
    """Return the work that a study is."""
    about = (study.file, study.blocks(scale), study.seconds_a_seed(scale))
    if study.kind == "lending":
        return LendingExample(*about, study.world)  # type: ignore[arg-type]  # its world is Lending
    kind = Simulation if study.kind == "time" else Ends
    strategies, penalties = study.strategies(), study.penalties(scale)
    return kind(*about, study.make_world, strategies, penalties, scale.time_steps)
