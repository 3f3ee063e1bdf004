"""Reach: the largest and smallest values of a row and of a mean, which bounds rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from consequential.evaluation.rates import Floats
from consequential.log import DecisionLog
from consequential.objective.functionals import Shape
from consequential.objective.objective import Objective
from consequential.objective.weightings import Clipped, InversePropensity, Weighting

# positives and negatives that a row can stand for
Corners = tuple[tuple[float, float], ...]


class Span(NamedTuple):
    """What no row can lie below or above, and the same of the mean of rows."""

    low: float
    high: float
    mean_low: float
    mean_high: float

    def __neg__(self) -> Span:
        return Span(-self.high, -self.low, -self.mean_high, -self.mean_low)


@dataclass(frozen=True, slots=True)
class Reach:
    """The extreme pairs (numerator, denominator) of a row, and of the means over rows."""

    rows: Floats
    means: Floats

    def at(self, ratio: float) -> Span:
        """Return the bounds of `num - ratio den` for a row, and those of its mean."""
        weigh = np.array([1.0, -ratio])
        rows, means = self.rows @ weigh, self.means @ weigh
        return Span(*map(float, (rows.min(), rows.max(), means.min(), means.max())))

    @property
    def ratios(self) -> tuple[float, float]:
        """The smallest and largest ratio of means there can be."""
        counted = self.means[self.means[:, 1] > 0]
        found = counted[:, 0] / counted[:, 1]
        return float(found.min()), float(found.max())


@dataclass(frozen=True, slots=True)
class Extremes:
    """What rows and means can stand for where the largest possible weight is known.

    `unit_corners` are those of a row once it is multiplied by its own propensity.
    """

    row_corners: Corners
    unit_corners: Corners
    mean_corners: Corners

    @classmethod
    def of(cls, weighting: Weighting, floor: float) -> Extremes:
        """Return what rows can stand for when nobody's propensity is below a floor."""
        most, units = 1.0 / floor, ((1.0, 0.0), (0.0, 1.0))
        if isinstance(weighting, InversePropensity):
            return cls(((0.0, 0.0), (most, 0.0), (0.0, most)), ((0.0, 0.0), *units), units)
        if isinstance(weighting, Clipped):
            most = min(most, weighting.maximum)
            ends = ((0.0, 0.0), *units)  # clipped weights average to less than one
            most += 1.0  # with the part of a person that clipping leaves out
            return cls(((0.0, 0.0), (most, 0.0), (0.0, most)), ends, ends)
        raise ValueError(
            f"the largest weight of {weighting!r} is not known, and bounded intervals need it: "
            'use weightings.InversePropensity() or weightings.Clipped(maximum), or method="normal"'
        )

    def utility(self, objective: Objective, log: DecisionLog) -> Reach:
        """Of a row's utility."""

        def reached(corners: Corners) -> Floats:
            return np.array([(worth, 1.0) for worth in (0.0, *_worths(objective, log, corners))])

        return Reach(reached(self.row_corners), reached(self.mean_corners))

    def difference(self, objective: Objective, log: DecisionLog, logged: Sequence[float]) -> Reach:
        """Of the difference between two rules' utilities in a row.

        `logged` holds the signs of the rules, 1 and -1, that are what the log did: such a rule's
        propensity times a weight is 1 at most.
        """

        def reached(sign: float, corners: Corners) -> list[tuple[float, float]]:
            return [(sign * worth, 1.0) for worth in _worths(objective, log, corners)]

        rows, means = [], []
        for sign in (-1.0, 1.0):
            rows += reached(sign, self.unit_corners if sign in logged else self.row_corners)
            means += reached(sign, self.mean_corners)
        return Reach(np.array(rows), np.array(means))

    def acceptance(self, *, paired: bool) -> Reach:
        """Of a propensity, or of the difference between two."""
        ends = np.array([[-1.0 if paired else 0.0, 1.0], [1.0, 1.0]])
        return Reach(ends, ends)

    def benefit(self, shape: Shape | None) -> Reach:
        """Of what a row adds to a benefit's two sums, before they are scaled."""
        if shape is None:
            raise ValueError(
                "bounded intervals need to know how a benefit weighs people: build it with "
                'tally.mean or tally.benefit, or use method="normal"'
            )

        def reached(corners: Corners) -> Floats:
            pairs = []
            for accepted, (ones, zeros) in product((0.0, 1.0), corners):
                person = np.array([1.0, ones, zeros])
                counted = person @ shape.counted
                if shape.denominator is not None:
                    counted = accepted * (person @ shape.denominator)
                gained = accepted * (person @ shape.values) + person @ shape.constant
                pairs.append((gained, counted))
            return np.array(pairs)

        return Reach(reached(self.row_corners), reached(self.mean_corners))


def known_floor(log: DecisionLog, floor: float | None) -> tuple[float, tuple[str, ...]]:
    """Return the smallest propensity anybody can have had, and a note where it is only observed."""
    lowest = float(log.label_propensity[log.propensity > 0].min(initial=1.0))
    if floor is not None:
        if not 0.0 < floor <= 1.0:
            raise ValueError(f"the floor is a propensity above 0, not {floor!r}")
        if lowest < floor * (1.0 - 1e-9):
            raise ValueError(
                f"the floor is {floor:g} but the log has a propensity of {lowest:g}: "
                "nobody's propensity may lie below the floor"
            )
        return float(floor), ()
    rules = (log.policies.get(int(step)) for step in np.unique(log.time_step))
    known = min(float(getattr(rule, "floor", 0.0) or 0.0) for rule in rules)
    if 0.0 < known <= lowest * (1.0 + 1e-9):
        return known, ()
    note = (
        f"bounds rest on the smallest propensity of this log, {lowest:.3g}; if people could have "
        "been accepted with less, give floor="
    )
    return lowest, (note,)


def _worths(objective: Objective, log: DecisionLog, corners: Corners) -> Iterator[float]:
    """Yield what accepting is worth, at the smallest and largest of all."""

    def ends(column: Floats | None, otherwise: float) -> tuple[float, ...]:
        return (otherwise,) if column is None else (float(column.min()), float(column.max()))

    amounts, costs = ends(log.amount, 1.0), ends(log.cost, objective.cost)
    for amount, cost, (ones, zeros) in product(amounts, costs, corners):
        yield amount * ((1.0 - cost) * ones - cost * zeros)
