"""Claim: a sentence of the paper's results, how it is tested, and what the test found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.studies import STUDIES

if TYPE_CHECKING:
    from consequential.paper.results import Results
    from consequential.simulation import Runs

Floats = NDArray[np.float64]
Verdict = tuple[bool | np.bool_, Mapping[str, "Floats | float"]]  # and the numbers that decide it
StrategyTest = Callable[[str, "Runs", str], Verdict]  # of a world's name, its runs and a strategy
Names = Sequence[str]  # of a claim's studies, or of its worlds where it needs no study
Measure = Callable[["Results", str, Names], Iterable["Case"]]  # of results in one column

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


class Case(NamedTuple):
    """Whether a claim holds in one case, and the numbers that decide it, by name.

    Cases may come in groups, such as worlds. Without a verdict, numbers are only shown.
    """

    name: str
    holds: bool | np.bool_ | None
    numbers: Mapping[str, Floats | float] = {}
    group: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one column of results says: numbers, and in which cases the claim holds."""

    numbers: list[Measured]
    cases: dict[tuple[str, str], bool]  # by group and name

    @classmethod
    def of(cls, cases: Iterable[Case]) -> Finding:
        """Collect the cases of a claim."""
        every = list(cases)
        return cls(
            [Measured.of(name, each) for case in every for name, each in case.numbers.items()],
            {(c.group, c.name): bool(c.holds) for c in every if c.holds is not None},
        )

    @property
    def verdict(self) -> str:
        """Whether the claim holds in all cases, in none, or in which."""
        return verdict_of(self.cases)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        cases = {": ".join(filter(None, case)): holds for case, holds in self.cases.items()}
        numbers = [number.as_dict() for number in self.numbers]
        return {"verdict": self.verdict, "cases": cases, "numbers": numbers}


def verdict_of(cases: Mapping[tuple[str, str], bool]) -> str:
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

    `criterion` says what must be measured for the claim to hold, and why that much. A claim
    without studies needs no run; `worlds` are those it is about.
    """

    id: str
    section: str
    text: str
    criterion: str
    studies: tuple[str, ...]
    measure: Measure
    worlds: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of results that it is tested on."""
        return STUDIES[self.studies[0]].columns if self.studies else ("exact",)

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return " ".join(["consequential reproduce", *(self.studies or ("settings",))])

    def check(self, results: Results) -> Checked:
        """Measure the claim in every column that there are results of."""
        findings = {
            column: Finding.of(self.measure(results, column, self.studies or self.worlds))
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


def on_runs(test: Callable[[Runs], Iterable[Case]]) -> Measure:
    """Turn a test of one study's runs into one of results."""
    return lambda results, column, names: test(results.runs(names[0], column))


def each_strategy(
    included: Callable[[Runs], Sequence[str]] = lambda runs: runs.strategies,
) -> Callable[[StrategyTest], Measure]:
    """Turn a test of one strategy in one world into one of results; a world is a group of cases."""

    def decorated(test: StrategyTest) -> Measure:
        def measure(results: Results, column: str, names: Names) -> Iterator[Case]:
            for study in names:
                name, runs = study.rpartition("-")[0], results.runs(study, column)
                where = truths.where(name) if len(names) > 1 else ""
                for strategy in included(runs):
                    holds, numbers = test(name, runs, strategy)
                    about = f"{where}, {strategy}" if where else strategy
                    named = {f"{about}: {text}": values for text, values in numbers.items()}
                    yield Case(strategy, holds, named, where)

        return measure

    return decorated


def lower(values: Floats) -> float:
    """Return the lower quartile."""
    return float(np.percentile(values, 25))


def upper(values: Floats) -> float:
    """Return the upper quartile."""
    return float(np.percentile(values, 75))


def above(one: Floats, other: Floats) -> bool:
    """Whether one is clearly higher: its lower quartile lies above the other's upper quartile."""
    return lower(one) > upper(other)
