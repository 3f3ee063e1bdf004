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
from consequential.accelerated.functionals import Link, Settings
from consequential.accelerated.people import Crowd as DeviceCrowd
from consequential.accelerated.step import Given, Program, Shape
from consequential.kernels.alias_table import FEATURES
from consequential.kernels.reservoir import changed_slots
from consequential.kernels.step import Outcome
from consequential.learning import UpdatePolicy
from consequential.learning.ascent import Schedule
from consequential.policies import Policy
from consequential.sequences import Aggregated, reservoir_moves, sequence_named
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
        if table is None or not isinstance(learner, UpdatePolicy):
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
        self.learner = first.learner
        self.size = 0  # of the reservoir
        if isinstance(first.sequence, Aggregated):
            self.size = min(first.sequence.max_rows, self.n_proposals * first.time_steps)

    def advance(self) -> Iterator[int]:
        """Take all runs through time; yield after each step how many have taken it."""
        time_steps = self.experiment.time_steps
        jax = backend.needed("jax")
        decide = backend.compiled(step.decide, "program")
        learn = backend.compiled(step.learn, "program")
        keep = backend.compiled(step.keep, donate="kept")
        thetas, gained, found = [], [], []
        with jax.enable_x64(True), ThreadPoolExecutor(os.cpu_count()) as pool:
            theta = jax.device_put(self._stacked([runs.thetas for runs in self.all_runs]))
            crowd, given = jax.device_put(self._crowd()), jax.device_put(self._given())
            seeds = jax.device_put(np.array([seed % 2**64 for seed in self.seeds], dtype=np.uint64))
            kept = self._empty(jax.numpy)
            for time_step in range(time_steps):
                starts, keys, slots, sources = self._draws(time_step, pool)
                n_kept = min(self.n_proposals * (time_step + 1), self.size or self.n_proposals)
                program = self._program(n_kept)
                fresh, *gains = decide(program, given, crowd, seeds, time_step, theta)
                kept = keep(kept, fresh, slots, sources) if self.size else fresh
                rate = self.all_runs[0].rate(time_step)
                thetas.append(theta)
                theta, learned = learn(
                    program, given, crowd, seeds, kept, n_kept, theta, rate, starts, keys
                )
                gained.append(gains)
                found.append(learned)
                yield sum(runs.n_runs for runs in self.all_runs)
            # in one piece each: hundreds of small copies would take longer than the last steps
            gained, found = (
                jax.tree.map(lambda *each: jax.numpy.stack(each), *parts)
                for parts in (gained, found)
            )
            path, gained, found = jax.device_get(
                (jax.numpy.stack([*thetas, theta], axis=2), gained, found)
            )
        for at, runs in enumerate(self.all_runs):
            runs.path[:] = self._of(at, path).reshape(runs.path.shape)
            runs.thetas = runs.path[:, -1].copy()
            brought = [self._of(at, values, axis=2) for values in (*gained, *found[:4])]
            runs.outcome = Outcome(
                *(np.array(values).reshape(time_steps, -1) for values in brought)
            )
            fewest = self._of(at, found.n_accepted, axis=2).min(axis=0)
            self._repeat_thin_runs(runs, fewest.reshape(-1), time_steps)

    def _stacked(self, parts: list[Floats]) -> Floats:
        """Put strategies beside one another along the axis of the penalties."""
        n_seeds = len(self.seeds)
        return np.concatenate([each.reshape(n_seeds, self.n_penalties, -1) for each in parts], 1)

    def _of(self, at: int, values: Any, axis: int = 1) -> Any:
        own = range(at * self.n_penalties, (at + 1) * self.n_penalties)
        return np.take(values, own, axis=axis)

    def _empty(self, jnp: Any) -> step.Kept:
        n_seeds, n_runs = len(self.seeds), self.n_penalties * len(self.all_runs)
        return step.Kept(
            jnp.zeros((n_seeds, self.size), dtype="int64"), jnp.zeros((n_seeds, n_runs, self.size))
        )

    def _repeat_thin_runs(self, runs: CompiledRuns, n_rows: NDArray[Any], time_steps: int) -> None:
        """Run again, on the CPU, seeds with a run that once had fewer rows than the program reads.

        Under the paper's normalisation an update has as many rows as people were accepted.
        """
        n = self.n_penalties
        if not self._accepted_only:
            return
        settings = self._program(self.n_proposals).settings
        enough = settings.batch_size * max(2, settings.n_before)
        thin = np.flatnonzero(n_rows < enough)
        for s in sorted({int(run) // n for run in thin}):
            again = replace(runs, seeds=[self.seeds[s]], starts=[runs.starts[s]])
            advance_seed(self.experiment, [again])
            own = slice(s * n, (s + 1) * n)
            runs.path[own], runs.thetas[own] = again.path, again.thetas
            for old, new in zip(runs.outcome, again.outcome, strict=True):
                old[:, own] = new

    @property
    def _accepted_only(self) -> bool:
        return self.learner.objective.normalisation == "paper"

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

        if not self.size:
            for s in range(n_seeds):
                draw(s)
            return starts, keys, None, None
        changes = list(pool.map(draw, range(n_seeds)))
        longest = backend.round_length(max(len(slots) for slots, _ in changes))
        slots = np.full((n_seeds, longest), self.size, dtype=np.int32)
        sources = np.zeros((n_seeds, longest), dtype=np.int32)
        for s, (slot, source) in enumerate(changes):
            slots[s, : len(slot)], sources[s, : len(slot)] = slot, source
        return starts, keys, slots, sources

    def _program(self, n_log: int) -> Program:
        learner, learning = self.learner, self.all_runs[0].learning(self.world.cost)
        fairness: Any = learner.objective.fairness
        shapes = () if fairness is None else fairness.shapes()
        at_most = max(self.size, self.n_proposals)
        n_passed = learner.sizes(at_most)[0]
        n_now, batch_size = learner.sizes(at_most if self._accepted_only else n_log)
        schedule = Schedule(n_now // batch_size, batch_size, learner.n_reference)
        return Program(
            Settings(
                n_iterations=learner.n_iterations,
                batch_size=batch_size,
                n_reference=learner.n_reference,
                n_groups=len(self.world.groups),
                is_ratio=tuple(shape.denominator is not None for shape in shapes),
                sampled=learning.ascent.sampled,
                preconditioned=learning.ascent.preconditioned,
                penalised=max(self.all_runs[0].penalties) > 0.0,
                ridge=learning.ascent.ridge,
                max_step=learning.ascent.max_step,
                max_share=learning.ascent.max_share,
                on_the_spot=schedule.in_batch,
                n_before=schedule.n_before,
            ),
            tuple(
                Shape(shape.values, shape.constant, shape.share_of, shape.denominator)
                for shape in shapes
            ),
            n_people=self.n_proposals,
            n_passed=n_passed,
            n_checked=min(n_passed, learning.n_checked),
            accepted_only=self._accepted_only,
            weighted=learning.weighted,
            self_normalised=learning.self_normalised,
        )

    def _given(self) -> Given:
        each = [runs.learning(self.world.cost) for runs in self.all_runs]
        links = np.repeat([learning.link for learning in each], self.n_penalties, axis=0)
        penalties = np.tile(self.all_runs[0].penalties, (len(self.seeds), len(self.all_runs)))
        first = each[0]
        return Given(
            Link(*(column[:, None] for column in links.T)),
            first.cost,
            first.world_cost,
            first.largest_weight,
            first.enough_rows,
            penalties,
        )

    def _crowd(self) -> DeviceCrowd:
        table, start = self.world.alias_table, self.all_runs[0].starts[0]
        assert table is not None
        assert isinstance(start, Policy)
        return DeviceCrowd(table.cells, start.inputs(table.cells[:, FEATURES:]), table.width)
