"""Overlap: whether a log explores, and for whom it does not."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.objective import effective_sample_size

Floats = NDArray[np.float64]

_FEW = 100.0  # with fewer effective people intervals are wider than most questions
_DOUBT = 0.01  # how often true propensities may be doubted, over all groups together
_DEPTH = 3
_LEAF_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well accepted people stand for all of a group, or of the whole log.

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
        is: a standard normal number if they are. People with propensity 0 are left out.
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


@dataclass(frozen=True, slots=True)
class Region:
    """People alike in their features whom the log covers worst."""

    rule: str
    people: int
    share: float
    accepted: int
    median: float
    largest: float

    def __str__(self) -> str:
        return (
            f"{self.rule}: {self.people} people ({self.share:.1%}), {self.accepted} accepted, "
            f"propensity {self.median:.3g} in the middle, {self.largest:.3g} at most"
        )


@dataclass(frozen=True, slots=True)
class Overlap:
    """What `overlap` found; print it for a table and the verdict in words.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> found = cq.overlap(world.collect(cq.AcceptAll(), 1_000, np.random.default_rng(0)))
    >>> [(group.name, group.people, group.smallest) for group in found.groups]
    [(0, 496, 1.0), (1, 504, 1.0)]
    """

    exploring: Literal["yes", "partly", "no"]
    reasons: tuple[str, ...]
    overall: Coverage
    groups: tuple[Coverage, ...]
    worst_region: Region
    floor: float
    confidence: float
    estimated_propensity: bool

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        found = asdict(self)
        for coverage in [found["overall"], *found["groups"]]:
            coverage["name"] = _plain(coverage["name"])
        return found | {"reasons": list(self.reasons), "groups": list(found["groups"])}

    def __str__(self) -> str:
        rows = [self.overall] if len(self.groups) == 1 else [self.overall, *self.groups]
        width = max(10, *(len(str(row.name)) for row in rows))
        below = f"below {self.floor:g}"
        lines = [
            f"{'':{width}}  people  accepted  effective  {below:>10}  at most  mean weight"
            "  smallest p  median p  largest weight"
        ]
        lines += [
            f"{row.name!s:{width}}  {row.people:6d}  {row.accepted:8d}"
            f"  {row.effective_sample_size:9.0f}  {row.below_floor:10.2%}"
            f"  {row.below_floor_high:7.2%}  {row.mean_weight:11.3f}  {row.smallest:10.3g}"
            f"  {row.median:8.3g}  {row.largest_weight_share:14.2%}"
            for row in rows
        ]
        lines.append(f"worst covered: {self.worst_region}")
        lines.append(f"exploring: {self.exploring}")
        lines += [f"  - {reason}" for reason in self.reasons]
        return "\n".join(lines)


def overlap(log: DecisionLog, *, floor: float = 0.01, confidence: float = 0.95) -> Overlap:
    """Say whether a log explores, and for whom it does not.

    A log answers questions about a policy only where people whom the policy would accept had a
    chance of being accepted. Labels play no part, so decisions still pending count too.

    The verdict is *yes* if nobody's propensity is below the floor, every group has an effective
    sample size of a hundred or more, and weights average to one as those of true propensities
    do; *no* if nobody was accepted or if most of the people more likely to be rejected than
    accepted are below the floor; *partly* otherwise, with reasons.

    Parameters
    ----------
    log
        A decision log; propensities of 0 and 1 are allowed.
    floor
        The smallest propensity that counts as exploring.
    confidence
        Of the upper bounds on the share of people below the floor.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), world.cost)
    >>> cq.overlap(world.collect(rule, 5_000, np.random.default_rng(0))).exploring
    'no'
    >>> log = world.collect(rule.with_floor(0.05), 5_000, np.random.default_rng(0))
    >>> found = cq.overlap(log)
    >>> found.exploring, found.overall.smallest
    ('yes', 0.05)
    """
    if not 0.0 < floor < 1.0:
        raise ValueError(f"floor lies strictly between 0 and 1, not {floor!r}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence lies strictly between 0 and 1, not {confidence!r}")
    if len(log) == 0:
        raise DecisionLogError("the log is empty: it needs at least one decision")
    overall = _coverage("everyone", log, floor, confidence)
    counts = zip(log.groups, log.group_counts, strict=True)
    groups = tuple(
        _coverage(name, log.take(log.group == code), floor, confidence)
        for code, (name, count) in enumerate(counts)
        if count
    )
    region = _worst_region(log, floor)
    reasons = tuple(_reasons(overall, groups, region, log))
    reluctant = log.propensity < 0.5
    uncovered = reluctant & (log.propensity < floor)
    if overall.accepted == 0 or uncovered.sum() * 2 > reluctant.sum():
        exploring: Literal["yes", "partly", "no"] = "no"
    else:
        exploring = "partly" if reasons else "yes"
    return Overlap(
        exploring, reasons, overall, groups, region, floor, confidence, log.estimated_propensity
    )


def _coverage(name: Hashable, log: DecisionLog, floor: float, confidence: float) -> Coverage:
    p = log.propensity
    weights = np.divide(1.0, p, out=np.zeros(len(p)), where=log.decision)
    possible = p > 0
    below = int((p < floor).sum())
    total = float(weights.sum())
    return Coverage(
        name=name,
        people=len(log),
        accepted=log.n_accepted,
        effective_sample_size=effective_sample_size(weights),
        below_floor=below / len(log),
        below_floor_high=share_at_most(below, len(log), confidence),
        mean_weight=total / possible.sum() if possible.any() else 0.0,
        surprise=_surprise(weights[possible], p[possible]),
        smallest=float(p.min()),
        median=float(np.median(p)),
        largest_weight_share=float(weights.max()) / total if total > 0 else 0.0,
    )


def share_at_most(count: int, n: int, confidence: float) -> float:
    """Clopper and Pearson's upper confidence bound on a share, `count` of n having been seen."""
    from scipy.stats import beta

    return 1.0 if count == n else float(beta.ppf(confidence, count + 1, n - count))


def _surprise(weights: Floats, p: Floats) -> float:
    """How far the mean weight is from 1, in standard errors, its skewness taken out.

    Given p, `w = d / p` has mean 1, variance (1 - p)/p and third moment (1 - p)(1 - 2p)/p^2, so
    nothing need be estimated; rare large weights make the sum skewed, and the first term of
    Cornish and Fisher's expansion corrects for that.
    """
    variance = float(((1.0 - p) / p).sum())
    if variance == 0.0:
        return 0.0
    z = float((weights - 1.0).sum()) / variance**0.5
    skewness = float(((1.0 - p) * (1.0 - 2.0 * p) / p**2).sum()) / variance**1.5
    corrected: float = z - skewness / 6.0 * (z * z - 1.0)
    return corrected


def _reasons(
    overall: Coverage, groups: tuple[Coverage, ...], region: Region, log: DecisionLog
) -> list[str]:
    from scipy.stats import norm

    reasons = []
    if overall.accepted == 0:
        return ["nobody was accepted: the log has no label at all"]
    if overall.below_floor > 0:
        reasons.append(
            f"{overall.below_floor:.1%} of people are below the floor, most where {region.rule}: "
            "what accepting them would bring cannot be told from this log"
        )
    limit = float(norm.ppf(1.0 - _DOUBT / (2.0 * len(groups))))
    for group in groups:
        whose = "" if len(groups) == 1 else f" of group {group.name!r}"
        if group.effective_sample_size < _FEW:
            reasons.append(
                f"the weights{whose} say as much as {group.effective_sample_size:.0f} people: "
                "intervals will be wide"
            )
        if abs(group.surprise) > limit:
            reasons.append(
                f"the weights{whose} average {group.mean_weight:.3f} where true propensities give "
                f"1 (z = {group.surprise:.1f}): decisions were not drawn with the propensities "
                "logged"
            )
    if log.estimated_propensity:
        reasons.append(
            "propensities are estimates: a rule that went by something unrecorded looks like chance"
        )
    return reasons


def _worst_region(log: DecisionLog, floor: float) -> Region:
    """Return the leaf of a shallow tree with the largest share below the floor, or the lowest p."""
    from sklearn.tree import DecisionTreeRegressor

    p = log.propensity.round(9)  # rounding errors are no region
    below = (p < floor).astype(np.float64)
    target = below if 0.0 < below.mean() < 1.0 else p
    named = log.groups if len(log.groups) > 1 else ()
    inputs = np.column_stack([log.features, *(log.group == code for code in range(len(named)))])
    leaf = max(1, round(_LEAF_SHARE * len(log)))
    tree = DecisionTreeRegressor(max_depth=_DEPTH, min_samples_leaf=leaf, random_state=0)
    home = tree.fit(inputs, target).apply(inputs)
    leaves = np.unique(home)
    worst = min(leaves, key=lambda k: (-below[home == k].mean(), p[home == k].mean()))
    inside = home == worst
    names = [*log.feature_names, *(f"group {name!r}" for name in named)]
    indicators = np.asarray(np.isin(inputs, (0.0, 1.0)).all(axis=0))
    return Region(
        rule=_in_words(tree.tree_, int(worst), names, indicators),
        people=int(inside.sum()),
        share=float(inside.mean()),
        accepted=int((inside & log.decision).sum()),
        median=float(np.median(p[inside])),
        largest=float(p[inside].max()),
    )


def _in_words(tree: Any, leaf: int, names: list[str], indicators: NDArray[np.bool_]) -> str:
    """Return the conditions on the way to a leaf, one for each input that is asked about."""
    bounds: dict[int, tuple[float, float]] = {}
    node = leaf
    while node != 0:
        parent = int(
            np.flatnonzero((tree.children_left == node) | (tree.children_right == node))[0]
        )
        column, cut = int(tree.feature[parent]), float(tree.threshold[parent])
        low, high = bounds.get(column, (-np.inf, np.inf))
        if tree.children_left[parent] == node:
            bounds[column] = (low, min(high, cut))
        else:
            bounds[column] = (max(low, cut), high)
        node = parent
    parts = []
    for column in sorted(bounds):
        low, high = bounds[column]
        name = names[column]
        if indicators[column]:
            parts.append(name if np.isfinite(low) else f"not {name}")
        elif np.isfinite(low) and np.isfinite(high):
            parts.append(f"{low:.4g} < {name} <= {high:.4g}")
        else:
            parts.append(f"{name} > {low:.4g}" if np.isfinite(low) else f"{name} <= {high:.4g}")
    return " and ".join(parts) or "anywhere"


def _plain(name: Hashable) -> str | int | float | bool:
    return name if isinstance(name, str | int | float | bool) else str(name)
