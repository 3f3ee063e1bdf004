"""Groups: how many people of each were accepted, and which groups may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from consequential.service.exports import UNKNOWN
from consequential.service.gate import FEWEST

TWO_SIDED, _ONE_SIDED = 1.959964, 1.644854  # normal quantiles of 95 % bounds


@dataclass(frozen=True, slots=True)
class Rate:
    """How many people of a group were accepted, and of those with a label how many succeeded."""

    group: str
    people: int
    accepted: int
    labels: int
    successes: int

    @property
    def share(self) -> float:
        """The share of the group that was accepted."""
        return self.accepted / self.people

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval of the share (Wilson)."""
        n, p, z = self.people, self.share, TWO_SIDED
        centre, spread = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
        return (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)

    @property
    def success(self) -> Rate | None:
        """The same of accepted people whose label is known: how many of them succeeded."""
        if self.labels < FEWEST:
            return None
        return Rate(self.group, self.labels, self.successes, 0, 0)


@dataclass(frozen=True, slots=True)
class Gap:
    """The largest difference between groups' acceptance, and what it is at most with 95 %."""

    value: float
    at_most: float

    @classmethod
    def of(cls, rates: Sequence[Rate]) -> Gap | None:
        """Compare all pairs of groups; None with fewer than two."""
        known = [rate for rate in rates if rate.group != UNKNOWN]
        if len(known) < 2:
            return None
        pairs = [(a, b) for a in known for b in known if a is not b]
        bounds = [
            a.share - b.share
            + _ONE_SIDED * sum(r.share * (1 - r.share) / r.people for r in (a, b)) ** 0.5
            for a, b in pairs
        ]  # fmt: skip
        return cls(max(a.share - b.share for a, b in pairs), min(1.0, max(bounds)))


def shown_groups(cohorts: Mapping[str, Iterable[Rate]]) -> dict[str, list[Rate]]:
    """Return rates by cohort so that no group of fewer than 10 people can be told from them.

    Groups that are too small in some cohort are put together in all of them, if need be with one
    more: with people whose group is unknown, where these are many, else with the smallest group.
    So everybody is in the rates, and subtracting some from others reveals nothing.

    Examples
    --------
    >>> from consequential.service.pages.groups import Rate, shown_groups
    >>> sizes = {"male": 500, "female": 400, "other": 3}
    >>> found = shown_groups({"2026-03": [Rate(g, n, n // 2, 0, 0) for g, n in sizes.items()]})
    >>> [(rate.group, rate.people) for rate in found["2026-03"]]
    [('female, other', 403), ('male', 500)]
    """
    people = {period: {rate.group: rate for rate in rates} for period, rates in cohorts.items()}
    totals: dict[str, int] = {}
    for rates in people.values():
        for rate in rates.values():
            totals[rate.group] = totals.get(rate.group, 0) + rate.people

    def is_small(*groups: str) -> bool:
        sizes = [
            sum(r.people for g, r in rates.items() if g in groups) for rates in people.values()
        ]
        return any(0 < size < FEWEST for size in sizes)

    pool = {group for group in totals if is_small(group)}
    name = ", ".join(sorted(pool))
    while pool < totals.keys() and is_small(*pool):
        rest = totals.keys() - pool
        pool.add(UNKNOWN if UNKNOWN in rest else min(rest, key=lambda group: totals[group]))
        name = UNKNOWN if UNKNOWN in rest else ", ".join(sorted(pool))
    return {
        period: _with_pool(rates.values(), pool, name)
        for period, rates in people.items()
        if not (pool == totals.keys() and is_small(*pool))
    }


def _with_pool(rates: Iterable[Rate], pool: set[str], name: str) -> list[Rate]:
    rates = list(rates)
    inside = [rate for rate in rates if rate.group in pool]
    shown = [rate for rate in rates if rate.group not in pool]
    if inside:
        shown.append(_together(name, inside))
    return sorted(shown, key=lambda rate: rate.group)


def _together(group: str, rates: Iterable[Rate]) -> Rate:
    """Return one rate for several."""
    counts = [(r.people, r.accepted, r.labels, r.successes) for r in rates]
    return Rate(group, *map(sum, zip(*counts, strict=True)))


def summed(cohorts: Mapping[str, Iterable[Rate]]) -> list[Rate]:
    """Add up the rates of cohorts by group."""
    found: dict[str, list[Rate]] = {}
    for rates in cohorts.values():
        for rate in rates:
            found.setdefault(rate.group, []).append(rate)
    return [_together(group, rates) for group, rates in sorted(found.items())]
