"""Inputs: the log, the rule and the objective that an evaluation is given, checked."""

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
from consequential.objective import Objective
from consequential.policies import DecisionRule, Logged
from consequential.weightings import Weighting

Floats = NDArray[np.float64]


class WinnersCurseWarning(UserWarning):
    """A policy is evaluated on the very rows it was learned from, which flatters it."""


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """The settled rows of a log, what a rule would do with them, and notes on both."""

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
            f"a rule is evaluated on a DecisionLog, not on {type(log).__name__}: make one with "
            "DecisionLog.from_frame or DecisionLog.from_arrays"
        )
    if len(log) == 0:
        raise ValueError("the log has no rows to evaluate a rule on")


def objective_of(
    log: DecisionLog | LogScan,
    cost: float | None,
    fairness: Any,
    weighting: Weighting | None,
    rejection_utility: tuple[float, float],
) -> Objective:
    """Return an objective without a penalty; the cost may be missing if each row has its own."""
    if cost is None:
        if not log.has_costs:
            raise ValueError(
                "give cost=: what accepting costs, between 0 and 1 (the log has no cost of its own "
                "for each row)"
            )
        cost = 0.5  # every row has its own
    return Objective(cost, fairness, weighting=weighting, rejection_utility=rejection_utility)


def apply_rule(
    rule: Any, log: DecisionLog, *, folds: int | None = None, seed: int = 0, stacklevel: int = 4
) -> AppliedRule:
    """Return what a rule, a fitted learner, or with folds an unfitted one, does on a log.

    `stacklevel` is where warnings point: by default the caller of the function that calls this.
    """
    rows = log.settled()
    left_out = len(log) - len(rows)
    notes = list(log.concerns)
    if left_out:
        notes.append(
            f"{left_out} {'row' if left_out == 1 else 'rows'} younger than the horizon of "
            f"{log.horizon} time steps left out, accepted and rejected alike"
        )
    if rows.n_pending:
        whatever = "intervals cover whatever these are"
        if rows.missing == "at_random":
            whatever = "taken to be missing at random given features and group"
        notes.append(f"{_people_were(rows.n_pending)} accepted without a label: {whatever}")
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
            f"cross-fitted: every row is decided by a policy learned from the other "
            f"{rule.folds - 1} of {rule.folds} folds"
        )
    else:
        policy = as_rule(rule)
        if folds is not None:
            checked_folds(folds, len(rows))
        _warn_of_own_rows(policy, log, rows, stacklevel)
        propensity = _checked(rows.propensity_of(policy), policy, len(rows))
    return AppliedRule(rows, propensity, tuple(notes))


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


def _people_were(count: int) -> str:
    return "1 person was" if count == 1 else f"{count} people were"


def _checked(propensity: Any, rule: DecisionRule, n: int) -> Floats:
    values = np.asarray(propensity, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(
            f"{type(rule).__name__}.propensity must give one number per row: shape ({n},), "
            f"not {values.shape}"
        )
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(f"{type(rule).__name__}.propensity must give probabilities in [0, 1]")
    return values


def _warn_of_own_rows(
    rule: DecisionRule, log: DecisionLog, rows: DecisionLog, stacklevel: int
) -> None:
    sources = {source for source in _learned_from(rule) if source}
    if sources and sources & {log.fingerprint, rows.fingerprint}:
        warnings.warn(
            WinnersCurseWarning(
                "this policy was learned from the very log it is evaluated on, so its figures are "
                "flattered and its intervals too narrow. Learn from one part and evaluate on the "
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
