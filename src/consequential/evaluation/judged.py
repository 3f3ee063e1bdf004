"""Judged: what a rule does on the rows that may judge it, and what to know of that."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.crossfit import (
    CrossFitted,
    checked_folds,
    cross_fitted,
    fitted_policy,
    is_learner,
)
from consequential.log import DecisionLog, LogScan
from consequential.objective import Objective, Weighting
from consequential.policies import DecisionRule, Logged

Floats = NDArray[np.float64]

# below so many people normal intervals are a guess
FEW = 100.0
# no row should carry this share of all weight
_MUCH = 0.05


class WinnersCurseWarning(UserWarning):
    """A policy is judged on the very rows it was learned from, which flatters it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The settled rows of a log and what a rule would do with them."""

    log: DecisionLog
    propensity: Floats
    notes: tuple[str, ...]


def checked_log(log: Any, *, or_scan: bool = False) -> None:
    """Refuse what is not a log, or a scan of one where that will do."""
    if isinstance(log, LogScan) and not or_scan:
        raise TypeError(
            "this needs a log in memory, not a scan: scan.sample(n, rng) gives one of n rows"
        )
    if not isinstance(log, DecisionLog | LogScan):
        raise TypeError(
            f"a rule is judged on a DecisionLog, not on {type(log).__name__}: make one with "
            "DecisionLog.from_frame or DecisionLog.from_arrays"
        )
    if len(log) == 0:
        raise ValueError("the log has no rows to judge a rule on")


def question(
    log: DecisionLog | LogScan,
    cost: float | None,
    fairness: Any,
    weighting: Weighting | None,
    rejection_utility: tuple[float, float],
) -> Objective:
    """Return what is asked of a log, as an objective without a penalty."""
    if cost is None:
        if not log.has_costs:
            raise ValueError(
                "give cost=: what accepting costs, between 0 and 1 (the log has no cost of its own "
                "for each row)"
            )
        cost = 0.5  # every row has its own
    return Objective(cost, fairness, weighting=weighting, rejection_utility=rejection_utility)


def judge(
    rule: Any, log: DecisionLog, *, folds: int | None = None, seed: int = 0, stacklevel: int = 4
) -> Judged:
    """Return what a rule, a fitted learner, or with folds an unfitted one, does on a log."""
    rows = log.settled()
    left_out = len(log) - len(rows)
    notes = list(log.concerns)
    if left_out:
        notes.append(
            f"{_rows(left_out)} younger than the horizon of {log.horizon} time steps left out, "
            "accepted and rejected alike"
        )
    if rows.n_pending:
        whatever = "intervals cover whatever these are"
        if rows.missing == "at_random":
            whatever = "taken to be missing at random given features and group"
        notes.append(f"{_people(rows.n_pending)} accepted without a label: {whatever}")
    if log.estimated_propensity:
        notes.append(
            "propensities were estimated, not logged: see sensitivity() for what hidden reasons "
            "could change"
        )
    if is_learner(rule) and folds is not None:
        rule = cross_fitted(rule, log, folds, seed=seed)
    if isinstance(rule, CrossFitted):
        propensity = _checked(rule.values, rule, len(rows))
        notes.append(
            f"cross-fitted: every row is judged by a policy learned from the other "
            f"{rule.folds - 1} of {rule.folds} folds"
        )
    else:
        policy = as_rule(rule)
        if folds is not None:
            checked_folds(folds, len(rows))
        _beware_of_own_rows(policy, log, rows, stacklevel)
        propensity = _checked(rows.propensity_of(policy), policy, len(rows))
    return Judged(rows, propensity, tuple(notes))


def as_rule(thing: Any) -> DecisionRule:
    """Return a decision rule, from a fitted learner too; explain what cannot be one."""
    if isinstance(thing, DecisionRule):
        return thing
    if is_learner(thing):
        return fitted_policy(thing)
    if isinstance(thing, type):
        raise TypeError(f"{thing.__name__} is a class: make one, {thing.__name__}(...)")
    if hasattr(thing, "predict_proba") or hasattr(thing, "predict"):
        raise TypeError(
            f"{type(thing).__name__} predicts and does not decide: "
            "ThresholdPolicy(model, threshold=cost) accepts where its prediction reaches the cost"
        )
    raise TypeError(
        f"a rule is a policy, another DecisionRule or a learner with fit_log, "
        f"not {type(thing).__name__}"
    )


def needs_folds(rules: tuple[Any, ...], folds: int | None) -> None:
    """Refuse folds where there is nothing to fit."""
    if folds is not None and not any(is_learner(rule) for rule in rules):
        raise ValueError(
            "folds= fits a learner again on parts of the log, but a fixed rule was given: leave "
            "folds out, or give the learner (with fit_log) instead of its policy"
        )


def weight_notes(effective: float, heaviest: float, total: float) -> tuple[str, ...]:
    """Return what weights make of the estimates: few people, or one who counts for many."""
    notes = []
    if total > 0.0:
        if effective < FEW:
            notes.append(
                f"labels speak for {effective:.0f} people in effect; intervals want "
                f"{FEW:.0f} or more"
            )
        if heaviest > _MUCH * total and effective >= 2.0:
            notes.append(f"one person carries {heaviest / total:.0%} of all weight")
    return tuple(notes)


def unsupported_note(share: float) -> tuple[str, ...]:
    """Return a note about acceptances that fall on people whom the log could not accept."""
    if share <= 0.0:
        return ()
    return (
        f"{share:.1%} of the people this rule accepts could not be accepted by the rule in force: "
        "nothing is known of their labels, and intervals cover whatever these are",
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _people(count: int) -> str:
    return "1 person was" if count == 1 else f"{count} people were"


def _checked(propensity: Any, rule: DecisionRule, n: int) -> Floats:
    values = np.asarray(propensity, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(
            f"{type(rule).__name__}.propensity must give one number a row: shape ({n},), "
            f"not {values.shape}"
        )
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(f"{type(rule).__name__}.propensity must give probabilities in [0, 1]")
    return values


def _beware_of_own_rows(
    rule: DecisionRule, log: DecisionLog, rows: DecisionLog, stacklevel: int
) -> None:
    sources = {source for source in _learned_from(rule) if source}
    if sources and sources & {log.fingerprint, rows.fingerprint}:
        warnings.warn(
            WinnersCurseWarning(
                "this policy was learned from the very log it is judged on, so its figures are "
                "flattered and its intervals too narrow. Learn from one part and judge on the "
                'other (log.split(0.5, by="time_step")), or give the learner and folds=5'
            ),
            stacklevel=stacklevel,
        )


def _learned_from(rule: Any) -> Iterator[str]:
    if isinstance(rule, Logged):
        return
    yield getattr(rule, "learned_from", "")
    for part in (*getattr(rule, "rules", ()), getattr(rule, "otherwise", None)):
        if part is not None:
            yield from _learned_from(part)
