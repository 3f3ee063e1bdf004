"""Bounds: estimates with what nobody knows, labels or weights, at its worst and at its best.

A mean is smallest where each row is at its smallest. A ratio `sum a / sum b` is smallest at the
fixed point `r` where each row has the smallest `a - r b` (Dinkelbach's iteration), and likewise
for largest. The estimates at the two extremes enclose the estimate with the truth, so an interval
from the lower end of the one to the upper end of the other covers, whatever the truth is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.influence import Ratios, RatioSums
from consequential.evaluation.rates import ratio
from consequential.functionals import Benefit

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Range:
    """Ratios with unknown labels at their lowest and at their highest.

    `plain` are those of clipped weights, an estimate in its own right. Where people were never
    accepted there is no such thing, and the middle of the range is shown instead. Ratios that no
    unknown label can change are their own lowest and highest, and need no range.
    """

    low: RatioSums
    high: RatioSums
    plain: RatioSums | None = None

    exact: ClassVar[bool] = False

    @property
    def sides(self) -> tuple[RatioSums, ...]:
        """The lowest and the highest ratios."""
        return self.low, self.high

    @property
    def known(self) -> list[int]:
        """The groups that have a value whatever the unknown labels are."""
        return sorted(set(self.low.known) & set(self.high.known))


# ratios that are known up to sampling error, or within bounds
Measured = RatioSums | Range


def extreme(corners: Sequence[Ratios], *, highest: bool) -> tuple[Ratios, Codes]:
    """Return ratios with each row at the corner that makes its group's ratio most extreme.

    Also returns the corner of each row; the first one where several are equally extreme.
    """
    found, rows = corners[0], np.arange(len(corners[0]))
    numerators = np.stack([each.numerator for each in corners])
    denominators = np.stack([each.denominator for each in corners])
    picked = None
    for _ in range(_MOST_ROUNDS):
        left = numerators - np.nan_to_num(found.values)[found.group] * denominators
        best = left.argmax(axis=0) if highest else left.argmin(axis=0)
        if picked is not None and np.array_equal(best, picked):
            break
        picked = best
        found = replace(
            found, numerator=numerators[best, rows], denominator=denominators[best, rows]
        )
    assert picked is not None
    return found, picked


def unscaled(benefit: Benefit, group: Codes) -> Benefit:
    """Undo what a benefit's sums were divided by, so that no row depends on the others."""
    if benefit.scale is None:
        return benefit
    undo = ratio(1.0, benefit.scale)[group]

    def times(column: Floats | None) -> Floats | None:
        return None if column is None else column * undo

    return replace(
        benefit,
        values=benefit.values * undo,
        constants=times(benefit.constants),
        denominator=times(benefit.denominator),
        counted=times(benefit.counted),
    )
