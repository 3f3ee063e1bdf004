"""Measure: a rule on the rows of a log, and what is known of these rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Range
from consequential.evaluation.doubts import CONTRADICTED, weight_doubts
from consequential.evaluation.influence import RatioSums
from consequential.evaluation.judged import unsupported_note, weight_notes
from consequential.evaluation.rates import few_notes
from consequential.evaluation.yardstick import Yardstick
from consequential.log import DecisionLog

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measure:
    """A rule's utility, acceptance and benefits on a log."""

    utility: Range
    acceptance: RatioSums
    benefits: tuple[Range, ...]

    @classmethod
    def of(cls, yardstick: Yardstick, propensity: Floats) -> Measure:
        """Measure a rule."""
        return cls(
            yardstick.utility(propensity),
            yardstick.acceptance(propensity),
            yardstick.benefits(propensity),
        )

    @property
    def ratios(self) -> tuple[Any, ...]:
        """All of them."""
        sides = [side for each in (self.utility, *self.benefits) for side in each.sides]
        return (self.acceptance, *sides)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the rows a rule is measured on, beside the measures.

    `unsupported` is the share of acceptances on people no weight stands for, in all and by group.
    """

    groups: tuple[Hashable, ...]
    sizes: tuple[int, ...]
    effective_size: float
    effective_sizes: Floats
    unsupported: float
    unsupported_by_group: Floats
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many rows there are."""
        return sum(self.sizes)

    @classmethod
    def of(cls, yardstick: Yardstick, propensity: Floats, notes: tuple[str, ...]) -> Facts:
        """Look at rows in memory."""
        log = yardstick.log
        effective, by_group = yardstick.effective_sizes(propensity)
        weighted = yardstick.weighted(propensity)
        heaviest = float(weighted.max(initial=0.0)), float(weighted.sum())
        share, shares = acceptance_shares(log, propensity, yardstick.overall.unsupported)
        never, _ = acceptance_shares(log, propensity, (log.propensity <= 0.0).astype(np.float64))
        return cls(
            log.groups,
            tuple(log.group_counts.tolist()),
            effective,
            by_group,
            share,
            shares,
            (
                *unsupported_note(never),
                *yardstick.objective.weighting.notes(log),
                *notes,
                *weight_notes(effective, *heaviest),
                *_untold_note(yardstick, propensity),
                *(f"{CONTRADICTED}: {doubt}" for doubt in weight_doubts(log)),
            ),
        )


def acceptance_shares(
    log: DecisionLog, propensity: Floats, part: Floats | None
) -> tuple[float, Floats]:
    """Return the share of acceptances that falls on a part of people, in all and by group."""
    n_groups = len(log.groups)
    if part is None:
        return 0.0, np.zeros(n_groups)
    accepted = np.bincount(log.group, propensity, n_groups)
    inside = np.bincount(log.group, propensity * part, n_groups)
    shares = np.divide(inside, accepted, out=np.zeros(n_groups), where=accepted > 0)
    total = float(accepted.sum())
    return (float(inside.sum()) / total if total > 0 else 0.0), shares


def rate_notes(benefits: Sequence[Range], groups: Sequence[Hashable]) -> tuple[str, ...]:
    """Return notes that name the groups whose rates few people carry."""
    notes: list[str] = []
    for benefit in benefits:
        carried = [side.rates.effective for side in benefit.sides if side.rates is not None]
        if carried:
            rate, people = benefit.low.rates.kind  # type: ignore[union-attr]
            notes += few_notes(rate, people, groups, np.min(carried, axis=0))
    return tuple(notes)


def _untold_note(yardstick: Yardstick, propensity: Floats) -> tuple[str, ...]:
    if not yardstick.is_untold(propensity):
        return ()
    return (
        "next to no label speaks about the people this rule accepts: intervals cover every label "
        "they could have",
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """Rules measured on the same rows; with two of them maybe their difference, row by row.

    `changed` is the effective number of people on whom the two differ.
    """

    measures: tuple[Measure, ...]
    facts: tuple[Facts, ...]
    difference: Measure | None = None
    changed: float = 0.0
