"""Predictors cut at the cost: accepted people only, reject inference, inverse propensity.

Each is a logistic regression that differs from the others in whom it is fitted to and with what
weight; one is boosted trees. The recipes of reject inference are those of credit scoring; none uses
propensities, and none can know more about rejected people than accepted ones tell.

Examples
--------
>>> import numpy as np, consequential as cq
>>> from consequential.baseline import accepted_only, inverse_propensity
>>> world = cq.worlds.first_setting()
>>> log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
>>> accepted_only(log, world.cost).propensity([[-0.7], [0.7]])
array([0., 1.])
>>> bool(world.exact(inverse_propensity(log, world.cost)).utility > 0.16)
True
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.fairness import Fairness, fairness_named
from consequential.log import DecisionLog, DecisionLogError
from consequential.policies import AcceptAll, DecisionRule, Mixture, RejectAll, ThresholdPolicy
from consequential.weightings import InversePropensity
from consequential.weightings.fractional import fit_classifier
from consequential.weightings.weights import counted_rows

Floats = NDArray[np.float64]

_BANDS = 10
_FAIRLEARN_CONSTRAINTS = {
    "demographic_parity": "DemographicParity",
    "equal_opportunity": "TruePositiveRateParity",
    "equalised_odds": "EqualizedOdds",
}


def accepted_only(
    log: DecisionLog, cost: float, *, feature_map: Any = None, classifier: Any = None
) -> ThresholdPolicy:
    """Fit the accepted people as if they were everybody, and accept where the cost is reached.

    `classifier` is any scikit-learn classifier, in place of the logistic regression.
    """
    return _Applicants(log, feature_map).rule(cost, classifier=classifier)


def boosted_trees(
    log: DecisionLog, cost: float, *, feature_map: Any = None, seed: int = 0
) -> ThresholdPolicy:
    """Fit scikit-learn's boosted trees, as they come, to accepted people; cut at the cost."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(random_state=seed)
    return accepted_only(log, cost, feature_map=feature_map, classifier=trees)


def inverse_propensity(
    log: DecisionLog, cost: float, *, feature_map: Any = None
) -> ThresholdPolicy:
    """Fit accepted people, each standing for `1 / propensity` applicants."""
    people = _Applicants(log, feature_map)
    return people.rule(cost, InversePropensity().weights(people.log)[people.known])


def augmentation(log: DecisionLog, cost: float, *, feature_map: Any = None) -> ThresholdPolicy:
    """Reject inference by augmentation, also called re-weighting.

    A first regression tells accepted from rejected applicants. Its score is cut into ten bands of
    equally many applicants, and the second regression, of labels, gives each accepted person the
    weight applicants / accepted of their band. Bands in which nobody was accepted get no weight.
    """
    people = _Applicants(log, feature_map)
    accepted, known = people.log.decision, people.known
    band = np.zeros(len(accepted), dtype=np.intp)
    if not accepted.all():
        chance = _logistic().fit(people.inputs, accepted)
        band = _bands(chance.predict_proba(people.inputs)[:, 1])
    weights = _counts(band) / np.maximum(_counts(band[known]), 1.0)
    return people.rule(cost, weights[band[known]])


def parcelling(
    log: DecisionLog,
    cost: float,
    *,
    feature_map: Any = None,
    prudence: float = 1.25,
    seed: int = 0,
) -> ThresholdPolicy:
    """Reject inference by parcelling.

    The regression on accepted people scores all applicants; the score is cut into ten bands of
    equally many. In each, rejected people get label 0 at random, `prudence` times as often as
    accepted people of the band have it (as the model predicts, where nobody there was accepted),
    else label 1. The second regression takes everybody.
    """
    if not 0.0 < prudence < np.inf:
        raise ValueError(f"prudence multiplies the rate of label 0; it cannot be {prudence!r}")
    people = _Applicants(log, feature_map)
    known, success = people.known, people.scored()
    band = _bands(success)
    observed, n_observed = _counts(band[known], 1.0 - people.labels), _counts(band[known])
    predicted = _counts(band, 1.0 - success) / np.maximum(_counts(band), 1.0)
    failures = np.where(n_observed > 0, observed / np.maximum(n_observed, 1.0), predicted)
    assigned_failures = np.minimum(prudence * failures, 1.0)[band]
    assigned = np.random.default_rng(seed).random(len(band)) >= assigned_failures
    labels = np.where(known, people.log.outcome, assigned)
    return people.rule(cost, rows=(people.inputs, labels))


def fuzzy_augmentation(
    log: DecisionLog, cost: float, *, feature_map: Any = None
) -> ThresholdPolicy:
    """Reject inference by fuzzy augmentation.

    The regression on accepted people scores the rejected. Each of them enters the second
    regression twice: with label 1 and the predicted probability of it as weight, and with label 0
    and the rest. For an unpenalised regression that changes nothing at all: its predictions are
    already the likeliest labels of those it never saw.
    """
    people = _Applicants(log, feature_map)
    known = people.known
    others, success = people.inputs[~known], people.scored()[~known]
    inputs = np.concatenate([people.inputs[known], others, others])
    labels = np.concatenate([people.labels, np.ones(len(others)), np.zeros(len(others))])
    weights = np.concatenate([np.ones(len(people.labels)), success, 1.0 - success])
    return people.rule(cost, weights, rows=(inputs, labels))


def reduction(
    log: DecisionLog,
    cost: float,
    *,
    fairness: str | Fairness = "demographic_parity",
    max_gap: float = 0.01,
    feature_map: Any = None,
) -> Mixture:
    """Fairlearn's exponentiated gradient over logistic regressions, on accepted people.

    It minimises the cost of wrong decisions (`cost` for label 0 accepted, `1 - cost` for label 1
    rejected) under a bound on the gap, among the people accepted: it is told nothing about the
    others. The result is randomised, a mixture of rules. Needs the `fairness` extra.
    """
    try:
        import fairlearn.reductions as reductions
    except ImportError:
        raise ImportError(
            "this baseline is fairlearn's: install consequential[fairness] to have it"
        ) from None
    notion = fairness_named(fairness).name
    if notion not in _FAIRLEARN_CONSTRAINTS:
        known = ", ".join(_FAIRLEARN_CONSTRAINTS)
        raise ValueError(f"fairlearn's reductions know {known}, not {notion}")
    if log.value_range is not None:
        raise DecisionLogError("fairlearn's reductions need labels of 0 and 1, not values")
    people = _Applicants(log, feature_map)
    sensitive = people.log.group[people.known]
    if len(np.unique(sensitive)) < 2:
        raise DecisionLogError("accepted people are of one group: there is no gap to bound")
    # it bounds each group's distance from all people: half of what two groups may differ by
    constraint = getattr(reductions, _FAIRLEARN_CONSTRAINTS[notion])(difference_bound=max_gap / 2.0)
    learner = reductions.ExponentiatedGradient(
        _logistic(),
        constraints=constraint,
        objective=reductions.ErrorRate(costs={"fp": cost, "fn": 1.0 - cost}),
        sample_weight_name="logisticregression__sample_weight",
    )
    labels = people.labels.astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its use of pandas is its own affair
        learner.fit(people.inputs[people.known], labels, sensitive_features=sensitive)
    weights = np.asarray(learner.weights_, dtype=np.float64)
    kept = np.flatnonzero(weights > 0)
    rules: list[DecisionRule] = []
    for model in (learner.predictors_[k] for k in kept):
        if hasattr(model, "constant"):  # fairlearn's model where one decision is best for all
            rules.append(AcceptAll() if int(np.ravel(model.constant)[0]) == 1 else RejectAll())
        else:
            rules.append(ThresholdPolicy(people.predictor(model), 0.5))
    return Mixture(rules, (weights[kept] / weights[kept].sum()).tolist())


class _Applicants:
    """The settled rows of a log, their features mapped, and the rows whose label is `known`.

    Missing labels count as failures where the log says so; otherwise those rows are left out.
    """

    def __init__(self, log: DecisionLog, feature_map: Any) -> None:
        from sklearn.base import clone

        self.log = log.settled()
        self.known = counted_rows(self.log)
        self.labels = self.log.outcome[self.known]
        self.map = None
        self.inputs: Floats = np.asarray(self.log.features)
        if len(self.labels) == 0:
            raise DecisionLogError("nobody was accepted: there is no label to fit a predictor to")
        if self.labels.min() == self.labels.max():
            raise DecisionLogError(
                "all accepted people have the same label: there is nothing to tell apart"
            )
        if feature_map is not None:
            self.map = clone(feature_map).fit(self.inputs)
            mapped = self.map.transform(self.inputs)
            self.inputs = mapped.toarray() if hasattr(mapped, "toarray") else np.asarray(mapped)

    def fitted(
        self,
        weights: Floats | None = None,
        *,
        rows: tuple[Floats, Floats] | None = None,
        classifier: Any = None,
    ) -> Any:
        """Fit a logistic regression to the people whose label is known, or to other rows."""
        from sklearn.base import clone

        inputs, labels = rows or (self.inputs[self.known], self.labels)
        model = _logistic() if classifier is None else clone(classifier)
        return fit_classifier(model, inputs, np.asarray(labels, dtype=np.float64), weights)

    def scored(self) -> Floats:
        """Return everybody's probability of label 1 by the regression on accepted people."""
        success: Floats = self.fitted().predict_proba(self.inputs)[:, 1]
        return success

    def rule(self, cost: float, weights: Floats | None = None, **fit: Any) -> ThresholdPolicy:
        """Fit, and accept where the prediction reaches the cost."""
        threshold = self.log.mean_cost(cost)
        return ThresholdPolicy(self.predictor(self.fitted(weights, **fit)), threshold)

    def predictor(self, model: Any) -> Any:
        """Return a model of mapped features as one of features."""
        from sklearn.pipeline import Pipeline

        return model if self.map is None else Pipeline([("map", self.map), ("model", model)])


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # next to no penalty, but enough for features that are collinear once they are of one scale
    model = LogisticRegression(C=1e4, solver="newton-cholesky", max_iter=1000)
    return make_pipeline(StandardScaler(), model)


def _bands(score: Floats) -> NDArray[np.intp]:
    """Return ten bands of equally many people, from the lowest score to the highest."""
    cuts = np.quantile(score, np.arange(1, _BANDS) / _BANDS)
    return np.searchsorted(cuts, score, side="right").astype(np.intp)


def _counts(band: NDArray[np.intp], weights: Floats | None = None) -> Floats:
    return np.bincount(band, weights, _BANDS).astype(np.float64)
