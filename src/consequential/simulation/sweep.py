"""Sweeps: many seeds in compiled code, some at a time so that memory stays flat."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import ceil
from queue import SimpleQueue
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consequential.learning import Aggregated, sequence_named
from consequential.policies import DecisionRule
from consequential.simulation.crew import (
    Crew,
    learns_compiled,
    penalty_alone_differs,
    start_compiled,
)
from consequential.simulation.fleet import Fleet, in_threads
from consequential.simulation.loop import Plan
from consequential.simulation.runs import Run
from consequential.simulation.strategies import Strategy
from consequential.simulation.truth import Course, PathMetrics

if TYPE_CHECKING:
    from consequential.simulation.device import DeviceFleet

Floats = NDArray[np.float64]

_RUNS_A_THREAD = 48  # enough for threads to share evenly and seldom wait
_SILENCE = 0.1  # seconds: whoever hears the news needs the interpreter, and others wait for it
_ROOM = 2**30  # bytes that the weights of aggregated runs may take
_COPIES, _DEVICE_ROOMS = 8, 32  # a device's program holds several arrays of that size


Starts = dict[str, list[DecisionRule]]  # by strategy, one a seed
Block = tuple[list[int], Starts]  # seeds that go through time together
News = tuple[float, list[Run]]  # how many steps were taken, and which runs are done


def compiled_starts(plan: Plan, seeds: list[int]) -> Starts:
    """Return the first rules of the strategies that compiled code knows.

    The other strategies run in Python.
    """
    starts: Starts = {}
    for strategy in plan.strategies:
        sequence = sequence_named(strategy.sequence)
        learner: Any = plan.learner(strategy, plan.penalties[0])
        if learns_compiled(learner, sequence, plan.world) and all(
            penalty_alone_differs(learner, penalty, plan.learner(strategy, penalty))
            for penalty in plan.penalties
        ):
            found = [plan.start(strategy, seed) for seed in seeds]
            if start_compiled(found, learner):
                starts[strategy.name] = found
    return starts


def sweep(plan: Plan, seeds: list[int], starts: Starts, n_jobs: int | None) -> Iterator[News]:
    """Yield how many steps were taken and which runs are done, as it goes."""
    if plan.engine == "jax" and plan.world.drifts:  # a device's program holds one population
        plan = replace(plan, engine="compiled")
    n_cores = os.cpu_count() or 1
    n_threads = n_cores if n_jobs in (None, -1) else int(n_jobs or 1)
    n_threads = min(n_threads, len(seeds) * len(plan.strategies) * len(plan.penalties))
    course = Course(plan.world, plan.fairness)
    at_once = _seeds_at_once(plan, n_threads)
    n_apart = 0
    if plan.engine == "compiled" and not plan.world.drifts and 1 < n_threads <= at_once:
        n_apart = len(seeds) - len(seeds) % n_threads
        sizes = _even_rounds(n_apart, at_once // n_threads, n_threads)
        yield from _apart(plan, _blocks(seeds, starts, 0, sizes), n_threads, course)
    n_left = len(seeds) - n_apart
    n_blocks = ceil(n_left / at_once)
    sizes = [n_left // n_blocks + (k < n_left % n_blocks) for k in range(n_blocks)]
    for block in _blocks(seeds, starts, n_apart, sizes):
        yield from _sail(plan, block, n_threads, course)


def _even_rounds(n_seeds: int, most: int, n_threads: int) -> list[int]:
    """Return how many seeds each block has: as many in a round for every thread.

    Towards the end blocks are small, so that no thread waits long for another to end.
    """
    sizes: list[int] = []
    while n_seeds:
        size = min(most, max(1, n_seeds // (2 * n_threads)))
        sizes += [size] * n_threads
        n_seeds -= size * n_threads
    return sizes


def _blocks(seeds: list[int], starts: Starts, first: int, sizes: list[int]) -> list[Block]:
    """Return seeds from the first on in blocks of these sizes, with their starts."""
    blocks = []
    for size in sizes:
        here = slice(first, first + size)
        blocks.append((seeds[here], {name: rules[here] for name, rules in starts.items()}))
        first += size
    return blocks


def _sail(plan: Plan, block: Block, n_threads: int, course: Course) -> Iterator[News]:
    """Take seeds through time together; threads share the runs of a step."""
    seeds, starts = block
    crews = [crew_of(plan, strategy, starts[strategy.name]) for strategy in plan.strategies]
    for fleet in _fleets(plan, seeds, crews, n_threads):
        for n_steps in fleet.sail(plan.time_steps):
            yield n_steps, []
    with in_threads(n_threads) as each:
        for crew, paths in zip(crews, course.paths(crews, each, plan.last_only), strict=True):
            yield 0, _runs(crew, seeds, plan, paths)


def _apart(plan: Plan, blocks: list[Block], n_threads: int, course: Course) -> Iterator[News]:
    """Let every thread take seeds through time on its own: none waits for another at each step."""
    news: SimpleQueue[News | None] = SimpleQueue()
    stopped = Event()
    _ = plan.world.drawn_from  # made once, before threads ask for it

    def sail(block: Block) -> None:
        try:
            n_steps, said = 0.0, monotonic()
            for taken, runs in _sail(plan, block, 1, course):
                if stopped.is_set():
                    return
                n_steps += taken
                if runs or monotonic() - said > _SILENCE:
                    news.put((n_steps, runs))
                    n_steps, said = 0.0, monotonic()
        finally:
            news.put(None)

    with ThreadPoolExecutor(n_threads) as pool:
        try:
            under_way = [pool.submit(sail, block) for block in blocks]
            for _ in blocks:
                while (told := news.get()) is not None:
                    yield told
            for each in under_way:
                each.result()
        finally:  # also where nobody wants to hear the rest
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _fleets(
    plan: Plan, seeds: list[int], crews: list[Crew], n_threads: int
) -> Iterator[Fleet | DeviceFleet]:
    """Yield the fleets that take all crews through time."""
    here = crews
    if plan.engine == "jax":
        from consequential.simulation.device import DeviceFleet, device_crews

        for alike in device_crews(crews, plan.world):
            here = [crew for crew in here if all(crew is not other for other in alike)]
            yield DeviceFleet(plan.world, seeds, alike, plan.n_proposals)
    if here:
        yield Fleet(plan.world, seeds, here, plan.n_proposals, n_threads)


def _seeds_at_once(plan: Plan, n_threads: int) -> int:
    runs_a_seed = len(plan.penalties) * len(plan.strategies)
    wanted = n_threads * ceil(_RUNS_A_THREAD / runs_a_seed)
    rooms = [
        sequence.max_rows
        for sequence in (sequence_named(strategy.sequence) for strategy in plan.strategies)
        if isinstance(sequence, Aggregated)
    ]
    if plan.engine == "jax":  # one program for all seeds, as far as there is room
        wanted, rooms = 2**31, [max([*rooms, plan.n_proposals]) * _COPIES]
    bytes_a_seed = 8 * len(plan.penalties) * sum(rooms)
    room = _ROOM * (_DEVICE_ROOMS if plan.engine == "jax" else 1)
    return max(1, min(wanted, room // bytes_a_seed if bytes_a_seed else wanted))


def crew_of(plan: Plan, strategy: Strategy, starts: list[DecisionRule]) -> Crew:
    """Return the runs of a strategy, given where each seed starts."""
    return Crew(
        strategy.name,
        plan.learner(strategy, plan.penalties[0]),  # type: ignore[arg-type]  # checked before
        sequence_named(strategy.sequence),
        starts,
        plan.penalties,
        plan.time_steps,
    )


def _runs(crew: Crew, seeds: list[int], plan: Plan, paths: list[PathMetrics]) -> list[Run]:
    """Put together what each run has been through."""
    happened, n_steps = crew.happened, crew.time_steps
    gained = np.cumsum(happened.gain.T, axis=1) / np.arange(1, n_steps + 1)
    effective = np.column_stack([gained, gained[:, -1]])
    behind = np.column_stack([np.full(crew.n_runs, np.nan), happened.effective.T])
    runs = []
    for run, metrics in enumerate(paths):
        by_name = {
            "utility": metrics.utility,
            "effective_utility": effective[run],
            "benefit_gap": metrics.benefit_gap,
            "acceptance": metrics.acceptance,
            "effective_sample_size": behind[run],
        }
        by_name |= {f"benefit {group}": values for group, values in metrics.benefits.items()}
        runs.append(
            Run(
                crew.name,
                crew.penalties[run % len(crew.penalties)],
                seeds[run // len(crew.penalties)],
                by_name,
                crew.rule(run, n_steps),
                crew.notes(run, plan.world.groups),
                crew.path[run],
            )
        )
    return runs
