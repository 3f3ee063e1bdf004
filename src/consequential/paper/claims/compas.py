"""Claims about COMPAS over time, without a penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from consequential.paper import truths
from consequential.paper.claims.claim import Case, Claim, Finding, Measured, above
from consequential.paper.claims.synthetic import exploring, last, predicting

if TYPE_CHECKING:
    from consequential.paper.results import Results
    from consequential.simulation import Runs

Judge = Callable[["Runs"], Finding]


def _head_start(runs: Runs) -> Finding:
    finding = Finding()
    rival = runs.metric("utility", predicting(runs)[0])[:, 0]  # both start from the same rule
    for strategy in exploring(runs):
        ahead = rival - runs.metric("utility", strategy)[:, 0]
        finding.add(
            ("", strategy),
            bool(np.percentile(ahead, 25) > 0),
            Measured.of(f"{strategy}: how far behind at the start", ahead),
        )
    return finding


def _case(rival: str, strategy: str) -> Case:
    return (f"{rival} as the rival", strategy)


def _above_rivals(runs: Runs, metric: str) -> Finding:
    finding, words = Finding(), metric.replace("_", " ")
    for strategy in runs.strategies:
        finding.numbers.append(
            Measured.of(f"{strategy}: {words} at the end", last(runs, metric, strategy))
        )
    for rival in predicting(runs):
        for strategy in exploring(runs):
            ahead = above(last(runs, metric, strategy), last(runs, metric, rival))
            finding.add(_case(rival, strategy), ahead)
    return finding


def _overtakes(runs: Runs) -> Finding:
    return _above_rivals(runs, "utility")


def _reaps_more(runs: Runs) -> Finding:
    return _above_rivals(runs, "effective_utility")


def _dominates(runs: Runs) -> Finding:
    finding = Finding()
    paths = {s: np.median(runs.metric("effective_utility", s), axis=0) for s in runs.strategies}
    for rival in predicting(runs):
        half = (len(paths[rival]) - 1) // 2
        for strategy in exploring(runs):
            lead = (paths[strategy] - paths[rival])[half:]
            least = float(np.nanmin(lead))
            finding.add(
                _case(rival, strategy),
                least > 0,
                Measured.of(f"{strategy} against {rival}: least lead in the second half", least),
            )
    return finding


def _fairer(runs: Runs) -> Finding:
    finding = Finding()
    paths = {s: np.abs(np.median(runs.metric("benefit_gap", s), axis=0)) for s in runs.strategies}
    for strategy in runs.strategies:
        finding.numbers.append(
            Measured.of(f"{strategy}: gap at the end", last(runs, "benefit_gap", strategy))
        )
    for rival in predicting(runs):
        for strategy in exploring(runs):
            share = float((paths[strategy] < paths[rival])[1:].mean())
            finding.add(
                _case(rival, strategy),
                share >= 0.9,
                Measured.of(f"{strategy} against {rival}: share of steps with less gap", share),
            )
    return finding


def _both(runs: Runs) -> Finding:
    finding, useful, fair = Finding(), _overtakes(runs), _fairer(runs)
    for case, holds in useful.cases.items():
        finding.add(case, holds and fair.cases[case])
    finding.numbers = [*useful.numbers, *fair.numbers]
    return finding


def _measure(name: str, judge: Judge) -> Callable[[Results, str], Finding]:
    return lambda results, column: judge(results.runs(f"{name}-time", column))


_APART = "lower quartile above the upper quartile of the deterministic rule"


def compas_claims(name: str) -> tuple[Claim, ...]:
    """Return the claims about COMPAS over time, in one orientation of the label."""
    told: tuple[tuple[str, str, str, Judge], ...] = (
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
            _overtakes,
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
            _reaps_more,
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
            _both,
        ),
    )
    return tuple(
        Claim(
            f"{name}-{id_}",
            "5.2, real data",
            f"COMPAS, {truths.ORIENTATIONS[name]}: {text}",
            criterion,
            (f"{name}-time",),
            _measure(name, judge),
        )
        for id_, text, criterion, judge in told
    )
