"""Proposals: a seed's people and the random numbers that decide on them, drawn once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.policies import DecisionRule
from consequential.policies.compiled import compiled
from consequential.policies.uniforms import UniformStream, fill_uniforms, stream_key
from consequential.worlds import People, World
from consequential.worlds.crowd import Crowd, draw_people
from consequential.worlds.world import world_at

Floats = NDArray[np.float64]

# purposes of a seed's random streams
PEOPLE, DECISIONS, LEARNING, START = range(4)

# so many numbers of a seed's people are remembered; later ones are drawn again for each run
_REMEMBERED = 2**24


def key_of(seed: int, purpose: int, time_step: int) -> np.uint64:
    """Return the key of a seed's stream; seeds may be of any size."""
    return np.uint64(stream_key(_folded(seed), purpose, time_step))


def _folded(seed: int) -> np.uint64:
    return np.uint64(seed % 2**64)


def fill_proposals(
    world: World,
    seed: int,
    time_step: int,
    features: Floats,
    group: NDArray[np.int16],
    label: Floats,
    uniforms: Floats,
) -> None:
    """Fill in the people a seed has at a time step, and the random numbers that decide on them.

    `world` is the world as it is at that step; `features` have one row a feature.
    """
    crowd = world.drawn_from
    if crowd is not None:
        _draw_proposals(crowd, _folded(seed), time_step, features, group, label, uniforms)
        return
    people = world.people(len(label), np.random.default_rng([seed, PEOPLE, time_step]))
    features[:], group[:], label[:] = people.features.T, people.group, people.label
    fill_uniforms(key_of(seed, DECISIONS, time_step), 0, uniforms)


@compiled
def _draw_proposals(
    crowd: Crowd, seed: np.uint64, time_step: int, features: Floats, group: NDArray[np.int16],
    label: Floats, uniforms: Floats,
) -> None:  # fmt: skip
    """Fill in both in one call: threads wait for the interpreter before and after each."""
    draw_people(crowd, stream_key(seed, PEOPLE, time_step), features, group, label)
    fill_uniforms(stream_key(seed, DECISIONS, time_step), 0, uniforms)


def learning_rng(seed: int, time_step: int) -> np.random.Generator:
    """Return what `consequential_learning` gives a learner at a time step.

    It spawns two generators a step from the run's own; this is the second.
    """
    child = np.random.SeedSequence([seed, LEARNING], spawn_key=(2 * time_step + 1,))
    return np.random.Generator(np.random.PCG64(child))


class SharedProposals:
    """A seed's people, drawn once and shown to every strategy."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self._people: dict[tuple[int, int], People] = {}
        self._numbers = 0

    def collect(
        self, rule: DecisionRule, n: int, rng: np.random.Generator, *, time_step: int
    ) -> DecisionLog:
        """Decide on this step's people; randomness comes from the seed, not from `rng`."""
        people = self._people.get((time_step, n))
        if people is None:
            people = self._drawn(n, time_step)
            self._numbers += people.features.size
            if self._numbers < _REMEMBERED:
                self._people[time_step, n] = people
        decisions: np.random.Generator = np.random.default_rng([self.seed, DECISIONS, time_step])
        if type(rule).decide is DecisionRule.decide:  # one uniform number a person
            decisions = UniformStream(int(key_of(self.seed, DECISIONS, time_step)))  # type: ignore[assignment]
        return self.world.decided(people, rule, decisions, time_step)

    def _drawn(self, n: int, time_step: int) -> People:
        world = world_at(self.world, time_step)
        crowd = world.drawn_from
        if crowd is None:
            return world.people(n, np.random.default_rng([self.seed, PEOPLE, time_step]))
        features = np.empty((crowd.n_features, n))
        group, label = np.empty(n, dtype=np.int16), np.empty(n)
        fill_proposals(world, self.seed, time_step, features, group, label, np.empty(0))
        return People(np.ascontiguousarray(features.T), group.astype(np.intp), label)
