"""Claims about the lending example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import Case, Claim, Measure, lower
from consequential.paper.lending_example import SCORINGS

if TYPE_CHECKING:
    from consequential.paper.results import Results

Floats = NDArray[np.float64]
Bands = tuple[tuple[int, int], ...]  # of thresholds
Test = Callable[[Floats], bool | np.bool_]

_HARSH: Bands = ((650, 690), (700, 740), (750, 800))
_LENIENT: Bands = ((500, 540), (550, 600))
_USELESS, _NEAR = 0.1, 0.95  # of the best utility
_FAIR, _VISIBLE = 0.05, 0.005


def _in_bands(
    results: Results,
    bands: Bands,
    metric: str,
    words: str,
    test: Test,
) -> Iterator[Case]:
    """Test the values of a metric in each band of thresholds, for both ways to choose the ridge."""
    for scoring in SCORINGS:
        table, group = results.lending(scoring), f"ridge by {scoring}"
        for low, high in bands:
            here = (table.threshold >= low) & (table.threshold <= high)
            if here.any():
                values, band = getattr(table, metric)[here], f"ξ {low} to {high}"
                yield Case(band, test(values), {f"{group}, {band}: {words}": values}, group)


def _useless(results: Results, column: str) -> Iterator[Case]:
    best = truths.optimum("lending").utility
    words = f"utility, of {best:.4f}"
    return _in_bands(results, _HARSH, "utility", words, lambda u: np.median(u) <= _USELESS * best)


def _harsh_parity(results: Results, column: str) -> Iterator[Case]:
    words = "size of the gap"
    return _in_bands(results, _HARSH, "gap_size", words, lambda gap: np.median(gap) <= _FAIR)


def _lenient(results: Results, column: str) -> Iterator[Case]:
    best = truths.optimum("lending").utility
    words = f"utility, of {best:.4f}"
    return _in_bands(results, _LENIENT, "utility", words, lambda u: lower(u) >= _NEAR * best)


def _lenient_parity(results: Results, column: str) -> Iterator[Case]:
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


def _claim(id_: str, text: str, criterion: str, measure: Measure) -> Claim:
    return Claim(id_, "3.1, lending example", text, criterion, ("lending",), measure, ("paper",))


CLAIMS = (
    _claim(
        "lending-harsh-useless",
        "Initial thresholds of 650 and more leave essentially useless decisions.",
        "Median utility at most a tenth of the best: what is left would not pay for the effort.",
        _useless,
    ),
    _claim(
        "lending-harsh-parity",
        "Those harsh starts do achieve demographic parity.",
        "Median size of the gap at most .05; that of the best rule is .44.",
        _harsh_parity,
    ),
    _claim(
        "lending-lenient-near-optimal",
        "More lenient starts can result in nearly optimal decisions.",
        "Lower quartile of utility at least 95 % of the best.",
        _lenient,
    ),
    _claim(
        "lending-lenient-fairer",
        "Among those there are fairer ones than the rule of maximum utility.",
        "Some ξ below 650 with median utility of at least 95 % of the best has a median gap "
        "smaller than the best rule's by at least .005: less could not be seen in a figure.",
        _lenient_parity,
    ),
)
