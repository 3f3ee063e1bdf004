"""Claims about what a penalty does, in the settings and on COMPAS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import (
    Claim,
    StrategyTest,
    Verdict,
    above,
    each_strategy,
    lower,
    upper,
)
from consequential.paper.limits import SMALL_GAP
from consequential.paper.results import last_values

if TYPE_CHECKING:
    from consequential.simulation import Runs

Floats = NDArray[np.float64]

_SLACK_GAP, _SLACK_UTILITY = 0.02, 0.005


def _exact(name: str, runs: Runs, metric: str, strategy: str) -> list[Floats]:
    """Return a metric by penalty, where it is exact: on a table, that of the training people."""
    return last_values(runs, metric if name in truths.SETTINGS else f"train_{metric}", strategy)


def _fair(name: str, runs: Runs, strategy: str) -> Verdict:
    gap = np.abs(last_values(runs, "benefit_gap", strategy)[-1])
    holds = np.median(gap) <= SMALL_GAP and upper(gap) <= 2 * SMALL_GAP
    return holds, {"size of the gap at the largest λ": gap}


def _fair_on_table(name: str, runs: Runs, strategy: str) -> Verdict:
    held_out = np.abs(last_values(runs, "benefit_gap", strategy)[-1])
    trained = np.abs(last_values(runs, "train_benefit_gap", strategy)[-1])
    noise = 1.96 * truths.held_out_deviation(runs, name, strategy, runs.penalties[-1])
    holds = np.median(trained) <= SMALL_GAP and np.median(held_out) <= max(noise, SMALL_GAP)
    return holds, {
        "size of the gap, training people": trained,
        f"held-out people, sampling alone {noise:.3f}": held_out,
    }


def _costs(name: str, runs: Runs, strategy: str) -> Verdict:
    falls, numbers = [], dict[str, Floats]()
    for metric in ("utility", "effective_utility"):
        free, *_, fair = last_values(runs, metric, strategy)
        falls.append(above(free, fair))
        words = metric.replace("_", " ")
        numbers |= {f"{words}, smallest λ": free, f"{words}, largest λ": fair}
    return all(falls), numbers


def _no_more_than_needed(name: str, runs: Runs, strategy: str) -> Verdict:
    utility = _exact(name, runs, "utility", strategy)[-1]
    needed, _ = truths.logistic_path(name, runs.penalties)[-1]
    scale = truths.pareto_front(name).within(np.inf)[0]
    words = f"utility at the largest λ, best linear policy {needed:.4f}"
    return lower(utility) >= needed - 0.1 * scale, {words: utility}


def _trades(name: str, runs: Runs, strategy: str) -> Verdict:
    gap, utility = (
        np.median(_exact(name, runs, metric, strategy), axis=1)
        for metric in ("benefit_gap", "utility")
    )
    # the largest step the wrong way, from any penalty to any larger one
    widening, rising = (
        float((path - np.minimum.accumulate(path)).max()) for path in (np.abs(gap), utility)
    )
    return widening <= _SLACK_GAP and rising <= _SLACK_UTILITY, {
        "largest widening of the gap": widening,
        "largest rise of utility": rising,
    }


def _claims(
    prefix: str, where: str, section: str, names: tuple[str, ...], fair: tuple[StrategyTest, str]
) -> Iterator[Claim]:
    """Yield the claims about some worlds; `fair` is the test of parity and its criterion."""
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
    for id_, text, test, criterion in told:
        measure = each_strategy(names, "penalty", test)
        yield Claim(f"{prefix}-{id_}", section, f"{where}: {text}", criterion, studies, measure)


def synthetic_claims() -> Iterator[Claim]:
    """Return the claims about both settings under a penalty."""
    criterion = (
        f"At the largest λ the gap's median size is at most {SMALL_GAP}, its upper quartile at "
        f"most {2 * SMALL_GAP}: one or two people in a hundred."
    )
    section = "5.1 and Appendix A.1, fairness constraints"
    names = tuple(truths.SETTINGS)
    return _claims("synthetic", "Synthetic settings", section, names, (_fair, criterion))


def compas_claims(name: str) -> Iterator[Claim]:
    """Return the claims about COMPAS under a penalty, in one orientation of the label."""
    criterion = (
        f"At the largest λ the gap's median size is at most {SMALL_GAP} among training people, "
        "and among held-out people within what sampling them does to a gap of zero (95 %)."
    )
    where, section = f"COMPAS, {truths.ORIENTATIONS[name]}", "5.2 and Appendix A.2, real data"
    return _claims(name, where, section, (name,), (_fair_on_table, criterion))
