"""Points of a frontier: utility against gap, as a table and as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consequential.evaluation import Estimate
from consequential.log.frames import make_frame
from consequential.plotting import BLUE, GREEN, ORANGE, PINK, RED, new_axes, tidy
from consequential.tables import text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# colour and marker of each reference: markers tell them apart in figures without colours
_LOOKS = {
    "what the log did": ("#000000", "s"),
    "accept all": (ORANGE, "^"),
    "reject all": ("#999999", "v"),
    "accepted only": (RED, "D"),
    "inverse propensity": (GREEN, "P"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """What was asked for, and the utility and gap that came of it.

    `max_gap` is None where no gap was too large, and for rules that are there for comparison.
    """

    name: str
    max_gap: float | None
    utility: Estimate
    benefit_gap: Estimate
    acceptance: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "name": self.name,
            "max_gap": self.max_gap,
            "utility": self.utility.to_dict(),
            "benefit_gap": self.benefit_gap.to_dict(),
            "acceptance": self.acceptance,
        }

    @property
    def row(self) -> dict[str, Any]:
        """The point as a row of a table: one number per column."""
        row: dict[str, Any] = {"name": self.name, "max_gap": self.max_gap}
        for name, found in (("utility", self.utility), ("benefit_gap", self.benefit_gap)):
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        return row | {"acceptance": self.acceptance}


@dataclass(frozen=True, slots=True, repr=False)
class Frontier:
    """Utility against gap; print it for a table, or `plot` it.

    Attributes
    ----------
    points
        One for each `max_gap`. Their intervals, of utility and gap alike, are a band: all of them
        hold at once with the stated confidence.
    references
        Rules to compare with, each with intervals of its own.
    notes
        What to know before relying on the figures.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 2_000,
    ...                     np.random.default_rng(0))
    >>> found = cq.frontier(log, cost=world.cost, max_gaps=[0.05, None], folds=2)
    >>> [row["name"] for row in found.table]
    ['gap at most 0.05', 'no bound', 'what the log did', 'accept all', 'reject all',
     'accepted only', 'inverse propensity']
    """

    points: tuple[Point, ...]
    references: tuple[Point, ...]
    fairness: str
    confidence: float
    notes: tuple[str, ...]

    @property
    def table(self) -> tuple[dict[str, Any], ...]:
        """One row per point, then one per reference."""
        return tuple(point.row for point in (*self.points, *self.references))

    def to_frame(self, backend: Literal["pyarrow", "pandas", "polars"] = "pyarrow") -> Any:
        """Return the table as a data frame."""
        columns = {
            name: np.array(
                [np.nan if row[name] is None else row[name] for row in self.table],
                dtype=object if name == "name" else np.float64,
            )
            for name in self.table[0]
        }
        return make_frame(columns, backend)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "points": [point.to_dict() for point in self.points],
            "references": [point.to_dict() for point in self.references],
            "fairness": self.fairness,
            "confidence": self.confidence,
            "notes": list(self.notes),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw utility against the size of the gap; legible without colours, too.

        Bars are the bounds of both; those of the utility are shaded as well.
        """
        ax = new_axes(ax)
        measured = [point for point in self.points if point.benefit_gap.known]
        measured.sort(key=lambda point: abs(point.benefit_gap.value))
        gaps = [abs(point.benefit_gap.value) for point in measured]
        utilities = [point.utility for point in measured]
        if measured:
            low, high = [each.low for each in utilities], [each.high for each in utilities]
            ax.fill_between(gaps, low, high, color=BLUE, alpha=0.15, linewidth=0)
        bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2}
        ax.errorbar(
            gaps,
            [each.value for each in utilities],
            yerr=_bars([(each.value, each.low, each.high) for each in utilities]),
            xerr=_bars([_sizes(point.benefit_gap) for point in measured]),
            color=BLUE,
            marker="o",
            markersize=5,
            linewidth=1.4,
            label=f"learned, {self.confidence:.0%} band",
            **bars,
        )
        for point in self.references:
            if not point.benefit_gap.known:
                continue
            colour, marker = _LOOKS.get(point.name, (PINK, "X"))
            utility = point.utility
            ax.errorbar(
                [abs(point.benefit_gap.value)],
                [utility.value],
                yerr=_bars([(utility.value, utility.low, utility.high)]),
                color=colour,
                marker=marker,
                markersize=6,
                markerfacecolor="white",
                linestyle="none",
                label=point.name,
                **bars,
            )
        ax.set_xlabel(f"size of the gap ({self.fairness})", parse_math=False)
        ax.set_ylabel("utility")
        tidy(ax)
        ax.legend(fontsize=7, frameon=False)
        return ax

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "utility", f"gap, {self.fairness}", "accepted")]
        rows += [
            (each.name, repr(each.utility), repr(each.benefit_gap), f"{each.acceptance:.1%}")
            for each in (*self.points, *self.references)
        ]
        lines = text_table(rows, align="<>", min_widths=(0, 26, 26))
        lines.append(f"the first {len(self.points)} rows hold at once ({self.confidence:.0%} band)")
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])


def _sizes(gap: Estimate) -> tuple[float, float, float]:
    """Return the size of a gap and of its bounds; sizes end at 0."""
    low, high = (gap.low, gap.high) if gap.value >= 0.0 else (-gap.high, -gap.low)
    return abs(gap.value), max(low, 0.0), high


def _bars(bounded: list[tuple[float, float, float]]) -> list[list[float]]:
    """Return how far the bounds are below and above the values."""
    below = [max(value - low, 0.0) for value, low, _ in bounded]
    return [below, [max(high - value, 0.0) for value, _, high in bounded]]
