"""Peers of other environments: `learners.py` runs this with another Python, see its docstring.

    python benchmarks/peers.py CONTESTANT log.npz people.npz out.npz

`log.npz` has features, decision, propensity, label and cost, `people.npz` the features of the
people to decide about, `out.npz` their propensities. Both peers know the log's propensities.
"""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler


class LastColumn(ClassifierMixin, BaseEstimator):
    """A propensity model that reads the log's propensity, the last of its columns."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.column_stack([1.0 - X[:, -1], X[:, -1]])

    def score(self, X, y, sample_weight=None):
        return 0.0  # econml asks for it and nothing depends on it


def policy_forest(log, features):
    """econml's DRPolicyForest: boosting for the outcome, the rest as it comes."""
    from econml.policy import DRPolicyForest

    forest = DRPolicyForest(
        model_regression=HistGradientBoostingRegressor(random_state=0),
        model_propensity=LastColumn(),
        n_jobs=1,
        random_state=0,
    )
    gain = log.decision * (log.label - log.cost)
    forest.fit(gain, log.decision.astype(int), X=log.features, W=log.propensity[:, None])
    return forest.predict(features) == 1


def weighted_classifier(model):
    """Return obp's IPWLearner. It refuses negative rewards: all of them are raised by the cost."""

    def decide(log, features):
        from obp.policy import IPWLearner

        scaler = StandardScaler().fit(log.features)
        learner = IPWLearner(n_actions=2, base_classifier=model)
        learner.fit(
            context=scaler.transform(log.features),
            action=log.decision.astype(int),
            reward=np.where(log.decision, log.label, log.cost),
            pscore=np.where(log.decision, log.propensity, 1.0 - log.propensity),
        )
        return learner.predict(context=scaler.transform(features))[:, 1, 0]

    return decide


PEERS = {
    "econml-policy-forest": policy_forest,
    "obp-ipw-logistic": weighted_classifier(LogisticRegression(max_iter=300)),
    "obp-ipw-boosting": weighted_classifier(HistGradientBoostingClassifier(random_state=0)),
}


def main(name: str, log_file: str, people_file: str, out: str) -> None:
    warnings.simplefilter("ignore")
    with np.load(log_file) as columns, np.load(people_file) as people:
        log = SimpleNamespace(**columns)
        propensity = PEERS[name](log, people["features"])
    np.savez(out, propensity=np.asarray(propensity, dtype=np.float64))


if __name__ == "__main__":
    main(*sys.argv[1:])
