"""Fleets: crews that go through time together, on the same people, in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.learning import Aggregated, FitPredictor, Sequence, UpdatePolicy
from consequential.learning.kernel import prepared
from consequential.learning.sequences import reservoir_moves
from consequential.learning.spot import copied, padded
from consequential.policies import Policy
from consequential.policies.compiled import compiling_reported
from consequential.policies.uniforms import fill_uniforms
from consequential.simulation.crew import Crew
from consequential.simulation.functionals import (
    Room,
    Sizes,
    count_groups,
    room_for,
    sizes_of,
)
from consequential.simulation.memories import Inputs, Memory, Passing
from consequential.simulation.proposals import fill_proposals, learning_rng
from consequential.simulation.reservoir import keep_all
from consequential.simulation.step import (
    TOGETHER,
    Happened,
    Learning,
    Shared,
    advance_deciding,
    advance_predicting,
)
from consequential.worlds import World
from consequential.worlds.world import world_at

Floats = NDArray[np.float64]

_BLOCKS_A_THREAD = 4
_MOST_DRAWS = 2**20  # an update's random numbers are kept only where they are not too many


@contextmanager
def in_threads(n_threads: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Lend a `map` that works in so many threads, or in this one."""
    if n_threads == 1:
        yield map
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool.map


@dataclass(frozen=True, slots=True)
class _Duty:
    """A crew and all that its runs need at every step."""

    crew: Crew
    shared: Shared
    grows: bool
    seed_of: NDArray[np.int64]  # one a run
    penalties: Floats
    learning: Learning | None  # None for predictors
    kept_weights: Floats
    passing: Passing | None
    sizes: Sizes | None


class Fleet:
    """All runs of some seeds: crews that share people."""

    def __init__(
        self, world: World, seeds: list[int], crews: list[Crew], n_proposals: int, n_threads: int
    ) -> None:
        self.world, self.seeds, self.crews = world, seeds, crews
        self.n_proposals, self.n_threads = n_proposals, n_threads
        n_seeds, n = len(seeds), n_proposals
        self._group = np.empty((n_seeds, n), dtype=np.int16)
        self._label, self._uniforms = np.empty((n_seeds, n)), np.empty((n_seeds, n))
        raw = Inputs(None, np.ones((n_seeds, self._n_features() + 1, n)))
        self._inputs = [raw if crew.raw_inputs else self._own_inputs(crew) for crew in crews]
        self._raw = raw
        self._memories = {crew.sequence: self._memory(crew.sequence) for crew in crews}
        self._kept_weights: list[Floats] = []
        self._passing: list[Passing | None] = []
        same: dict[Any, Passing] = {}
        for crew, inputs in zip(crews, self._inputs, strict=True):
            memory = self._memories[crew.sequence]
            room = memory.room if memory.grows else 0
            self._kept_weights.append(np.zeros((crew.n_runs, room)))
            if memory.grows and memory.sequence not in inputs.kept:
                inputs.kept[memory.sequence] = np.zeros((n_seeds, inputs.phi.shape[1], room))
            if isinstance(crew.learner, FitPredictor):
                self._passing.append(None)
                continue
            learner, objective = crew.learner, crew.learner.objective
            sizes = (learner.n_iterations, learner.batch_size, learner.n_reference)
            alike = (id(inputs), crew.sequence, sizes, objective.normalisation, objective.fairness)
            self._passing.append(same.setdefault(alike, Passing(crew, inputs, memory)))
        self._distinct = list(same.values())
        self._duties = [self._duty(index) for index in range(len(crews))]
        self._rooms = threading.local()  # a thread has its own

    def _n_features(self) -> int:
        crowd = self.world.drawn_from
        if crowd is not None:
            return crowd.n_features
        return int(self.world.people(1, np.random.default_rng(0)).features.shape[1])

    def _own_inputs(self, crew: Crew) -> Inputs:
        policies = [start for start in crew.starts if isinstance(start, Policy)]
        n_inputs = crew.thetas.shape[1]
        return Inputs(policies, np.ones((len(self.seeds), n_inputs, self.n_proposals)))

    def _memory(self, sequence: Sequence) -> Memory:
        n_seeds, n = len(self.seeds), self.n_proposals
        grows = isinstance(sequence, Aggregated)
        room = n
        if isinstance(sequence, Aggregated):
            room = min(sequence.max_rows, n * self.crews[0].time_steps)
        return Memory(
            sequence,
            np.zeros((n_seeds, room), dtype=np.int16) if grows else self._group,
            np.zeros((n_seeds, room)) if grows else self._label,
            np.zeros(n_seeds, dtype=np.int64),
            np.zeros((n_seeds, len(self.world.groups))),
            np.zeros((n_seeds, n, 3), dtype=np.int64),
            np.zeros(n_seeds, dtype=np.int64),
            np.zeros(n_seeds),
            np.zeros(n_seeds, dtype=np.uint64),
            np.zeros((n_seeds, self._n_draws(sequence))),
        )

    def _n_draws(self, sequence: Sequence) -> int:
        """Return how many random numbers the runs of a seed may share in their updates."""
        most = 0
        for crew in self.crews:
            learner = crew.learner
            if crew.sequence != sequence or not isinstance(learner, UpdatePolicy):
                continue
            if learner.objective.decisions == "sampled":
                most = max(most, learner.n_iterations * padded(learner.batch_size))
        return most if most <= _MOST_DRAWS else 0

    def sail(self, time_steps: int) -> Iterator[int]:
        """Go through time; yield after each step how many runs have taken it."""
        with in_threads(self.n_threads) as each:
            for time_step in range(time_steps):
                for passing in self._distinct:
                    n = self.n_proposals
                    grown = min(n * (time_step + 1), passing.memory.room)
                    passing.make_room(grown if passing.memory.grows else n)
                world = world_at(self.world, time_step)
                with compiling_reported("simulations"):
                    _ = world.drawn_from  # made once, before threads ask for it
                    gather = partial(self._gather, world, time_step)
                    list(each(gather, range(len(self.seeds))))
                    tasks = [task for duty in self._duties for task in self._tasks(duty, time_step)]
                    list(each(lambda task: task(), tasks))
                for crew in self.crews:
                    crew.path[:, time_step + 1] = crew.thetas
                yield sum(crew.n_runs for crew in self.crews)

    def _gather(self, world: World, time_step: int, s: int) -> None:
        """Draw a seed's people of this step and put them where each sequence keeps them."""
        seed, raw = self.seeds[s], self._raw.phi[s]
        fill_proposals(
            world, seed, time_step, raw[1:], self._group[s], self._label[s], self._uniforms[s]
        )
        for inputs in self._inputs:
            if inputs.policies is not None:
                policy = inputs.policies[s]
                groups = np.array(self.world.groups, dtype=object)
                sensitive = groups[self._group[s]] if policy.uses_sensitive else None
                inputs.phi[s] = policy.inputs(raw[1:].T, sensitive).T
        for memory in self._memories.values():
            self._remember(memory, s, learning_rng(seed, time_step), time_step)
        for passing in self._distinct:
            passing.fill(s)

    def _remember(self, memory: Memory, s: int, rng: np.random.Generator, time_step: int) -> None:
        n = self.n_proposals
        if memory.grows:
            # exactly what `Aggregated.extend` does, and after it `UpdatePolicy`
            moves = reservoir_moves(rng.random(n), n * time_step, memory.room)
            memory.moves[s, : len(moves)], memory.n_moves[s] = moves, len(moves)
            memory.n_kept[s] = min(n * (time_step + 1), memory.room)
            keep_all(moves, len(moves), self._group[s], memory.group[s])
            keep_all(moves, len(moves), self._label[s], memory.label[s])
            for inputs in self._distinct_inputs():
                if memory.sequence in inputs.kept:
                    for k in range(inputs.phi.shape[1]):
                        keep_all(
                            moves, len(moves), inputs.phi[s, k], inputs.kept[memory.sequence][s, k]
                        )
        else:
            memory.n_kept[s] = n
        count_groups(memory.group[s, : memory.n_kept[s]], memory.sizes[s])
        memory.starts[s] = rng.random()
        memory.keys[s] = rng.integers(2**63)
        if memory.draws.size:
            fill_uniforms(memory.keys[s], 0, memory.draws[s])

    def _distinct_inputs(self) -> list[Inputs]:
        return list({id(inputs): inputs for inputs in self._inputs}.values())

    def _duty(self, index: int) -> _Duty:
        crew, inputs = self.crews[index], self._inputs[index]
        memory, n_seeds = self._memories[crew.sequence], len(self.seeds)
        shared = Shared(
            inputs.phi,
            self._group,
            self._label,
            self._uniforms,
            inputs.kept[crew.sequence] if memory.grows else inputs.phi,
            memory.group,
            memory.label,
            memory.n_kept,
            memory.sizes,
            memory.moves,
            memory.n_moves,
            memory.starts,
            memory.keys,
            memory.draws,
        )
        learning = None
        if isinstance(crew.learner, UpdatePolicy):
            learning = crew.learning(self.world.cost)
        return _Duty(
            crew,
            shared,
            memory.grows,
            np.repeat(np.arange(n_seeds), len(crew.penalties)),
            np.tile(crew.penalties, n_seeds),
            learning,
            self._kept_weights[index],
            self._passing[index],
            None if learning is None else self._sizes(crew, learning, memory.room),
        )

    def _sizes(self, crew: Crew, learning: Learning, most: int) -> Sizes:
        """Return how much room a crew's runs need, which learn from so many people at most."""
        n_inputs, ascent = crew.thetas.shape[1], learning.ascent
        n = prepared(ascent, most, 0.0, 1.0)[0] + 2 * ascent.batch_size
        n_copied = 0
        if ascent.sampled:
            n_copied = copied(n, n_inputs, ascent.batch_size, ascent.n_iterations)
        fresh = (TOGETHER, self.n_proposals)
        return sizes_of(fresh, n, n_inputs, learning.notion, learning.weighing, n_copied)

    def _room(self, sizes: Sizes) -> Room:
        """Return where this thread works on runs that need so much."""
        rooms: dict[Sizes, Room] | None = getattr(self._rooms, "made", None)
        if rooms is None:
            rooms = self._rooms.made = {}
        if sizes not in rooms:
            rooms[sizes] = room_for(sizes)
        return rooms[sizes]

    def _tasks(self, duty: _Duty, time_step: int) -> list[Callable[[], None]]:
        """Return blocks of a crew's runs to advance, for any thread to take."""
        crew, shared, learning = duty.crew, duty.shared, duty.learning
        happened = Happened(*(values[time_step] for values in crew.happened))
        n_blocks = self.n_threads * _BLOCKS_A_THREAD if self.n_threads > 1 else 1
        block = ceil(crew.n_runs / n_blocks)
        if isinstance(crew.learner, FitPredictor):
            threshold = crew.learner.threshold
            shift = log(threshold / (1.0 - threshold))

            def advance(first: int) -> None:
                advance_predicting(
                    first, min(first + block, crew.n_runs), duty.seed_of, shared, duty.grows,
                    self.world.cost, shift, crew.thetas, duty.kept_weights, happened,
                )  # fmt: skip
        else:
            assert duty.passing is not None
            assert learning is not None
            assert duty.sizes is not None
            passed, rate, sizes = duty.passing.passed, crew.base_rate(time_step), duty.sizes

            def advance(first: int) -> None:
                advance_deciding(
                    first, min(first + block, crew.n_runs), duty.seed_of, shared, passed,
                    duty.grows, learning, rate, duty.penalties, crew.thetas, duty.kept_weights,
                    happened, self._room(sizes),
                )  # fmt: skip

        return [partial(advance, first) for first in range(0, crew.n_runs, block)]
