"""Claims about COMPAS over time, without a penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, above, lower
from consequential.paper.claims.synthetic import RunsTest, exploring, last, on_runs, predicting

if TYPE_CHECKING:
    from consequential.simulation import Runs


def _head_start(runs: Runs) -> Finding:
    finding = Finding()
    rival = runs.metric("utility", predicting(runs)[0])[:, 0]  # both start from the same rule
    for strategy in exploring(runs):
        ahead = rival - runs.metric("utility", strategy)[:, 0]
        finding.add(strategy, lower(ahead) > 0, {f"{strategy}: how far behind at the start": ahead})
    return finding


def _against_rivals(
    runs: Runs, test: Callable[[str, str], tuple[bool, dict[str, float]]], finding: Finding
) -> Finding:
    """Test every exploring strategy against every deterministic rule."""
    for rival in predicting(runs):
        for strategy in exploring(runs):
            finding.add(strategy, *test(strategy, rival), f"{rival} as the rival")
    return finding


def _ends(runs: Runs, metric: str, words: str) -> Finding:
    """Return a finding that holds every strategy's end, and no case yet."""
    finding = Finding()
    finding.measure({f"{s}: {words} at the end": last(runs, metric, s) for s in runs.strategies})
    return finding


def _ends_above(metric: str) -> RunsTest:
    """Return the test that exploring strategies end above deterministic rules in a metric."""

    def test(runs: Runs) -> Finding:
        return _against_rivals(
            runs,
            lambda one, rival: (above(last(runs, metric, one), last(runs, metric, rival)), {}),
            _ends(runs, metric, metric.replace("_", " ")),
        )

    return test


def _dominates(runs: Runs) -> Finding:
    paths = {s: np.median(runs.metric("effective_utility", s), axis=0) for s in runs.strategies}

    def case(strategy: str, rival: str) -> tuple[bool, dict[str, float]]:
        half = (len(paths[rival]) - 1) // 2
        least = float(np.nanmin((paths[strategy] - paths[rival])[half:]))
        return least > 0, {f"{strategy} against {rival}: least lead in the second half": least}

    return _against_rivals(runs, case, Finding())


def _fairer(runs: Runs) -> Finding:
    paths = {s: np.abs(np.median(runs.metric("benefit_gap", s), axis=0)) for s in runs.strategies}

    def case(strategy: str, rival: str) -> tuple[bool, dict[str, float]]:
        share = float((paths[strategy] < paths[rival])[1:].mean())
        return share >= 0.9, {f"{strategy} against {rival}: share of steps with less gap": share}

    return _against_rivals(runs, case, _ends(runs, "benefit_gap", "gap"))


def _better_and_fairer(runs: Runs) -> Finding:
    useful, fair = _ends_above("utility")(runs), _fairer(runs)
    both = {case: holds and fair.cases[case] for case, holds in useful.cases.items()}
    return Finding([*useful.numbers, *fair.numbers], both)


_APART = "lower quartile above the upper quartile of the deterministic rule"

# the claims about either orientation of the label: id, text, criterion and test
_CLAIMS: tuple[tuple[str, str, str, RunsTest], ...] = (
    (
        "deterministic-head-start",
        "the deterministic rule has a slight advantage in utility at the start.",
        "Behind by more than 0 in three quarters of the runs, pairwise by seed.",
        _head_start,
    ),
    (
        "overtaken",
        "exploring policies soon have more utility than the deterministic rules.",
        f"Utility on held-out people at the end: {_APART}.",
        _ends_above("utility"),
    ),
    (
        "effective-utility-dominates",
        "in effective utility exploring policies lead from the middle of the run on.",
        "Median above the deterministic rule's at every step of the second half (the paper: "
        "from t = 100 of 200).",
        _dominates,
    ),
    (
        "exploring-pays",
        "exploring early reaps more during training as a whole.",
        f"Effective utility at the end: {_APART}.",
        _ends_above("effective_utility"),
    ),
    (
        "exploring-fairer",
        "exploring policies consistently violate parity less than deterministic rules.",
        "Median gap smaller than the deterministic rule's in 90 % of the steps.",
        _fairer,
    ),
    (
        "better-and-fairer",
        "even without a penalty exploring is both better and fairer.",
        "Both of: more utility at the end, a smaller gap in 90 % of the steps.",
        _better_and_fairer,
    ),
)


def compas_claims(name: str) -> tuple[Claim, ...]:
    """Return the claims about COMPAS over time, in one orientation of the label."""
    where, studies = f"COMPAS, {truths.ORIENTATIONS[name]}", (f"{name}-time",)
    return tuple(
        Claim(
            f"{name}-{id_}",
            "5.2, real data",
            f"{where}: {text}",
            criterion,
            studies,
            on_runs(name, test),
        )
        for id_, text, criterion, test in _CLAIMS
    )
