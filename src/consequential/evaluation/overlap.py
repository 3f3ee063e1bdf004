"""Overlap: whether a log explores, and for whom it does not."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import ClassVar, Literal

import numpy as np

from consequential.evaluation.contradictions import (
    Contradiction,
    Regions,
    propensity_contradictions,
    surprise,
    weight_moments,
)
from consequential.evaluation.estimate import Additive, Result
from consequential.evaluation.rates import Floats
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.log.concerns import data_concerns, propensity_concerns
from consequential.shares import checked_share
from consequential.tables import text_table

_FEW = 100.0  # with fewer effective people intervals are wider than most questions
# how often true propensities may be doubted, by groups' weights and by regions' decisions together
_DOUBT = 0.01
_SHOWN = 3  # regions where propensities do not fit
_ESTIMATED = (
    "propensities are estimates: a rule that went by something unrecorded looks like chance"
)
_SAMPLED = 200_000  # people of a scan among whom medians and the worst region are found
# titles of the columns of a table, what they show of a coverage, and how
_COLUMNS = (
    ("people", "people", "d"),
    ("accepted", "accepted", "d"),
    ("effective", "effective_sample_size", ".0f"),
    ("below {:g}", "below_floor", ".2%"),
    ("at most", "below_floor_high", ".2%"),
    ("mean weight", "mean_weight", ".3f"),
    ("smallest p", "smallest", ".3g"),
    ("median p", "median", ".3g"),
    ("largest weight", "largest_weight_share", ".2%"),
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well accepted people stand for all of a group, or of the log.

    Attributes
    ----------
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
        Of the propensities; the median of a large scan is that of a sample of it.
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
class Overlap(Result):
    """What `overlap` found; print it for a table and the verdict in words.

    `reasons` say why the verdict is not *yes*; `concerns` are other oddities of the rows, such as
    copies of rows and identifiers among the features.

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
    contradictions: tuple[Contradiction, ...] = ()
    concerns: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = ["", *(title.format(self.floor) for title, _, _ in _COLUMNS)]
        rows = [
            [each.name, *(format(getattr(each, name), how) for _, name, how in _COLUMNS)]
            for each in (self.overall, *(self.groups if len(self.groups) > 1 else ()))
        ]
        lines = [
            *text_table([names, *rows], align="<>", min_widths=(10, 0, 0, 0, 10)),
            f"worst covered: {self.worst_region}",
            f"exploring: {self.exploring}",
            *(f"  - {reason}" for reason in self.reasons),
            *(f"note: {concern}" for concern in self.concerns),
        ]
        return "\n".join(lines)


def overlap(
    log: DecisionLog | LogScan, *, floor: float = 0.01, confidence: float = 0.95
) -> Overlap:
    """Say whether a log explores, and for whom it does not.

    A log answers questions about a policy only where people whom the policy would accept had a
    chance of being accepted. Labels play no part, so decisions still pending count too.

    The verdict is *yes* if nobody's propensity is below the floor, every group has an effective
    sample size of a hundred or more, and nothing contradicts the propensities: weights average to
    one in every group, and in every region people were accepted as often as propensities say
    (`propensity_contradictions`). True propensities are doubted in about one log in a hundred. It
    is *no* if nobody was accepted or if most of the people more likely to be rejected than
    accepted are below the floor; *partly* otherwise, with reasons.

    No test proves propensities: a rule that went by something that was not recorded can leave no
    trace in a log.

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
    for name, value in (("floor", floor), ("confidence", confidence)):
        checked_share(name, value)
    if len(log) == 0:
        raise DecisionLogError("the log is empty: it needs at least one decision")
    if isinstance(log, LogScan):
        sample = log.split(_SAMPLED)[0]
        found = list(log.map(partial(_sums, floor=floor), settled=False))
    else:
        sample, found = log, [_sums(log, floor)]
    sums = [reduce(add, column) for column in zip(*found, strict=True)]
    overall, *groups = (
        each.coverage(name, part.propensity, confidence)
        for name, each, part in zip(("everyone", *log.groups), sums, _parts(sample), strict=True)
        if each.people
    )
    region = _worst_region(sample, floor, overall.people)
    contradictions = propensity_contradictions(sample, doubt=_DOUBT / 2.0)
    concerns = propensity_concerns(sample)
    reasons = (
        *_reasons(overall, groups, region),
        *concerns,
        *_in_regions(contradictions, len(sample) if isinstance(log, LogScan) else None),
        *((_ESTIMATED,) if sample.estimated_propensity and overall.accepted else ()),
    )
    none_rejected = bool(concerns) and overall.accepted == overall.people
    reluctant = sums[0].reluctant  # people more likely to be rejected than accepted
    uncovered = min(sums[0].below, reluctant) * 2 > reluctant
    if overall.accepted == 0 or none_rejected or uncovered:
        exploring: Literal["yes", "partly", "no"] = "no"
    else:
        exploring = "partly" if reasons else "yes"
    return Overlap(
        exploring,
        reasons,
        overall,
        tuple(groups),
        region,
        floor,
        confidence,
        sample.estimated_propensity,
        contradictions,
        data_concerns(sample),
    )


@dataclass(frozen=True)
class CoverageSums(Additive):
    """What people of one group, or all, add to a coverage."""

    people: int
    accepted: int
    below: int
    reluctant: int
    weight: float
    squares: float
    heaviest: float
    moments: Floats  # of the weights, see `weight_moments`
    smallest: float

    extremes: ClassVar = {"smallest": min, "heaviest": max}

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
            weight=float(weights.sum()),
            squares=float(weights @ weights),
            heaviest=float(weights.max(initial=0.0)),
            moments=weight_moments(log),
            smallest=float(p.min(initial=1.0)),
        )

    def coverage(self, name: Hashable, propensity: Floats, confidence: float) -> Coverage:
        """Return what the sums say; the median is that of these propensities."""
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
            median=float(np.median(propensity)) if len(propensity) else float("nan"),
            largest_weight_share=self.heaviest / self.weight if self.weight > 0 else 0.0,
        )


def share_at_most(count: int, n: int, confidence: float) -> float:
    """Clopper and Pearson's upper confidence bound on a share, `count` of n having been seen."""
    from scipy.stats import beta

    return 1.0 if count == n else float(beta.ppf(confidence, count + 1, n - count))


def _parts(log: DecisionLog) -> list[DecisionLog]:
    """Return all people, and those of each group."""
    return [log, *(log.take(log.group == code) for code in range(len(log.groups)))]


def _sums(log: DecisionLog, floor: float) -> list[CoverageSums]:
    return [CoverageSums.of(part, floor) for part in _parts(log)]


def _reasons(overall: Coverage, groups: list[Coverage], region: Region) -> list[str]:
    from scipy.stats import norm

    reasons = []
    if overall.accepted == 0:
        return ["nobody was accepted: the log has no label at all"]
    if overall.below_floor > 0:
        reasons.append(
            f"{overall.below_floor:.1%} of people are below the floor, most where {region.rule}: "
            "what accepting them would bring cannot be told from this log"
        )
    limit = float(norm.isf(_DOUBT / 4.0 / len(groups)))
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
    return reasons


def _in_regions(found: tuple[Contradiction, ...], sampled: int | None) -> list[str]:
    if not found:
        return []
    rows = "" if sampled is None else f", in a sample of {sampled}"
    shown = "; ".join(str(each) for each in found[:_SHOWN])
    return [f"decisions were not drawn with the propensities logged{rows}: {shown}"]


def _worst_region(log: DecisionLog, floor: float, n: int) -> Region:
    """Return the leaf of a shallow tree with the largest share below the floor, or the lowest p.

    The log may be a sample of n people, of whom the region's numbers are then estimates.
    """
    p = log.propensity.round(9)  # rounding errors are no region
    below = (p < floor).astype(np.float64)
    regions = Regions.grown(log, below if 0.0 < below.mean() < 1.0 else p)
    leaf = regions.of(log)
    worst = min(np.unique(leaf), key=lambda k: (-below[leaf == k].mean(), p[leaf == k].mean()))
    inside = leaf == worst
    return Region(
        rule=regions.in_words(int(worst)),
        people=round(float(inside.mean()) * n),
        share=float(inside.mean()),
        accepted=round(float((inside & log.decision).mean()) * n),
        median=float(np.median(p[inside])),
        largest=float(p[inside].max()),
    )
