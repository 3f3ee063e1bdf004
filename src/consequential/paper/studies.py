"""Studies: the paper's experiments, one a world and question, in two columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from consequential import worlds
from consequential.learning import Aggregated
from consequential.simulation import LearnToDecide, Strategy, paper_strategies
from consequential.worlds import TableWorld, World

COLUMNS = ("paper", "corrected")

Kind = Literal["time", "penalty", "lending"]

_NORMALISATION: dict[str, Literal["paper", "applicants"]] = {
    "paper": "paper",
    "corrected": "applicants",
}
_BLOCK_SECONDS, _BLOCK_SEEDS = 20.0, 6
_PASSES, _STEPS_KEPT = 2, 8


@dataclass(frozen=True, slots=True)
class Scale:
    """How large an experiment is: how many seeds and penalties, and T."""

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
    """One experiment: a world and a question, with the estimators as printed or corrected.

    Examples
    --------
    >>> from consequential.paper.studies import studies_named
    >>> [(study.column, len(study.strategies())) for study in studies_named("first-penalty")]
    [('paper', 4), ('corrected', 4)]
    """

    name: str
    column: str
    shows: str
    figure: str  # the numbers of the paper's figures, or "" for what the paper does not have
    world: Callable[[], World]
    seconds: float  # a seed of the paper's size takes about so long on one core

    @property
    def kind(self) -> Kind:
        """Over time without a penalty, at the end against the penalty, or the lending example."""
        if self.name.endswith("-time"):
            return "time"
        return "penalty" if self.name.endswith("-penalty") else "lending"

    @property
    def file(self) -> str:
        """What its results are called."""
        return f"{self.name}-{self.column}"

    def strategies(self) -> list[Strategy]:
        """Return the paper's six strategies; under a penalty the four that decide.

        The corrected column passes over a step's people at most twice. On COMPAS the paper prints
        forty passes: its steps are short. Ours gain little after the second. The printed column
        keeps as many of a table's people as come in eight steps: they are the same few thousand.
        """
        world = self.world()
        p, ours = world.parameters, self.column == "corrected"
        enough = min(p.n_iterations, _PASSES * p.n_proposals // p.batch_size)
        kept = Aggregated(min(Aggregated().max_rows, _STEPS_KEPT * p.n_proposals))
        found: list[Strategy] = []
        for strategy in paper_strategies(_NORMALISATION[self.column]):
            if isinstance(strategy, LearnToDecide):
                if ours:
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
        """Return about how long a seed takes on one core."""
        if self.kind == "lending":
            return self.seconds
        penalties = scale.penalties / FULL.penalties if self.kind == "penalty" else 1.0
        return self.seconds * penalties * scale.time_steps / FULL.time_steps


def blocks(studies: Sequence[Study], scale: Scale) -> list[range]:
    """Return the seeds of studies that run together, in blocks: each is done whole or again."""
    seconds = sum(study.seconds_per_seed(scale) for study in studies)
    size = int(min(_BLOCK_SEEDS, max(2.0, _BLOCK_SECONDS / seconds)))
    size -= size % 2  # threads take seeds of their own
    n = min(scale.seeds, 10) if studies[0].kind == "lending" else scale.seeds
    return [range(first, min(first + size, n)) for first in range(0, n, size)]


def _rearrest() -> World:
    return worlds.compas(label="rearrest")


class _Place(NamedTuple):
    """A world of the studies; seconds that a seed takes on one core, as printed and corrected."""

    where: str
    world: Callable[[], World]
    figures: tuple[str, str]  # the paper's, over time and against the penalty
    time_seconds: tuple[float, float]
    penalty_seconds: tuple[float, float]


_PLACES = {
    "first": _Place(
        "first setting", worlds.first_setting, ("2, 4, 7, 8", "9"), (1.0, 0.8), (4.2, 4.8)
    ),
    "second": _Place(
        "second setting", worlds.second_setting, ("2, 4, 7, 8", "9"), (0.4, 0.4), (2.1, 1.3)
    ),
    "compas": _Place("COMPAS, y = 1 no re-arrest", worlds.compas, ("", ""), (1.2, 0.7), (8.3, 2.9)),
    "compas-rearrest": _Place(
        "COMPAS, y = 1 re-arrest", _rearrest, ("5, 10", "6, 11"), (1.2, 0.7), (8.3, 2.9)
    ),
    "german": _Place("German credit", worlds.german, ("", ""), (6.0, 6.0), (25.0, 25.0)),
    "taiwan": _Place("Taiwan credit cards", worlds.taiwan, ("", ""), (5.0, 5.0), (30.0, 30.0)),
}
_QUESTIONS = {"time": "six strategies over time", "penalty": "the end against the penalty"}


def _studies() -> list[Study]:
    about = "lending: what is learned from people above a threshold"
    found = [Study("lending", "paper", about, "1", worlds.lending, 0.4)]
    for k, (kind, question) in enumerate(_QUESTIONS.items()):
        for name, place in _PLACES.items():
            seconds = (place.time_seconds, place.penalty_seconds)[k]
            found += [
                Study(
                    f"{name}-{kind}",
                    column,
                    f"{place.where}: {question}",
                    place.figures[k],
                    place.world,
                    took,
                )
                for column, took in zip(COLUMNS, seconds, strict=True)
            ]
    about = f"a setting that drifts: {_QUESTIONS['time']}"
    return [*found, *(Study("drift-time", c, about, "", worlds.drift, 2.5) for c in COLUMNS)]


STUDIES: tuple[Study, ...] = tuple(_studies())
NAMES: tuple[str, ...] = tuple(dict.fromkeys(study.name for study in STUDIES))
MORE: tuple[str, ...] = tuple(n for n in NAMES if n.split("-")[0] in ("german", "taiwan", "drift"))
OF_PAPER: tuple[str, ...] = tuple(name for name in NAMES if name not in MORE)


def studies_named(name: str) -> tuple[Study, ...]:
    """Return a study in its columns."""
    return tuple(study for study in STUDIES if study.name == name)
