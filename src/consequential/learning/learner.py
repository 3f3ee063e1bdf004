"""FairPolicyLearner: a fair policy from a log of decisions, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from consequential.evaluation.cross_fitting import checked_log, cross_fitted
from consequential.learning.fitting import Fitted
from consequential.learning.inputs import Table, features_of, frame_like, sensitive_of
from consequential.learning.training import Learned, cross_evaluated, learned
from consequential.log import DecisionLog, LogScan
from consequential.log.attributes import intersection
from consequential.objective.fairness import Bound, Fairness
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.policy import Policy, PolicyError, Unsupported
from consequential.policy.links import Link
from consequential.policy.policy import FeatureMap

Floats = NDArray[np.float64]
Method = Literal["auto", "model", "scores", "direct"]


class FairPolicyLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """Learn whom to accept, with what probability, from labels of accepted people only.

    Maximises the estimated utility of *all* applicants over policies `g(theta . phi(x))`, less a
    fairness penalty or under a fairness constraint: full batch, deterministic, without a learning
    rate.

    Parameters
    ----------
    cost
        What accepting costs: label 1 is worth `1 - cost`, label 0 `-cost`. A log with a cost for
        each row, or with values in place of labels, overrides it.
    fairness
        A notion or its name. It needs sensitive groups only with a penalty or a constraint.
    penalty
        The paper's lambda: `utility - penalty/2 (benefit gap)^2`.
    max_gap
        The largest difference allowed between any two groups' benefits. The policy stays half a
        standard error inside it; with `method="direct"` it goes up to the bound.
    confidence
        How sure to be that people keep `max_gap`, not only the rows learned from. With 0.95 the
        true gap of `policy_` exceeds the bound in at most 5 % of logs: candidates are learned from
        half of the log and tested on the other half, and `BoundNotShownError` says where none can
        be shown to keep it. Without it the bound is kept where the policy was learned, and among
        other people more or less so; see `policy_gap_`.
    min_ratio
        The smallest ratio allowed between any two groups' benefits. 0.8 with demographic parity is
        the four-fifths *screen*: a rule of thumb for where to look closer, not a legal test.
    bounds
        Several bounds at once, a list of `fairness.Bound`, in place of `fairness` and `max_gap`:
        each has a notion, a gap and maybe the one sensitive column of several that it is about.
    max_acceptance, min_acceptance
        The largest share of applicants that may be accepted, 0.3 say: what there is capacity for.
        And the smallest; for exactly a share give both. A dict has shares by group, of some groups
        or all. They are kept on the rows learned from, and among as many other people up to chance.
    monotone
        Directions of columns, `{"income": 1, "debt": -1}`: all else equal, a person with more
        income is never accepted with a smaller probability, and one with more debt never with a
        larger one. The promise is exact, for everybody whom the log supports and whose values of
        the column are known; see `unsupported` for the others. In an array columns are `x0`, `x1`
        and so on, or 0, 1 and so on. It takes policies and models that are monotone by their form,
        so `feature_map` and `outcome_model` stay out, and costs utility where a bound on the gap
        would have gone by what the features say of the group.
    link
        `"logistic"`, `"smooth_semi_logistic"` or `"semi_logistic"`, whose jump the gradient does
        not see: prefer the smooth one.
    feature_map
        A scikit-learn transformer, fitted on everybody in the log: splines, polynomials, random
        Fourier features, or a pipeline of them. A `ColumnTransformer` may select columns by name,
        those of the log's features (`income`, `income missing`, `purpose=car`). Direct search is
        over its columns, and the plain regression among the models of the label is on them.
    method
        Where the policy comes from. `"model"` is the best rule for a model of the label that is
        fitted on accepted people: the choice where the model is right. `"direct"` searches over
        the features by weighted labels: right whatever the model, but with the weights' variance.
        `"scores"` searches over the few scores that models give each person. `"auto"` learns all
        of them, compares them on rows they were not learned from (see `result_.candidates`), and
        takes the model's rule unless another is better by more than two standard errors.
    outcome_model
        The model of the label: any scikit-learn classifier or pipeline; for a log of values its
        `fit` must take `sample_weight`. By default a weighted
        average of the log-odds of a plain regression, a regression on splines and products, and
        boosted trees, or the plain regression where the others predict no better.
    l2
        Shrinkage of the standardised parameters, per unit of the utility's scale; the intercept is
        free. Below 1e-9, which lets policies be all but thresholds, it makes no difference.
    floor
        Nobody is accepted with a smaller probability, so that the next log still explores; people
        whom the log does not support stay rejected.
    unsupported
        What the policy does with people whom the log cannot speak about, because people like them
        were accepted with a probability below 20 over the number of decisions (or 0.05, if that is
        smaller). `"reject"` rejects them, also new ones: the policy keeps the support with it.
        `"as_logged"` follows the past rule there. `"trust_model"` extrapolates from other people.
    uses_sensitive
        Whether each sensitive group has parameters of its own. A policy that does decides by the
        sensitive attribute, and says so wherever it is shown.
    weighting
        How accepted people stand in for the rejected: `InversePropensity()` by default, or
        `Clipped`, `SelfNormalised`, `DoublyRobust`, `BalanceHeuristic`.
    n_starts
        The problem is not convex: from how many points it is tried.
    max_passes
        Passes over the log that one ascent may take.
    random_state
        Seed of the random starts and samples.

    Attributes
    ----------
    policy_
        The policy: save it with `save_policy`, evaluate it, let it decide.
    result_
        Certificates: utility and gap on the log, what fairness cost, which start won, whether it
        converged, and `notes`. They flatter the policy, being maxima; see `value_`.
    classes_, coding_
        Both labels, the outcome hoped for second; and for decisions and labels in words, what each
        word was taken for.
    value_
        What such a policy is worth, each row evaluated with a policy that was not fitted on it.
        The value is that of these policies; the interval of the utility is for `policy_`, which
        learned from more rows: it is widened by the error of the difference, and its upper end
        raised by an estimate of what the remaining rows teach. With `method="direct"` it is not.
        With `confidence`, what `policy_` is worth on the held-out rows. With `method="direct"` it
        needs `fit_log(log, folds=k)`. With `bounds` it is about the notion and the groups of the
        first.
    policy_gap_
        The gap of `policy_` itself among people, with an interval; where there is a `value_`. It is
        wider than that of `value_`, which is the average policy's.
    policy_gaps_
        With `bounds` or `max_gap`: the same for each `Bound`, as a dict.
    cross_fitted_, weighting_
        The policies behind `value_`, each of which was learned from other rows, as a rule to
        evaluate and compare on the log; and the weighting that goes with it.
    safety_
        With `confidence`: the candidates that passed the test.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.05), 5_000,
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
        confidence: float | None = None,
        min_ratio: float | None = None,
        bounds: Sequence[Bound] | None = None,
        max_acceptance: float | Mapping[Hashable, float] | None = None,
        min_acceptance: float | Mapping[Hashable, float] | None = None,
        monotone: Mapping[str | int, int] | None = None,
        link: str | Link = "logistic",
        feature_map: FeatureMap | None = None,
        method: Method = "auto",
        outcome_model: Any = None,
        l2: float = 1e-8,
        floor: float = 0.0,
        unsupported: Unsupported = "reject",
        uses_sensitive: bool = False,
        weighting: Weighting | None = None,
        n_starts: int = 4,
        max_passes: int = 400,
        random_state: int = 0,
    ) -> None:
        self.cost = cost
        self.fairness = fairness
        self.penalty = penalty
        self.max_gap = max_gap
        self.confidence = confidence
        self.min_ratio = min_ratio
        self.bounds = bounds
        self.max_acceptance = max_acceptance
        self.min_acceptance = min_acceptance
        self.monotone = monotone
        self.link = link
        self.feature_map = feature_map
        self.method = method
        self.outcome_model = outcome_model
        self.l2 = l2
        self.floor = floor
        self.unsupported = unsupported
        self.uses_sensitive = uses_sensitive
        self.weighting = weighting
        self.n_starts = n_starts
        self.max_passes = max_passes
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
        positive_label: Any = None,
    ) -> FairPolicyLearner:
        """Learn from arrays or a data frame; y of rejected people (decision 0) is ignored.

        Columns of a data frame are taken as they come, with words, dates and missing values: see
        `Preparation`. An array has finite numbers. Without `decisions` everybody was accepted and
        every label is known. With them, `propensities` are the probabilities with which people
        were accepted. Decisions and labels may be words, as in a log (approved and declined,
        repaid and defaulted): `coding_` says which is 1. Of labels in other words,
        `positive_label` is the one hoped for.
        """
        given = sensitive_features, decisions, propensities, amounts, costs, positive_label
        self._selective = decisions is not None
        return self._keep(learned(self, Table(X, y, *given).log(self, reset=True)))

    def fit_log(self, log: DecisionLog | LogScan, *, folds: int | None = None) -> FairPolicyLearner:
        """Learn from a log, or from a scan of one that is larger than memory.

        With folds, `value_` says what comes of it on rows not learned from, and `policy_gap_` how
        wide the gap of `policy_` is. With `confidence` held-out rows say both, and no folds are
        needed.
        """
        if folds is not None and self.confidence is not None:
            raise ValueError(
                "confidence= holds out half of the log, which gives value_ and policy_gap_: leave "
                "folds out"
            )
        self._remember_features(log)
        found = learned(self, log, folds=folds)
        if folds is not None and self.method == "direct":
            checked_log(log)
            assert isinstance(log, DecisionLog)  # a scan has been refused
            crossed = cross_fitted(clone(self), log, folds)
            found = cross_evaluated(self, found.result, crossed, log, self.weighting)
        return self._keep(found)

    def _keep(self, found: Learned) -> FairPolicyLearner:
        self.result_: Fitted = found.result
        self.policy_: Policy = found.result.policy
        for name in ("value", "policy_gap", "policy_gaps", "cross_fitted", "weighting", "safety"):
            if getattr(found, name) is not None:
                setattr(self, f"{name}_", getattr(found, name))
        return self

    # Deciding

    def predict_proba(self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> Floats:
        """Return the probabilities of rejection and of acceptance, one row per person."""
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
        if decisions is None and getattr(self, "_selective", False):
            raise ValueError(
                "score was given no decisions, so labels of rejected people would count as known: "
                "pass decisions= and propensities= (1 each for people whose labels are all known); "
                "for a search over options see set_score_request and scikit-learn's metadata "
                "routing"
            )
        log = Table(X, y, sensitive_features, decisions, propensities).log(self, reset=False)
        coefficients = Objective(self.cost, weighting=self.weighting).coefficients(log)
        gains = len(log) * coefficients.utility * log.propensity_of(self.policy_)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(gains, weights=weights))

    def _propensity(self, X: ArrayLike, sensitive_features: ArrayLike | None) -> Floats:
        check_is_fitted(self)
        people = features_of(self, X, reset=False)
        sensitive = None
        if self.policy_.uses_sensitive:
            if sensitive_features is None:
                raise PolicyError(
                    "this policy uses the sensitive attribute: pass sensitive_features="
                )
            sensitive = sensitive_of(sensitive_features)
            if isinstance(sensitive, dict):
                sensitive = np.array(list(map(intersection, zip(*sensitive.values(), strict=True))))
        return self.policy_.propensity(people, sensitive)

    def _remember_features(self, log: DecisionLog | LogScan) -> None:
        names = log.feature_names if log.preparation is None else log.preparation.names
        self.n_features_in_ = len(names)
        if names != tuple(f"x{k}" for k in range(self.n_features_in_)):
            self.feature_names_in_ = np.array(names, dtype=object)
        self.classes_, self.coding_ = np.array([0, 1]), tuple(log.notes)
