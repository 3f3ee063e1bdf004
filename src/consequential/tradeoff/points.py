"""Frontier: utility against gap, point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consequential.evaluation import Estimate, Evaluation
from consequential.log.frames import make_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from consequential.tradeoff.band import Trace


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


def bound_name(bound: float | None) -> str:
    """Return a bound in words."""
    return "no bound" if bound is None else f"gap at most {bound:g}"


def points_of(
    bounds: Sequence[float | None],
    traces: Sequence[Trace],
    found: Sequence[tuple[Estimate, Estimate]],
) -> tuple[Point, ...]:
    """Return a point for each bound that was traced."""
    return tuple(
        Point(bound_name(bound), bound, utility, gap, trace.acceptance)
        for bound, trace, (utility, gap) in zip(bounds, traces, found, strict=False)
    )


def reference_of(name: str, judged: Evaluation) -> Point:
    """Return a rule that is there for comparison."""
    return Point(name, None, judged.utility, judged.benefit_gap, judged.acceptance.value)


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
        """One row a point, then one a reference."""
        return tuple(
            {
                "name": point.name,
                "max_gap": point.max_gap,
                "utility": point.utility.value,
                "utility_low": point.utility.low,
                "utility_high": point.utility.high,
                "benefit_gap": point.benefit_gap.value,
                "benefit_gap_low": point.benefit_gap.low,
                "benefit_gap_high": point.benefit_gap.high,
                "acceptance": point.acceptance,
            }
            for point in (*self.points, *self.references)
        )

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
        """Draw utility against the size of the gap; legible without colours, too."""
        from consequential.tradeoff.figure import draw

        return draw(self, ax)

    def __repr__(self) -> str:
        rows = (*self.points, *self.references)
        width = max(len(row.name) for row in rows)
        lines = [
            f"{'':{width}}  {'utility':>26}  {'gap, ' + self.fairness:>26}  accepted",
            *(
                f"{row.name:{width}}  {row.utility!r:>26}  {row.benefit_gap!r:>26}"
                f"  {row.acceptance:8.1%}"
                for row in rows
            ),
            f"the first {len(self.points)} rows hold at once ({self.confidence:.0%} band)",
        ]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])
