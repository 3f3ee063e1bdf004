"""Swap set: who was accepted and would no longer be, and the reverse, by group."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.cross_fitting import AppliedRule, apply_rule, checked_log, needs_folds
from consequential.evaluation.estimate import Estimate, Result
from consequential.evaluation.intervals import Normal
from consequential.evaluation.rates import Floats
from consequential.evaluation.ratios import Range, Ratios
from consequential.log import DecisionLog
from consequential.shares import checked_share
from consequential.tables import text_table


@dataclass(frozen=True, slots=True)
class Swaps(Result):
    """How many of some people change sides when another rule decides.

    Attributes
    ----------
    people, accepted
        How many there are, and how many of them the log accepted.
    leaving
        How many were accepted and are expected not to be.
    entering
        How many were rejected and are expected to be accepted.
    accepted_now
        How many are expected to be accepted.
    by_chance
        How many accepted people would be expected not to be if the past rule itself decided again:
        what leaves by lot, and by no change of rule.
    """

    people: int
    accepted: int
    leaving: Estimate
    entering: Estimate
    accepted_now: Estimate
    by_chance: float


@dataclass(frozen=True, slots=True, repr=False)
class SwapSet(Result):
    """Who changes sides: of everyone, and of each group.

    Attributes
    ----------
    overall, by_group
        The `Swaps` of everyone, and of each group.
    notes
        What to know before relying on the figures.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 4000, np.random.default_rng(3))
    >>> cq.statistics.swap_set(cq.Policy([1.5, 5.0]), log)
              people  accepted       leaving           entering       accepted now
    everyone    4000      1414  96 [87, 105]  1449 [1419, 1479]  2767 [2729, 2805]
    0           2001       857   51 [45, 57]     703 [683, 722]  1509 [1484, 1534]
    1           1999       557   45 [39, 51]     746 [724, 768]  1258 [1230, 1286]
    """

    overall: Swaps
    by_group: dict[Hashable, Swaps]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        rows: list[list[object]] = [
            ["", "people", "accepted", "leaving", "entering", "accepted now"]
        ]
        named = {"everyone": self.overall, **(self.by_group if len(self.by_group) > 1 else {})}
        for name, each in named.items():
            estimates = (each.leaving, each.entering, each.accepted_now)
            rows.append([name, each.people, each.accepted, *map(as_count, estimates)])
        return "\n".join(text_table(rows, align="<>"))


def as_count(found: Estimate) -> str:
    """Return an estimated number of people and its interval, in whole people."""
    if not found.known:
        return "nobody"
    low, high = max(found.low, 0.0), min(found.high, float(found.n))
    return f"{found.value:.0f} [{low:.0f}, {high:.0f}]"


def swap_set(
    rule: Any,
    log: DecisionLog,
    *,
    confidence: float = 0.95,
    folds: int | None = None,
    seed: int = 0,
) -> SwapSet:
    """Count who changes sides when a rule decides instead of the one that made the log.

    *Before* is what the log decided, person by person, so it can be counted in the file. *Now* is
    what the rule is expected to decide: it accepts each person with a probability. Intervals are
    for as many other people like these, as many of them accepted before. No label is needed.

    Parameters
    ----------
    rule, log, confidence, folds, seed
        As in `evaluate`.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.1], [0.9], [0.2], [0.8]], [1, 1, 0, 0], [0.5] * 4, [0, 1, None, None])
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-5.0, 10.0]), 0.5)
    >>> found = cq.statistics.swap_set(rule, log).overall
    >>> found.leaving.value, found.entering.value, found.accepted_now.value, found.by_chance
    (1.0, 1.0, 2.0, 1.0)
    """
    checked_log(log)
    needs_folds((rule,), folds)
    intervals = Normal(checked_share("the confidence", confidence), seed)
    applied = apply_rule(rule, log, folds=folds, seed=seed)
    rows = applied.log
    everyone = np.zeros(len(rows), dtype=np.intp)
    (overall,) = _swaps(applied, everyone, 1, intervals)
    by_group = _swaps(applied, rows.group, len(rows.groups), intervals)
    return SwapSet(overall, dict(zip(rows.groups, by_group, strict=True)), applied.notes)


def _swaps(
    applied: AppliedRule, group: NDArray[np.intp], n_groups: int, intervals: Normal
) -> list[Swaps]:
    before, now = applied.log.decision.astype(np.float64), applied.accepts
    sizes = np.bincount(group, minlength=n_groups).tolist()

    def counts(changed: Floats, whom: Floats) -> list[Estimate]:
        shares = Ratios(changed * whom, whom, group, n_groups)
        people = np.bincount(group, whom, n_groups).astype(np.intp).tolist()
        pairs = zip(intervals.of(Range.exactly(shares)), people, strict=True)
        return [intervals.estimate(share, n, n).scaled(n) for share, n in pairs]

    columns = zip(
        sizes,
        np.bincount(group, before, n_groups).astype(np.intp).tolist(),
        counts(1.0 - now, before),
        counts(now, 1.0 - before),
        counts(now, np.ones(len(now))),
        np.bincount(group, before * (1.0 - applied.log.propensity), n_groups).tolist(),
        strict=True,
    )
    return [Swaps(*each) for each in columns]
