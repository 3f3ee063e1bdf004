"""Contradictions: regions where people were accepted more or less often than propensities say.

Given true propensities, decisions are independent with mean p and variance p (1 - p): the sum of
`d - p` over any region that was chosen without looking at these decisions has a known mean,
variance and skewness. Regions are the leaves of a tree that was grown on one half of the rows to
find where `(sum (d - p))^2 / sum p (1 - p)` is largest, and are tested on the other half; then the
halves change places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.coverage import surprise
from consequential.evaluation.regions import Regions
from consequential.log import DecisionLog

Floats = NDArray[np.float64]

# how often true propensities may be contradicted, over all regions together
_DOUBT = 0.01
# rows beyond which a sample of them is looked at
_SAMPLED = 100_000
# a region's sum needs this variance to be close to normal once skewness is taken out
_LEAST_VARIANCE = 10.0
# what a split must add to the statistics; the best of many that tell nothing apart adds less
_LEAST_GAIN = 10.0
# an estimate may be off by this share of the rarer decision, for all the harm that does
_TOLERATED = 0.1


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A region in which the propensities do not fit the decisions.

    `surprise` is a standard normal number if propensities are true; `accepted` and `expected` are
    counted over all people of the region.
    """

    rule: str
    people: int
    accepted: int
    expected: float
    surprise: float

    def __str__(self) -> str:
        return (
            f"{self.rule}: {self.accepted} of {self.people} accepted where the propensities say "
            f"{self.expected:.0f}"
        )


def propensity_contradictions(
    log: DecisionLog, *, doubt: float = _DOUBT
) -> tuple[Contradiction, ...]:
    """Return the regions whose decisions contradict the log's propensities, the clearest first.

    That weights average 1 overall says little: propensities can be right on average and wrong for
    everybody. Nor does an empty answer prove them: a rule that went by something unrecorded, or by
    more than a few splits of a tree can tell, leaves no trace here.

    Parameters
    ----------
    log
        A decision log. Of a large one 100 000 rows are tested. Estimated propensities may be off
        by a tenth of the rarer decision, and where they are at their smallest they were raised to
        a floor, so that is not held against them.
    doubt
        How often true propensities may be contradicted, over all regions together.

    Examples
    --------
    Everybody's propensity is the overall rate, but income decided:

    >>> import numpy as np, consequential as cq
    >>> from consequential.evaluation import propensity_contradictions
    >>> rng = np.random.default_rng(0)
    >>> income = rng.random(4000)
    >>> decision = rng.random(4000) < np.where(income > 0.5, 0.6, 0.2)
    >>> log = cq.DecisionLog.from_arrays(income, decision, np.full(4000, 0.4),
    ...                                  np.where(decision, 1, np.nan), feature_names=["income"])
    >>> print(propensity_contradictions(log)[0])
    income <= 0.5009: 417 of 2036 accepted where the propensities say 814
    """
    from scipy.stats import norm

    possible = np.flatnonzero((log.propensity > _raised_to(log)) & (log.propensity < 1.0))
    chosen = np.random.default_rng(0).permutation(possible)[:_SAMPLED]
    one, other = (log.take(np.sort(half)) for half in np.array_split(chosen, 2))
    trials = [trial for trial in (_Trial.of(one, other), _Trial.of(other, one)) if trial]
    if not trials:
        return ()
    tests = sum(len(trial.surprises) for trial in trials)
    limit = float(norm.isf(doubt / (2.0 * tests)))
    # both trees find much the same regions: those of the clearer one are enough
    return max(trials, key=lambda trial: trial.clearest).contradictions(log, limit)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Regions found on one half of the rows, and how surprising the other half's decisions are."""

    regions: Regions
    surprises: dict[int, float]

    @classmethod
    def of(cls, grown_on: DecisionLog, tested_on: DecisionLog) -> _Trial | None:
        """Grow a tree on some rows and test its leaves on others; None where these are too few."""
        p = grown_on.propensity
        variance = p * (1.0 - p)
        total = float(variance.sum())
        if total < _LEAST_VARIANCE:
            return None
        # with these targets and weights a split gains exactly what it adds to the statistics
        regions = Regions.grown(
            grown_on,
            (grown_on.decision - p) / variance,
            variance,
            least_weight=min(_LEAST_VARIANCE / total, 0.5),
            least_gain=_LEAST_GAIN / total,
        )
        leaf = regions.of(tested_on)
        tolerated = _TOLERATED if grown_on.estimated_propensity else 0.0
        return cls(
            regions,
            {int(k): _surprise(tested_on.take(leaf == k), tolerated) for k in np.unique(leaf)},
        )

    @property
    def clearest(self) -> float:
        """How surprising the most surprising region is."""
        return max(map(abs, self.surprises.values()))

    def contradictions(self, log: DecisionLog, limit: float) -> tuple[Contradiction, ...]:
        """Return the regions that are more surprising than a limit, with the people of the log."""
        beyond = [leaf for leaf, found in self.surprises.items() if abs(found) > limit]
        if not beyond:
            return ()
        home = self.regions.of(log)
        found = []
        for leaf in sorted(beyond, key=lambda leaf: -abs(self.surprises[leaf])):
            inside = home == leaf
            found.append(
                Contradiction(
                    self.regions.in_words(leaf),
                    people=int(inside.sum()),
                    accepted=int(log.decision[inside].sum()),
                    expected=float(log.propensity[inside].sum()),
                    surprise=self.surprises[leaf],
                )
            )
        return tuple(found)


def _surprise(log: DecisionLog, tolerated: float) -> float:
    p = log.propensity
    variance = p * (1.0 - p)
    excess = float((log.decision - p).sum())
    allowed = tolerated * float(min(p.sum(), (1.0 - p).sum()))
    left = np.sign(excess) * max(abs(excess) - allowed, 0.0)
    return surprise(float(left), float(variance.sum()), float((variance * (1.0 - 2.0 * p)).sum()))


def _raised_to(log: DecisionLog) -> float:
    """Return the propensity up to which a log's are not tested."""
    return float(log.propensity.min(initial=1.0)) if log.estimated_propensity else 0.0
