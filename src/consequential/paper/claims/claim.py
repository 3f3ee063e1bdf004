"""Claim: a sentence of the paper's results, how it is tested, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from consequential.paper.results import Results

Floats = NDArray[np.float64]
Case = tuple[str, str]  # what was looked at: a world or a group of cases, then one in it

HOLDS, FAILS, NOT_RUN = "holds", "does not hold", "not run"


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


@dataclass(slots=True)
class Finding:
    """What one column of results says: numbers, and whether each case bears the claim out."""

    numbers: list[Measured] = field(default_factory=list)
    cases: dict[Case, bool] = field(default_factory=dict)

    def add(self, case: Case, holds: bool, *numbers: Measured) -> None:
        """Record a case with the numbers it was judged by."""
        self.cases[case] = bool(holds)
        self.numbers += numbers

    @property
    def verdict(self) -> str:
        """Holds in all cases, only with some, or in none."""
        return verdict_of(self.cases)


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
            whole = len(held) == len(inside)
            parts.append((group if whole else f"{group} ({listed})") if group else listed)
    return f"holds only with {' and '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper, in our words, with the test that decides on it.

    `columns` is empty for claims that need no run. `criterion` says what must be measured for the
    claim to hold, and why that much.
    """

    id: str
    section: str
    text: str
    criterion: str
    studies: tuple[str, ...]
    measure: Callable[[Results, str], Finding]
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
        partly = [f"{ESTIMATORS[c]}: {v}" for c, v in verdicts.items() if v != FAILS]
        return "holds only with " + " / ".join(
            part.replace("holds only with ", "") for part in partly
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        claim = self.claim
        return {
            "id": claim.id,
            "section": claim.section,
            "claim": claim.text,
            "criterion": claim.criterion,
            "verdict": self.overall,
            "columns": {
                column: {
                    "verdict": found.verdict,
                    "cases": {
                        ": ".join(filter(None, case)): holds for case, holds in found.cases.items()
                    },
                    "numbers": [
                        {
                            "name": number.name,
                            "median": _plain(number.median),
                            "quartiles": [_plain(number.low), _plain(number.high)],
                            "runs": number.runs,
                        }
                        for number in found.numbers
                    ],
                }
                for column, found in self.findings.items()
            },
            "command": claim.command,
        }


def _plain(number: float) -> float | None:
    """Return a number as JSON knows it: not one that is not finite."""
    return number if np.isfinite(number) else None


ESTIMATORS = {
    "paper": "the estimators as printed",
    "corrected": "the corrected estimators",
    "exact": "exact sums",
}


def above(one: Floats, other: Floats) -> bool:
    """Whether one is clearly higher: its lower quartile lies above the other's upper quartile."""
    return bool(np.percentile(one, 25) > np.percentile(other, 75))


def better_of(candidates: Iterable[Floats]) -> Floats:
    """Return the values with the highest median."""
    return max(candidates, key=lambda values: float(np.median(values)))
