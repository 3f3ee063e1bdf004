"""Measurement: what a rule does on a log, as ratios that intervals are made of."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Measured
from consequential.evaluation.estimate import Estimate, Interval
from consequential.evaluation.influence import RatioSums
from consequential.evaluation.intervals import Intervals
from consequential.evaluation.rates import few_notes, ratio

Floats = NDArray[np.float64]

# below so many people normal intervals are a guess
FEW = 100.0
# no row should carry this share of all weight
_MUCH = 0.05


@dataclass(frozen=True)
class LabelWeights:
    """How much the labels of the people weigh whom a rule accepts, by group; chunks add up."""

    sums: Floats
    squares: Floats
    accepted: Floats
    unsupported: Floats  # accepted people no weight stands for
    never: float  # of these, people who could not be accepted
    heaviest: float

    def __add__(self, other: LabelWeights) -> LabelWeights:
        return LabelWeights(
            self.sums + other.sums,
            self.squares + other.squares,
            self.accepted + other.accepted,
            self.unsupported + other.unsupported,
            self.never + other.never,
            max(self.heaviest, other.heaviest),
        )

    @property
    def effective_size(self) -> float:
        """How many equally weighted labels say as much."""
        squares = float(self.squares.sum())
        return float(self.sums.sum()) ** 2 / squares if squares > 0.0 else 0.0

    @property
    def effective_sizes(self) -> Floats:
        """The same by group."""
        return ratio(self.sums**2, self.squares)

    @property
    def unsupported_share(self) -> float:
        """The share of acceptances that falls on people no weight stands for."""
        return float(ratio(self.unsupported.sum(), self.accepted.sum()))

    @property
    def unsupported_shares(self) -> Floats:
        """The same by group."""
        return ratio(self.unsupported, self.accepted)

    def notes(self, *between: str) -> tuple[str, ...]:
        """Return notes on people without labels, and on labels that are few or weigh too much."""
        notes = list(between)
        never, total = float(ratio(self.never, self.accepted.sum())), float(self.sums.sum())
        if never > 0.0:
            notes.insert(
                0,
                f"{never:.1%} of the people this rule accepts could not be accepted by the rule in "
                "force: nothing is known of their labels, and intervals cover whatever these are",
            )
        if total > 0.0 and self.effective_size < FEW:
            notes.append(
                f"labels speak for {self.effective_size:.0f} people in effect; intervals want "
                f"{FEW:.0f} or more"
            )
        if self.heaviest > _MUCH * total > 0.0 and self.effective_size >= 2.0:
            notes.append(f"one person carries {self.heaviest / total:.0%} of all weight")
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A rule on a log: utility, acceptance and benefits, and what their estimates rest on."""

    utility: Measured
    acceptance: RatioSums
    benefits: tuple[Measured, ...]
    weights: LabelWeights
    groups: tuple[Hashable, ...]
    sizes: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many rows there are."""
        return sum(self.sizes)

    @property
    def ratios(self) -> tuple[Any, ...]:
        """All ratios, those of unknown labels at both extremes."""
        sides = [side for each in (self.utility, *self.benefits) for side in each.sides]
        return (self.acceptance, *sides)

    def estimate(self, intervals: Intervals, found: Interval, *, labelled: bool) -> Estimate:
        """Return an estimate for all people; labels carry it, or everybody does."""
        if not labelled:
            return intervals.estimate(found, self.n, self.n)
        weights = self.weights
        return intervals.estimate(found, self.n, weights.effective_size, weights.unsupported_share)

    def by_group(self, intervals: Intervals, found: Measured) -> dict[Hashable, Estimate]:
        """Return an estimate for each group."""
        sizes = np.array(self.sizes)
        labelled = found.low.labelled
        columns = (
            self.groups,
            intervals.of(found),
            self.sizes,
            (self.weights.effective_sizes if labelled else sizes).tolist(),
            (self.weights.unsupported_shares if labelled else 0.0 * sizes).tolist(),
        )
        return {group: intervals.estimate(*rest) for group, *rest in zip(*columns, strict=True)}


def rate_notes(benefits: Sequence[Measured], groups: Sequence[Hashable]) -> tuple[str, ...]:
    """Return notes that name the groups whose rates few people carry."""
    notes: list[str] = []
    for benefit in benefits:
        rates = [side.rates for side in benefit.sides if side.rates is not None]
        if rates:
            effective = np.min([each.effective for each in rates], axis=0)
            notes += few_notes(*rates[0].kind, groups, effective)
    return tuple(notes)
