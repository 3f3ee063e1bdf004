"""Claims about what a penalty does, in the settings and on COMPAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, Measured, above
from consequential.paper.limits import SMALL_GAP

if TYPE_CHECKING:
    from consequential.paper.results import Finals, Results

Floats = NDArray[np.float64]

_SLACK_GAP, _SLACK_UTILITY = 0.02, 0.005


def ends(finals: Finals, metric: str, strategy: str) -> tuple[Floats, Floats]:
    """Return a metric's values over seeds at the smallest and at the largest penalty."""
    values: Floats = getattr(finals, metric)
    first, final = finals.penalties[0], finals.penalties[-1]
    return values[finals.select(strategy, first)], values[finals.select(strategy, final)]


Judge = Callable[[Finding, "Finals", str, str], None]


def _everywhere(names: tuple[str, ...], judge: Judge) -> Callable[[Results, str], Finding]:
    """Return a measure that judges every strategy in every one of these worlds."""

    def measure(results: Results, column: str) -> Finding:
        finding = Finding()
        for name in names:
            finals = results.finals(f"{name}-penalty", column)
            for strategy in finals.strategies:
                judge(finding, finals, name, strategy)
        return finding

    return measure


def _group(name: str) -> str:
    return truths.SETTINGS.get(name, "")


def _fair(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    gap = np.abs(ends(finals, "benefit_gap", strategy)[1])
    finding.add(
        (_group(name), strategy),
        bool(np.median(gap) <= SMALL_GAP and np.percentile(gap, 75) <= 2 * SMALL_GAP),
        Measured.of(f"{_about(name)}{strategy}: size of the gap at the largest λ", gap),
    )


def _fair_on_table(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    held_out = np.abs(ends(finals, "benefit_gap", strategy)[1])
    trained = np.abs(ends(finals, "train_benefit_gap", strategy)[1])
    noise = 1.96 * truths.held_out_deviation(finals, name, strategy, finals.penalties[-1])
    finding.add(
        ("", strategy),
        bool(np.median(trained) <= SMALL_GAP and np.median(held_out) <= max(noise, SMALL_GAP)),
        Measured.of(f"{strategy}: size of the gap, training people", trained),
        Measured.of(f"{strategy}: held-out people, sampling alone {noise:.3f}", held_out),
    )


def _costs(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    falls = []
    for metric in ("utility", "effective_utility"):
        free, fair = ends(finals, metric, strategy)
        falls.append(above(free, fair))
        words = metric.replace("_", " ")
        finding.numbers += [
            Measured.of(f"{_about(name)}{strategy}: {words}, smallest λ", free),
            Measured.of(f"{_about(name)}{strategy}: {words}, largest λ", fair),
        ]
    finding.add((_group(name), strategy), all(falls))


def _no_more_than_needed(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    on_table = name not in truths.SETTINGS
    utility = ends(finals, "train_utility" if on_table else "utility", strategy)[1]
    needed, _ = truths.logistic_path(name, finals.penalties)[-1]
    scale = truths.frontier(name).within(np.inf)[0]
    finding.add(
        (_group(name), strategy),
        bool(np.percentile(utility, 25) >= needed - 0.1 * scale),
        Measured.of(
            f"{_about(name)}{strategy}: utility at the largest λ, best linear policy {needed:.4f}",
            utility,
        ),
    )


def _trades(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    on_table = name not in truths.SETTINGS
    gap_metric, utility_metric = (
        ("train_benefit_gap", "train_utility") if on_table else ("benefit_gap", "utility")
    )
    gap = np.abs(finals.quartiles(gap_metric, strategy)[1])
    utility = finals.quartiles(utility_metric, strategy)[1]
    # the largest step the wrong way, from any penalty to any larger one
    widening = float((gap - np.minimum.accumulate(gap)).max())
    rising = float((utility - np.minimum.accumulate(utility)).max())
    finding.add(
        (_group(name), strategy),
        widening <= _SLACK_GAP and rising <= _SLACK_UTILITY,
        Measured.of(f"{_about(name)}{strategy}: largest widening of the gap", widening),
        Measured.of(f"{_about(name)}{strategy}: largest rise of utility", rising),
    )


def _about(name: str) -> str:
    return f"{truths.SETTINGS[name]}, " if name in truths.SETTINGS else ""


def _claims(
    prefix: str, section: str, where: str, names: tuple[str, ...], fair: Judge, fair_criterion: str
) -> tuple[Claim, ...]:
    studies = tuple(f"{name}-penalty" for name in names)
    return (
        Claim(
            f"{prefix}-parity-reached",
            section,
            f"{where}: a large enough λ achieves perfect demographic parity.",
            fair_criterion,
            studies,
            _everywhere(names, fair),
        ),
        Claim(
            f"{prefix}-parity-costs",
            section,
            f"{where}: parity comes with a drop in utility and effective utility.",
            "At the largest λ clearly below the smallest λ (quartiles apart), both utilities.",
            studies,
            _everywhere(names, _costs),
        ),
        Claim(
            f"{prefix}-cost-no-more-than-needed",
            section,
            f"{where}: that drop is the expected one, the price of parity and not of bad learning.",
            "Lower quartile of utility at the largest λ within a tenth of the best utility below "
            "what the best linear logistic policy has there.",
            studies,
            _everywhere(names, _no_more_than_needed),
        ),
        Claim(
            f"{prefix}-trade-off",
            section,
            f"{where}: λ trades utility for parity; the more of it, the less of both.",
            f"Over increasing λ the median gap never widens by more than {_SLACK_GAP} and median "
            f"utility never rises by more than {_SLACK_UTILITY}: less is chance.",
            studies,
            _everywhere(names, _trades),
        ),
    )


SYNTHETIC_CLAIMS = _claims(
    "synthetic",
    "5.1 and Appendix A.1, fairness constraints",
    "Synthetic settings",
    tuple(truths.SETTINGS),
    _fair,
    f"At the largest λ the gap's median size is at most {SMALL_GAP}, its upper quartile at most "
    f"{2 * SMALL_GAP}: one or two people in a hundred.",
)


def compas_claims(name: str) -> tuple[Claim, ...]:
    """Return the claims about COMPAS under a penalty, in one orientation of the label."""
    return _claims(
        name,
        "5.2 and Appendix A.2, real data",
        f"COMPAS, {truths.ORIENTATIONS[name]}",
        (name,),
        _fair_on_table,
        f"At the largest λ the gap's median size is at most {SMALL_GAP} among training people, "
        "and among held-out people within what sampling them does to a gap of zero (95 %).",
    )
