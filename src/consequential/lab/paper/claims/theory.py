"""Tests of the theorems, by exact sums, and of the lending example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.lab.paper import propositions, truths
from consequential.lab.paper.claims.claim import (
    Case,
    Effects,
    Measure,
    Names,
    above,
    at_most,
    shown,
)
from consequential.lab.paper.claims.experiments import VISIBLE
from consequential.lab.paper.lending_example import SCORINGS

if TYPE_CHECKING:
    from consequential.lab.paper.lending_example import LendingTable
    from consequential.lab.paper.results import Results

Floats = NDArray[np.float64]
Bands = tuple[tuple[int, int], ...]  # of thresholds

_PENALTIES = (0.0, 1.0, 10.0)
_STARTS = {"first": 0.24, "lending": 700.0}
_HARSH: Bands = ((650, 690), (700, 740), (750, 800))
_LENIENT: Bands = ((500, 540), (550, 590), (600, 640))
_USELESS, _NEAR, _FAIR = 0.1, 0.95, 0.05  # the first two as shares of the best utility
_EXACT, _DIFFERENT = 1e-9, 1e-3


def limitation(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test Proposition 1 in two worlds, and its proof in one made for it."""
    for name, start in _STARTS.items():
        for penalty in _PENALTIES:
            found = propositions.limitation(truths.score_world(name), start, penalty)
            effects = [
                at_most("what its own labels leave to gain", found.ceiling - found.seen, _EXACT),
                above("what it misses of the best", found.best - found.true, _DIFFERENT),
            ]
            yield Case(f"λ = {penalty:g}", effects, truths.where(name))
    other, constructed = propositions.unseen_types()
    group = "people worth accepting of one group only, λ = 1"
    for case, loss in (("some maximum", other), ("the maximum of the proof", constructed)):
        yield Case(case, [above("what it misses of the best", loss, _DIFFERENT)], group)


def impossibility(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test Proposition 2, with its bound as proved and as printed."""
    for text, n_people in (("with accidents", 40), ("without any", 10**6)):
        reached, bound = propositions.ladder(n_people, 6)
        words = f"chance to reach the optimum, less the bound {bound:.3g}"
        yield Case(text, [at_most(words, reached - bound, 1e-12)], '"at least" in the bound')
        words = f"bound {bound:.3g}, less the chance to reach the optimum"
        yield Case(text, [above(words, bound - reached, 0.0)], 'a strict "more than", as printed')


def error_based(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test the corollary with a perceptron."""
    moved, utility, best = propositions.error_based()
    effects = [
        at_most("data, of all that can come, that move the rule", float(moved), 0.0),
        above("what it misses of the best", best - utility, _DIFFERENT),
    ]
    yield Case("no error among the accepted", effects)


def supremum(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test Proposition 3 in both settings."""
    for name, where in truths.SETTINGS.items():
        for penalty in _PENALTIES[:2]:
            _, far, near = propositions.supremum(truths.setting(name), penalty)
            effects = [
                shown("distance to the optimum at n = 1000", near),
                at_most("the same, relative to that at n = 100", near / far, 0.11),
            ]
            yield Case(f"λ = {penalty:g}", effects, where)


def identity(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test that reweighted labels tell utility and benefits, by what they are divided by."""
    for name, where in truths.SETTINGS.items():
        found = propositions.reweighted(truths.setting(name))
        for what, (by_applicants, printed) in found.items():
            for group, error in (
                ("divided by all applicants", by_applicants),
                ("an average over the accepted, as printed", printed),
            ):
                yield Case(f"{where}, {what}", [at_most("largest error", error, _EXACT)], group)


def gradients(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test that the gradient's estimator is unbiased, for each kind of policy."""
    for name, where in truths.SETTINGS.items():
        for link in ("logistic", "semi_logistic"):
            found = propositions.gradient_errors(truths.setting(name), link)
            for what, (by_applicants, printed) in found.items():
                case = f"{where}, {what}, {link.replace('_', '-')}"
                for group, error in (
                    ("divided by all applicants", by_applicants),
                    ("an average over the accepted, as printed", printed),
                ):
                    words = "error of its expectation, relative to the derivative"
                    yield Case(case, [at_most(words, error, _DIFFERENT)], group)


def coin_flip(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test the remark about a start that decides by a coin."""
    for name, where in truths.SETTINGS.items():
        found = propositions.coin_flip(truths.setting(name))
        words = "distance of what is seen from the truth, in total variation"
        yield Case(where, [at_most(words, found.distance, _EXACT)], "it shows the truth")
        words = f"utility below the initial policy's, {found.initial:.4f}"
        loss = found.initial - found.utility
        effects = [above(words, loss, _USELESS * truths.optimum(name).utility)]
        yield Case(where, effects, "it costs utility")


def unlimited_data(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test that lending to people above a threshold teaches little, however many they are."""
    world, best = truths.score_world("lending"), truths.optimum("lending").utility
    for low, _ in _HARSH:
        utility = propositions.unlimited_data(world, low)
        words = f"share of the best utility, {best:.4f}"
        yield Case(f"ξ = {low:g}", [at_most(words, utility / best, _USELESS)])


def _in_bands(bands: Bands, test: Callable[[LendingTable, str], Effects]) -> Measure:
    """Return a test of what is learned from every threshold of bands, for each choice of the ridge.

    Thresholds are not pooled: a band of five has not five times as many runs.
    """

    def measure(results: Results, column: str, names: Names) -> Iterator[Case]:
        for scoring in SCORINGS:
            table = results.lending(scoring)
            for low, high in bands:
                inside = [start for start in np.unique(table.threshold) if low <= start <= high]
                effects = [
                    effect
                    for start in inside
                    for effect in test(table.at(table.threshold == start), f"ξ = {start:g}: ")
                ]
                if effects:
                    yield Case(f"ξ {low} to {high}", effects, f"ridge by {scoring}")

    return measure


def _useless(table: LendingTable, start: str) -> Effects:
    best = truths.optimum("lending").utility
    words = f"{start}share of the best utility, {best:.4f}"
    return [at_most(words, table.utility / best, _USELESS)]


def _useful(table: LendingTable, start: str) -> Effects:
    best = truths.optimum("lending").utility
    words = f"{start}share of the best utility, {best:.4f}"
    return [above(words, table.utility / best, _NEAR)]


def _fairer(table: LendingTable, start: str) -> Effects:
    smaller = abs(truths.optimum("lending").benefit_gap) - table.gap_size
    words = f"{start}gap smaller than the best rule's by"
    return [*_useful(table, start), above(words, smaller, VISIBLE)]


def _parity(table: LendingTable, start: str) -> Effects:
    return [at_most(f"{start}size of the gap", table.gap_size, _FAIR)]


harsh_useless, harsh_parity = _in_bands(_HARSH, _useless), _in_bands(_HARSH, _parity)
lenient_useful, lenient_fairer = _in_bands(_LENIENT, _useful), _in_bands(_LENIENT, _fairer)
