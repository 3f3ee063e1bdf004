"""Figure: one figure of the paper, what it needs and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consequential.paper.studies import COLUMNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from consequential.paper.results import Results

METRICS = {
    "utility": "utility",
    "effective_utility": "effective utility",
    "benefit_gap": "benefit gap",
}

Draw = Callable[["Results", str], "Figure"]


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """What a figure shows, which studies it reads, and how it is drawn.

    `label` is the paper's, empty where the paper has no such figure. `paired` figures are drawn
    once as printed and once corrected; `differs` then says in words where the two differ, with the
    numbers it measured, or nothing where they do not.
    """

    name: str
    title: str
    caption: str
    label: str
    studies: tuple[str, ...]
    draw: Draw
    paired: bool = True
    differs: Callable[[Results], str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is drawn in."""
        return COLUMNS if self.paired else COLUMNS[:1]

    def missing(self, results: Results, column: str) -> tuple[str, ...]:
        """Return the studies that a drawing needs and the results do not have."""
        return tuple(study for study in self.studies if not results.has(study, column))
