"""Weights: accepted people stand in for the rejected ones they resemble.

Estimand: for any `h`, `sum_i w_i h(x_i, y_i) / N` estimates `E[h(X, Y)]` over *all* applicants
although y is known for accepted people only. A rejected row's weight is 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.fairness import Tally

Floats = NDArray[np.float64]

_MANY = 100_000


class Weighting(ABC):
    """How a row's weight follows from the log.

    `row_by_row` says whether it follows from the row alone, so that a log may come in pieces.
    """

    row_by_row: ClassVar[bool] = False

    @abstractmethod
    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """One weight a row; `within_group` for sums that are normalised group by group."""

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Whom the rows stand for in sums over all applicants, and in sums by group."""
        overall = _tally(log, self.weights(log))
        if self.row_by_row:
            return overall, overall
        within = self.weights(log, within_group=True)
        return overall, _tally(log, within)


def _tally(log: DecisionLog, weights: Floats) -> Tally:
    positives = weights * log.outcome
    sizes = log.group_counts.astype(np.float64)
    return Tally(np.ones(len(log)), positives, weights - positives, log.group, sizes)


def _inverse(decision: NDArray[np.bool_], propensity: Floats) -> Floats:
    return np.divide(1.0, propensity, out=np.zeros(len(propensity)), where=decision)


@dataclass(frozen=True, slots=True)
class InversePropensity(Weighting):
    """`w = d / p`, the paper's: unbiased for every linear functional [K20: ips-utility].

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.InversePropensity().weights(log)
    array([4., 0.])
    """

    row_by_row = True

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return `d / p`."""
        return _inverse(log.decision, log.propensity)


@dataclass(frozen=True, slots=True)
class Clipped(Weighting):
    """`w = min(d / p, maximum)`: less variance, and biased wherever it binds.

    Gains and losses are clipped alike, so the bias can have either sign. `pessimistic` clips
    gains alone: a row counts for `w y` people with label 1 and `1 - w y` with label 0, and the
    utility is too low wherever clipping binds.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.Clipped(3.0).weights(log)
    array([3., 0.])
    >>> overall, _ = cq.Clipped(3.0, pessimistic=True).tallies(log)
    >>> overall.positives, overall.negatives
    (array([3., 0.]), array([-2.,  1.]))
    """

    row_by_row = True

    maximum: float
    pessimistic: bool = False

    def __post_init__(self) -> None:
        if not self.maximum >= 1.0:
            raise ValueError(f"weights are clipped at 1 or above, not at {self.maximum!r}")

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return `min(d / p, maximum)`."""
        return np.minimum(_inverse(log.decision, log.propensity), self.maximum)

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Count people; under `pessimistic` whoever is not known to have label 1 has label 0."""
        tally = _tally(log, self.weights(log))
        if self.pessimistic:
            tally = replace(tally, negatives=tally.people - tally.positives)
        return tally, tally


@dataclass(frozen=True, slots=True)
class SelfNormalised(Weighting):
    """`w N / sum w`: weights that average to one, in the log or within each group.

    Not the self-normalised estimator of off-policy libraries, whose divisor depends on the
    policy being evaluated; this one does not, so every functional stays linear.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.SelfNormalised().weights(log)
    array([2., 0.])
    """

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return `d / p` divided by its mean."""
        plain = _inverse(log.decision, log.propensity)
        if not within_group:
            total = plain.sum()
            return plain * (len(log) / total) if total > 0 else plain
        totals = np.bincount(log.group, plain, len(log.groups))
        scale = np.divide(log.group_counts, totals, out=np.zeros(len(totals)), where=totals > 0)
        return plain * scale[log.group]

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Count people, and keep the weights whose average was made one."""
        overall, within = self.weights(log), self.weights(log, within_group=True)
        return (
            replace(_tally(log, overall), normalised=overall),
            replace(_tally(log, within), normalised=within),
        )


@dataclass(frozen=True, slots=True)
class BalanceHeuristic(Weighting):
    """`w = d / sum_t (N_t / N) pi_t(x)` over the policies that filled the log.

    Lower variance than each row's own propensity where the policies were fixed beforehand;
    biased where later ones were learned from earlier rows. Needs the log's `policies`.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.0], [0.0]], [1, 1], [0.25, 0.75], [1, 0], time_step=[0, 1],
    ...     policies={0: cq.EveryNth(4), 1: cq.RejectAll().with_floor(0.75)})
    >>> cq.BalanceHeuristic().weights(log)
    array([2., 2.])
    """

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return one over the average propensity of all the policies, for accepted rows."""
        steps, counts = np.unique(log.time_step, return_counts=True)
        missing = [int(step) for step in steps if int(step) not in log.policies]
        if missing:
            raise DecisionLogError(
                f"the balance heuristic needs the policy of every time step; the log has none "
                f"for {missing[:3]}{' and more' if len(missing) > 3 else ''}"
            )
        accepted = np.flatnonzero(log.decision)
        features = log.features[accepted]
        sensitive = log.sensitive[accepted]
        averaged = np.zeros(len(accepted))
        for step, count in zip(steps, counts, strict=True):
            share = np.full(len(log.groups), count / len(log))
            if within_group:
                here = np.bincount(log.group[log.time_step == step], minlength=len(log.groups))
                share = here / np.maximum(log.group_counts, 1)
            rule = log.policies[int(step)]
            averaged += share[log.group[accepted]] * rule.propensity(features, sensitive)
        if len(averaged) and averaged.min() <= 0:
            raise DecisionLogError(
                f"row {accepted[averaged.argmin()]} was accepted, but no policy of the log would "
                "have accepted it: these are not the policies that decided"
            )
        weights = np.zeros(len(log))
        weights[accepted] = 1.0 / averaged
        return weights


@dataclass(frozen=True, slots=True)
class Unweighted(Weighting):
    """`w = d`: the accepted people as if they were everybody. The mistake, for comparison.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.Unweighted().weights(log)
    array([1., 0.])
    """

    row_by_row = True

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return the decisions."""
        return log.decision.astype(np.float64)


@dataclass(frozen=True, slots=True)
class DoublyRobust(Weighting):
    """A model of the label stands in for everybody, and weighted residuals correct it.

    A row counts for `q + w (y - q)` people with label 1, where q is the label's probability by a
    classifier that never saw the row (cross-fitted on accepted people). Unbiased whatever the
    model if propensities are right, and close if the model is right and propensities are not.

    Parameters
    ----------
    classifier
        Any scikit-learn classifier; gradient-boosted trees by default. The sensitive groups are
        among its inputs, which no decision is made from.
    folds
        Into how many parts the log is cut for cross-fitting.
    weighting
        The weights of the residuals.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> start = world.initial_policy().with_floor(0.05)
    >>> log = world.collect(start, 10_000, np.random.default_rng(0))
    >>> objective = cq.Objective(world.cost, weighting=cq.DoublyRobust())
    >>> round(objective.value(cq.Policy([0.0, 0.0]), log), 2)  # half of accept-all's .1596
    0.08
    """

    classifier: Any = None
    folds: int = 5
    weighting: Weighting = InversePropensity()

    def __post_init__(self) -> None:
        if self.folds != int(self.folds) or self.folds < 2:
            raise ValueError(f"cross-fitting needs at least 2 folds, not {self.folds!r}")
        if self.classifier is not None and not hasattr(self.classifier, "predict_proba"):
            raise ValueError(f"{self.classifier!r} has no predict_proba to model a label with")

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return the weights of the residuals."""
        return self.weighting.weights(log, within_group=within_group)

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Let the model count, and correct it by weighted residuals."""
        predicted = self.predicted(log)
        corrected = []
        for within_group in (False, True):
            weights = self.weights(log, within_group=within_group)
            positives = predicted + weights * (log.outcome - predicted)
            sizes = log.group_counts.astype(np.float64)
            people = np.ones(len(log))
            corrected.append(Tally(people, positives, people - positives, log.group, sizes))
        return corrected[0], corrected[1]

    def predicted(self, log: DecisionLog) -> Floats:
        """Return each row's probability of label 1, by a model fitted on the other folds."""
        from sklearn.base import clone
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        model = self.classifier
        if model is None:
            model = HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=15, random_state=0)
        groups = np.eye(len(log.groups))[:, 1:][log.group]  # no column where there is one group
        inputs = np.column_stack([log.features, groups])
        fold = np.random.default_rng(0).permutation(len(log)) % self.folds
        predicted = np.empty(len(log))
        for k in range(self.folds):
            seen, unseen = log.decision & (fold != k), fold == k
            labels = log.label[seen].astype(np.int64)
            if len(labels) == 0:
                raise DecisionLogError(
                    f"nobody was accepted outside fold {k + 1} of {self.folds}: a model of the "
                    "label has nothing to learn from"
                )
            if labels.min() == labels.max():
                predicted[unseen] = labels[0]
            elif unseen.any():
                # on few rows threads wait for one another longer than they work
                with threadpool_limits(None if len(log) >= _MANY else 1):
                    fitted = clone(model).fit(inputs[seen], labels)
                    predicted[unseen] = fitted.predict_proba(inputs[unseen])[:, 1]
        return predicted


def effective_sample_size(weights: Floats) -> float:
    """`(sum w)^2 / sum w^2`: how many equally weighted rows say as much.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> cq.effective_sample_size(np.array([1.0, 1.0, 0.0, 4.0]))
    2.0
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
