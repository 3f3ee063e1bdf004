"""Earnings: what a rule earns in money, by group and against another rule."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from consequential.evaluation.compare import compare
from consequential.evaluation.cross_fitting import apply_rule, checked_log, objective_of
from consequential.evaluation.estimate import Estimate, Result
from consequential.evaluation.rates import Floats
from consequential.evaluation.weighted_log import BOOKED, WeightedLog
from consequential.log import DecisionLog
from consequential.policy import DecisionRule, Logged
from consequential.tables import text_table


@dataclass(frozen=True, slots=True)
class Earned(Result):
    """What some of the applicants bring, per application of anybody.

    Attributes
    ----------
    people
        How many they are.
    new, old, difference
        What they bring under the new rule, under the old one, and new less old. Divided by *all*
        applications, so that groups add up to everyone. NaN, within bounds, where next to no label
        is known of the people it is about.
    """

    people: int
    new: Estimate
    old: Estimate
    difference: Estimate

    def per(self, applications: float) -> tuple[Estimate, Estimate, Estimate]:
        """Return new, old and difference for so many applications."""
        new, old, difference = (
            each.scaled(applications) for each in (self.new, self.old, self.difference)
        )
        return new, old, difference


@dataclass(frozen=True, slots=True, repr=False)
class Earnings(Result):
    """What a rule earns and what another one does, each figure with its interval.

    Attributes
    ----------
    overall, by_group
        What everyone brings per application, and each group's part of it.
    unit
        What it is counted in, EUR say; may be empty.
    monthly
        How many applications a month has; None where that is not known.
    notes
        What to know before relying on the figures.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 4000, np.random.default_rng(3))
    >>> cq.statistics.earnings(
    ...     cq.Policy([1.5, 5.0]), log, gain=80, loss=20, unit="EUR", monthly=500)
    EUR                               new                   old         difference
    per application  13.75 [12.06, 15.44]  11.83 [10.74, 12.92]  1.92 [1.17, 2.75]
    per 1000         13753 [12063, 15444]  11830 [10736, 12924]  1923 [1167, 2750]
    per 1000: 0       10048 [8716, 11380]     8415 [7523, 9307]  1633 [1070, 2270]
    per 1000: 1         3705 [2630, 4781]     3415 [2740, 4090]    290 [-195, 847]
    per month           6877 [6031, 7722]     5915 [5368, 6462]    962 [583, 1375]
    per month: 0        5024 [4358, 5690]     4208 [3761, 4654]    816 [535, 1135]
    per month: 1        1853 [1315, 2390]     1708 [1370, 2045]     145 [-98, 423]
    """

    overall: Earned
    by_group: dict[Hashable, Earned]
    unit: str
    monthly: float | None
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[tuple[str, tuple[Estimate, Estimate, Estimate]]]:
        """New, old and difference per application, 1000 of them and month, then by group."""
        groups = self.by_group if len(self.by_group) > 1 else {}
        lines = [("per application", self.overall.per(1)), ("per 1000", self.overall.per(1000))]
        lines += [(f"per 1000: {name}", each.per(1000)) for name, each in groups.items()]
        if self.monthly is not None:
            lines.append(("per month", self.overall.per(self.monthly)))
            lines += [
                (f"per month: {name}", each.per(self.monthly)) for name, each in groups.items()
            ]
        return lines

    def __repr__(self) -> str:
        head: list[object] = [self.unit, "new", "old", "difference"]
        rows = [[name, *map(as_money, estimates)] for name, estimates in self.lines]
        return "\n".join(text_table([head, *rows], align="<>"))


def as_money(found: Estimate) -> str:
    """Return an amount and its interval, without cents where it is large."""
    if not found.known:
        return "not measurable"
    ends = [end for end in (found.value, found.low, found.high) if math.isfinite(end)]
    decimals = 2 if max(map(abs, ends)) < 100.0 else 0
    value, low, high = (f"{end:.{decimals}f}" for end in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def earnings(
    new: Any,
    log: DecisionLog,
    *,
    old: Any = None,
    gain: float | None = None,
    loss: float | None = None,
    unit: str = "",
    monthly: float | None = None,
    folds: int | None = None,
    seed: int = 0,
    **question: Any,
) -> Earnings:
    """Estimate what a rule earns in money, by group and against another rule.

    An accepted person with label 1 brings `gain`, one with label 0 takes `loss`, and a rejected
    one neither. Intervals are of what is expected; what single months bring varies more. Where the
    log has amounts, both are per unit of amount: a loan of 1000 at
    `gain=0.1` brings 100. The best rule is that for `cost = loss / (gain + loss)`.

    Parameters
    ----------
    new, log, folds, seed
        As in `compare`.
    old
        The rule to compare with; what the log did by default.
    gain, loss
        What label 1 brings and label 0 takes. Without them `cost` says it: label 1 brings
        `1 - cost` and label 0 takes `cost`, for amounts that are money already.
    unit
        What it is counted in, for the tables.
    monthly
        How many applications a month has, for sums per month.
    question
        `cost`, `weighting`, `confidence`, `method` and `floor` as in `compare`.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.1], [0.9], [0.2], [0.8]], [1] * 4, [1.0] * 4, [0, 1, 0, 1])
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-5.0, 10.0]), 0.5)
    >>> found = cq.statistics.earnings(rule, log, gain=10, loss=60).overall
    >>> [round(each.value, 2) for each in (found.new, found.old, found.difference)]
    [5.0, -25.0, 30.0]
    """
    checked_log(log)
    cost, worth = _worth(log, gain, loss, question.pop("cost", None))
    rules = [
        apply_rule(rule, log, folds=folds, seed=seed)
        for rule in (new, Logged() if old is None else old)
    ]
    rows = rules[0].log
    question["cost"] = cost
    objective = objective_of(rows, cost, None, question.get("weighting"))
    weighted = WeightedLog.of(objective, rows)
    found, unknown = [], []
    for name, inside in [("everyone", rows.group >= 0)] + [
        (str(group), rows.group == k) for k, group in enumerate(rows.groups)
    ]:
        new_, old_ = (np.where(inside, rule.propensity, 0.0) for rule in rules)
        compared = compare(
            _GivenPropensities(new_), _GivenPropensities(old_), rows, seed=seed, **question
        )
        brought = [
            # the middle of what unknown labels allow is no estimate
            replace(each.scaled(worth), value=math.nan)
            if weighted.lacks_labels(change)
            else each.scaled(worth)
            for each, change in zip(
                (compared.new.utility, compared.old.utility, compared.utility),
                (new_, old_, new_ - old_),
                strict=True,
            )
        ]
        if not all(each.known for each in brought):
            unknown.append(name)
        found.append(Earned(int(inside.sum()), *brought))
    notes = [note for rule in rules for note in rule.notes]
    if unknown:
        notes.append(
            f"what {', '.join(unknown)} would bring is not measurable where next to no label is "
            "known of the people accepted, or of those on whom the rules differ"
        )
    if BOOKED in compared.old.notes:
        notes.append(f"old rule: {BOOKED}")
    groups = dict(zip(rows.groups, found[1:], strict=True))
    return Earnings(found[0], groups, unit, monthly, tuple(dict.fromkeys(notes)))


def _worth(
    log: DecisionLog, gain: float | None, loss: float | None, cost: float | None
) -> tuple[float | None, float]:
    """Return the cost between 0 and 1, and what a unit of utility is in money."""
    if gain is None and loss is None:
        return cost, 1.0
    if gain is None or loss is None or not (gain > 0.0 and loss > 0.0):
        raise ValueError(
            f"give what label 1 brings and what label 0 takes, both above 0: gain={gain!r}, "
            f"loss={loss!r}"
        )
    if cost is not None or log.has_costs:
        raise ValueError(
            "gain and loss say what accepting costs, loss / (gain + loss): leave cost out, and for "
            "values, which are money already, gain and loss"
        )
    return loss / (gain + loss), gain + loss


@dataclass(frozen=True, slots=True, eq=False)
class _GivenPropensities(DecisionRule):
    """Propensities that were found already, for the rows of one log."""

    values: Floats

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        return self.values
