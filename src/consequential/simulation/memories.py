"""Memories: what a fleet's seeds keep of their people, and in which order updates read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consequential.learning import Aggregated, Sequence, UpdatePolicy
from consequential.learning.matrices import mean_squares
from consequential.policies import Policy
from consequential.policies.compiled import compiled
from consequential.simulation.crew import Crew, notion_of
from consequential.simulation.functionals import Codes, Notion, People, read_circle
from consequential.simulation.step import Passed

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Inputs:
    """People as policies see them: the same (1, x) for most, or a crew's own feature map."""

    policies: list[Policy] | None  # one a seed; None for (1, x)
    phi: Floats  # (seeds, inputs, n)
    kept: dict[Sequence, Floats] = field(default_factory=dict)  # (seeds, inputs, room)


@dataclass(slots=True)
class Memory:
    """What a sequence keeps of the people so far, and the random numbers of its updates."""

    sequence: Sequence
    group: NDArray[np.int16]  # (seeds, room)
    label: Floats
    n_kept: NDArray[np.int64]
    sizes: Floats
    moves: NDArray[np.int64]
    n_moves: NDArray[np.int64]
    starts: Floats
    keys: NDArray[np.uint64]
    draws: Floats

    @property
    def grows(self) -> bool:
        """Whether people of earlier steps are kept."""
        return isinstance(self.sequence, Aggregated)

    @property
    def room(self) -> int:
        """How many people are kept at most."""
        return int(self.group.shape[1])


class Passing:
    """The people that updates pass over, for crews whose runs all pass the same."""

    def __init__(self, crew: Crew, inputs: Inputs, memory: Memory) -> None:
        learner = crew.learner
        assert isinstance(learner, UpdatePolicy)
        self.learner, self.inputs, self.memory = learner, inputs, memory
        self.notion = notion_of(learner.objective.fairness)  # type: ignore[arg-type]
        self.accepted_only = learner.objective.normalisation == "paper"  # each run its own, then
        self.passed = self._room(0)

    def _room(self, n: int) -> Passed:
        n_seeds, n_inputs, _ = self.inputs.phi.shape
        n_benefits = len(self.notion.values)
        return Passed(
            np.empty((n_seeds, n_inputs, n)),
            np.empty((n_seeds, n), dtype=np.int16),
            np.empty((n_seeds, n)),
            np.empty((n_seeds, n_benefits, n if self.notion.label_free else 0)),
            np.empty((n_seeds, n_inputs, n_inputs)),
        )

    def make_room(self, n_kept: int) -> None:
        """Have room for what is passed of so many people."""
        n_passed = 0 if self.accepted_only else self.learner.sizes(n_kept)[0]
        if n_passed != self.passed.label.shape[1]:
            self.passed = self._room(n_passed)

    def fill(self, s: int) -> None:
        """Read a seed's people in a circle, from its random start on."""
        if self.accepted_only:
            return
        memory, n = self.memory, self.memory.n_kept[s]
        phi = self.inputs.kept[memory.sequence] if memory.grows else self.inputs.phi
        people = People(phi[s, :, :n], memory.group[s, :n], memory.label[s, :n])
        start = int(memory.starts[s] * n)
        _fill_passed(people, start, self.notion, memory.sizes[s], self.passed, s)


@compiled
def _fill_passed(
    people: People, start: int, notion: Notion, sizes: Floats, passed: Passed, s: int
) -> None:
    """Fill in what a seed's updates pass over, from the given person on."""
    for k in range(people.phi.shape[0]):
        read_circle(people.phi[k], start, passed.phi[s, k])
    read_circle(people.group, start, passed.group[s])
    read_circle(people.label, start, passed.label[s])
    passed.scale[s] = mean_squares(passed.phi[s])
    if notion.label_free:
        _fill_label_free(notion, sizes, passed.group[s], passed.values[s])


@compiled
def _fill_label_free(notion: Notion, sizes: Floats, group: Codes, values: Floats) -> None:
    """Fill in the benefits' coefficients of a notion that needs no label, (benefits, n)."""
    for b in range(values.shape[0]):
        share = 1.0 if notion.by_size[b] else notion.share_of[b, 0]
        scale = np.empty(sizes.size)
        for z in range(sizes.size):
            in_total = share * sizes[z]
            scale[z] = notion.values[b, 0] / in_total if in_total > 0.0 else 0.0
        for i in range(group.size):
            values[b, i] = scale[group[i]]
