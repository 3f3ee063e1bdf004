"""Books: what closed days and frozen cohorts say about a loop, without a look at single rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import date, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from consequential.service import schema
from consequential.service.pages.groups import TWO_SIDED, Rate, shown_groups
from consequential.service.settings import LoopSettings

DAYS = 400  # that pages look back
_COLUMNS = ["deployment", "propensity", "decision", "label", "amount"]

Floats = NDArray[np.float64]


# --- days


@dataclass(frozen=True, slots=True)
class Day:
    """One closed day of a table."""

    date: str
    rows: int
    summary: Mapping[str, Any]


def closed_days(connection: Connection, loop: str, table: str) -> list[Day]:
    """Return the last closed days of a table, in order."""
    day = schema.day.c
    wanted = select(day.date, day.rows, day.summary).where(day.loop == loop, day.table == table)
    found = connection.execute(wanted.order_by(day.date.desc()).limit(DAYS)).all()
    return [Day(row.date, row.rows, _parsed(row.summary)) for row in reversed(found)]


@lru_cache(maxsize=4096)
def _parsed(summary: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(summary)
    return found


def last_days(days: Sequence[Day], number: int) -> list[Day]:
    """Return the days of the last stretch of the calendar, counted from the last closed day."""
    if not days:
        return []
    since = str(date.fromisoformat(days[-1].date) - timedelta(number - 1))
    return [day for day in days if day.date >= since]


# --- frozen cohorts


@dataclass(frozen=True, slots=True)
class DeploymentEarnings:
    """What people of one deployment, or of several, brought in, each applicant counted.

    `low` and `high` are sums with every missing label taken for 0 and for 1.
    """

    people: int
    total: float
    squares: float
    low: float
    high: float
    explored: float  # of which by people who were accepted by chance

    @property
    def mean(self) -> float:
        """Utility per applicant."""
        return self.total / self.people

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval, widened by what missing labels could be."""
        variance = max(0.0, self.squares / self.people - self.mean**2)
        margin = TWO_SIDED * (variance / self.people) ** 0.5
        return self.low / self.people - margin, self.high / self.people + margin

    @property
    def exploring_costs(self) -> float:
        """What 1000 applicants would bring in more if nobody were accepted by chance."""
        return -1000.0 * self.explored / self.people

    @classmethod
    def sum(cls, parts: Iterable[DeploymentEarnings]) -> DeploymentEarnings:
        """Add up parts."""
        return cls(*map(sum, zip(*map(astuple, parts), strict=True)))


@dataclass(frozen=True)
class Cohort:
    """A frozen period: its counts, and figures of its file if that is still there."""

    period: str
    version: int
    counts: dict[str, int]
    file: Path
    digest: str
    cost: float

    @cached_property
    def _figures(self) -> _Figures | None:
        try:
            return _figures(self.file, self.digest, self.cost)
        except FileNotFoundError:  # retention deleted it
            return None

    @property
    def earned(self) -> dict[int, DeploymentEarnings]:
        """What was earned, by the number of the deployment."""
        return {} if self._figures is None else self._figures.earned

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Acceptance by group; `shown_groups` leaves what may be shown."""
        return () if self._figures is None else self._figures.rates


def frozen_cohorts(
    connection: Connection, directory: Path, loop: str, settings: LoopSettings
) -> list[Cohort]:
    """Return the last version of every frozen period, in order."""
    table = schema.cohort
    wanted = select(table).where(table.c.loop == loop).order_by(table.c.period, table.c.version)
    last = {row["period"]: row for row in schema.rows(connection, wanted)}
    return [
        Cohort(
            period, row["version"], json.loads(row["counts"]), directory / row["file"],
            row["file_digest"], settings.cost,
        )
        for period, row in last.items()
    ]  # fmt: skip


def earned_by_deployment(cohorts: Sequence[Cohort]) -> dict[int, DeploymentEarnings]:
    """Return what was earned in cohorts, by the number of the deployment, in order."""
    parts: dict[int, list[DeploymentEarnings]] = defaultdict(list)
    for cohort in cohorts:
        for number, part in cohort.earned.items():
            parts[number].append(part)
    return {number: DeploymentEarnings.sum(parts[number]) for number in sorted(parts)}


def shown_rates(cohorts: Sequence[Cohort]) -> dict[str, list[Rate]]:
    """Return acceptance by cohort and group, of groups that may be shown."""
    return shown_groups({cohort.period: cohort.rates for cohort in cohorts})


@dataclass(frozen=True, slots=True)
class _Figures:
    earned: dict[int, DeploymentEarnings]
    rates: tuple[Rate, ...]


@lru_cache(maxsize=4096)
def _figures(file: Path, digest: str, cost: float) -> _Figures:
    """Read a cohort's file once; the digest tells its versions apart."""
    there = {*_COLUMNS, "sensitive"} & set(pq.read_schema(file).names)
    table = pq.read_table(file, columns=sorted(there), read_dictionary=["sensitive"])
    deployment, propensity, decision, label, amount = (
        table[name].to_numpy(zero_copy_only=False) for name in _COLUMNS
    )
    accepted, known, by_chance = decision == 1, np.isfinite(label), propensity < 1.0
    likely = np.full(len(label), cost)
    for kind in (by_chance, ~by_chance):  # their success rates differ much
        if (known & kind).any():
            likely[kind] = label[known & kind].mean()

    def worth(missing: float | Floats) -> Floats:
        gained: Floats = amount * (np.where(known, label, missing) - cost)
        return np.where(accepted, gained, 0.0)

    values = worth(likely)
    terms = (values, values**2, worth(0.0), worth(1.0), values * by_chance)
    numbers, own = np.unique(deployment, return_inverse=True)
    sums = np.array([np.bincount(own), *(np.bincount(own, term) for term in terms)]).T
    earned = {
        int(k): DeploymentEarnings(int(row[0]), *row[1:].tolist())
        for k, row in zip(numbers, sums, strict=True)
    }
    rates: tuple[Rate, ...] = ()
    if "sensitive" in there:
        groups = table["sensitive"].combine_chunks()
        own, n = groups.indices.to_numpy(), len(groups.dictionary)
        marks = (None, accepted, known, known & (label == 1))
        counts = np.array([np.bincount(own, mark, n) for mark in marks], dtype=int).T
        named = zip(groups.dictionary.to_pylist(), counts.tolist(), strict=True)
        rates = tuple(Rate(group, *row) for group, row in sorted(named))
    return _Figures(earned, rates)
