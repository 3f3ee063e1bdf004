"""Tasks: work on the same people that ends in results files, in parts by blocks of seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from consequential.paper.finals import Finals
from consequential.paper.lending_example import LendingTable, lending_example
from consequential.paper.studies import Scale, Study, blocks
from consequential.simulation import Runs, Strategy
from consequential.simulation.simulate import gathered, planned, stream
from consequential.workers import spread
from consequential.worlds import World
from consequential.worlds.lending import Lending

Tick = Callable[[float], None]  # is told which share of a part was done since the last time


@dataclass(frozen=True)
class Task(ABC):
    """Work that ends in one file, or in several."""

    name: str
    files: Sequence[str]
    blocks: Sequence[Sequence[int]]  # of seeds
    seconds: float  # a seed takes about so long on one core

    @abstractmethod
    def run(
        self, block: Sequence[int], paths: Sequence[Path], n_jobs: int | None, tick: Tick
    ) -> None:
        """Do a block of seeds and write it, each file's part to its path."""

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
    _made: list[World] = field(default_factory=list, init=False, repr=False)

    def _world(self) -> World:
        if not self._made:
            self._made.append(self.world())
        return self._made[0]

    def simulate(self, block: Sequence[int], n_jobs: int | None, tick: Tick) -> list[Runs]:
        """Run a block of seeds; what several files have in common runs once."""
        together, names = _together(self.strategies)
        plan, seeds = planned(
            self._world(),
            together,
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
        return [
            gathered(
                replace(plan, strategies=tuple(strategies)),
                seeds,
                [replace(run, strategy=own[run.strategy]) for run in done if run.strategy in own],
            )
            for strategies, own in zip(self.strategies, names, strict=True)
        ]

    def run(
        self, block: Sequence[int], paths: Sequence[Path], n_jobs: int | None, tick: Tick
    ) -> None:
        """Do a block of seeds and write its runs."""
        for runs, path in zip(self.simulate(block, n_jobs, tick), paths, strict=True):
            runs.save(path)

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

    def run(
        self, block: Sequence[int], paths: Sequence[Path], n_jobs: int | None, tick: Tick
    ) -> None:
        """Do a block of seeds and write where its runs ended."""
        for found, path in zip(self.simulate(block, n_jobs, tick), paths, strict=True):
            Finals.of(found.runs, self._world(), self.fairness).save(path)

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Write all rows, by strategy, penalty and seed."""
        Finals.join([Finals.load(part) for part in parts], self._names()).save(path)


@dataclass(frozen=True)
class LendingExample(Task):
    """The lending example."""

    world: Callable[[], Lending]

    def run(
        self, block: Sequence[int], paths: Sequence[Path], n_jobs: int | None, tick: Tick
    ) -> None:
        """Do a block of seeds and write their rows."""
        (path,) = paths
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
