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
from consequential.objective.functionals import Tally
from consequential.objective.weightings.fractional import fit_classifier
from consequential.policy.scores import with_groups
from consequential.workers import threads_for

Floats = NDArray[np.float64]


class Weighting(ABC):
    """How many people each labelled row stands for.

    One of your own gives `weights(log)`, and `group_weights(log)` where sums by group need others.
    `row_by_row = True` says that a weight follows from its row alone, so that a log may come in
    pieces.

    Examples
    --------
    Weights that grow with the square root of one over the propensity:

    >>> import numpy as np, consequential as cq
    >>> class Softened(cq.weightings.Weighting):
    ...     row_by_row = True
    ...     def weights(self, log):
    ...         return np.where(log.labelled, log.propensity**-0.5, 0.0)
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.Objective(cost=0.5, weighting=Softened()).value(cq.Policy([0.0, 0.0]), log)
    0.25
    """

    row_by_row: ClassVar[bool] = False

    @abstractmethod
    def weights(self, log: DecisionLog) -> Floats:
        """Return one weight per row; 0 where no label is known."""

    def group_weights(self, log: DecisionLog) -> Floats:
        """Return the weights for sums that are normalised group by group."""
        return self.weights(log)

    def unsupported(self, log: DecisionLog) -> Floats | None:
        """Return the share of each person that weights leave out in expectation; None for 0.

        It is 1 for people who could not be accepted; clipping leaves out a part of others.
        """
        never = log.propensity <= 0.0
        return never.astype(np.float64) if never.any() else None

    def unclipped(self, log: DecisionLog) -> Floats:
        """Return the weights before clipping, from which effective sample sizes are computed."""
        return self.weights(log)

    def notes(self, log: DecisionLog) -> tuple[str, ...]:
        """Return what to know about estimates with these weights on this log."""
        return ()

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Return the weighted counts for sums over all applicants, and for sums by group."""
        overall = self._tally(log, self.weights(log))
        if type(self).group_weights is Weighting.group_weights:
            return overall, overall
        return overall, self._tally(log, self.group_weights(log))

    def _tally(self, log: DecisionLog, weights: Floats) -> Tally:
        weights = self._checked(log, weights)
        positives = weights * log.outcome
        missing = None
        if log.missing == "against" and log.n_pending > 0:
            missing = np.where(log.labelled, 0.0, weights)
        return Tally(
            np.ones(len(log)),
            positives,
            weights - positives,
            log.group,
            log.group_counts.astype(np.float64),
            unsupported=self.unsupported(log),
            missing=missing,
        )

    def _checked(self, log: DecisionLog, weights: Any) -> Floats:
        """Return weights after checking that they are finite, not negative and one per row."""
        found, name = np.asarray(weights, dtype=np.float64), f"{type(self).__name__}.weights"
        if found.shape != (len(log),):
            raise ValueError(
                f"{name} must give one weight per row, 0 where no label is known: shape "
                f"({len(log)},), not {found.shape}"
            )
        wrong = np.flatnonzero(~((found >= 0.0) & (found < np.inf)))
        if len(wrong):
            raise ValueError(
                f"{name} must be finite and not negative, but row {wrong[0]} has {found[wrong[0]]}"
            )
        return found


def counted_rows(log: DecisionLog) -> NDArray[np.bool_]:
    """Return the rows whose label counts: where it is known, or missing and taken for a failure."""
    return log.decision if log.missing == "against" else log.labelled


def inverse_propensity(log: DecisionLog) -> Floats:
    """Return one over the probability that a label is seen, where it is."""
    return np.divide(1.0, log.label_propensity, out=np.zeros(len(log)), where=counted_rows(log))


@dataclass(frozen=True, slots=True)
class InversePropensity(Weighting):
    """`w = d / p`, the paper's: unbiased for every linear functional [K20: ips-utility].

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.weightings.InversePropensity().weights(log)
    array([4., 0.])
    """

    row_by_row = True

    def weights(self, log: DecisionLog) -> Floats:
        """Return `d / p`."""
        return inverse_propensity(log)


@dataclass(frozen=True, slots=True)
class Clipped(Weighting):
    """`w = min(d / p, maximum)`: less variance, and biased wherever it binds.

    Gains and losses are clipped alike, so the bias can have either sign.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.weightings.Clipped(3.0).weights(log)
    array([3., 0.])
    """

    row_by_row = True

    maximum: float

    def __post_init__(self) -> None:
        if not self.maximum >= 1.0:
            raise ValueError(f"weights are clipped at 1 or above, not at {self.maximum!r}")

    def weights(self, log: DecisionLog) -> Floats:
        """Return `min(d / p, maximum)`."""
        return np.minimum(inverse_propensity(log), self.maximum)

    def unclipped(self, log: DecisionLog) -> Floats:
        """Return `d / p`: clipping does not make anybody's label say more."""
        return inverse_propensity(log)

    def unsupported(self, log: DecisionLog) -> Floats | None:
        """`1 - p maximum` of a person whose propensity is below one over the maximum."""
        lost = np.maximum(1.0 - self.maximum * log.label_propensity, 0.0)
        return lost if lost.any() else None

    def notes(self, log: DecisionLog) -> tuple[str, ...]:
        """Say how much clipping leaves out."""
        lost = self.unsupported(log)
        if lost is None:
            return ()
        return (
            f"weights clipped at {self.maximum:g} are biased: they leave out {lost.mean():.1%} of "
            "people, and intervals cover every label these could have",
        )


@dataclass(frozen=True, slots=True)
class SelfNormalised(Weighting):
    """`w N / sum w`: weights that average to one, in the log or within each group.

    Not the self-normalised estimator of off-policy libraries, whose divisor depends on the
    policy being evaluated; this one does not, so every functional stays linear.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.weightings.SelfNormalised().weights(log)
    array([2., 0.])
    """

    def weights(self, log: DecisionLog) -> Floats:
        """Return `d / p` divided by its mean over the people who could be accepted."""
        return _averaging_one(log, np.zeros(len(log), dtype=np.intp), 1)

    def group_weights(self, log: DecisionLog) -> Floats:
        """Return the same with a mean for each group."""
        return _averaging_one(log, log.group, len(log.groups))

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Count people, and keep the weights whose average was made one."""
        never = log.propensity <= 0.0  # they take no part in the average
        overall, within = (
            replace(self._tally(log, weights), normalised=np.where(never, 1.0, weights))
            for weights in (self.weights(log), self.group_weights(log))
        )
        return overall, within


def _averaging_one(log: DecisionLog, group: NDArray[np.intp], n_groups: int) -> Floats:
    """Return inverse propensities divided by their mean in each group."""
    plain = inverse_propensity(log)
    totals = np.bincount(group, plain, n_groups)
    counts = np.bincount(group, log.propensity > 0.0, n_groups)
    scale = np.divide(counts, totals, out=np.zeros(n_groups), where=totals > 0)
    return plain * scale[group]


@dataclass(frozen=True, slots=True)
class Unweighted(Weighting):
    """`w = d`: the accepted people as if they were everybody. The mistake, for comparison.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.weightings.Unweighted().weights(log)
    array([1., 0.])
    """

    row_by_row = True

    def weights(self, log: DecisionLog) -> Floats:
        """Return the decisions."""
        return log.labelled.astype(np.float64)

    def unsupported(self, log: DecisionLog) -> Floats | None:
        """Nobody: taking the accepted for everybody is the mistake."""
        return None


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
    >>> objective = cq.Objective(world.cost, weighting=cq.weightings.DoublyRobust())
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

    def weights(self, log: DecisionLog) -> Floats:
        """Return the weights of the residuals."""
        return self.weighting.weights(log)

    def group_weights(self, log: DecisionLog) -> Floats:
        """Return the weights of the residuals in sums by group."""
        return self.weighting.group_weights(log)

    def unclipped(self, log: DecisionLog) -> Floats:
        """Return the weights of the residuals before any clipping."""
        return self.weighting.unclipped(log)

    def notes(self, log: DecisionLog) -> tuple[str, ...]:
        """Say where the model alone counts, because the weights of its residuals are clipped."""
        if isinstance(self.weighting, Clipped) and self.weighting.unsupported(log) is not None:
            return (
                f"residuals are clipped at {self.weighting.maximum:g}: where that binds, "
                "estimates are as biased as the model of the label",
            )
        return self.weighting.notes(log)

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Let the model count, and correct it by weighted residuals."""
        predicted = self.predicted(log)

        def corrected(weights: Floats) -> Tally:
            counted = self._tally(log, weights)
            positives = predicted + weights * (log.outcome - predicted)
            return replace(counted, positives=positives, negatives=counted.people - positives)

        return corrected(self.weights(log)), corrected(self.group_weights(log))

    def predicted(self, log: DecisionLog) -> Floats:
        """Return each row's probability of label 1, by a model fitted on the other folds."""
        from sklearn.base import clone
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = self.classifier
        if model is None:
            model = HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=15, random_state=0)
        inputs = with_groups(log.features, log.group, len(log.groups))
        fold = np.random.default_rng(0).permutation(len(log)) % self.folds
        predicted = np.empty(len(log))
        for k in range(self.folds):
            seen, unseen = log.labelled & (fold != k), fold == k
            labels = log.label[seen]
            if len(labels) == 0:
                raise DecisionLogError(
                    f"nobody was accepted outside fold {k + 1} of {self.folds}: a model of the "
                    "label has nothing to learn from"
                )
            if labels.min() == labels.max():
                predicted[unseen] = labels[0]
            elif unseen.any():
                with threads_for(len(log)):
                    fitted = fit_classifier(clone(model), inputs[seen], labels)
                    predicted[unseen] = fitted.predict_proba(inputs[unseen])[:, 1]
        return predicted


def effective_sample_size(weights: Floats) -> float:
    """`(sum w)^2 / sum w^2`: how many equally weighted rows say as much.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> cq.weightings.effective_sample_size(np.array([1.0, 1.0, 0.0, 4.0]))
    2.0
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
