"""Coverage: how well accepted people stand for everybody, from sums that chunks of a log add to."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from operator import add

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contradictions import surprise, weight_moments
from consequential.log import DecisionLog

Floats = NDArray[np.float64]

_BINS = 4096  # of propensities, to find their median without having them all in memory


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well accepted people stand for all of a group, or of the log.

    Attributes
    ----------
    people, accepted
        How many there are.
    effective_sample_size
        Kish's: how many equally weighted accepted people would say as much.
    below_floor, below_floor_high
        Share of people with a propensity below the floor, and an upper confidence bound on it
        (Clopper-Pearson) for the people such logs are drawn from.
    mean_weight, surprise
        The mean of `d / p`, which is 1 on average if propensities are true, and how surprising it
        is: a standard normal number if they are. It can be 1 although they are wrong for
        everybody: see `propensity_contradictions`. People with propensity 0 are left out.
    smallest, median
        Of the propensities.
    largest_weight_share
        The share of all weight that lies on one person.
    """

    name: Hashable
    people: int
    accepted: int
    effective_sample_size: float
    below_floor: float
    below_floor_high: float
    mean_weight: float
    surprise: float
    smallest: float
    median: float
    largest_weight_share: float


@dataclass(frozen=True)
class CoverageSums:
    """What people of one group, or all, add to a coverage; those of chunks add up."""

    people: int
    accepted: int
    below: int
    reluctant: int
    uncovered: int
    weight: float
    squares: float
    heaviest: float
    moments: Floats  # of the weights, see `weight_moments`
    smallest: float
    histogram: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, log: DecisionLog, floor: float) -> CoverageSums:
        """Add up the people of a log."""
        p = log.propensity
        weights = np.divide(1.0, p, out=np.zeros(len(p)), where=log.decision)
        return cls(
            people=len(log),
            accepted=log.n_accepted,
            below=int((p < floor).sum()),
            reluctant=int((p < 0.5).sum()),
            uncovered=int(((p < 0.5) & (p < floor)).sum()),
            weight=float(weights.sum()),
            squares=float(weights @ weights),
            heaviest=float(weights.max(initial=0.0)),
            moments=weight_moments(log),
            smallest=float(p.min(initial=1.0)),
            histogram=np.bincount(bins_of(p), minlength=_BINS),
        )

    def __add__(self, other: CoverageSums) -> CoverageSums:
        combined = {"smallest": min, "heaviest": max}
        return CoverageSums(
            **{
                name: combined.get(name, add)(value, getattr(other, name))
                for name, value in vars(self).items()
            }
        )

    def middle_bins(self) -> tuple[int, int]:
        """Return the bins in which the two middle propensities lie; the same one, mostly."""
        below = np.cumsum(self.histogram)
        places = (self.people - 1) // 2, self.people // 2
        low, high = (int(np.searchsorted(below, place, side="right")) for place in places)
        return low, high

    def median(self, low: Floats, high: Floats) -> float:
        """Return the median, from the sorted propensities of the two middle bins."""
        first, second = self.middle_bins()
        before = np.concatenate([[0], np.cumsum(self.histogram)])
        one = low[(self.people - 1) // 2 - before[first]]
        two = high[self.people // 2 - before[second]]
        return float((one + two) / 2.0)

    def coverage(self, name: Hashable, median: float, confidence: float) -> Coverage:
        """Return what the sums say."""
        possible, *moments = self.moments.tolist()
        return Coverage(
            name=name,
            people=self.people,
            accepted=self.accepted,
            effective_sample_size=self.weight**2 / self.squares if self.squares > 0 else 0.0,
            below_floor=self.below / self.people,
            below_floor_high=share_at_most(self.below, self.people, confidence),
            mean_weight=self.weight / possible if possible else 0.0,
            surprise=surprise(*moments),
            smallest=self.smallest,
            median=median,
            largest_weight_share=self.heaviest / self.weight if self.weight > 0 else 0.0,
        )


def bins_of(propensity: Floats) -> NDArray[np.intp]:
    """Return the bin of each propensity."""
    return np.minimum((propensity * _BINS).astype(np.intp), _BINS - 1)


def share_at_most(count: int, n: int, confidence: float) -> float:
    """Clopper and Pearson's upper confidence bound on a share, `count` of n having been seen."""
    from scipy.stats import beta

    return 1.0 if count == n else float(beta.ppf(confidence, count + 1, n - count))
