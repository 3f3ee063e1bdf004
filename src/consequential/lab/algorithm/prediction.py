"""Learning to predict: fit a predictor to the labels there are, then threshold it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.objective import Objective
from consequential.objective.weightings import Unweighted
from consequential.policy import DecisionRule, Policy, ThresholdPolicy, logistic_model

__all__ = ["FitFairPredictor", "FitPredictor", "PredictionUpdate"]

Floats = NDArray[np.float64]


NOBODY_ACCEPTED = "nobody was accepted, so there is no label to fit; the predictor stays"
LABELS_ALIKE = "all labels are alike, so there is nothing to tell apart; the predictor stays"
NOT_REACHED = "the logistic fit stopped before its maximum"
MAX_ITERATIONS = 200


@dataclass(frozen=True, slots=True)
class PredictionUpdate:
    """A newly fitted rule, or the old one with the reason why it stays."""

    policy: DecisionRule
    notes: tuple[str, ...] = ()


class PredictorFit(ABC):
    """From any rule and a log to a thresholded predictor, or the old rule with a reason."""

    def __call__(
        self,
        policy: DecisionRule,
        log: DecisionLog,
        *,
        rng: np.random.Generator,
        time_step: int = 0,
    ) -> PredictionUpdate:
        """Return the thresholded new predictor."""
        if log.value_range is not None:
            raise DecisionLogError(
                "a predictor is fitted to labels of 0 and 1, and this log has values: learn from "
                "it with FairPolicyLearner or UpdatePolicy"
            )
        settled = log.settled()
        accepted = settled.take(settled.decision)
        if len(accepted) == 0:
            return PredictionUpdate(policy, (NOBODY_ACCEPTED,))
        if accepted.label.min() == accepted.label.max():
            return PredictionUpdate(policy, (LABELS_ALIKE,))
        return self.fitted(getattr(policy, "predictor", None), accepted)

    @abstractmethod
    def fitted(self, last: Any, accepted: DecisionLog) -> PredictionUpdate:
        """Fit accepted people with labels of both kinds; `last` is the last predictor or None."""


@dataclass(frozen=True, slots=True)
class FitPredictor(PredictorFit):
    """Fit a classifier on the accepted people and accept where it predicts `threshold` or more.

    The paper's *deterministic* strategy. The predictor is never told who was rejected, which is
    the point of the comparison.

    Parameters
    ----------
    threshold
        Predictions at or above it are accepted: the cost.
    classifier
        Any scikit-learn classifier. By default an (all but) unpenalised logistic regression
        by Newton's method, which starts from the last one.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), world.cost)
    >>> log = world.collect(rule, 32_768, np.random.default_rng(0))
    >>> fitted = cq.lab.FitPredictor(world.cost)(rule, log, rng=np.random.default_rng(1)).policy
    >>> round(world.exact(fitted).utility, 2)
    0.16
    """

    threshold: float
    classifier: Any = None

    def fitted(self, last: Any, accepted: DecisionLog) -> PredictionUpdate:
        """Fit the classifier."""
        if self.classifier is None:
            return self._logistic(last, accepted)
        from sklearn.base import clone

        model = clone(self.classifier)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(accepted.features, accepted.label.astype(np.int64))
        notes = tuple(dict.fromkeys(f"while fitting: {warning.message}" for warning in caught))
        return PredictionUpdate(ThresholdPolicy(model, self.threshold), notes)

    def _logistic(self, last: Any, accepted: DecisionLog) -> PredictionUpdate:
        from consequential.lab.kernels.matrices import RIDGE, fit_logistic

        n, n_features = accepted.features.shape
        phi = np.ones((n_features + 1, n))
        phi[1:] = accepted.features.T
        start = np.zeros(n_features + 1)
        if hasattr(last, "coef_") and last.coef_.shape == (1, n_features):
            start = np.concatenate([last.intercept_, last.coef_[0]])  # where the last fit ended
        theta, reached = fit_logistic(
            phi, np.array(accepted.label), np.ones(n), start, RIDGE, MAX_ITERATIONS
        )
        notes = () if reached else (NOT_REACHED,)
        return PredictionUpdate(ThresholdPolicy(logistic_model(theta), self.threshold), notes)


@dataclass(frozen=True, slots=True)
class FitFairPredictor(PredictorFit):
    """Fit a logistic predictor whose thresholded decisions are pushed towards fairness.

    Maximises `mean log likelihood - penalty/2 (benefit gap)^2` over the accepted people, the
    benefits taken at `sigma(logit Q(x) - logit cost)`, the smooth stand-in for `Q(x) >= cost`.
    Like any predictor it sees accepted people only: its gap is theirs, not the applicants'.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), world.cost)
    >>> log = world.collect(cq.AcceptAll(), 20_000, np.random.default_rng(0))
    >>> objective = cq.Objective(world.cost, "demographic_parity", penalty=100.0)
    >>> fair = cq.lab.FitFairPredictor(objective)(rule, log, rng=np.random.default_rng(1)).policy
    >>> abs(world.exact(fair).benefit_gap) < 0.01
    True
    """

    objective: Objective
    max_iterations: int = 200

    def fitted(self, last: Any, accepted: DecisionLog) -> PredictionUpdate:
        """Fit the penalised likelihood."""
        from scipy.optimize import minimize

        cost = self.objective.cost
        parity = Objective(
            cost, self.objective.fairness, self.objective.penalty, weighting=Unweighted()
        )
        coefficients = parity.coefficients(accepted)
        features = accepted.features
        mean, deviation = features.mean(axis=0), features.std(axis=0)
        deviation[deviation == 0] = 1.0
        phi = np.column_stack([np.ones(len(accepted)), (features - mean) / deviation])
        shift = np.log((1.0 - cost) / cost)
        soft = Policy(np.zeros(phi.shape[1]))

        def loss(theta: Floats) -> tuple[float, Floats]:
            eta = phi @ theta
            likelihood = accepted.label * eta - np.logaddexp(0.0, eta)
            residual = accepted.label - soft.probability(eta)
            propensity, slope = soft.probability(eta + shift), soft.derivative(eta + shift)
            sums = coefficients.sums(propensity)
            at = parity.slopes_at(sums)
            by_row = coefficients.row_slopes(0.0, at.numerators, at.denominators)
            value = likelihood.mean() + parity.value_at(sums) - sums.utility
            gradient = (residual / len(residual) + by_row * slope) @ phi
            # a whisper of ridge: separable labels must not send theta to infinity
            return 1e-6 * float(theta @ theta) - value, 2e-6 * theta - gradient

        start = _standardised(last, mean, deviation, phi.shape[1])
        best = minimize(
            loss, start, jac=True, method="L-BFGS-B", options={"maxiter": self.max_iterations}
        )
        slopes = best.x[1:] / deviation
        theta = np.concatenate([[best.x[0] - slopes @ mean], slopes])
        notes = () if best.success else (f"the fair predictor's fit stopped early: {best.message}",)
        return PredictionUpdate(ThresholdPolicy(logistic_model(theta), cost), notes)


def _standardised(last: Any, mean: Floats, deviation: Floats, size: int) -> Floats:
    """The last logistic model's parameters on standardised features; zeros for another model."""
    if not hasattr(last, "coef_") or last.coef_.shape != (1, size - 1):
        return np.zeros(size)
    slopes = last.coef_[0] * deviation
    return np.concatenate([last.intercept_ + last.coef_[0] @ mean, slopes])
