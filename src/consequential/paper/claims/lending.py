"""Claims about the lending example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, Measure, lower
from consequential.paper.results import SCORINGS, LendingTable

if TYPE_CHECKING:
    from consequential.paper.results import Results

_HARSH = ((650, 690), (700, 740), (750, 800))
_LENIENT = ((500, 540), (550, 600))
_USELESS, _NEAR = 0.1, 0.95  # of the best utility
_FAIR, _VISIBLE = 0.05, 0.005


def _bands(
    results: Results, bands: tuple[tuple[int, int], ...]
) -> list[tuple[str, str, LendingTable, NDArray[np.bool_]]]:
    """Return, for each scoring and band of thresholds, their names, the table and its rows."""
    found = []
    for scoring in SCORINGS:
        table = results.lending(scoring)
        for low, high in bands:
            here = (table.threshold >= low) & (table.threshold <= high)
            if here.any():
                found.append((f"ridge by {scoring}", f"ξ {low} to {high}", table, here))
    return found


def _useless(results: Results, column: str) -> Finding:
    finding, best = Finding(), truths.optimum("lending").utility
    for scoring, band, table, here in _bands(results, _HARSH):
        utility = table.utility[here]
        numbers = {f"{scoring}, {band}: utility, of {best:.4f}": utility}
        finding.add(band, bool(np.median(utility) <= _USELESS * best), numbers, scoring)
    return finding


def _harsh_parity(results: Results, column: str) -> Finding:
    finding = Finding()
    for scoring, band, table, here in _bands(results, _HARSH):
        gap = np.abs(table.benefit_gap[here])
        numbers = {f"{scoring}, {band}: size of the gap": gap}
        finding.add(band, bool(np.median(gap) <= _FAIR), numbers, scoring)
    return finding


def _lenient(results: Results, column: str) -> Finding:
    finding, best = Finding(), truths.optimum("lending").utility
    for scoring, band, table, here in _bands(results, _LENIENT):
        utility = table.utility[here]
        numbers = {f"{scoring}, {band}: utility, of {best:.4f}": utility}
        finding.add(band, lower(utility) >= _NEAR * best, numbers, scoring)
    return finding


def _lenient_parity(results: Results, column: str) -> Finding:
    finding, best = Finding(), truths.optimum("lending")
    for scoring in SCORINGS:
        table, reductions = results.lending(scoring), []
        for threshold in np.unique(table.threshold[table.threshold < _HARSH[0][0]]):
            here = table.threshold == threshold
            if np.median(table.utility[here]) >= _NEAR * best.utility:
                gap = float(np.median(np.abs(table.benefit_gap[here])))
                reductions.append(abs(best.benefit_gap) - gap)
        most, case = max(reductions, default=np.nan), f"ridge by {scoring}"
        finding.add(case, most >= _VISIBLE, {f"{case}: largest reduction of the gap": most})
    return finding


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
