"""Claim: a sentence of the paper's results, how it is tested, and what the test found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from consequential.paper.results import Results

Floats = NDArray[np.float64]
Case = tuple[str, str]  # a group of cases, such as a world, and one case in it
Measure = Callable[["Results", str], "Finding"]  # of results in one column

HOLDS, FAILS, NOT_RUN = "holds", "does not hold", "not run"
ESTIMATORS = {
    "paper": "the estimators as printed",
    "corrected": "the corrected estimators",
    "exact": "exact sums",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A number with its quartiles over runs; exact numbers have one value."""

    name: str
    low: float
    median: float
    high: float
    runs: int

    @classmethod
    def of(cls, name: str, values: Floats | float) -> Measured:
        """Summarise values over runs."""
        each = np.atleast_1d(np.asarray(values, dtype=np.float64))
        low, median, high = np.percentile(each, [25, 50, 75])
        return cls(name, float(low), float(median), float(high), len(each))

    def __str__(self) -> str:
        if self.runs == 1:
            return f"{self.name}: {self.median:.4g}"
        return f"{self.name}: {self.median:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; JSON has no number that is not finite."""
        low, median, high = (
            number if np.isfinite(number) else None for number in (self.low, self.median, self.high)
        )
        return {"name": self.name, "median": median, "quartiles": [low, high], "runs": self.runs}


@dataclass(slots=True)
class Finding:
    """What one column of results says: numbers, and in which cases the claim holds."""

    numbers: list[Measured] = field(default_factory=list)
    cases: dict[Case, bool] = field(default_factory=dict)

    def add(
        self, case: str, holds: bool, numbers: Mapping[str, Floats | float], group: str = ""
    ) -> None:
        """Record whether the claim holds in a case, with the numbers that decided, by name."""
        self.cases[group, case] = bool(holds)
        self.measure(numbers)

    def measure(self, numbers: Mapping[str, Floats | float]) -> None:
        """Record numbers, by name."""
        self.numbers += [Measured.of(name, values) for name, values in numbers.items()]

    @property
    def verdict(self) -> str:
        """Whether the claim holds in all cases, in none, or in which."""
        return verdict_of(self.cases)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        cases = {": ".join(filter(None, case)): holds for case, holds in self.cases.items()}
        numbers = [number.as_dict() for number in self.numbers]
        return {"verdict": self.verdict, "cases": cases, "numbers": numbers}


def verdict_of(cases: Mapping[Case, bool]) -> str:
    """Return the verdict over cases, naming those that hold where not all do."""
    if not cases:
        return NOT_RUN
    if all(cases.values()):
        return HOLDS
    if not any(cases.values()):
        return FAILS
    parts = []
    for group in dict.fromkeys(group for group, _ in cases):
        inside = {one: holds for (g, one), holds in cases.items() if g == group}
        held = [one for one, holds in inside.items() if holds]
        if held:
            listed = "; ".join(held)
            every = len(held) == len(inside)
            parts.append((group if every else f"{group} ({listed})") if group else listed)
    return f"holds only with {' and '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper, in our words, with the test that decides on it.

    `studies` is empty for claims that need no run. `criterion` says what must be measured for the
    claim to hold, and why that much.
    """

    id: str
    section: str
    text: str
    criterion: str
    studies: tuple[str, ...]
    measure: Measure
    columns: tuple[str, ...] = ("paper", "corrected")

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return " ".join(["consequential reproduce", *(self.studies or ("settings",))])

    def check(self, results: Results) -> Checked:
        """Measure the claim in every column that there are results of."""
        findings = {
            column: self.measure(results, column)
            for column in self.columns
            if all(results.has(study, column) for study in self.studies)
        }
        return Checked(self, findings)


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim and what each column found."""

    claim: Claim
    findings: dict[str, Finding]

    def verdict(self, column: str) -> str:
        """Return the verdict of one column."""
        return self.findings[column].verdict if column in self.findings else NOT_RUN

    @property
    def overall(self) -> str:
        """The verdict over all columns together."""
        verdicts = {column: found.verdict for column, found in self.findings.items()}
        if len(set(verdicts.values())) <= 1:
            return next(iter(verdicts.values()), NOT_RUN)
        holding = [column for column, verdict in verdicts.items() if verdict == HOLDS]
        if holding:
            return f"holds only with {' and '.join(ESTIMATORS[column] for column in holding)}"
        partly = [
            f"{ESTIMATORS[column]}: {verdict.removeprefix('holds only with ')}"
            for column, verdict in verdicts.items()
            if verdict != FAILS
        ]
        return f"holds only with {' / '.join(partly)}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "id": self.claim.id,
            "section": self.claim.section,
            "claim": self.claim.text,
            "criterion": self.claim.criterion,
            "verdict": self.overall,
            "columns": {column: found.as_dict() for column, found in self.findings.items()},
            "command": self.claim.command,
        }


def lower(values: Floats) -> float:
    """Return the lower quartile."""
    return float(np.percentile(values, 25))


def upper(values: Floats) -> float:
    """Return the upper quartile."""
    return float(np.percentile(values, 75))


def above(one: Floats, other: Floats) -> bool:
    """Whether one is clearly higher: its lower quartile lies above the other's upper quartile."""
    return lower(one) > upper(other)
