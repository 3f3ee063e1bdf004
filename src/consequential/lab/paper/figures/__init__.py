"""Figures of the paper, listed in figures.toml and drawn from stored results and exact truths."""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from consequential.lab.paper.studies import COLUMNS, STUDIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from consequential.lab.paper.results import Results


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """What a figure shows, which studies it reads, and how it is drawn.

    `label` is the paper's, empty where the paper has no such figure. `paired` figures are drawn
    once per column of their studies; `differs` then says in words where printed and corrected
    estimators differ, with the numbers it measured, or nothing where they do not.
    """

    name: str
    title: str
    caption: str
    label: str
    studies: tuple[str, ...]
    draw: Callable[[Results, str], Figure]
    paired: bool = True
    differs: Callable[[Results], str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is drawn in: those of its studies, or one."""
        if not self.paired:
            return COLUMNS[:1]
        return STUDIES[self.studies[0]].columns

    def missing(self, results: Results, column: str) -> tuple[str, ...]:
        """Return the studies that a drawing needs and the results do not have."""
        return tuple(study for study in self.studies if not results.has(study, column))


def _figures() -> Iterator[PaperFigure]:
    """Yield the figures of the file."""
    listed = tomllib.loads((files(__package__) / "figures.toml").read_text(encoding="utf-8"))
    for each in listed["figures"]:
        yield PaperFigure(
            each["name"],
            each["title"],
            " ".join(each["caption"].format(**listed["captions"]).split()),
            each.get("label", ""),
            tuple(each["studies"]),
            _function(each["draw"], each.get("worlds")),
            each.get("paired", True),
            _function(each["differs"], each.get("worlds")) if "differs" in each else None,
        )


def _function(name: str, worlds: Sequence[str] | None) -> Callable[..., Any]:
    """Return a function of this package, for the worlds of a figure where it has some."""
    function: Callable[..., Any] = pkgutil.resolve_name(f"{__package__}.{name}")
    return function if worlds is None else partial(function, names=tuple(worlds))


FIGURES: dict[str, PaperFigure] = {figure.name: figure for figure in _figures()}
