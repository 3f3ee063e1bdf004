"""Contradictions: regions where people were accepted more or less often than propensities say.

Given true propensities, decisions are independent with mean p and variance p (1 - p): the sum of
`d - p` over any region that was chosen without looking at these decisions has a known mean,
variance and skewness. Regions are the leaves of a tree that was grown on one half of the rows to
find where `(sum (d - p))^2 / sum p (1 - p)` is largest, and are tested on the other half; then the
halves change places.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.rates import Floats
from consequential.log import DecisionLog
from consequential.log.checks import LEAST
from consequential.log.concerns import propensity_concerns

CONTRADICTED = "the propensities contradict the decisions"
# so many standard errors from 1 chance does not explain: one honest log in 16 000
_LIMIT = 4.0
# how often an honest log may be doubted over all its regions, where that decides a comparison
_SELDOM = 1e-3
# rows beyond which a sample of them is looked at
_SAMPLED = 100_000
# a region's sum needs this variance to be close to normal once skewness is taken out
_LEAST_VARIANCE = 10.0
# what a split must add to the statistics; the best of many that tell nothing apart adds less
_LEAST_GAIN = 10.0
# an estimate may be off by this share of the rarer decision, for all the harm that does
_TOLERATED = 0.1
# of the tree that regions are the leaves of
_DEPTH = 3
_LEAF_SHARE = 0.03


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
    log: DecisionLog, *, doubt: float = 0.01
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
    >>> from consequential.evaluation.contradictions import propensity_contradictions
    >>> rng = np.random.default_rng(0)
    >>> income = rng.random(4000)
    >>> decision = rng.random(4000) < np.where(income > 0.5, 0.6, 0.2)
    >>> log = cq.DecisionLog.from_arrays(income, decision, np.full(4000, 0.4),
    ...                                  np.where(decision, 1, np.nan), feature_names=["income"])
    >>> print(propensity_contradictions(log)[0])
    income <= 0.5009: 417 of 2036 accepted where the propensities say 814
    """
    from scipy.stats import norm

    # estimated propensities were raised to a floor
    least = float(log.propensity.min(initial=1.0)) if log.estimated_propensity else 0.0
    possible = np.flatnonzero((log.propensity > least) & (log.propensity < 1.0))
    chosen = np.random.default_rng(0).permutation(possible)[:_SAMPLED]
    one, other = (log.take(np.sort(half)) for half in np.array_split(chosen, 2))
    tests = [found for found in (_tested(one, other), _tested(other, one)) if found]
    if not tests:
        return ()
    limit = float(norm.isf(doubt / (2.0 * sum(len(surprises) for _, surprises in tests))))
    # both trees find much the same regions: those of the clearer one are enough
    regions, surprises = max(tests, key=lambda found: max(map(abs, found[1].values())))
    beyond = [leaf for leaf in surprises if abs(surprises[leaf]) > limit]
    if not beyond:
        return ()
    leaves = regions.of(log)
    return tuple(
        Contradiction(
            regions.in_words(leaf),
            people=int((leaves == leaf).sum()),
            accepted=int(log.decision[leaves == leaf].sum()),
            expected=float(log.propensity[leaves == leaf].sum()),
            surprise=surprises[leaf],
        )
        for leaf in sorted(beyond, key=lambda leaf: -abs(surprises[leaf]))
    )


def _tested(
    grown_on: DecisionLog, tested_on: DecisionLog
) -> tuple[Regions, dict[int, float]] | None:
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
    return regions, {int(k): _surprise(tested_on.take(leaf == k)) for k in np.unique(leaf)}


def _surprise(log: DecisionLog) -> float:
    """Return how surprising the number of accepted people is."""
    p = log.propensity
    variance = p * (1.0 - p)
    excess = float((log.decision - p).sum())
    if log.estimated_propensity:
        tolerated = _TOLERATED * float(min(p.sum(), (1.0 - p).sum()))
        excess = float(np.sign(excess)) * max(abs(excess) - tolerated, 0.0)
    return surprise(excess, float(variance.sum()), float((variance * (1.0 - 2.0 * p)).sum()))


@dataclass(frozen=True, slots=True)
class Regions:
    """The leaves of a tree over features and groups, eight at most, in words."""

    tree: Any
    names: tuple[str, ...]
    indicators: NDArray[np.bool_]

    @classmethod
    def grown(
        cls,
        log: DecisionLog,
        target: Floats,
        weights: Floats | None = None,
        least_weight: float = 0.0,
        least_gain: float = 0.0,
    ) -> Regions:
        """Grow a tree that separates the people of a log by a target.

        A leaf has 3% of the people or more and a share `least_weight` of the weight; a split
        lowers the weighted variance of the target within leaves by `least_gain` or more.
        """
        from sklearn.tree import DecisionTreeRegressor

        names, inputs = _inputs(log)
        model = DecisionTreeRegressor(
            max_depth=_DEPTH,
            min_samples_leaf=max(1, round(_LEAF_SHARE * len(log))),
            min_weight_fraction_leaf=least_weight,
            min_impurity_decrease=least_gain,
            random_state=0,
        )
        return cls(
            model.fit(inputs, target, sample_weight=weights),
            names,
            np.asarray(np.isin(inputs, (0.0, 1.0)).all(axis=0)),
        )

    def of(self, log: DecisionLog) -> NDArray[np.intp]:
        """Return the leaf that each person falls into."""
        return np.asarray(self.tree.apply(_inputs(log)[1]), dtype=np.intp)

    def in_words(self, leaf: int) -> str:
        """Return the conditions on the way to a leaf, one for each input that is asked about."""
        tree, node = self.tree.tree_, leaf
        bounds: dict[int, tuple[float, float]] = {}
        while node != 0:
            below = node in tree.children_left
            children = tree.children_left if below else tree.children_right
            node = int(np.flatnonzero(children == node)[0])
            column, cut = int(tree.feature[node]), float(tree.threshold[node])
            low, high = bounds.get(column, (-np.inf, np.inf))
            bounds[column] = (low, min(high, cut)) if below else (max(low, cut), high)
        parts = [self._condition(column, *bounds[column]) for column in sorted(bounds)]
        return " and ".join(parts) or "anywhere"

    def _condition(self, column: int, low: float, high: float) -> str:
        name = self.names[column]
        if self.indicators[column]:
            return name if np.isfinite(low) else f"not {name}"
        if np.isfinite(low) and np.isfinite(high):
            return f"{low:.4g} < {name} <= {high:.4g}"
        return f"{name} > {low:.4g}" if np.isfinite(low) else f"{name} <= {high:.4g}"


def _inputs(log: DecisionLog) -> tuple[tuple[str, ...], Floats]:
    """Return what a tree may separate people by: features and, if there are several, groups."""
    groups = log.groups if len(log.groups) > 1 else ()
    names = (*log.feature_names, *(f"group {name!r}" for name in groups))
    indicators = (log.group == code for code in range(len(groups)))
    return names, np.column_stack([log.features, *indicators])


def surprise(excess: float, variance: float, third: float) -> float:
    """Return how surprising a sum is whose first three central moments should be 0 and these.

    The answer is a standard normal number, nearly: the sum in standard deviations z, its skewness g
    taken out. Cornish and Fisher's `z - g (z^2 - 1) / 6` falls again where z is large; with Hall's
    cubic term it rises everywhere. Where a few rare decisions make up the sum (g beyond 1) neither
    holds; Cantelli's inequality does, whatever the distribution: a tail of at most `1 / (1 + z^2)`.
    """
    if variance <= 0.0:
        return 0.0
    deviation = float(np.sqrt(variance))
    z, g = excess / deviation, third / deviation**3
    if abs(g) < 1e-12:
        return z
    if abs(g) > 1.0:
        return float(np.copysign(NormalDist().inv_cdf(min(0.5, 1.0 / (1.0 + z * z))), z))
    return (1.0 - (1.0 - g * z / 6.0) ** 3) * 2.0 / g + g / 6.0


def weight_moments(log: DecisionLog, among: NDArray[np.bool_] | None = None) -> Floats:
    """Return four sums over people, or those of them in a mask, who could be accepted.

    Their number, the sum of `w - 1` and, if propensities are true, its variance and third moment:
    the sums of `(1 - p) / p` and of `(1 - p) (1 - 2p) / p^2`.
    """
    possible = log.propensity >= LEAST
    if among is not None:
        possible &= among
    p, decision = log.propensity[possible], log.decision[possible]
    variance = (1.0 - p) / p
    moments = len(p), (decision / p - 1.0).sum(), variance.sum(), (variance * (1.0 / p - 2.0)).sum()
    return np.array(moments, dtype=np.float64)


def weight_doubts(log: DecisionLog) -> tuple[str, ...]:
    """Return where weights do not average to 1 as those of true propensities do, by group.

    Estimated propensities are not tested: that they are wrong is known, and `sensitivity` says what
    follows.
    """
    if log.estimated_propensity:
        return ()
    parts: list[tuple[str, NDArray[np.bool_] | None]] = [("", None)]
    if len(log.groups) > 1:
        parts += [
            (f" of group {group!r}", log.group == code) for code, group in enumerate(log.groups)
        ]
    doubts = []
    for whose, among in parts:
        count, *moments = weight_moments(log, among).tolist()
        if abs(surprise(*moments)) > _LIMIT:
            doubts.append(
                f"weights{whose} average {1.0 + moments[0] / count:.3f} where those of true "
                "propensities average 1"
            )
    return tuple(doubts)


def contradictions(log: DecisionLog) -> tuple[str, ...]:
    """Return every reason there is to disbelieve a log's propensities.

    They are tested on average and in the regions of a tree; an honest log is doubted in one of a
    thousand cases.
    """
    regions = propensity_contradictions(log, doubt=_SELDOM)[:1]  # the clearest one will do
    return (*propensity_concerns(log), *weight_doubts(log), *map(str, regions))
