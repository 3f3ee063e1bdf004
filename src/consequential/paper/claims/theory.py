"""Tests of the theorems, by exact sums, and of the lending example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import propositions, truths
from consequential.paper.claims.claim import Case, Measure, Names, lower
from consequential.paper.lending_example import SCORINGS

if TYPE_CHECKING:
    from consequential.paper.results import Results

Floats = NDArray[np.float64]
Bands = tuple[tuple[int, int], ...]  # of thresholds

_PENALTIES = (0.0, 1.0, 10.0)
_STARTS = {"first": 0.24, "lending": 700.0}
_HARSH: Bands = ((650, 690), (700, 740), (750, 800))
_LENIENT: Bands = ((500, 540), (550, 600))
_USELESS, _NEAR = 0.1, 0.95  # of the best utility
_FAIR, _VISIBLE = 0.05, 0.005


def limitation(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test Proposition 1 in two worlds."""
    for name, start in _STARTS.items():
        where = truths.where(name)
        for penalty in _PENALTIES:
            found = propositions.limitation(truths.score_world(name), start, penalty)
            case = f"λ = {penalty:g}"
            numbers = {
                f"{where}, {case}: seen, of a ceiling of {found.ceiling:.4f}": found.seen,
                f"{where}, {case}: true, of a best of {found.best:.4f}": found.true,
            }
            yield Case(case, found.holds, numbers, where)


def impossibility(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test Proposition 2, with its bound as proved and as printed."""
    strictly = []
    for text, found in (
        ("accidents that lead to the optimum", propositions.lucky((0.12, 0.02, 0.02, 0.08))),
        ("a learner that goes down a ladder", propositions.ladder(40, 6)),
        ("no accident at all", propositions.lucky((0.0,) * 6)),
    ):
        numbers = {
            f"{text}: chance to reach the optimum": found.reached,
            f"{text}: bound": found.bound,
        }
        yield Case(text, found.holds, numbers, '"at least" in the bound')
        strictly.append(found.holds_as_printed)
    yield Case("", all(strictly), group='the strict "more than" as printed')


def error_based(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test the corollary with a perceptron."""
    found = propositions.error_based()
    numbers = {
        "data that move the faultless rule": found.moved,
        "data that move a rule which errs": found.moved_with_errors,
        f"its utility, of a best of {found.best:.3f}": found.utility,
        "rules right about everybody, as the text asks, and not optimal": (
            found.faultless_yet_suboptimal
        ),
    }
    yield Case("no error among the accepted", found.holds, numbers)


def supremum(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test Proposition 3 in both settings."""
    for name, where in truths.SETTINGS.items():
        for penalty in _PENALTIES[:2]:
            found = propositions.supremum(truths.setting(name), penalty)
            case = f"λ = {penalty:g}"
            numbers = {
                f"{where}, {case}: distance at n = {n}": distance
                for n, distance in zip(found.n, found.distances, strict=True)
            }
            yield Case(case, found.holds, numbers, where)


def identity(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test that reweighted labels tell the utility, by what they are divided by."""
    for name, where in truths.SETTINGS.items():
        found = propositions.supremum(truths.setting(name), 0.0)
        for group, words, error in (
            ("division by all applicants", "divided by applicants", found.identity),
            ("division by the accepted, as printed", "as printed", found.as_printed),
        ):
            yield Case(where, error < 1e-9, {f"{where}: largest error, {words}": error}, group)


def unlimited_data(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test that lending to people above a threshold teaches little, however many they are."""
    world, best = truths.score_world("lending"), truths.optimum("lending").utility
    for start in (650.0, 700.0, 750.0, 780.0):
        utility, case = propositions.unlimited_data(world, start), f"ξ = {start:g}"
        numbers = {f"{case}: utility, of a best of {best:.4f}": utility}
        yield Case(case, utility <= 0.5 * best, numbers)


def _in_bands(
    bands: Bands, metric: str, test: Callable[[Floats, float], bool | np.bool_]
) -> Measure:
    """Return a test of a metric in bands of thresholds, given its values and the best utility."""

    def measure(results: Results, column: str, names: Names) -> Iterator[Case]:
        best = truths.optimum("lending").utility
        words = "size of the gap" if metric == "gap_size" else f"utility, of {best:.4f}"
        for scoring in SCORINGS:
            table, group = results.lending(scoring), f"ridge by {scoring}"
            for low, high in bands:
                values = getattr(table, metric)[
                    (low <= table.threshold) & (table.threshold <= high)
                ]
                if len(values):
                    case = f"ξ {low} to {high}"
                    numbers = {f"{group}, {case}: {words}": values}
                    yield Case(case, test(values, best), numbers, group)

    return measure


harsh_useless = _in_bands(_HARSH, "utility", lambda u, best: np.median(u) <= _USELESS * best)
harsh_parity = _in_bands(_HARSH, "gap_size", lambda gap, _: np.median(gap) <= _FAIR)
lenient_useful = _in_bands(_LENIENT, "utility", lambda u, best: lower(u) >= _NEAR * best)


def lenient_fairer(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test whether a useful lenient start is fairer than the best rule."""
    best = truths.optimum("lending")
    for scoring in SCORINGS:
        table, reductions = results.lending(scoring), []
        for threshold in np.unique(table.threshold[table.threshold < _HARSH[0][0]]):
            here = table.threshold == threshold
            if np.median(table.utility[here]) >= _NEAR * best.utility:
                gap = float(np.median(table.gap_size[here]))
                reductions.append(abs(best.benefit_gap) - gap)
        most, case = max(reductions, default=np.nan), f"ridge by {scoring}"
        yield Case(case, most >= _VISIBLE, {f"{case}: largest reduction of the gap": most})
