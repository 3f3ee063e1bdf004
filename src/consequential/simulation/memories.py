"""Memories: what a fleet's seeds keep of their people, and in which order updates read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consequential.learning import Aggregated, Sequence, UpdatePolicy
from consequential.learning.matrices import mean_squares
from consequential.policies import Policy
from consequential.simulation.crew import Crew, notion_of
from consequential.simulation.functionals import fill_label_free, read_circle
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
    kinds: NDArray[np.int64]
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
        memory, passed, n = self.memory, self.passed, self.memory.n_kept[s]
        start = int(memory.starts[s] * n)
        phi = self.inputs.kept[memory.sequence] if memory.grows else self.inputs.phi
        for k in range(phi.shape[1]):
            read_circle(phi[s, k, :n], start, passed.phi[s, k])
        read_circle(memory.group[s, :n], start, passed.group[s])
        read_circle(memory.label[s, :n], start, passed.label[s])
        passed.scale[s] = mean_squares(passed.phi[s])
        if self.notion.label_free:
            fill_label_free(self.notion, memory.sizes[s], passed.group[s], passed.values[s])
