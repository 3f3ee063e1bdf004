"""Evaluate: what a rule would have been worth, from the log of another."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from consequential.evaluation.any_time import TUNED_FOR, AnyTime, mean_sequence
from consequential.evaluation.contrasts import normal_quantile
from consequential.evaluation.cross_fitting import (
    CrossFitted,
    apply_rule,
    as_rule,
    checked_log,
    needs_folds,
    objective_of,
    warn_if_learned_from,
)
from consequential.evaluation.estimate import Estimate, Interval, Result
from consequential.evaluation.intervals import Intervals, Normal
from consequential.evaluation.out_of_core import measured
from consequential.evaluation.rates import Floats
from consequential.evaluation.reach import Extremes, known_floor
from consequential.evaluation.weighted_log import Measurement, WeightedLog, rate_notes
from consequential.log import DecisionLog, LogScan
from consequential.objective.fairness import Fairness
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.shares import checked_share

Method = Literal["normal", "any_time"]

METHODS: dict[str, type[Intervals]] = {method.name: method for method in (Normal, AnyTime)}


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(Result):
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
        Applicants by group, and how many equally weighted people their labels stand for.
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

    @property
    def furthest_apart(self) -> tuple[Hashable, Hashable] | None:
        """The two groups that the gap is between, the one with the larger benefit first.

        None where the gap is that of another benefit than `benefits` has, or of one group.
        """
        known = {group: each.value for group, each in self.benefits.items() if each.known}
        if len(known) < 2:
            return None
        most, least = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
        between = known[most] - known[least]
        return (most, least) if abs(between - abs(self.benefit_gap.value)) < 1e-9 else None

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
    """Return the line that says, before any figure, that some are no more than bounds."""
    if unsupported <= 0.0:
        return []
    return [f"  BOUNDS ONLY: no label stands for {unsupported:.1%} of the people it accepts"]


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
        What accepting costs; not needed where the log has a cost for each row, or values.
    fairness
        The notion whose benefits are reported, or its name.
    weighting
        How accepted rows stand in for the rejected; inverse propensity by default.
    confidence
        How often the intervals are to cover.
    method
        `"normal"`: from influence values, for logs of thousands. `"any_time"`: right at any size
        and however often one looks while the log grows, and several times wider.
    folds
        Evaluate each row by a policy learned from the other folds; needs a learner.
    floor
        For `"any_time"`: the smallest propensity anybody can have had. By
        default that of the log's policies, or the smallest one logged.
    seed
        Of whatever is random: folds, simultaneous bounds.

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
    objective = objective_of(log, cost, fairness, weighting)
    kind, level = checked_method(method), checked_share("the confidence", confidence)
    (measurement,) = measure_rules(
        (rule,), log, objective, kind, folds=folds, floor=floor, seed=seed
    )
    return evaluation(objective, measurement, kind(level, seed))


def checked_method(method: Any) -> type[Intervals]:
    """Return the intervals of a name, or list the names there are."""
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    return METHODS[method]


def measure_rules(
    rules: tuple[Any, ...],
    log: DecisionLog | LogScan,
    objective: Objective,
    kind: type[Intervals],
    *,
    folds: int | None = None,
    floor: float | None = None,
    seed: int = 0,
) -> list[Measurement]:
    """Measure one rule, or two and then their difference, for intervals of a kind."""
    paired = len(rules) == 2
    if isinstance(log, LogScan):
        if folds is not None:
            raise ValueError(
                "folds= needs a log in memory: learn from one scan and evaluate on another, or on "
                "what scan.split left out"
            )
        if kind.needs_reach:
            raise ValueError(
                f"method {kind.name!r} needs all rows at once; a scan has sums, which give "
                'method="normal"'
            )
        known = tuple(map(as_rule, rules))
        for rule in known:
            warn_if_learned_from(rule, (log,), "(sample, rest = scan.split(n))", stacklevel=4)
        return measured(log, objective, known, paired=paired)
    notes: tuple[str, ...] = ()
    extremes = None
    if kind.needs_reach:
        lowest, notes = known_floor(log.settled(), floor)
        extremes = Extremes.of(objective.weighting, lowest)
    elif floor is not None:
        raise ValueError('floor= is for method="any_time" only')
    # map is no frame of its own, so that warnings point to the caller of evaluate or compare
    apply = partial(apply_rule, log=log, folds=folds, seed=seed, stacklevel=4)
    applied = list(map(apply, rules))
    weighted = WeightedLog.of(objective, applied[0].log, extremes)
    found = [weighted.measure(each.propensity, *each.notes, *notes) for each in applied]
    if paired:
        found.append(weighted.measure(applied[0].propensity, versus=applied[1].propensity))
    return found


def evaluation(objective: Objective, measurement: Measurement, intervals: Intervals) -> Evaluation:
    """Put intervals around everything that was measured."""
    assert objective.fairness is not None
    benefits, weights, groups = measurement.benefits, measurement.weights, measurement.groups
    by_group = measurement.by_group(intervals, benefits[0])
    notes = [*measurement.notes, *rate_notes(benefits, groups)]
    gap = Interval(0.0, 0.0, 0.0, 0.0)
    if len(groups) == 1:
        notes.append("one group, so there is no gap")
    else:
        gap = intervals.gap(benefits)
    unmeasured = [str(group) for group, each in by_group.items() if not each.known]
    if unmeasured:
        notes.append(f"{objective.fairness.name} cannot be measured for {', '.join(unmeasured)}")
    (utility,), (acceptance,) = map(intervals.of, (measurement.utility, measurement.acceptance))
    return Evaluation(
        utility=measurement.estimate(intervals, utility, labelled=True),
        acceptance=measurement.estimate(intervals, acceptance, labelled=False),
        benefits=by_group,
        benefit_gap=measurement.estimate(intervals, gap, labelled=benefits[0].labelled),
        fairness=objective.fairness.name,
        group_sizes=dict(zip(groups, measurement.sizes, strict=True)),
        group_effective_sizes=dict(zip(groups, weights.effective_sizes.tolist(), strict=True)),
        n=measurement.n,
        effective_sample_size=weights.effective_size,
        notes=tuple(notes),
        confidence=intervals.confidence,
        method=intervals.name,
        unsupported=weights.unsupported_share,
    )


def deployed_gap(
    crossed: CrossFitted,
    log: DecisionLog,
    propensity: Floats,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Estimate the gap of the one policy learned from all rows.

    The cross-fitted gap is that of the average policy learned from such a log. The policy that is
    deployed is one of them, and may be far from the average: the difference between its gap on all
    rows and the mean of the folds' policies there is added. All of these were learned from rows
    among them, so that what a gap gains by that all but cancels. Another log would have taught
    another policy. How far such policies spread is estimated by the jackknife that leaves out a
    fold at a time, `(K - 1) / K sum_k (g_k - mean g)^2` with `g_k` the gap of fold k's policy on
    all rows, and the interval is widened by it.

    Parameters
    ----------
    crossed
        The learner's policies, from `cross_fitted`.
    propensity
        The deployed policy's propensity for each row.
    log, cost, fairness, weighting, confidence, seed
        As in `evaluate`.
    """
    objective = objective_of(log, cost, fairness, weighting)
    weighted = WeightedLog.of(objective, log.settled())
    intervals = Normal(confidence, seed)

    def gap_of(propensity: Floats) -> Interval:
        return intervals.gap(weighted.benefits(propensity))

    gap, weights = gap_of(crossed.values), weighted.label_weights(crossed.values)
    by_fold = [gap_of(each).value for each in crossed.by_fold]
    spread = ((crossed.folds - 1.0) * float(np.var(by_fold))) ** 0.5
    widened = gap.widened(spread, normal_quantile(confidence))
    apart = gap_of(propensity).value - float(np.mean(by_fold))
    signed = len(log.groups) == 2 and len(weighted.benefits(crossed.values)) == 1
    if not signed:
        apart = max(apart, -widened.value)
    low, value, high = (end + apart for end in (widened.low, widened.value, widened.high))
    widened = replace(widened, value=value, low=low if signed else max(low, 0.0), high=high)
    found = intervals.estimate(
        widened, len(weighted.log), weights.effective_size, weights.unsupported_share
    )
    return replace(found, method="normal, widened by the spread over folds")


def utility_sequence(
    rule: Any,
    log: DecisionLog,
    *,
    cost: float | None = None,
    versus: Any = None,
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    floor: float | None = None,
    tuned_for: int = TUNED_FOR,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of a rule's utility after each decision of a log.

    All bounds hold at once with the stated confidence: one may look after every decision, and
    stop when satisfied. An ordinary interval looked at again and again is wrong far more often
    than it says. Decisions count in the order of the log; their rule may have been learned from
    earlier ones.

    Parameters
    ----------
    rule, log, cost, weighting, confidence, floor
        As in `evaluate`.
    versus
        Another rule, `Logged()` say: bounds are then of the difference of utilities.
    tuned_for
        The number of decisions at which bounds are to be narrowest. Choose it before looking.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 9000, np.random.default_rng(0))
    >>> lower, upper = cq.statistics.utility_sequence(
    ...     cq.Policy([1.5, 5.0]), log, cost=world.cost, versus=cq.Logged())
    >>> int(np.argmax(lower > 0))  # the first decision after which the policy is known better
    514
    """
    checked_log(log)
    objective = objective_of(log, cost, None, weighting)
    rules = (rule,) if versus is None else (rule, versus)
    found = measure_rules(rules, log, objective, AnyTime, floor=floor)[-1].utility
    sides: tuple[Any, Any] = found.low, found.high
    (lower, _), (_, upper) = (
        mean_sequence(
            ratios.numerator,
            **ratios.reach.at(0.0)._asdict(),
            confidence=confidence,
            tuned_for=tuned_for,
        )
        for ratios in sides
    )
    return lower, upper
