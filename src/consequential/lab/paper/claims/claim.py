"""Claim: a sentence of the paper's results, how it is tested, and what the test found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.paper import truths
from consequential.lab.paper.results import median_interval
from consequential.lab.paper.studies import STUDIES

if TYPE_CHECKING:
    from consequential.lab.paper.results import Results
    from consequential.lab.simulation import Runs

Floats = NDArray[np.float64]
Names = Sequence[str]  # of a claim's studies, or of its worlds where it needs no study
Measure = Callable[["Results", str, Names], Iterable["Case"]]  # of results in one column
StrategyTest = Callable[[str, "Runs", str], "Effects"]  # of a world's name, its runs, a strategy

HOLDS, FAILS, CANNOT_TELL, NOT_RUN = "holds", "does not hold", "cannot tell", "not run"
ESTIMATORS = {
    "paper": "as printed",
    "authors": "as the authors' code does it",
    "corrected": "corrected",
    "exact": "exact sums",
}


@dataclass(frozen=True, slots=True)
class ClaimedEffect:
    """A number over runs with an interval, and the bound that a claim needs it to keep.

    Make it with `above`, `at_most`, or `shown` where there is no bound.
    """

    name: str
    low: float
    median: float
    high: float
    runs: int  # 0 for an exact number
    bound: float | None = None
    is_above: bool = True

    @property
    def verdict(self) -> str | None:
        """Whether the whole interval keeps the bound, none of it, or some."""
        if self.bound is None:
            return None
        if self.low > self.bound:
            return HOLDS if self.is_above else FAILS
        if self.high <= self.bound:
            return FAILS if self.is_above else HOLDS
        return CANNOT_TELL

    def __str__(self) -> str:
        text = f"{self.name}: {self.median:.4g}"
        if self.runs:
            text += f" [{self.low:.4g}, {self.high:.4g}]"
        if self.bound is not None:
            text += f", {'above' if self.is_above else 'at most'} {self.bound:.4g}?"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; JSON has no number that is not finite."""
        low, median, high = (
            number if np.isfinite(number) else None for number in (self.low, self.median, self.high)
        )
        found = {"name": self.name, "median": median, "interval": [low, high], "runs": self.runs}
        if self.bound is not None:
            found |= {"above" if self.is_above else "at most": self.bound, "verdict": self.verdict}
        return found


Effects = Sequence[ClaimedEffect]


def above(name: str, values: Floats | float, bound: float) -> ClaimedEffect:
    """Return an effect that must be above a bound."""
    return ClaimedEffect(
        name, *median_interval(values), np.size(values) * np.ndim(values), float(bound)
    )


def at_most(name: str, values: Floats | float, bound: float) -> ClaimedEffect:
    """Return an effect that must not be above a bound."""
    n_runs = np.size(values) * np.ndim(values)
    return ClaimedEffect(name, *median_interval(values), n_runs, float(bound), False)


def shown(name: str, values: Floats | float) -> ClaimedEffect:
    """Return a number that decides nothing."""
    return ClaimedEffect(name, *median_interval(values), np.size(values) * np.ndim(values))


class Case(NamedTuple):
    """One case of a claim, such as a strategy; cases may come in groups, such as worlds."""

    name: str
    effects: Effects
    group: str = ""

    @property
    def verdict(self) -> str | None:
        """Holds where all effects keep their bounds, fails where one does not."""
        found = {effect.verdict for effect in self.effects} - {None}
        return next((v for v in (FAILS, CANNOT_TELL, HOLDS) if v in found), None)

    @property
    def title(self) -> str:
        """Its group and name."""
        return ": ".join(filter(None, (self.group, self.name)))


@dataclass(frozen=True, slots=True)
class ColumnFinding:
    """What one column of results says, case by case."""

    cases: tuple[Case, ...]

    @property
    def verdict(self) -> str:
        """Whether the claim holds in all cases, in none, or in how many."""
        return verdict_of(case.verdict for case in self.cases)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        cases = {
            case.title: {
                "verdict": case.verdict,
                "effects": [effect.as_dict() for effect in case.effects],
            }
            for case in self.cases
        }
        return {"verdict": self.verdict, "cases": cases}


def verdict_of(verdicts: Iterable[str | None]) -> str:
    """Return the verdict over cases, with counts where they differ."""
    counts = Counter(verdict for verdict in verdicts if verdict is not None)
    if len(counts) <= 1:
        return next(iter(counts), NOT_RUN)
    shown_first = HOLDS if HOLDS in counts else FAILS
    text = f"{shown_first} in {counts[shown_first]} of {counts.total()}"
    return f"{text}, cannot tell in {counts[CANNOT_TELL]}" if CANNOT_TELL in counts else text


def kind_of(verdict: str) -> str:
    """Return what a verdict counts as: holds, partly, fails, unclear or not-run."""
    exact = {HOLDS: "holds", FAILS: "fails", CANNOT_TELL: "unclear", NOT_RUN: "not-run"}
    return exact.get(verdict, "partly" if verdict.startswith(HOLDS) else "fails")


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper, in our words, with the test that decides on it.

    `criterion` says which bound must be kept, and why that one; `rejects` is an outcome for which
    the test must fail; `note` is what a reader of the paper should know. A claim without studies
    needs no run; `worlds` are those it is about.
    """

    id: str
    section: str
    text: str
    criterion: str
    rejects: str
    studies: tuple[str, ...]
    measure: Measure
    worlds: tuple[str, ...] = ()
    note: str = ""

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
            column: ColumnFinding(tuple(self.measure(results, column, self.studies or self.worlds)))
            for column in self.columns
            if all(results.has(study, column) for study in self.studies)
        }
        return Checked(self, findings)


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim and what each column found."""

    claim: Claim
    findings: Mapping[str, ColumnFinding]

    def verdict(self, column: str) -> str:
        """Return the verdict of one column."""
        return self.findings[column].verdict if column in self.findings else NOT_RUN

    @property
    def overall(self) -> str:
        """The verdict over all columns together."""
        verdicts = {column: found.verdict for column, found in self.findings.items()}
        if len(set(verdicts.values())) <= 1:
            return next(iter(verdicts.values()), NOT_RUN)
        return "; ".join(f"{ESTIMATORS[column]}: {each}" for column, each in verdicts.items())

    @property
    def kind(self) -> str:
        """What it counts as: as its columns do, else partly if it holds anywhere."""
        kinds = {kind_of(found.verdict) for found in self.findings.values()} or {"not-run"}
        if len(kinds) == 1:
            return kinds.pop()
        return "partly" if kinds & {"holds", "partly"} else "fails"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        claim = self.claim
        return {
            "id": claim.id,
            "section": claim.section,
            "claim": claim.text,
            "criterion": claim.criterion,
            "rejects": claim.rejects,
            "note": claim.note,
            "verdict": self.overall,
            "kind": self.kind,
            "columns": {column: found.as_dict() for column, found in self.findings.items()},
            "command": claim.command,
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
                    yield Case(strategy, test(name, runs, strategy), where)

        return measure

    return decorated
