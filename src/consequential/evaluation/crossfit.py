"""Cross-fitting: propensities of a learner for people it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.policies import DecisionRule

Floats = NDArray[np.float64]


def is_learner(thing: Any) -> bool:
    """Whether something learns a policy from a log: it has `fit_log`."""
    return not isinstance(thing, type) and callable(getattr(thing, "fit_log", None))


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
    """

    by_fold: Floats
    fold: NDArray[np.intp]

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
        by_fold[k] = rows.propensity_of(fitted_policy(fitted))
    return CrossFitted(by_fold, fold)


def fitted_policy(learner: Any) -> DecisionRule:
    """Return the policy a learner has found, or say that it has not been fitted."""
    policy = getattr(learner, "policy_", None)
    if isinstance(policy, DecisionRule):
        return policy
    raise TypeError(
        f"{_kind(learner)} is not fitted: it has no policy_. Call fit_log(log) on other rows "
        "first, or give folds=5 to have it fitted on parts of this log and evaluated on the rest"
    )


def checked_folds(folds: Any, n_rows: int) -> int:
    """Return a whole number of folds that a log of this size can be cut into."""
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 2:
        raise ValueError(f"folds is a whole number of at least 2, not {folds!r}")
    if folds > n_rows:
        raise ValueError(f"{n_rows} settled decisions cannot be cut into {folds} folds")
    return int(folds)


def _kind(thing: Any) -> str:
    return thing.__name__ if isinstance(thing, type) else type(thing).__name__
