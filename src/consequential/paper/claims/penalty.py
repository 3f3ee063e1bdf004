"""Claims about what a penalty does, in the settings and on COMPAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, Measure, above, lower, upper
from consequential.paper.limits import SMALL_GAP

if TYPE_CHECKING:
    from consequential.paper.results import Finals, Results

Floats = NDArray[np.float64]
StrategyTest = Callable[[Finding, "Finals", str, str], None]  # of a world's name and a strategy

_SLACK_GAP, _SLACK_UTILITY = 0.02, 0.005


def _everywhere(names: tuple[str, ...], test: StrategyTest) -> Measure:
    """Return a measure that tests every strategy in every one of these worlds."""

    def measure(results: Results, column: str) -> Finding:
        finding = Finding()
        for name in names:
            finals = results.finals(f"{name}-penalty", column)
            for strategy in finals.strategies:
                test(finding, finals, name, strategy)
        return finding

    return measure


def _group(name: str) -> str:
    return truths.SETTINGS.get(name, "")


def _about(name: str, strategy: str) -> str:
    return f"{truths.SETTINGS[name]}, {strategy}" if name in truths.SETTINGS else strategy


def _prefix(name: str) -> str:
    """Return what a metric's name begins with where it is exact: on a table's training people."""
    return "" if name in truths.SETTINGS else "train_"


def _fair(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    gap = np.abs(finals.values("benefit_gap", strategy)[-1])
    holds = np.median(gap) <= SMALL_GAP and upper(gap) <= 2 * SMALL_GAP
    numbers = {f"{_about(name, strategy)}: size of the gap at the largest λ": gap}
    finding.add(strategy, bool(holds), numbers, _group(name))


def _fair_on_table(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    held_out = np.abs(finals.values("benefit_gap", strategy)[-1])
    trained = np.abs(finals.values("train_benefit_gap", strategy)[-1])
    noise = 1.96 * truths.held_out_deviation(finals, name, strategy, finals.penalties[-1])
    holds = np.median(trained) <= SMALL_GAP and np.median(held_out) <= max(noise, SMALL_GAP)
    numbers = {
        f"{strategy}: size of the gap, training people": trained,
        f"{strategy}: held-out people, sampling alone {noise:.3f}": held_out,
    }
    finding.add(strategy, bool(holds), numbers)


def _costs(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    falls, numbers = [], dict[str, Floats]()
    for metric in ("utility", "effective_utility"):
        free, fair = (finals.values(metric, strategy)[k] for k in (0, -1))
        falls.append(above(free, fair))
        words = f"{_about(name, strategy)}: {metric.replace('_', ' ')}"
        numbers |= {f"{words}, smallest λ": free, f"{words}, largest λ": fair}
    finding.add(strategy, all(falls), numbers, _group(name))


def _no_more_than_needed(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    utility = finals.values(_prefix(name) + "utility", strategy)[-1]
    needed, _ = truths.logistic_path(name, finals.penalties)[-1]
    scale = truths.pareto_front(name).within(np.inf)[0]
    words = f"utility at the largest λ, best linear policy {needed:.4f}"
    numbers = {f"{_about(name, strategy)}: {words}": utility}
    finding.add(strategy, lower(utility) >= needed - 0.1 * scale, numbers, _group(name))


def _trades(finding: Finding, finals: Finals, name: str, strategy: str) -> None:
    gap = np.abs(finals.quartiles(_prefix(name) + "benefit_gap", strategy)[1])
    utility = finals.quartiles(_prefix(name) + "utility", strategy)[1]
    # the largest step the wrong way, from any penalty to any larger one
    widening = float((gap - np.minimum.accumulate(gap)).max())
    rising = float((utility - np.minimum.accumulate(utility)).max())
    numbers = {
        f"{_about(name, strategy)}: largest widening of the gap": widening,
        f"{_about(name, strategy)}: largest rise of utility": rising,
    }
    holds = widening <= _SLACK_GAP and rising <= _SLACK_UTILITY
    finding.add(strategy, holds, numbers, _group(name))


def _claims(
    prefix: str, where: str, section: str, names: tuple[str, ...], fair: tuple[StrategyTest, str]
) -> tuple[Claim, ...]:
    """Return the claims about some worlds; `fair` is the test of parity and its criterion."""
    told: tuple[tuple[str, str, StrategyTest, str], ...] = (
        ("parity-reached", "a large enough λ achieves perfect demographic parity.", *fair),
        (
            "parity-costs",
            "parity comes with a drop in utility and effective utility.",
            _costs,
            "At the largest λ clearly below the smallest λ (quartiles apart), both utilities.",
        ),
        (
            "cost-no-more-than-needed",
            "that drop is the expected one, the price of parity and not of bad learning.",
            _no_more_than_needed,
            "Lower quartile of utility at the largest λ within a tenth of the best utility below "
            "what the best linear logistic policy has there.",
        ),
        (
            "trade-off",
            "λ trades utility for parity; the more of it, the less of both.",
            _trades,
            f"Over increasing λ the median gap never widens by more than {_SLACK_GAP} and median "
            f"utility never rises by more than {_SLACK_UTILITY}: less is chance.",
        ),
    )
    studies = tuple(f"{name}-penalty" for name in names)
    return tuple(
        Claim(
            f"{prefix}-{id_}",
            section,
            f"{where}: {text}",
            criterion,
            studies,
            _everywhere(names, test),
        )
        for id_, text, test, criterion in told
    )


SYNTHETIC_CLAIMS = _claims(
    "synthetic",
    "Synthetic settings",
    "5.1 and Appendix A.1, fairness constraints",
    tuple(truths.SETTINGS),
    (
        _fair,
        f"At the largest λ the gap's median size is at most {SMALL_GAP}, its upper quartile at "
        f"most {2 * SMALL_GAP}: one or two people in a hundred.",
    ),
)


def compas_claims(name: str) -> tuple[Claim, ...]:
    """Return the claims about COMPAS under a penalty, in one orientation of the label."""
    criterion = (
        f"At the largest λ the gap's median size is at most {SMALL_GAP} among training people, "
        "and among held-out people within what sampling them does to a gap of zero (95 %)."
    )
    return _claims(
        name,
        f"COMPAS, {truths.ORIENTATIONS[name]}",
        "5.2 and Appendix A.2, real data",
        (name,),
        (_fair_on_table, criterion),
    )
