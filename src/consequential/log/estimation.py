"""Estimated probabilities: of acceptance where it was not logged, and of a known label."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log.checks import checked_observed
from consequential.log.columns import DecisionLogError
from consequential.policy.scores import with_groups
from consequential.workers import threads_for

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog

Floats = NDArray[np.float64]
Missing = Literal["refuse", "against", "at_random"]

_BELOW_ONE = 1.0 - 1e-6  # a rejected person cannot have been sure to be accepted
_SMALLEST_OBSERVED = 0.01  # estimated probability that a label is known


@dataclass(frozen=True, slots=True)
class EstimatedPropensity:
    """Stand-in for `propensity`: how likely people like this one were to be accepted.

    Each person's chance comes from a classifier of the decisions that never saw that person,
    calibrated on people it did not see either; inputs are the features and the sensitive group.
    Use it only where the true propensities are lost. Two things it cannot repair:

    * A rule that left nothing to chance. Of the people who were at most as likely to be accepted
      as the median rejected person, a share `floor` or more must have been accepted, in every
      group; otherwise the log is refused. This looks at ranks and counts only, so a classifier
      that is only unsure near a sharp boundary is not taken for exploration: half of the
      rejected lie far from it.
    * An officer who went by something that is not among the features. Decisions then look
      random and are not; nothing in the log can tell. The log remembers that its propensities
      are estimates and says so wherever it is shown.

    Parameters
    ----------
    classifier
        Any scikit-learn classifier; gradient-boosted trees by default.
    folds
        Into how many parts the log is cut for cross-fitting.
    calibration
        `"isotonic"`, or `"sigmoid"` where chances are known to follow a logistic curve. Under an
        exploration floor the sigmoid is badly wrong: weights averaged 1.7 where they should
        average 1, the isotonic ones 1.0 (floor .05, 20 000 rows).
    floor
        Estimates below it are raised to it, which bounds every weight by `1 / floor`.
    seed
        Decides which rows share a fold.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> lost = world.collect(world.initial_policy(), 4_000, np.random.default_rng(0))
    >>> log = cq.DecisionLog.from_arrays(
    ...     lost.features, lost.decision, cq.EstimatedPropensity(), lost.label, lost.sensitive)
    >>> log
    DecisionLog(4000 decisions, 1387 accepted, 0 pending, 1 feature, groups 0: 1949, 1: 2051,
    propensities estimated)
    >>> bool(np.abs(log.propensity - lost.propensity).mean() < 0.05)
    True
    """

    classifier: Any = None
    folds: int = 5
    calibration: Literal["isotonic", "sigmoid"] = "isotonic"
    floor: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.floor < 0.5:
            raise DecisionLogError(f"floor lies strictly between 0 and 1/2, not {self.floor!r}")

    def propensities(
        self,
        features: Floats,
        decision: NDArray[np.bool_],
        group: NDArray[np.intp],
        groups: tuple[Hashable, ...],
    ) -> Floats:
        """Return each person's estimated probability of acceptance, or refuse the log."""
        self._check_decisions(decision)
        estimates = self.cross_fitted(features, decision, group, len(groups))
        self._check_explored("", estimates, decision)
        for code, name in enumerate(groups if len(groups) > 1 else ()):
            inside = group == code
            # fewer people could not show a rate of `floor`
            smallest = 1.0 / self.floor
            whose = f" of group {name!r}"
            self._check_explored(whose, estimates[inside], decision[inside], smallest)
        return np.clip(estimates, self.floor, _BELOW_ONE)

    def _check_decisions(self, decision: NDArray[np.bool_]) -> None:
        accepted = int(decision.sum())
        rejected = len(decision) - accepted
        # calibration cuts each training part once more
        needed = 2 * self.folds
        if accepted == 0:
            raise DecisionLogError("nobody was accepted: there is no propensity to estimate")
        if rejected == 0:
            raise DecisionLogError(
                "everybody was accepted: nothing needs estimating, give propensity 1 for all"
            )
        if min(accepted, rejected) < needed:
            raise DecisionLogError(
                f"estimating propensities in {self.folds} folds needs {needed} accepted and "
                f"{needed} rejected people at least; there are {accepted} and {rejected}"
            )

    def cross_fitted(
        self, features: Floats, decision: NDArray[np.bool_], group: NDArray[np.intp], n_groups: int
    ) -> Floats:
        """Return each row's calibrated probability by a classifier that did not see the row."""
        from sklearn.base import clone
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        model = self.classifier
        if model is None:
            model = HistGradientBoostingClassifier(
                max_iter=50, max_leaf_nodes=15, random_state=self.seed
            )
        inputs = with_groups(features, group, n_groups)
        inner = StratifiedKFold(3, shuffle=True, random_state=self.seed)
        outer = StratifiedKFold(self.folds, shuffle=True, random_state=self.seed)
        calibrated = CalibratedClassifierCV(clone(model), method=self.calibration, cv=inner)
        with threads_for(len(inputs)):
            found = cross_val_predict(
                calibrated, inputs, decision.astype(np.int64), cv=outer, method="predict_proba"
            )
        return np.asarray(found[:, 1], dtype=np.float64)

    def _check_explored(
        self,
        whose: str,
        estimates: Floats,
        decision: NDArray[np.bool_],
        smallest: float = 0.0,
    ) -> None:
        """Refuse decisions that accepted next to nobody of the half least likely of the rejected.

        Fewer than `smallest` such people show nothing.
        """
        if decision.all():
            return
        unlikely = estimates <= np.median(estimates[~decision])
        people, accepted = int(unlikely.sum()), int((unlikely & decision).sum())
        if people >= smallest and accepted < self.floor * people:
            raise DecisionLogError(
                f"the past rule left next to nothing to chance: of the {people} people{whose} it "
                f"was least likely to accept, {accepted} were accepted, less than "
                f"{self.floor:.0%}. No accepted people are like those it rejects, so this log "
                "cannot say what accepting them would bring. Decisions with an exploration floor "
                "can: deploy rule.with_floor(0.05), log its propensities, and let "
                "consequential.plan say what that costs and how long it takes"
            )


def observed_probability(log: DecisionLog, given: ArrayLike | None) -> Floats | None:
    """Return the probability with which each accepted person's label becomes known.

    None where labels are not thinned: for `"refuse"` and `"against"`. For `"at_random"` it is the
    probability given, or an estimate by a classifier that did not see the person, among accepted
    people old enough to have a label. Rejected people have no label to observe; theirs is not used.
    """
    if log.missing not in get_args(Missing):
        raise DecisionLogError(
            f"missing is 'refuse', 'against' or 'at_random', not {log.missing!r}: what to make of "
            "accepted people without a label"
        )
    if log.missing != "at_random":
        if given is not None:
            raise DecisionLogError('observed= is for missing="at_random" only')
        return None
    if given is not None:
        return checked_observed(given, log.decision)
    old = log.time_step <= log.time_step.max() - (log.horizon or 0)
    rows = np.flatnonzero(log.decision & old)
    probability = np.ones(len(log))
    if log.labelled[rows].all():
        return probability
    try:
        if not log.labelled[rows].any():
            raise ValueError("no accepted person has a label")
        estimates = EstimatedPropensity().cross_fitted(
            log.features[rows], log.labelled[rows], log.group[rows], len(log.groups)
        )
    except ValueError as error:
        raise DecisionLogError(
            f"the probability that a label is observed cannot be estimated: {error}. Give "
            "observed=, the probability of each accepted person"
        ) from None
    probability[rows] = np.clip(estimates, _SMALLEST_OBSERVED, 1.0)
    return probability
