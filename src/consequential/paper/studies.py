"""Studies: the paper's experiments, one per world and question, in two columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from consequential import worlds
from consequential.sequences import Aggregated
from consequential.simulation import LearnToDecide, Strategy, paper_strategies
from consequential.worlds import TableWorld, World

COLUMNS = ("paper", "corrected")

Kind = Literal["time", "penalty", "lending"]

_NORMALISATION: dict[str, Literal["paper", "applicants"]] = {
    "paper": "paper",
    "corrected": "applicants",
}
_BLOCK_SECONDS, _BLOCK_SEEDS = 20.0, 6  # a block of seeds is lost when a run is killed
_LENDING_SEEDS = 10
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
    """One experiment: a world and a question, with the estimators as printed and corrected.

    Examples
    --------
    >>> from consequential.paper.studies import STUDIES
    >>> study = STUDIES["first-penalty"]
    >>> study.columns, len(study.strategies("corrected"))
    (('paper', 'corrected'), 4)
    """

    name: str
    shows: str
    figure: str  # the numbers of the paper's figures, or "" for what the paper does not have
    world: Callable[[], World]
    seconds: dict[str, float]  # by column: about how long a seed takes on one core at full scale

    @property
    def kind(self) -> Kind:
        """Over time without a penalty, at the end against the penalty, or the lending example."""
        if self.name.endswith("-time"):
            return "time"
        return "penalty" if self.name.endswith("-penalty") else "lending"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is run in."""
        return tuple(self.seconds)

    @property
    def files(self) -> list[str]:
        """The names of its results, one per column."""
        return [f"{self.name}-{column}" for column in self.columns]

    def strategies(self, column: str) -> list[Strategy]:
        """Return the paper's six strategies; under a penalty the four that learn to decide.

        The corrected column passes over the people of a step at most twice: on COMPAS the paper
        prints forty passes, but its steps are short, and ours gain little after the second. The
        printed column keeps as many rows of a table as come in eight steps, since the same few
        thousand people come again and again.
        """
        world = self.world()
        p = world.parameters
        enough = min(p.n_iterations, _PASSES * p.n_proposals // p.batch_size)
        kept = Aggregated(min(Aggregated().max_rows, _STEPS_KEPT * p.n_proposals))
        found: list[Strategy] = []
        for strategy in paper_strategies(_NORMALISATION[column]):
            if isinstance(strategy, LearnToDecide):
                if column == "corrected":
                    strategy = replace(strategy, n_iterations=enough)
                elif isinstance(world, TableWorld) and strategy.sequence == "aggregated":
                    strategy = replace(strategy, sequence=kept)
                found.append(strategy)
            elif self.kind == "time":
                found.append(strategy)
        return found

    def penalties(self, scale: Scale) -> tuple[float, ...]:
        """Return the values of lambda."""
        return scale.penalty_values if self.kind == "penalty" else (0.0,)

    def seconds_per_seed(self, scale: Scale) -> float:
        """Return about how long a seed takes on one core, in all columns together."""
        seconds = sum(self.seconds.values())
        if self.kind == "lending":
            return seconds
        penalties = scale.penalties / FULL.penalties if self.kind == "penalty" else 1.0
        return seconds * penalties * scale.time_steps / FULL.time_steps

    def blocks(self, scale: Scale) -> list[range]:
        """Return the seeds in blocks; a block that was interrupted is run again."""
        size = int(min(_BLOCK_SEEDS, max(2.0, _BLOCK_SECONDS / self.seconds_per_seed(scale))))
        size -= size % 2  # a whole number of seeds for each of two threads
        n = min(scale.seeds, _LENDING_SEEDS) if self.kind == "lending" else scale.seeds
        return [range(first, min(first + size, n)) for first in range(0, n, size)]


class _Place(NamedTuple):
    """A world of the studies, over time and then against the penalty."""

    where: str
    world: Callable[[], World]
    figures: tuple[str, str]
    seconds: tuple[tuple[float, float], tuple[float, float]]  # as printed and corrected


_PLACES = {
    "first": _Place(
        "first setting", worlds.first_setting, ("2, 4, 7, 8", "9"), ((1.0, 0.8), (4.2, 4.8))
    ),
    "second": _Place(
        "second setting", worlds.second_setting, ("2, 4, 7, 8", "9"), ((0.4, 0.4), (2.1, 1.3))
    ),
    "compas": _Place(
        "COMPAS, y = 1 no re-arrest", worlds.compas, ("", ""), ((1.2, 0.7), (8.3, 2.9))
    ),
    "compas-rearrest": _Place(
        "COMPAS, y = 1 re-arrest",
        partial(worlds.compas, label="rearrest"),
        ("5, 10", "6, 11"),
        ((1.2, 0.7), (8.3, 2.9)),
    ),
    "german": _Place("German credit", worlds.german, ("", ""), ((6.0, 6.0), (25.0, 25.0))),
    "taiwan": _Place("Taiwan credit cards", worlds.taiwan, ("", ""), ((5.0, 5.0), (30.0, 30.0))),
}
_QUESTIONS = {"time": "six strategies over time", "penalty": "the end against the penalty"}


def _studies() -> Iterator[Study]:
    shows = "lending: what is learned from people above a threshold"
    yield Study("lending", shows, "1", worlds.lending, {"paper": 0.4})
    for k, (kind, question) in enumerate(_QUESTIONS.items()):
        for name, place in _PLACES.items():
            seconds = dict(zip(COLUMNS, place.seconds[k], strict=True))
            shows = f"{place.where}: {question}"
            yield Study(f"{name}-{kind}", shows, place.figures[k], place.world, seconds)
    shows = f"a setting that drifts: {_QUESTIONS['time']}"
    yield Study("drift-time", shows, "", worlds.drift, dict.fromkeys(COLUMNS, 2.5))


STUDIES: dict[str, Study] = {study.name: study for study in _studies()}
NAMES: tuple[str, ...] = tuple(STUDIES)
MORE: tuple[str, ...] = tuple(n for n in NAMES if n.split("-")[0] in ("german", "taiwan", "drift"))
OF_PAPER: tuple[str, ...] = tuple(name for name in NAMES if name not in MORE)
