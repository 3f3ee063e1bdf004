"""Evaluate: what a rule would have been worth, from the log of another."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import Range, gap_interval, intervals_of
from consequential.evaluation.estimate import Estimate, finite_or_none
from consequential.evaluation.intervals import METHODS, Interval, Intervals
from consequential.evaluation.judged import (
    as_rule,
    checked_log,
    judge,
    needs_folds,
    question,
)
from consequential.evaluation.measure import Facts, Measure, rate_notes
from consequential.evaluation.quantiles import checked_confidence
from consequential.evaluation.reach import Extremes, known_floor
from consequential.evaluation.yardstick import Yardstick
from consequential.log import DecisionLog, LogScan
from consequential.objective import Fairness, Objective, Weighting

Floats = NDArray[np.float64]
Method = Literal["normal", "bootstrap", "bernstein", "any_time"]


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """What a rule would do with the applicants of a log, each figure with its interval.

    Attributes
    ----------
    utility, acceptance
        Mean utility of an applicant, and share of applicants accepted.
    benefits
        Each group's benefit under the fairness notion (the first one, where it has several).
    benefit_gap
        `b0 - b1` for two groups and one benefit; else the largest difference between groups.
    fairness
        The notion's name.
    group_sizes, group_effective_sizes
        Applicants by group, and how many equally weighted people their labels speak for.
    n, effective_sample_size
        The same for all.
    unsupported
        The share of the rule's acceptances that falls on people whom the log could never accept.
        What needs their labels is then known within bounds only, and intervals cover these.
    notes
        What to know before relying on the figures.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(cq.Policy([0.0, 0.0]), 2000, np.random.default_rng(1))
    >>> cq.evaluate(cq.AcceptAll(), log, cost=world.cost)
    2000 decisions, effectively 946 (95% intervals, normal)
      utility                     0.1543 [0.1256, 0.1830]
      acceptance                  1.0000 [1.0000, 1.0000]
      demographic_parity: 0       1.0000 [1.0000, 1.0000]   1033 decisions, effectively 476
      demographic_parity: 1       1.0000 [1.0000, 1.0000]   967 decisions, effectively 470
      gap                         0.0000 [0.0000, 0.0000]
    """

    utility: Estimate
    acceptance: Estimate
    benefits: dict[Hashable, Estimate]
    benefit_gap: Estimate
    fairness: str
    group_sizes: dict[Hashable, int]
    group_effective_sizes: dict[Hashable, float]
    n: int
    effective_sample_size: float
    notes: tuple[str, ...]
    confidence: float
    method: str
    unsupported: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON: groups by their text, None for what is not known."""
        return {
            "utility": self.utility.to_dict(),
            "acceptance": self.acceptance.to_dict(),
            "benefits": {str(group): each.to_dict() for group, each in self.benefits.items()},
            "benefit_gap": self.benefit_gap.to_dict(),
            "fairness": self.fairness,
            "group_sizes": {str(group): size for group, size in self.group_sizes.items()},
            "group_effective_sizes": {
                str(group): finite_or_none(size)
                for group, size in self.group_effective_sizes.items()
            },
            "n": self.n,
            "effective_sample_size": finite_or_none(self.effective_sample_size),
            "notes": list(self.notes),
            "confidence": self.confidence,
            "method": self.method,
            "unsupported": self.unsupported,
        }

    def __repr__(self) -> str:
        lines = [
            f"{self.n} decisions, effectively {self.effective_sample_size:.0f} "
            f"({self.confidence:.0%} intervals, {self.method})",
            *bounds_line(self.unsupported),
            f"  {'utility':<24}{self.utility!r:>27}",
            f"  {'acceptance':<24}{self.acceptance!r:>27}",
        ]
        for group, benefit in self.benefits.items():
            size = f"{self.group_sizes[group]} decisions"
            effective = f"effectively {self.group_effective_sizes[group]:.0f}"
            name = f"{self.fairness}: {group}"
            lines.append(f"  {name:<24}{benefit!r:>27}   {size}, {effective}")
        lines.append(f"  {'gap':<24}{self.benefit_gap!r:>27}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def bounds_line(unsupported: float) -> list[str]:
    """Say before any figure that some are no more than bounds."""
    if unsupported <= 0.0:
        return []
    return [f"  BOUNDS ONLY: no label speaks for {unsupported:.1%} of the people it accepts"]


def evaluate(
    rule: Any,
    log: DecisionLog | LogScan,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    method: Method = "normal",
    folds: int | None = None,
    rejection_utility: tuple[float, float] = (0.0, 0.0),
    floor: float | None = None,
    seed: int = 0,
) -> Evaluation:
    """Estimate what a rule would do with the applicants of a log that another rule decided on.

    Parameters
    ----------
    rule
        A policy or another decision rule; a fitted learner; or, with `folds`, a learner to fit.
    log
        The log, or a scan of one; decisions younger than its horizon are left out.
    cost
        What accepting costs; not needed where the log has a cost for each row.
    fairness
        The notion whose benefits are reported, or its name.
    weighting
        How accepted rows stand in for the rejected; inverse propensity by default.
    confidence
        How often the intervals are to cover.
    method
        `"normal"`: from influence values, for logs of thousands. `"bootstrap"`: percentiles of
        1000 replicates. `"bernstein"`: right at any size, and several times wider. `"any_time"`:
        right however often one looks while the log grows.
    folds
        Judge each row by a policy learned from the other folds; needs a learner.
    rejection_utility
        What rejecting is worth for label 0 and label 1.
    floor
        For `"bernstein"` and `"any_time"`: the smallest propensity anybody can have had. By
        default that of the log's policies, or the smallest one logged.
    seed
        Of whatever is random: folds, replicates, simultaneous bounds.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> start = world.initial_policy().with_floor(0.05)
    >>> log = world.collect(start, 5000, np.random.default_rng(2))
    >>> better = cq.Policy([1.5, 5.0])
    >>> found = cq.evaluate(better, log, cost=world.cost, fairness="equal_opportunity")
    >>> found.utility
    0.1694 [0.1538, 0.1851]
    >>> world.exact(better).utility in found.utility
    True
    """
    checked_log(log, or_scan=True)
    needs_folds((rule,), folds)
    objective = question(log, cost, fairness, weighting, rejection_utility)
    kind = checked_method(method)
    level = checked_confidence(confidence)
    if isinstance(log, LogScan):
        from consequential.evaluation.scanned import measured

        check_scannable(kind, folds)
        found = measured(log, objective, (as_rule(rule),))
        intervals = kind(found.measures[0].ratios, level, seed)
        return evaluation(objective, found.facts[0], found.measures[0], intervals)
    judged = judge(rule, log, folds=folds, seed=seed)
    yardstick, notes = measured_with(objective, judged.log, kind, floor)
    measure = Measure.of(yardstick, judged.propensity)
    facts = Facts.of(yardstick, judged.propensity, (*judged.notes, *notes))
    return evaluation(objective, facts, measure, kind(measure.ratios, level, seed))


def checked_method(method: Any) -> type[Intervals]:
    """Return the intervals of a name, or list the names there are."""
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    return METHODS[method]


def check_scannable(kind: type[Intervals], folds: int | None) -> None:
    """Refuse what needs all rows at once."""
    if folds is not None:
        raise ValueError(
            "folds= needs a log in memory: learn from one scan and judge on another, or on what "
            "scan.split left out"
        )
    if not kind.from_sums:
        raise ValueError(
            f"method {kind.name!r} needs all rows at once; a scan has sums, which give "
            'method="normal"'
        )


def measured_with(
    objective: Objective, rows: DecisionLog, kind: type[Intervals], floor: float | None
) -> tuple[Yardstick, tuple[str, ...]]:
    """Return the yardstick a method needs, and what it rests on."""
    if not kind.needs_reach:
        if floor is not None:
            raise ValueError('floor= is for method="bernstein" and "any_time" only')
        return Yardstick.of(objective, rows), ()
    lowest, note = known_floor(rows, floor)
    extremes = Extremes.of(objective.weighting, lowest)
    return Yardstick.of(objective, rows, extremes), (note,) if note else ()


def evaluation(
    objective: Objective, facts: Facts, measure: Measure, intervals: Intervals
) -> Evaluation:
    """Put intervals around everything that was measured."""
    assert objective.fairness is not None
    made = Maker(intervals)
    shown = measure.benefits[0]
    labelled = shown.low.labelled
    columns = (
        facts.groups,
        facts.sizes,
        facts.effective_sizes,
        facts.unsupported_by_group,
        intervals_of(intervals, shown),
    )
    benefits = {
        group: made(
            interval, size, effective if labelled else float(size), share if labelled else 0.0
        )
        for group, size, effective, share, interval in zip(*columns, strict=True)
    }
    gap, gap_notes = _gap(intervals, measure.benefits)
    unmeasured = [str(group) for group, each in benefits.items() if not each.known]
    if unmeasured:
        gap_notes += (f"{objective.fairness.name} cannot be measured for {', '.join(unmeasured)}",)
    n, unsupported = facts.n, facts.unsupported
    return Evaluation(
        utility=made(
            intervals_of(intervals, measure.utility)[0], n, facts.effective_size, unsupported
        ),
        acceptance=made(intervals.of(measure.acceptance)[0], n, float(n)),
        benefits=benefits,
        benefit_gap=made(
            gap,
            n,
            facts.effective_size if labelled else float(n),
            unsupported if labelled else 0.0,
        ),
        fairness=objective.fairness.name,
        group_sizes=dict(zip(facts.groups, facts.sizes, strict=True)),
        group_effective_sizes=dict(zip(facts.groups, facts.effective_sizes.tolist(), strict=True)),
        n=n,
        effective_sample_size=facts.effective_size,
        notes=(*facts.notes, *rate_notes(measure.benefits, facts.groups), *gap_notes),
        confidence=intervals.confidence,
        method=intervals.name,
        unsupported=unsupported,
    )


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes estimates of intervals of one kind."""

    intervals: Intervals

    def __call__(
        self, found: Interval, n: int, effective: float, unsupported: float = 0.0
    ) -> Estimate:
        """Return the estimate."""
        return Estimate(
            found.value,
            found.low,
            found.high,
            found.standard_error,
            n,
            float(effective),
            self.intervals.confidence,
            self.intervals.name,
            unsupported,
        )


def _gap(intervals: Intervals, benefits: tuple[Range, ...]) -> tuple[Interval, tuple[str, ...]]:
    if benefits[0].low.n_groups == 1:
        return Interval(0.0, 0.0, 0.0, 0.0), ("one group, so there is no gap",)
    return gap_interval(intervals, benefits), ()
