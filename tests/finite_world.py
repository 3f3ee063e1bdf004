"""A world small enough to go through every log it can produce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, product
from math import factorial, prod
from typing import NamedTuple

import numpy as np

import consequential as cq


class Kind(NamedTuple):
    """A kind of person: how many there are, what they are like, how often their label is 1."""

    mass: float
    feature: float
    group: str
    p_label: float
    propensity: float = 0.5  # of the policy that filled the log


class Row(NamedTuple):
    """What one row of a log shows: label None for a rejected person."""

    kind: Kind
    label: int | None

    def decided_by(self, rule: cq.DecisionRule) -> Row:
        """The same row with the propensity of this rule."""
        return self._replace(kind=self.kind._replace(propensity=propensity_of(rule)(self.kind)))


def propensity_of(rule: cq.DecisionRule) -> Callable[[Kind], float]:
    """A rule as a function of a kind."""
    return cache(lambda kind: float(rule.propensity([[kind.feature]])[0]))


@dataclass(frozen=True)
class FiniteWorld:
    """Kinds of people with known masses; rows of a log are independent."""

    kinds: tuple[Kind, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({kind.group for kind in self.kinds}))

    def rows(self, propensity: Callable[[Kind], float]) -> list[tuple[float, Row]]:
        """Everything a row can show under a policy, with its probability."""
        outcomes: list[tuple[float, Row]] = []
        for kind in self.kinds:
            p = propensity(kind)
            outcomes += [
                (kind.mass * p * kind.p_label, Row(kind, 1)),
                (kind.mass * p * (1 - kind.p_label), Row(kind, 0)),
                (kind.mass * (1 - p), Row(kind, None)),
            ]
        return [(chance, row) for chance, row in outcomes if chance > 0]

    def log(self, rows: Sequence[Row], **columns: object) -> cq.DecisionLog:
        return cq.DecisionLog.from_arrays(
            [[row.kind.feature] for row in rows],
            [int(row.label is not None) for row in rows],
            [row.kind.propensity for row in rows],
            [np.nan if row.label is None else row.label for row in rows],
            [row.kind.group for row in rows],
            groups=self.groups,
            **columns,
        )

    def logs(self, n: int) -> Iterator[tuple[float, cq.DecisionLog]]:
        """Every log of n rows, with its probability; logs that differ in order are one."""
        outcomes = self.rows(lambda kind: kind.propensity)
        for picks in combinations_with_replacement(range(len(outcomes)), n):
            orders = factorial(n) / prod(factorial(count) for count in Counter(picks).values())
            chance = orders * prod(outcomes[pick][0] for pick in picks)
            yield chance, self.log([outcomes[pick][1] for pick in picks])

    def logs_of(
        self, rules: Sequence[cq.DecisionRule], steps: Sequence[int]
    ) -> Iterator[tuple[float, cq.DecisionLog]]:
        """Every log whose i-th row was decided by the rule of its time step."""
        by_step = [self.rows(propensity_of(rule)) for rule in rules]
        policies = dict(enumerate(rules))
        for picks in product(*(by_step[step] for step in steps)):
            chance = prod(chance for chance, _ in picks)
            decided = zip((row for _, row in picks), (rules[step] for step in steps), strict=True)
            rows = [row.decided_by(rule) for row, rule in decided]
            yield chance, self.log(rows, time_step=list(steps), policies=policies)

    def mean(self, h: Callable[[Kind, int], float], group: str | None = None) -> float:
        """The mean of h(kind, label) over people, in all or within a group."""
        here = [kind for kind in self.kinds if group in (None, kind.group)]
        total = sum(kind.mass for kind in here)
        return (
            sum(
                kind.mass * (kind.p_label * h(kind, 1) + (1 - kind.p_label) * h(kind, 0))
                for kind in here
            )
            / total
        )


def conditional_mean(chances: Sequence[float], values: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over logs, of each entry over those logs where it is defined (not NaN)."""
    weight, table = np.array(chances), np.array(values, dtype=float)
    known = np.isfinite(table)
    weight = weight.reshape(-1, *[1] * (table.ndim - 1)) * known
    return (weight * np.where(known, table, 0.0)).sum(axis=0) / weight.sum(axis=0)
