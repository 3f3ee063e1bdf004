"""Fleets on a device: runs as one JAX program, on a GPU where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.accelerated import backend, step
from consequential.accelerated.functionals import Link, Settings
from consequential.accelerated.people import Crowd as DeviceCrowd
from consequential.accelerated.step import Given, Program, Shape
from consequential.learning import Aggregated, UpdatePolicy
from consequential.learning.reference import before_first_step
from consequential.learning.sequences import reservoir_moves
from consequential.policies import Policy
from consequential.simulation.crew import Crew
from consequential.simulation.fleet import Fleet
from consequential.simulation.proposals import learning_rng
from consequential.simulation.reservoir import follow_moves
from consequential.simulation.step import Happened
from consequential.worlds import World
from consequential.worlds.crowd import FEATURES

Floats = NDArray[np.float64]

# matrices of the step are written out entry by entry; beyond this that is no longer sensible
_MOST_INPUTS = 12


def device_crews(crews: list[Crew], world: World) -> list[list[Crew]]:
    """Return the crews that can go on a device, those together that fit into one program."""
    together: dict[Any, list[Crew]] = {}
    for crew in crews:
        crowd, learner = world.drawn_from, crew.learner
        if crowd is None or not isinstance(learner, UpdatePolicy):
            continue
        start = crew.starts[0]
        assert isinstance(start, Policy)
        seen_alike = crew.raw_inputs or (crowd.width == 0.0 and _same_inputs(crew, crowd.cells))
        if not seen_alike or len(start.theta) > _MOST_INPUTS:
            continue
        inputs = None if crew.raw_inputs else id(crew)
        together.setdefault((learner, crew.sequence, inputs), []).append(crew)
    return list(together.values())


def _same_inputs(crew: Crew, cells: Floats) -> bool:
    """Whether all seeds' policies see people in the same way."""
    policies = [start for start in crew.starts if isinstance(start, Policy)]
    if any(policy.groups for policy in policies):
        return False
    some = cells[:4, FEATURES:]
    return all(np.array_equal(policy.inputs(some), policies[0].inputs(some)) for policy in policies)


class DeviceFleet:
    """Crews whose runs all advance in one program: they may differ in their links."""

    def __init__(self, world: World, seeds: list[int], crews: list[Crew], n_proposals: int) -> None:
        self.world, self.seeds, self.crews = world, seeds, crews
        self.n_proposals = n_proposals
        learner, sequence = crews[0].learner, crews[0].sequence
        assert isinstance(learner, UpdatePolicy)
        self.learner = learner
        self.room = 0
        if isinstance(sequence, Aggregated):
            self.room = min(sequence.max_rows, n_proposals * crews[0].time_steps)
        self.n_penalties = len(crews[0].penalties)

    def sail(self, time_steps: int) -> Iterator[int]:
        """Go through time; yield after each step how many runs have taken it."""
        jax = backend.needed("jax")
        decide = backend.compiled(step.decide, "program")
        learn = backend.compiled(step.learn, "program")
        keep = backend.compiled(step.keep, donate="kept")
        thetas, gained, found = [], [], []
        with jax.enable_x64(True), ThreadPoolExecutor(os.cpu_count()) as pool:
            theta = jax.device_put(self._stacked([crew.thetas for crew in self.crews]))
            crowd, given = jax.device_put(self._crowd()), jax.device_put(self._given())
            seeds = jax.device_put(np.array([seed % 2**64 for seed in self.seeds], dtype=np.uint64))
            kept = self._empty(jax.numpy)
            for time_step in range(time_steps):
                starts, keys, slots, sources = self._draws(time_step, pool)
                n_kept = min(self.n_proposals * (time_step + 1), self.room or self.n_proposals)
                program = self._program(n_kept)
                fresh, *gains = decide(program, given, crowd, seeds, time_step, theta)
                kept = keep(kept, fresh, slots, sources) if self.room else fresh
                rate = self.crews[0].base_rate(time_step)
                thetas.append(theta)
                theta, learned = learn(
                    program, given, crowd, seeds, kept, n_kept, theta, rate, starts, keys
                )
                gained.append(gains)
                found.append(learned)
                yield sum(crew.n_runs for crew in self.crews)
            # in one piece each: hundreds of small copies would take longer than the last steps
            gained, found = (
                jax.tree.map(lambda *each: jax.numpy.stack(each), *parts)
                for parts in (gained, found)
            )
            path, gained, found = jax.device_get(
                (jax.numpy.stack([*thetas, theta], axis=2), gained, found)
            )
        for at, crew in enumerate(self.crews):
            crew.path[:] = self._of_crew(at, path).reshape(crew.path.shape)
            crew.thetas = crew.path[:, -1].copy()
            brought = [self._of_crew(at, values, axis=2) for values in (*gained, *found[:4])]
            crew.happened = Happened(
                *(np.array(values).reshape(time_steps, -1) for values in brought)
            )
            fewest = self._of_crew(at, found.n_accepted, axis=2).min(axis=0)
            self._repeat_thin_runs(crew, fewest.reshape(-1), time_steps)

    def _stacked(self, by_crew: list[Floats]) -> Floats:
        """Put crews beside one another along the axis of the penalties."""
        n_seeds = len(self.seeds)
        return np.concatenate([each.reshape(n_seeds, self.n_penalties, -1) for each in by_crew], 1)

    def _of_crew(self, at: int, values: Any, axis: int = 1) -> Any:
        own = range(at * self.n_penalties, (at + 1) * self.n_penalties)
        return np.take(values, own, axis=axis)

    def _empty(self, jnp: Any) -> step.Kept:
        n_seeds, n_runs = len(self.seeds), self.n_penalties * len(self.crews)
        return step.Kept(
            jnp.zeros((n_seeds, self.room), dtype="int64"), jnp.zeros((n_seeds, n_runs, self.room))
        )

    def _repeat_thin_runs(self, crew: Crew, n_rows: NDArray[Any], time_steps: int) -> None:
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
            again = Crew(
                crew.name, self.learner, crew.sequence, [crew.starts[s]], crew.penalties, time_steps
            )
            fleet = Fleet(self.world, [self.seeds[s]], [again], self.n_proposals, 1)
            for _ in fleet.sail(time_steps):
                pass
            own = slice(s * n, (s + 1) * n)
            crew.path[own], crew.thetas[own] = again.path, again.thetas
            for old, new in zip(crew.happened, again.happened, strict=True):
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
            if self.room:
                moves = reservoir_moves(rng.random(n), n * time_step, self.room)
                change = follow_moves(moves, self.room)
            starts[s], keys[s] = rng.random(), rng.integers(2**63)
            return change

        if not self.room:
            for s in range(n_seeds):
                draw(s)
            return starts, keys, None, None
        changes = list(pool.map(draw, range(n_seeds)))
        longest = backend.round_length(max(len(slots) for slots, _ in changes))
        slots = np.full((n_seeds, longest), self.room, dtype=np.int32)
        sources = np.zeros((n_seeds, longest), dtype=np.int32)
        for s, (slot, source) in enumerate(changes):
            slots[s, : len(slot)], sources[s, : len(slot)] = slot, source
        return starts, keys, slots, sources

    def _program(self, n_log: int) -> Program:
        learner, learning = self.learner, self.crews[0].learning(self.world.cost)
        fairness: Any = learner.objective.fairness
        shapes = () if fairness is None else fairness.shapes()
        at_most = max(self.room, self.n_proposals)
        n_passed = learner.sizes(at_most)[0]
        n_now, batch_size = learner.sizes(at_most if self._accepted_only else n_log)
        on_the_spot = learner.n_reference == 0 or n_now == batch_size
        n_before = before_first_step(learner.n_reference, batch_size, n_now // batch_size)
        return Program(
            Settings(
                n_iterations=learner.n_iterations,
                batch_size=batch_size,
                n_reference=learner.n_reference,
                n_groups=len(self.world.groups),
                is_ratio=tuple(shape.denominator is not None for shape in shapes),
                sampled=learning.ascent.sampled,
                preconditioned=learning.ascent.preconditioned,
                penalised=max(self.crews[0].penalties) > 0.0,
                ridge=learning.ascent.ridge,
                max_step=learning.ascent.max_step,
                max_share=learning.ascent.max_share,
                on_the_spot=on_the_spot,
                n_before=n_before,
            ),
            tuple(
                Shape(shape.values, shape.constant, shape.share_of, shape.denominator)
                for shape in shapes
            ),
            n_people=self.n_proposals,
            n_passed=n_passed,
            n_checked=min(n_passed, learning.n_checked),
            accepted_only=self._accepted_only,
            weighted=learning.weighing.weighted,
            self_normalised=learning.weighing.self_normalised,
        )

    def _given(self) -> Given:
        each = [crew.learning(self.world.cost) for crew in self.crews]
        links = np.repeat([learning.link for learning in each], self.n_penalties, axis=0)
        penalties = np.tile(self.crews[0].penalties, (len(self.seeds), len(self.crews)))
        first = each[0]
        return Given(
            Link(*(column[:, None] for column in links.T)),
            first.cost,
            first.world_cost,
            first.weighing.largest,
            first.enough_rows,
            penalties,
        )

    def _crowd(self) -> DeviceCrowd:
        crowd, start = self.world.drawn_from, self.crews[0].starts[0]
        assert crowd is not None
        assert isinstance(start, Policy)
        return DeviceCrowd(crowd.cells, start.inputs(crowd.cells[:, FEATURES:]), crowd.width)
