"""The compiled sweep: many seeds, each taken through time by one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, log
from queue import SimpleQueue
from threading import Event
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.lab.algorithm import prediction
from consequential.lab.algorithm.prediction import FitPredictor
from consequential.lab.algorithm.sequences import (
    Aggregated,
    Sequence,
    reservoir_moves,
    sequence_named,
)
from consequential.lab.kernels.functionals import Reading
from consequential.lab.kernels.jit import compiling_reported
from consequential.lab.kernels.step import (
    Kept,
    RunStates,
    StepOutcome,
    StepPeople,
    advance_deciding,
    advance_predicting,
    count_groups,
    keep,
    reading_of,
)
from consequential.lab.simulation.compiled_runs import CompiledRuns, Starts
from consequential.lab.simulation.ground_truth import GroundTruth
from consequential.lab.simulation.replay import Experiment, fill_proposals, learning_rng
from consequential.lab.simulation.runs import Run
from consequential.lab.worlds.world import world_at
from consequential.policy import Policy

Floats = NDArray[np.float64]
Progress = tuple[float, list[Run]]  # how many steps were taken, and which runs are done

_NO_KEY = np.uint64(0)
_REPORT_EVERY = 0.1  # seconds: reporting progress needs the GIL


def sweep(
    experiment: Experiment, seeds: list[int], starts: Starts, n_jobs: int | None
) -> Iterator[Progress]:
    """Yield how many steps were taken and which runs are done, as it goes."""
    n_threads = _n_threads(n_jobs)
    one_world = experiment.for_seed(seeds[0]) is experiment
    truth = GroundTruth(experiment.world, experiment.fairness)
    tasks = _tasks(experiment, seeds, starts, n_threads)
    if experiment.world.drifts:  # the population of a step is measured once, for all runs
        done: list[CompiledRuns] = []
        try:
            for n_steps, finished in _in_threads(tasks, _advance, n_threads):
                done += finished
                yield n_steps, []
        except KeyboardInterrupt:
            if done:
                yield 0, _measured(experiment, truth, done, n_threads)
            raise
        yield 0, _measured(experiment, truth, done, n_threads)
        return

    def task(seed_runs: _SeedRuns) -> Iterator[tuple[int, list[Run]]]:
        here, own = seed_runs.experiment, truth
        for n_steps, finished in _advance(seed_runs):
            if finished and not one_world:
                own = GroundTruth(here.world, here.fairness)
            yield n_steps, _measured(here, own, finished, 1) if finished else []

    yield from _in_threads(tasks, task, n_threads)


def _n_threads(n_jobs: int | None) -> int:
    """Return how many threads are asked for, with the meaning that joblib gives to `n_jobs`."""
    n_cores = os.cpu_count() or 1
    if n_jobs == 0:
        raise ValueError("n_jobs is a number of threads, or -1 for one per core, not 0")
    if n_jobs is None:
        return n_cores
    return n_jobs if n_jobs > 0 else max(1, n_cores + 1 + n_jobs)


def _measured(
    experiment: Experiment, truth: GroundTruth, done: list[CompiledRuns], n_threads: int
) -> list[Run]:
    """Return finished runs with the true metrics of all their policies."""
    with _mapping(n_threads) as each:
        metrics = truth.measure(done, each, last_only=experiment.last_only)
        groups = experiment.world.groups
        return [
            run
            for runs, found in zip(done, metrics, strict=True)
            for run in runs.results(groups, found)
        ]


@contextmanager
def _mapping(n_threads: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` that works in several threads, or in this one."""
    if n_threads == 1:
        yield map
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool.map


def _tasks(
    experiment: Experiment, seeds: list[int], starts: Starts, n_threads: int
) -> list[_SeedRuns]:
    """Return the runs of each seed, in several parts if there are fewer seeds than threads."""
    n_parts = min(ceil(n_threads / len(seeds)), len(experiment.penalties))
    parts = [experiment.penalties[part::n_parts] for part in range(n_parts)]
    return [
        _SeedRuns(here, seed, _runs_of(here, seed, at, starts, part))
        for at, seed in enumerate(seeds)
        for here in [experiment.for_seed(seed)]
        for part in parts
    ]


def _runs_of(
    experiment: Experiment, seed: int, at: int, starts: Starts, penalties: tuple[float, ...]
) -> list[CompiledRuns]:
    """Return the runs of all strategies for a seed, whose first rules are in place `at`."""
    return [
        CompiledRuns(
            strategy.name,
            experiment.learner(strategy, penalties[0]),  # type: ignore[arg-type]
            sequence_named(strategy.sequence),
            seed,
            starts[strategy.name][at],
            penalties,
            experiment.time_steps,
        )
        for strategy in experiment.strategies
    ]


def _in_threads(
    tasks: list[_SeedRuns],
    steps_of: Callable[[_SeedRuns], Iterator[tuple[int, list[Any]]]],
    n_threads: int,
) -> Iterator[tuple[float, list[Any]]]:
    """Yield the progress of all tasks, each done by one of several threads."""
    if min(n_threads, len(tasks)) == 1:
        for task in tasks:
            yield from steps_of(task)
        return
    queue: SimpleQueue[tuple[float, list[Any]] | None] = SimpleQueue()
    stopped = Event()

    def work(task: _SeedRuns) -> None:
        try:
            n_steps, reported = 0.0, monotonic()
            for taken, finished in steps_of(task):
                if stopped.is_set():
                    return
                n_steps += taken
                if finished or monotonic() - reported > _REPORT_EVERY:
                    queue.put((n_steps, finished))
                    n_steps, reported = 0.0, monotonic()
        finally:
            queue.put(None)

    with ThreadPoolExecutor(n_threads) as pool:
        try:
            futures = [pool.submit(work, task) for task in tasks]
            for _ in tasks:
                while (progress := queue.get()) is not None:
                    yield progress
            for future in futures:
                future.result()
        finally:  # also if the caller stops listening
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _advance(task: _SeedRuns) -> Iterator[tuple[int, list[CompiledRuns]]]:
    """Take a seed's runs through time; yield how many steps were taken, and at last the runs."""
    task.begin()
    for time_step in range(task.experiment.time_steps):
        with compiling_reported():
            task.advance(time_step)
        yield sum(runs.n_runs for runs in task.all_runs), []
    task.end()
    yield 0, task.all_runs


@dataclass(slots=True)
class _Memory:
    """What a sequence keeps of a seed's people."""

    sequence: Sequence
    size: int
    group: NDArray[np.int16]
    label: Floats
    sizes: Floats  # of the groups
    inputs: dict[str | None, Floats] = field(default_factory=dict)  # by strategy, or (1, x)
    n: int = 0
    moves: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    start: float = 0.0
    key: np.uint64 = _NO_KEY

    @property
    def grows(self) -> bool:
        """Whether people of earlier steps are kept."""
        return isinstance(self.sequence, Aggregated)


class _SeedRuns:
    """All runs of a seed, which see the same people at each step."""

    def __init__(self, experiment: Experiment, seed: int, all_runs: list[CompiledRuns]) -> None:
        self.experiment, self.seed, self.all_runs = experiment, seed, all_runs

    def begin(self) -> None:
        """Allocate memory, when the seed's turn comes."""
        world, n = self.experiment.world, self.experiment.n_proposals
        table = world.alias_table
        n_features = (
            table.n_features
            if table is not None
            else world.people(1, np.random.default_rng(0)).features.shape[1]
        )
        self.group, self.label = np.empty(n, dtype=np.int16), np.empty(n)
        self.uniforms = np.empty(n)
        self.inputs: dict[str | None, Floats] = {None: np.ones((n_features + 1, n))}
        self.memories: dict[Sequence, _Memory] = {}
        self.states: list[RunStates] = []
        self.learning = [
            None if isinstance(runs.learner, FitPredictor) else runs.learning(world.cost)
            for runs in self.all_runs
        ]
        for runs in self.all_runs:
            own, n_inputs = _inputs_key(runs), runs.thetas.shape[1]
            self.inputs.setdefault(own, np.ones((n_inputs, n)))
            memory = self.memories.setdefault(runs.sequence, self._memory(runs.sequence))
            if memory.grows and own not in memory.inputs:
                memory.inputs[own] = np.zeros((n_inputs, memory.size))
            weights = np.zeros((runs.n_runs, memory.size if memory.grows else 0))
            self.states.append(RunStates(runs.thetas, np.array(runs.penalties), weights))

    def _memory(self, sequence: Sequence) -> _Memory:
        size, sizes = self.experiment.n_proposals, np.zeros(len(self.experiment.world.groups))
        if not isinstance(sequence, Aggregated):
            return _Memory(sequence, size, self.group, self.label, sizes, self.inputs)
        size = min(sequence.max_rows, size * self.experiment.time_steps)
        return _Memory(sequence, size, np.zeros(size, dtype=np.int16), np.zeros(size), sizes)

    def end(self) -> None:
        """Free memory: other seeds wait for it."""
        del self.group, self.label, self.uniforms, self.inputs, self.memories, self.states

    def advance(self, time_step: int) -> None:
        """Let all runs decide and learn at one time step."""
        world = world_at(self.experiment.world, time_step)
        plain = self.inputs[None]
        proposals = StepPeople(plain[1:], self.group, self.label, self.uniforms)
        fill_proposals(world, self.seed, time_step, proposals)
        for runs in self.all_runs:
            if (own := _inputs_key(runs)) is not None:
                self.inputs[own][:] = self._mapped(runs, plain[1:].T)
        for memory in self.memories.values():
            self._remember(memory, time_step)
        readings: dict[Any, Reading] = {}
        for runs, state, learning in zip(self.all_runs, self.states, self.learning, strict=True):
            own, memory = _inputs_key(runs), self.memories[runs.sequence]
            people = StepPeople(self.inputs[own], self.group, self.label, self.uniforms)
            kept = Kept(
                memory.inputs[own], memory.group, memory.label, memory.n, memory.sizes,
                memory.grows, memory.moves,
            )  # fmt: skip
            outcome = StepOutcome(*(values[time_step] for values in runs.outcome))
            learner = runs.learner
            if isinstance(learner, FitPredictor):
                shift = log(learner.threshold / (1.0 - learner.threshold))
                advance_predicting(
                    people, kept, world.cost, shift, prediction.MAX_ITERATIONS, state, outcome
                )
            else:
                assert learning is not None
                sizes, alone = learner.sizes(memory.n), learning.accepted_only
                same = (own, runs.sequence, sizes, alone, learner.objective.fairness)
                if same not in readings:
                    readings[same] = reading_of(
                        kept, *sizes, memory.start, memory.key, learning.notion, alone
                    )
                rate = runs.rate(time_step)
                advance_deciding(people, kept, readings[same], learning, rate, state, outcome)
            runs.path[:, time_step + 1] = runs.thetas

    def _mapped(self, runs: CompiledRuns, features: Floats) -> Floats:
        policy = runs.start
        assert isinstance(policy, Policy)
        groups = np.array(self.experiment.world.groups, dtype=object)
        return policy.inputs(features, groups[self.group] if policy.uses_sensitive else None).T

    def _remember(self, memory: _Memory, time_step: int) -> None:
        """Keep this step's people as `Aggregated.extend` does, and draw as `UpdatePolicy` does."""
        n, rng = self.experiment.n_proposals, learning_rng(self.seed, time_step)
        memory.n = n
        if memory.grows:
            memory.moves = reservoir_moves(rng.random(n), n * time_step, memory.size)
            memory.n = min(n * (time_step + 1), memory.size)
            keep(memory.moves, self.group, memory.group)
            keep(memory.moves, self.label, memory.label)
            for own, kept in memory.inputs.items():
                for fresh_row, kept_row in zip(self.inputs[own], kept, strict=True):
                    keep(memory.moves, fresh_row, kept_row)
        count_groups(memory.group[: memory.n], memory.sizes)
        memory.start, memory.key = rng.random(), np.uint64(rng.integers(2**63))


def _inputs_key(runs: CompiledRuns) -> str | None:
    """Whose inputs runs decide on: (1, x) as most do, or those of their own feature map."""
    return None if runs.has_plain_inputs else runs.name
