"""Rules: what is evaluated, be it a policy, a fitted learner or a learner to cross-fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.evaluation.rates import Floats
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.policy import DecisionRule, Logged


class WinnersCurseWarning(UserWarning):
    """A policy is evaluated on the very rows it was learned from, which flatters it."""


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """The settled rows of a log, what a rule would do with them, and notes on both.

    `logged` says that the rule is what the log itself did.
    """

    log: DecisionLog
    propensity: Floats
    notes: tuple[str, ...]
    logged: bool

    @property
    def accepts(self) -> Floats:
        """How likely each person is to be accepted: for sure or not at all by the log itself."""
        return self.log.decision.astype(np.float64) if self.logged else self.propensity


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
    weighting: Weighting | None = None,
) -> Objective:
    """Return an objective without a penalty; the cost may be missing if each row has its own."""
    if cost is None:
        if not log.has_costs:
            raise ValueError(
                "give cost=: what accepting costs, between 0 and 1 (the log has no cost of its own "
                "for each row)"
            )
        cost = 0.5  # every row has its own
    return Objective(cost, fairness, weighting=weighting)


def apply_rule(
    rule: Any, log: DecisionLog, *, folds: int | None = None, seed: int = 0, stacklevel: int = 3
) -> AppliedRule:
    """Return the propensities of a rule, or of a learner, on the settled rows of a log.

    With `folds` an unfitted learner is cross-fitted.

    `stacklevel` is where warnings point: by default the caller of the function that calls this.
    """
    rows = log.settled()
    notes = [*log.concerns, *young_notes(len(log) - len(rows), log.horizon)]
    if rows.n_pending:
        people = "1 person was" if rows.n_pending == 1 else f"{rows.n_pending} people were"
        whatever = "intervals cover whatever these are"
        if rows.missing == "at_random":
            whatever = "taken to be missing at random given features and group"
        notes.append(f"{people} accepted without a label: {whatever}")
    if log.estimated_propensity:
        notes.append(
            "propensities were estimated, not logged: see sensitivity() for what hidden reasons "
            "could change"
        )
    if is_learner(rule) and folds is not None:
        rule = cross_fitted(rule, log, folds, seed=seed)
    if isinstance(rule, CrossFitted):
        found = rule.values
        notes.append(
            f"cross-fitted: every row is decided by a policy learned from the other "
            f"{rule.folds - 1} of {rule.folds} folds"
        )
    else:
        rule = as_rule(rule)
        if folds is not None:
            checked_folds(folds, len(rows))
        warn_if_learned_from(
            rule,
            (log, rows),
            '(log.split(0.5, by="time_step")), or give the learner and folds=5',
            stacklevel + 1,
        )
        found = rows.propensity_of(rule)
    propensity, name = np.asarray(found, dtype=np.float64), type(rule).__name__
    if propensity.shape != (len(rows),):
        raise ValueError(
            f"{name}.propensity must give one number per row: shape ({len(rows)},), "
            f"not {propensity.shape}"
        )
    if not ((propensity >= 0.0) & (propensity <= 1.0)).all():
        raise ValueError(f"{name}.propensity must give probabilities in [0, 1]")
    return AppliedRule(rows, propensity, tuple(notes), isinstance(rule, Logged))


def young_notes(left_out: int, horizon: int | None) -> tuple[str, ...]:
    """Return a note on rows that are left out because they are younger than the horizon."""
    if left_out == 0:
        return ()
    rows = "1 row" if left_out == 1 else f"{left_out} rows"
    return (
        f"{rows} younger than the horizon of {horizon} time steps left out, accepted and rejected "
        "alike",
    )


def as_rule(thing: Any) -> DecisionRule:
    """Return a decision rule, from a fitted learner too; explain what cannot be one."""
    if isinstance(thing, DecisionRule):
        return thing
    if is_learner(thing):
        return _fitted_policy(thing)
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


def warn_if_learned_from(
    rule: Any, logs: Sequence[DecisionLog | LogScan], advice: str, stacklevel: int
) -> None:
    """Warn that a rule was learned from what it is evaluated on."""
    sources = set(_learned_from(rule))
    if sources and any(log.fingerprint in sources for log in logs):
        warnings.warn(
            WinnersCurseWarning(
                "this policy was learned from the very log it is evaluated on, so its figures "
                "are flattered and its intervals too narrow. Learn from one part and evaluate "
                f"on the other {advice}"
            ),
            stacklevel=stacklevel,
        )


def _learned_from(rule: Any) -> Iterator[str]:
    """Yield the fingerprints of the logs that a rule, or a part of it, was learned from."""
    if isinstance(rule, Logged):
        return
    if source := getattr(rule, "learned_from", ""):
        yield source
    for part in (*getattr(rule, "rules", ()), getattr(rule, "otherwise", None)):
        if part is not None:
            yield from _learned_from(part)


# Learners


def is_learner(thing: Any) -> bool:
    """Whether something learns a policy from a log: it has `fit_log`."""
    return not isinstance(thing, type) and callable(getattr(thing, "fit_log", None))


@dataclass(frozen=True, slots=True, eq=False)
class CrossFitted(DecisionRule):
    """A learner's policies, one for each fold, asked about the settled rows of one log.

    As a decision rule it decides on each row by the policy that was not fitted on it.

    Attributes
    ----------
    by_fold
        What each policy would do with every row: folds times rows.
    fold
        The fold each row is in, which its policy was not fitted on.
    policies
        The policies, one for each fold, where they were kept.
    """

    by_fold: Floats
    fold: NDArray[np.intp]
    policies: tuple[DecisionRule, ...] = ()

    @property
    def folds(self) -> int:
        """How many folds there are."""
        return len(self.by_fold)

    @property
    def values(self) -> Floats:
        """Each row's propensity under the policy that was not fitted on it."""
        return self.by_fold[self.fold, np.arange(len(self.fold))]

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return the values, for the rows they were found for."""
        return self.values


def cross_fitted(learner: Any, log: DecisionLog, folds: int = 5, *, seed: int = 0) -> CrossFitted:
    """Fit a learner on all folds but one, for each of them; see `cross_fitted_propensities`."""
    if not is_learner(learner):
        raise TypeError(
            f"cross-fitting needs a learner with fit_log(log); {_kind(learner)} has none"
        )
    from sklearn.base import clone

    rows = log.settled()
    count = checked_folds(folds, len(rows))
    fold = np.random.default_rng(seed).permutation(len(rows)) % count
    by_fold = np.empty((count, len(rows)))
    for k in range(count):
        try:
            fitted = clone(learner, safe=False).fit_log(rows.take(fold != k))
        except DecisionLogError as error:
            raise DecisionLogError(f"fold {k + 1} of {count} cannot be fitted: {error}") from error
        by_fold[k] = rows.propensity_of(_fitted_policy(fitted))
    return CrossFitted(by_fold, fold)


def cross_fitted_propensities(
    learner: Any, log: DecisionLog, folds: int = 5, *, seed: int = 0
) -> Floats:
    """Return each settled row's propensity under a policy that was not fitted on that row.

    The settled rows are split into folds at random; for each fold an unfitted copy of the learner
    is fitted on all other folds and asked about this one.

    Parameters
    ----------
    learner
        Anything with `fit_log(log)`, which returns itself with a `policy_`.
    log
        The log; all its settled rows are used.
    folds
        How many; each policy is fitted on a share `1 - 1/folds` of the rows.
    seed
        Of the split.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> class AcceptanceRate:
    ...     def fit_log(self, log):
    ...         self.policy_ = cq.RejectAll().with_floor(float(log.decision.mean()))
    ...         return self
    >>> log = cq.DecisionLog.from_arrays(
    ...     np.zeros((4, 1)), [1, 0, 0, 0], [0.5] * 4, [1, None, None, None])
    >>> cq.statistics.cross_fitted_propensities(AcceptanceRate(), log, folds=4).round(2)
    array([0.  , 0.33, 0.33, 0.33])
    """
    return cross_fitted(learner, log, folds, seed=seed).values


def _fitted_policy(learner: Any) -> DecisionRule:
    policy = getattr(learner, "policy_", None)
    if isinstance(policy, DecisionRule):
        return policy
    raise TypeError(
        f"{_kind(learner)} is not fitted: it has no policy_. Call fit_log(log) on other rows "
        "first, or give folds=5 to have it fitted on parts of this log and evaluated on the rest"
    )


def checked_folds(folds: Any, n_rows: int) -> int:
    """Return a number of folds that rows can be cut into."""
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 2:
        raise ValueError(f"folds is a whole number of at least 2, not {folds!r}")
    if folds > n_rows:
        raise ValueError(f"{n_rows} settled decisions cannot be cut into {folds} folds")
    return int(folds)


def _kind(thing: Any) -> str:
    return thing.__name__ if isinstance(thing, type) else type(thing).__name__
