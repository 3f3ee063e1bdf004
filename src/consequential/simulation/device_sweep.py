"""The device sweep: all runs of some strategies as one JAX program, on a GPU if there is one."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.accelerated import backend, step
from consequential.accelerated.people import Population
from consequential.accelerated.step import Program
from consequential.kernels.alias_table import FEATURES
from consequential.kernels.reservoir import changed_slots
from consequential.kernels.step import Outcome
from consequential.learning.ascent import Schedule
from consequential.learning.update import UpdatePolicy
from consequential.links import LinkNumbers
from consequential.log.reservoir import reservoir_moves
from consequential.policies import Policy
from consequential.sequences import Aggregated, sequence_named
from consequential.simulation.compiled_runs import CompiledRuns, Starts
from consequential.simulation.compiled_sweep import Progress, advance_seed, measured, runs_of
from consequential.simulation.ground_truth import GroundTruth
from consequential.simulation.replay import Experiment, learning_rng
from consequential.simulation.strategies import Strategy
from consequential.worlds import World

Floats = NDArray[np.float64]

# matrices of the step are written out entry by entry; beyond this that is no longer sensible
_MOST_INPUTS = 12
_MEMORY, _COPIES = 2**35, 8  # bytes; a program holds several arrays of the weights' size


def sweep_on_device(
    experiment: Experiment, seeds: list[int], starts: Starts, n_threads: int
) -> Generator[Progress, None, tuple[Strategy, ...]]:
    """Yield the progress of the strategies that a device can run; return the others."""
    # decided for all seeds at once: their first policies may differ
    all_runs = runs_of(experiment, seeds, starts, experiment.penalties)
    fitting = {runs.name for some in in_programs(all_runs, experiment.world) for runs in some}
    left = tuple(each for each in experiment.strategies if each.name not in fitting)
    if not fitting:
        return left
    taken = tuple(each for each in experiment.strategies if each.name in fitting)
    experiment = replace(experiment, strategies=taken)
    truth, n_seeds = GroundTruth(experiment.world, experiment.fairness), _seeds_at_once(experiment)
    for at in range(0, len(seeds), n_seeds):
        some = seeds[at : at + n_seeds]
        all_runs = runs_of(experiment, some, starts, experiment.penalties, at=at)
        for together in in_programs(all_runs, experiment.world):
            for n_steps in DeviceSweep(experiment, together).advance():
                yield n_steps, []
            yield 0, measured(experiment, truth, together, n_threads)
    return left


def _seeds_at_once(experiment: Experiment) -> int:
    """Return how many seeds one program has memory for."""
    sequences = [sequence_named(strategy.sequence) for strategy in experiment.strategies]
    sizes = [each.max_rows for each in sequences if isinstance(each, Aggregated)]
    largest = max([*sizes, experiment.n_proposals])
    return max(1, _MEMORY // (8 * len(experiment.penalties) * largest * _COPIES))


def in_programs(all_runs: list[CompiledRuns], world: World) -> list[list[CompiledRuns]]:
    """Return the runs that a device can take, together those that fit into one program."""
    together: dict[Any, list[CompiledRuns]] = {}
    for runs in all_runs:
        table, learner = world.alias_table, runs.learner
        if table is None or not isinstance(learner, UpdatePolicy) or learner.max_passes:
            continue
        plain = runs.has_plain_inputs
        if not plain and not (table.width == 0.0 and _same_inputs(runs, table.cells)):
            continue
        if runs.thetas.shape[1] <= _MOST_INPUTS:
            inputs = None if plain else runs.name
            together.setdefault((learner, runs.sequence, inputs), []).append(runs)
    return list(together.values())


def _same_inputs(runs: CompiledRuns, cells: Floats) -> bool:
    """Whether all seeds' policies see people in the same way."""
    policies = [start for start in runs.starts if isinstance(start, Policy)]
    if any(policy.groups for policy in policies):
        return False
    some = cells[:4, FEATURES:]
    return all(np.array_equal(policy.inputs(some), policies[0].inputs(some)) for policy in policies)


class DeviceSweep:
    """Strategies whose runs all advance in one program; they may differ in their links."""

    def __init__(self, experiment: Experiment, all_runs: list[CompiledRuns]) -> None:
        self.experiment, self.all_runs, first = experiment, all_runs, all_runs[0]
        self.world, self.n_proposals = experiment.world, experiment.n_proposals
        self.seeds, self.n_penalties = first.seeds, len(first.penalties)
        assert isinstance(first.learner, UpdatePolicy)
        self.learner, self.learning = first.learner, first.learning(self.world.cost)
        self.size = 0  # of the reservoir
        if isinstance(first.sequence, Aggregated):
            self.size = min(first.sequence.max_rows, self.n_proposals * first.time_steps)

    def advance(self) -> Iterator[int]:
        """Take all runs through time; yield after each step how many have taken it."""
        jax, n = backend.needed("jax"), self.n_proposals
        decide = backend.compiled(step.decide, "program")
        learn = backend.compiled(step.learn, "program")
        keep = backend.compiled(step.keep, donate="kept")
        thetas, gained, found = [], [], []
        with jax.enable_x64(True), ThreadPoolExecutor(os.cpu_count()) as pool:
            shape = len(self.seeds), self.n_penalties, -1
            stacked = [each.thetas.reshape(shape) for each in self.all_runs]
            theta, runs = jax.device_put((np.concatenate(stacked, axis=1), self._runs()))
            numbers = jax.numpy.zeros((shape[0], self.size), dtype="int64")
            kept = step.Kept(numbers, jax.numpy.zeros((*theta.shape[:2], self.size)))
            for time_step in range(self.experiment.time_steps):
                starts, keys, slots, sources = self._draws(time_step, pool)
                n_kept = min(n * (time_step + 1), self.size or n)
                program = self.program(n_kept)
                fresh, *gains = decide(program, runs, time_step, theta)
                kept = keep(kept, fresh, slots, sources) if self.size else fresh
                update = step.Update(n_kept, self.all_runs[0].rate(time_step), starts, keys)
                thetas.append(theta)
                theta, learned = learn(program, runs, kept, update, theta)
                gained.append(gains)
                found.append(learned)
                yield sum(each.n_runs for each in self.all_runs)
            # stacked first: hundreds of small copies would take longer than the last steps
            path, gained, found = jax.device_get(
                jax.tree.map(
                    lambda *each: jax.numpy.stack(each),
                    *zip([*thetas[1:], theta], gained, found, strict=True),
                )
            )
        for at, own in enumerate(self.all_runs):
            here = slice(at * self.n_penalties, (at + 1) * self.n_penalties)
            brought = [values[:, :, here] for values in (path, *gained, *found)]
            steps, *outcome, n_accepted = (
                values.reshape(len(values), own.n_runs, *values.shape[3:]) for values in brought
            )
            own.path[:, 1:] = np.moveaxis(steps, 0, 1)
            own.thetas, own.outcome = own.path[:, -1].copy(), Outcome(*map(np.array, outcome))
            if self.learning.accepted_only:
                self._repeat_thin_runs(own, n_accepted.min(axis=0))

    def _repeat_thin_runs(self, runs: CompiledRuns, n_rows: NDArray[Any]) -> None:
        """Run again, on the CPU, seeds with a run that once had fewer rows than the program reads.

        Under the paper's normalisation an update has as many rows as people were accepted.
        """
        n, schedule = self.n_penalties, self.program(self.n_proposals).schedule
        thin = np.flatnonzero(n_rows < schedule.batch_size * max(2, schedule.n_before))
        for s in sorted({int(run) // n for run in thin}):
            again = replace(runs, seeds=[self.seeds[s]], starts=[runs.starts[s]])
            advance_seed(self.experiment, [again])
            own = slice(s * n, (s + 1) * n)
            runs.path[own], runs.thetas[own] = again.path, again.thetas
            for old, new in zip(runs.outcome, again.outcome, strict=True):
                old[:, own] = new

    def _draws(
        self, time_step: int, pool: ThreadPoolExecutor
    ) -> tuple[Floats, NDArray[np.uint64], Any, Any]:
        """Return the random numbers of this step's updates, and where people are kept."""
        n, n_seeds = self.n_proposals, len(self.seeds)
        starts, keys = np.zeros(n_seeds), np.zeros(n_seeds, dtype=np.uint64)

        def draw(s: int) -> Any:
            rng = learning_rng(self.seeds[s], time_step)
            change = None
            if self.size:
                moves = reservoir_moves(rng.random(n), n * time_step, self.size)
                change = changed_slots(moves, self.size)
            starts[s], keys[s] = rng.random(), rng.integers(2**63)
            return change

        each = pool.map if self.size else map  # threads pay off only for reservoirs
        changes = list(each(draw, range(n_seeds)))
        if not self.size:
            return starts, keys, None, None
        longest = backend.round_length(max(len(slots) for slots, _ in changes))
        slots = np.full((n_seeds, longest), self.size, dtype=np.int32)
        sources = np.zeros((n_seeds, longest), dtype=np.int32)
        for s, (slot, source) in enumerate(changes):
            slots[s, : len(slot)], sources[s, : len(slot)] = slot, source
        return starts, keys, slots, sources

    def program(self, n_log: int) -> Program:
        """Return what a time step with a log of n rows is compiled for."""
        learner, learning = self.learner, self.learning
        n_most = max(self.size, self.n_proposals)
        n_read = learner.sizes(n_most)[0]
        n_now, batch_size = learner.sizes(n_most if learning.accepted_only else n_log)
        schedule = Schedule(n_now // batch_size, batch_size, learner.n_reference)
        return Program(
            backend.shortened(schedule),
            n_iterations=learner.n_iterations,
            n_people=self.n_proposals,
            n_read=n_read,
            n_groups=len(self.world.groups),
            n_checked=min(n_read, learning.n_checked),
            penalised=max(self.all_runs[0].penalties) > 0.0,
            has_ratio=bool(learning.notion.is_ratio.any()),
            label_free=learning.notion.label_free,
            sampled=learning.ascent.sampled,
            preconditioned=learning.ascent.preconditioned,
            weighted=learning.weighted,
            self_normalised=learning.self_normalised,
            accepted_only=learning.accepted_only,
        )

    def _runs(self) -> step.Runs:
        table, start, n = self.world.alias_table, self.all_runs[0].starts[0], self.n_penalties
        assert table is not None
        assert isinstance(start, Policy)
        inputs = start.inputs(table.cells[:, FEATURES:]).T
        widths = np.zeros(len(inputs))
        widths[1:2] = table.width  # of the first feature; other feature maps have cells of width 0
        links = [runs.learning(self.world.cost).link for runs in self.all_runs]
        link = LinkNumbers(*np.repeat(links, n, axis=0).T)
        return step.Runs(
            Population(table, inputs, widths),
            self.learning._replace(link=link),
            np.tile(self.all_runs[0].penalties, len(self.all_runs)),
            np.array([seed % 2**64 for seed in self.seeds], dtype=np.uint64),
        )
