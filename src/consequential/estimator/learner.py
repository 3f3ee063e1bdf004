"""FairPolicyLearner: a fair policy from a log of decisions, in scikit-learn's clothes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from consequential.estimator.tables import (
    accepted_rows,
    at_step,
    coded_labels,
    column_of,
    frame_like,
    log_of,
    people_of,
    seen_labels,
)
from consequential.evaluation import evaluate
from consequential.learning import Aggregated, Constraint, Fitted, fit_policy
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import Fairness, Objective, Weighting
from consequential.policies import FeatureMap, Link, Policy, PolicyError

if TYPE_CHECKING:
    from consequential.evaluation import Evaluation

Floats = NDArray[np.float64]


class FairPolicyLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """Learn whom to accept, with what probability, from labels of accepted people only.

    Maximises the estimated utility of *all* applicants over policies `g(theta . phi(x))`, less a
    fairness penalty or under a fairness constraint: full batch, deterministic, without a learning
    rate.

    Parameters
    ----------
    cost
        What accepting costs: label 1 is worth `1 - cost`, label 0 `-cost`.
    fairness
        A notion or its name. It needs sensitive groups only with a penalty or a constraint.
    penalty
        The paper's lambda: `utility - penalty/2 (benefit gap)^2`.
    max_gap
        The largest difference allowed between any two groups' benefits.
    min_ratio
        The smallest ratio allowed between any two groups' benefits. 0.8 with demographic parity is
        the four-fifths *screen*: a rule of thumb for where to look closer, not a legal test.
    link
        `"logistic"`, `"smooth_semi_logistic"` or `"semi_logistic"`, whose jump the gradient does
        not see: prefer the smooth one.
    feature_map
        A scikit-learn transformer, fitted on everybody in the log: splines, polynomials, random
        Fourier features, one-hot, or a pipeline of them.
    l2
        Shrinkage of the standardised parameters, per unit of the utility's scale; the intercept is
        free. Below 1e-9, which lets policies be all but thresholds, it makes no difference.
    floor
        Nobody is accepted with a smaller probability, so that the next log still explores.
    uses_sensitive
        Whether each sensitive group has parameters of its own. A policy that does decides by the
        sensitive attribute, and says so wherever it is shown.
    weighting
        How accepted people stand in for the rejected: `InversePropensity()` by default, or
        `Clipped`, `SelfNormalised`, `DoublyRobust`, `BalanceHeuristic`.
    variance_penalty
        How many standard errors of the estimated utility are taken off it: a policy is then
        preferred for being known to be good.
    n_starts
        The problem is not convex: from how many points it is tried.
    max_passes
        Passes over the log that one ascent may take.
    max_rows
        How many rows `partial_fit` remembers: an even sample of all that came.
    random_state
        Seed of the random starts and samples.

    Attributes
    ----------
    policy_
        The policy: save it with `save_policy`, evaluate it, let it decide.
    result_
        Certificates: utility and gap on the log, what fairness cost, which start won, whether it
        converged. They flatter the policy, being maxima; see `value_`.
    value_
        After `fit_log(log, folds=k)`: what such a policy is worth, each row judged by a policy that
        was not fitted on it.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.05), 20_000,
    ...                     np.random.default_rng(0))
    >>> learner = cq.FairPolicyLearner(cost=world.cost, max_gap=0.05, floor=0.02).fit_log(log)
    >>> abs(learner.result_.benefit_gap) <= 0.0502, learner.result_.converged
    (True, True)
    >>> learner.predict_proba([[0.0], [10.0]]).shape
    (2, 2)
    """

    def __init__(
        self,
        *,
        cost: float = 0.5,
        fairness: str | Fairness = "demographic_parity",
        penalty: float = 0.0,
        max_gap: float | None = None,
        min_ratio: float | None = None,
        link: str | Link = "logistic",
        feature_map: FeatureMap | None = None,
        l2: float = 1e-8,
        floor: float = 0.0,
        uses_sensitive: bool = False,
        weighting: Weighting | None = None,
        variance_penalty: float = 0.0,
        n_starts: int = 4,
        max_passes: int = 400,
        max_rows: int = 1_000_000,
        random_state: int = 0,
    ) -> None:
        self.cost = cost
        self.fairness = fairness
        self.penalty = penalty
        self.max_gap = max_gap
        self.min_ratio = min_ratio
        self.link = link
        self.feature_map = feature_map
        self.l2 = l2
        self.floor = floor
        self.uses_sensitive = uses_sensitive
        self.weighting = weighting
        self.variance_penalty = variance_penalty
        self.n_starts = n_starts
        self.max_passes = max_passes
        self.max_rows = max_rows
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # Learning

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sensitive_features: ArrayLike | None = None,
        decisions: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        amounts: ArrayLike | None = None,
        costs: ArrayLike | None = None,
    ) -> FairPolicyLearner:
        """Learn from arrays; y of rejected people (decision 0) is ignored.

        Without `decisions` everybody was accepted and every label is known. With them,
        `propensities` are the probabilities with which people were accepted.
        """
        return self._learn(
            self._log(X, y, sensitive_features, decisions, propensities, amounts, costs, reset=True)
        )

    def fit_log(self, log: DecisionLog | LogScan, *, folds: int | None = None) -> FairPolicyLearner:
        """Learn from a log, or from a scan of one that is larger than memory.

        With folds, `value_` says what comes of it on rows not learned from.
        """
        self._remember_features(log)
        self._learn(log)
        if folds is not None:
            self.value_: Evaluation = evaluate(
                clone(self),
                log,
                cost=self.cost,
                fairness=self.fairness,
                weighting=self.weighting,
                folds=folds,
            )
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | None = None,
        decisions: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        amounts: ArrayLike | None = None,
        costs: ArrayLike | None = None,
    ) -> FairPolicyLearner:
        """Learn from one more batch, beginning where the last one ended.

        Earlier batches are remembered, up to `max_rows` rows: each row of each batch is as likely
        as any other to be among them. Give `classes` where the first batch may lack one.
        """
        first = not hasattr(self, "policy_")
        log = self._log(
            X,
            y,
            sensitive_features,
            decisions,
            propensities,
            amounts,
            costs,
            reset=first,
            classes=classes,
        )
        kept = getattr(self, "kept_", None)
        self.n_batches_ = getattr(self, "n_batches_", 0) + 1
        rng = np.random.default_rng([self.random_state, self.n_batches_])
        batch = at_step(log, self.n_batches_ - 1, None if kept is None else kept.groups)
        self.kept_ = Aggregated(self.max_rows).extend(kept, batch, rng)
        return self._learn(self.kept_, warm=getattr(self, "policy_", None))

    def _learn(self, log: DecisionLog | LogScan, warm: Policy | None = None) -> FairPolicyLearner:
        constraint = Constraint(self.max_gap, self.min_ratio)
        objective = Objective(self.cost, self.fairness, self.penalty, weighting=self.weighting)
        for name, least in (("l2", 0.0), ("variance_penalty", 0.0)):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= least):
                raise ValueError(f"{name} is finite and not negative, not {value!r}")
        for name in ("n_starts", "max_passes", "max_rows"):
            value = getattr(self, name)
            if value != int(value) or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
        if self.uses_sensitive and len(log.groups) < 2:
            raise DecisionLogError(
                "uses_sensitive=True needs a sensitive attribute with at least two groups; the log "
                f"has {len(log.groups)}"
            )
        self.result_: Fitted = fit_policy(
            log,
            self._template(log) if warm is None else warm,
            objective,
            constraint,
            l2=self.l2,
            n_starts=self.n_starts,
            variance_penalty=self.variance_penalty,
            max_passes=self.max_passes,
            warm=warm,
            rng=np.random.default_rng(self.random_state),
        )
        self.policy_: Policy = self.result_.policy
        return self

    def _template(self, log: DecisionLog | LogScan) -> Policy:
        """A policy of the form asked for, its feature map fitted on everybody in the log."""
        feature_map, width = None, len(log.feature_names)
        if self.feature_map is not None:
            features = people_of(log, self.random_state)
            feature_map = clone(self.feature_map).fit(features)
            width = feature_map.transform(features[:1]).shape[1]
        groups = log.groups if self.uses_sensitive else ()
        size = (width + 1) * max(len(groups), 1)
        return Policy(np.zeros(size), self.link, feature_map, floor=self.floor, groups=groups)

    # Deciding

    def predict_proba(self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> Floats:
        """Return the probabilities of rejection and of acceptance, one row a person."""
        propensity = self._propensity(X, sensitive_features)
        return np.column_stack([1.0 - propensity, propensity])

    def predict(self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return each person's more likely decision, in terms of the classes of y."""
        chosen = self._propensity(X, sensitive_features) >= 0.5
        found: NDArray[Any] = self.classes_[chosen.astype(np.intp)]
        return found

    def decide(
        self,
        X: ArrayLike,
        *,
        sensitive_features: ArrayLike | None = None,
        random_state: Any = None,
    ) -> Any:
        """Draw a decision for each person: 1 is acceptance.

        A data frame comes back as a frame of the same kind with columns `decision` and
        `propensity`, which is what a log must keep; an array as an array of decisions.
        """
        propensity = self._propensity(X, sensitive_features)
        uniforms = check_random_state(random_state).random_sample(len(propensity))
        decision = (uniforms < propensity).astype(np.int8)
        return frame_like(X, {"decision": decision, "propensity": propensity}, decision)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sensitive_features: ArrayLike | None = None,
        decisions: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the estimated utility per applicant of the policy on other people's decisions."""
        check_is_fitted(self)
        log = self._log(X, y, sensitive_features, decisions, propensities, reset=False)
        coefficients = Objective(self.cost, weighting=self.weighting).coefficients(log)
        gains = len(log) * coefficients.utility * log.propensity_of(self.policy_)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(gains, weights=weights))

    def _propensity(self, X: ArrayLike, sensitive_features: ArrayLike | None) -> Floats:
        check_is_fitted(self)
        matrix = validate_data(self, X, reset=False, dtype=np.float64)
        sensitive = None
        if self.policy_.uses_sensitive:
            if sensitive_features is None:
                raise PolicyError(
                    "this policy uses the sensitive attribute: pass sensitive_features="
                )
            sensitive = column_of(sensitive_features)
        return self.policy_.propensity(matrix, sensitive)

    def _classes(self, seen: NDArray[Any], classes: ArrayLike | None) -> NDArray[Any]:
        """Both labels, sorted: the second is the outcome hoped for."""
        check_classification_targets(seen)
        found = np.unique(seen if classes is None else np.asarray(classes))
        if len(found) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"y has {len(found)} classes; 1 is the outcome hoped for, 0 the other"
            )
        if len(found) < 2:
            raise ValueError(
                f"y has one class, {found.tolist()[0]!r}: labels of both kinds are needed to tell "
                "whom to accept"
            )
        return found

    def _log(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sensitive_features: ArrayLike | None,
        decisions: ArrayLike | None,
        propensities: ArrayLike | None,
        amounts: ArrayLike | None = None,
        costs: ArrayLike | None = None,
        *,
        reset: bool,
        classes: ArrayLike | None = None,
    ) -> DecisionLog:
        """What scikit-learn hands over, as a log; labels of rejected people are not looked at."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        matrix: Floats
        if decisions is None:
            matrix, labels = validate_data(self, X, y, reset=reset, dtype=np.float64)
        else:
            matrix = validate_data(self, X, reset=reset, dtype=np.float64)
            labels = column_of(y)
        accepted = accepted_rows(decisions, propensities, len(matrix))
        seen = seen_labels(labels, accepted)
        if reset:
            self.classes_ = self._classes(seen, classes)
        names = getattr(self, "feature_names_in_", None)
        return log_of(
            matrix,
            coded_labels(seen, accepted, self.classes_),
            sensitive_features,
            decisions,
            propensities,
            amounts,
            costs,
            None if names is None else list(names),
        )

    def _remember_features(self, log: DecisionLog | LogScan) -> None:
        self.n_features_in_ = len(log.feature_names)
        if log.feature_names != tuple(f"x{k}" for k in range(self.n_features_in_)):
            self.feature_names_in_ = np.array(log.feature_names, dtype=object)
        self.classes_ = np.array([0, 1])
