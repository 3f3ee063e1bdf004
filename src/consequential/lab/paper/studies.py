"""Studies: the paper's experiments, one per world and question, in two or three columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from consequential.lab import worlds
from consequential.lab.algorithm.exploring import Explore
from consequential.lab.algorithm.sequences import Aggregated
from consequential.lab.paper import sensitivity
from consequential.lab.simulation import (
    ExploreByPosterior,
    LearnToDecide,
    Strategy,
    paper_strategies,
)
from consequential.lab.worlds import TableWorld, World

COLUMNS = ("paper", "authors", "corrected")

Kind = Literal["time", "penalty", "lending", "sensitivity"]

_BLOCK_SECONDS, _BLOCK_SEEDS = 20.0, 6  # a block of seeds is lost when a run is killed
_MOST_SEEDS = {"lending": 10, "sensitivity": sensitivity.SEEDS}
_PASSES, _STEPS_KEPT = 2, 8


@dataclass(frozen=True, slots=True)
class Scale:
    """How large an experiment is: numbers of seeds, of penalties and of time steps."""

    seeds: int = 30
    penalties: int = 19
    time_steps: int = 200

    @property
    def penalty_values(self) -> tuple[float, ...]:
        """The paper's range of lambda, evenly on a log scale."""
        return tuple(np.logspace(-0.5, 4.0, self.penalties).tolist())


FULL, QUICK = Scale(), Scale(seeds=3, penalties=5, time_steps=10)


@dataclass(frozen=True, slots=True)
class Study:
    """One experiment: a world and a question, as printed, as the authors' code does it, corrected.

    Examples
    --------
    >>> from consequential.lab.paper.studies import STUDIES
    >>> study = STUDIES["first-penalty"]
    >>> study.columns, len(study.strategies("corrected"))
    (('paper', 'corrected'), 4)
    >>> STUDIES["first-time"].columns
    ('paper', 'authors', 'corrected')
    """

    name: str
    kind: Kind  # over time without a penalty, at the end against the penalty, or another
    shows: str
    figure: str  # the numbers of the paper's figures, or "" for what the paper does not have
    world: Callable[[], World]
    seconds: float  # about how long a seed takes on one core at full scale, in all columns
    authors: Callable[[], World] | None = None  # the world as the authors' code has it

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is run in."""
        if self.kind in ("lending", "sensitivity"):
            return COLUMNS[:1]
        return tuple(c for c in COLUMNS if c != "authors" or self.authors is not None)

    @property
    def files(self) -> list[str]:
        """The names of its results, one per column."""
        return [f"{self.name}-{column}" for column in self.columns]

    def strategies(self, column: str) -> list[Strategy]:
        """Return the paper's six strategies; under a penalty the four that learn to decide.

        The corrected column passes over the people of a step at most twice: on COMPAS the paper
        prints forty passes, but its steps are short, and ours gain little after the second. The
        others keep as many rows of a table as come in eight steps, since the same few thousand
        people come again and again. Where the paper has M iterations, the authors' code passes
        over the accepted people as often as M iterations would over all.
        """
        world = self.world()
        if self.kind == "sensitivity":
            return list(sensitivity.strategies(world))
        p = world.parameters
        enough = min(p.n_iterations, _PASSES * p.n_proposals // p.batch_size)
        kept = Aggregated(min(Aggregated().max_rows, _STEPS_KEPT * p.n_proposals))
        passes = max(1, p.n_iterations * p.batch_size // p.n_proposals)
        found: list[Strategy] = []
        for strategy in paper_strategies("applicants" if column == "corrected" else "paper"):
            if isinstance(strategy, LearnToDecide):
                if column == "corrected":
                    strategy = replace(strategy, n_iterations=enough)
                elif isinstance(world, TableWorld) and strategy.sequence == "aggregated":
                    strategy = replace(strategy, sequence=kept)
                if column == "authors":
                    strategy = replace(strategy, max_passes=passes)
                found.append(strategy)
            elif self.kind == "time":
                found.append(strategy)
        return found

    def time_steps(self, scale: Scale) -> int:
        """Return how many steps its runs have."""
        most = sensitivity.TIME_STEPS if self.kind == "sensitivity" else scale.time_steps
        return min(scale.time_steps, most)

    def penalties(self, scale: Scale) -> tuple[float, ...]:
        """Return the values of lambda."""
        return scale.penalty_values if self.kind == "penalty" else (0.0,)

    def seconds_per_seed(self, scale: Scale) -> float:
        """Return about how long a seed takes on one core, in all columns together."""
        if self.kind == "lending":
            return self.seconds
        penalties = scale.penalties / FULL.penalties if self.kind == "penalty" else 1.0
        return self.seconds * penalties * self.time_steps(scale) / self.time_steps(FULL)

    def blocks(self, scale: Scale) -> list[range]:
        """Return the seeds in blocks; a block that was interrupted is run again."""
        size = int(min(_BLOCK_SEEDS, max(2.0, _BLOCK_SECONDS / self.seconds_per_seed(scale))))
        size -= size % 2  # a whole number of seeds for each of two threads
        n = min(scale.seeds, _MOST_SEEDS.get(self.kind, scale.seeds))
        return [range(first, min(first + size, n)) for first in range(0, n, size)]


@dataclass(frozen=True, slots=True)
class BeyondStudy(Study):
    """The paper's best strategies beside those that explore by a posterior, in one column."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return COLUMNS[:1]

    def strategies(self, column: str) -> list[Strategy]:
        """Return ways to explore by a posterior, one under a penalty, and the corrected ascents."""
        ways: tuple[Explore, ...] = ("sampling", "optimistic", "pseudo_labels")
        ours = [ExploreByPosterior(way) for way in (ways if self.kind == "time" else ways[:1])]
        theirs = [LearnToDecide(link, "aggregated") for link in ("logistic", "semi_logistic")]
        return [*ours, *theirs]


_compas = partial(worlds.compas, split_seed=None)  # every seed has a split of its own
_rearrest = partial(_compas, label="rearrest")
_german, _taiwan = (partial(world, split_seed=None) for world in (worlds.german, worlds.taiwan))

# the worlds of the studies; over time, then against the penalty: the paper's figures, and seconds
_WORLDS: tuple[tuple[str, str, Callable[[], World], tuple[str, float], tuple[str, float]], ...] = (
    ("first", "first setting", worlds.first_setting, ("2, 4, 7, 8", 3.0), ("9", 9.0)),
    ("second", "second setting", worlds.second_setting, ("2, 4, 7, 8", 1.2), ("9", 3.4)),
    ("compas", "COMPAS, y = 1 no re-arrest", _compas, ("", 3.0), ("", 11.2)),
    ("compas-rearrest", "COMPAS, y = 1 re-arrest", _rearrest, ("5, 10", 3.0), ("6, 11", 11.2)),
    ("german", "German credit", _german, ("", 12.0), ("", 50.0)),
    ("taiwan", "Taiwan credit cards", _taiwan, ("", 10.0), ("", 60.0)),
)
_OF_AUTHORS: dict[str, Callable[[], World]] = {
    "first": worlds.first_setting,
    "second": worlds.second_setting,
    "compas": partial(_compas, standardised=True),
    "compas-rearrest": partial(_rearrest, standardised=True),
}
_SIZES = (128, 1024)  # people per step; the setting has 4096
_OVER_TIME, _BY_PENALTY = "six strategies over time", "the end against the penalty"


def _second(n_proposals: int) -> World:
    """Return the second setting with another number of people per step."""
    world = worlds.second_setting()
    world.parameters = replace(world.parameters, n_proposals=n_proposals)
    return world


def _studies() -> Iterator[Study]:
    shows = "lending: what is learned from people above a threshold"
    yield Study("lending", "lending", shows, "1", worlds.lending, 0.4)
    for name, where, world, (figures, seconds), _ in _WORLDS:
        shows, authors = f"{where}: {_OVER_TIME}", _OF_AUTHORS.get(name)
        yield Study(f"{name}-time", "time", shows, figures, world, seconds, authors)
    for name, where, world, _, (figures, seconds) in _WORLDS:
        yield Study(
            f"{name}-penalty", "penalty", f"{where}: {_BY_PENALTY}", figures, world, seconds
        )
    for name, world in (("first", worlds.first_setting), ("second", worlds.second_setting)):
        shows = f"{name} setting: does M, α, the ridge or the start matter"
        yield Study(f"{name}-sensitivity", "sensitivity", shows, "", world, 4.0)
    shows = f"a setting that drifts: {_OVER_TIME}"
    yield Study("drift-time", "time", shows, "", worlds.drift, 5.0)
    shows = "exploring by a posterior"
    for name, where, world, seconds in (
        ("first", "first setting", worlds.first_setting, 25.0),
        ("second", "second setting", worlds.second_setting, 15.0),
    ):
        over_time = f"{where}: {shows}, over time"
        yield BeyondStudy(f"beyond-{name}-time", "time", over_time, "", world, seconds)
    for n in _SIZES:
        over_time, world = f"second setting, N = {n}: {shows}, over time", partial(_second, n)
        yield BeyondStudy(f"beyond-second-{n}-time", "time", over_time, "", world, 10.0)
    by_penalty = f"second setting: {shows}, {_BY_PENALTY}"
    yield BeyondStudy(
        "beyond-second-penalty", "penalty", by_penalty, "", worlds.second_setting, 100.0
    )


_NOT_OF_PAPER = ("german", "taiwan", "drift", "beyond")
STUDIES: dict[str, Study] = {study.name: study for study in _studies()}
NAMES: tuple[str, ...] = tuple(STUDIES)
MORE: tuple[str, ...] = tuple(n for n in NAMES if n.split("-")[0] in _NOT_OF_PAPER)
OF_PAPER: tuple[str, ...] = tuple(name for name in NAMES if name not in MORE)
