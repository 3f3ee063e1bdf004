"""Contestants of `learners.py`: each learns a rule from a log.

`learn(log, bound)` returns a rule: a function that gives the propensities of other people.

fairlearn takes no sample weights where it bounds a gap (`ExponentiatedGradient.fit` has no such
argument, and `ThresholdOptimizer` hands them to the estimator only), so it is given accepted people
drawn again in proportion to 1 / propensity, as many as there are applicants. econml and obp run in
an environment of their own, see `peers.py`.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from learner_worlds import Floats, Log, People
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import consequential as cq

Rule = Callable[[People], Floats]
TRIVIAL = ("past-rule", "accept-all", "reject-all")
PEERS = ("econml-policy-forest", "obp-ipw-logistic", "obp-ipw-boosting")


@dataclass(frozen=True)
class Bound:
    """The largest gap of a fairness notion, by our name and by fairlearn's two."""

    max_gap: float
    notion: str
    moment: str
    constraint: str


BOUNDS = {
    "none": None,
    "parity": Bound(0.02, "demographic_parity", "DemographicParity", "demographic_parity"),
    "opportunity": Bound(
        0.02, "equal_opportunity", "TruePositiveRateParity", "true_positive_rate_parity"
    ),
}


@dataclass(frozen=True)
class Contestant:
    """Whoever learns from a log, under which of `BOUNDS`, and whether the rule sees the group."""

    learn: Callable[[Log, Bound | None], Rule]
    bounds: tuple[str, ...] = ("none",)
    sees_group: bool = False


def ours(*, sees_group: bool = False, **options: Any) -> Contestant:
    def learn(log: Log, bound: Bound | None) -> Rule:
        asked = {} if bound is None else {"max_gap": bound.max_gap, "fairness": bound.notion}
        learner = cq.FairPolicyLearner(
            cost=log.cost, uses_sensitive=sees_group, **asked, **options
        ).fit_log(log.decisions)
        return lambda people: learner.policy_.propensity(
            people.features, people.group if sees_group else None
        )

    return Contestant(learn, tuple(BOUNDS), sees_group)


# --- scikit-learn


def logistic() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def boosting() -> Any:
    return make_pipeline(HistGradientBoostingClassifier(random_state=0))


def fitted(model: Callable[[], Any], log: Log, *, weighted: bool) -> Any:
    """Return a classifier fitted to accepted people."""
    rows = log.decision
    classifier = model()
    weights = 1.0 / log.people.propensity[rows] if weighted else np.ones(rows.sum())
    name = f"{classifier.steps[-1][0]}__sample_weight"
    return classifier.fit(log.people.features[rows], log.label[rows], **{name: weights})


def thresholded(model: Callable[[], Any], *, weighted: bool) -> Contestant:
    """Accept whoever is predicted to be worth the cost."""

    def learn(log: Log, bound: Bound | None) -> Rule:
        classifier = fitted(model, log, weighted=weighted)
        return lambda people: classifier.predict_proba(people.features)[:, 1] >= log.cost

    return Contestant(learn)


# --- fairlearn


def drawn_again(log: Log) -> tuple[Floats, Floats, Floats]:
    """Return features, labels and groups of accepted people, drawn to stand for all applicants."""
    accepted = np.flatnonzero(log.decision)
    weights = 1.0 / log.people.propensity[accepted]
    rng = np.random.default_rng(0)
    rows = rng.choice(accepted, size=len(log.decision), p=weights / weights.sum())
    return log.people.features[rows], log.label[rows].astype(int), log.people.group[rows]


def reduction(model: Callable[[], Any]) -> Contestant:
    """Return `ExponentiatedGradient`, whose mixture of classifiers decides without the group."""

    def learn(log: Log, bound: Bound | None) -> Rule:
        from fairlearn import reductions

        assert bound is not None
        classifier = model()
        # it bounds each group's distance from all people: half of what two groups may differ by
        learner = reductions.ExponentiatedGradient(
            classifier,
            getattr(reductions, bound.moment)(difference_bound=bound.max_gap / 2.0),
            objective=reductions.ErrorRate(costs={"fp": log.cost, "fn": 1.0 - log.cost}),
            sample_weight_name=f"{classifier.steps[-1][0]}__sample_weight",
        )
        features, label, group = drawn_again(log)
        learner.fit(features, label, sensitive_features=group)
        return lambda people: learner._pmf_predict(people.features)[:, 1]

    return Contestant(learn, ("parity", "opportunity"))


def thresholds(model: Callable[[], Any]) -> Contestant:
    """Return `ThresholdOptimizer`, which has thresholds of its own for each group.

    It knows accuracy, not costs: it accepts where label 1 has a chance above 1/2. A share
    `1/2 / cost` of labels 1 is left as it is and the others become 0, so that the chance exceeds
    1/2 where it exceeded the cost.
    """

    def learn(log: Log, bound: Bound | None) -> Rule:
        from fairlearn.postprocessing import ThresholdOptimizer

        assert bound is not None
        features, label, group = drawn_again(log)
        kept = np.random.default_rng(1).random(len(label)) < 0.5 / log.cost
        learner = ThresholdOptimizer(
            estimator=fitted(model, log, weighted=True),
            constraints=bound.constraint,
            prefit=True,
            predict_method="predict_proba",
            tol=bound.max_gap,
        ).fit(features, label * kept, sensitive_features=group)
        return lambda people: learner._pmf_predict(
            people.features, sensitive_features=people.group
        )[:, 1]

    return Contestant(learn, ("parity", "opportunity"), sees_group=True)


# --- peers in another environment


def peer(name: str, python: str | None) -> Contestant:
    def learn(log: Log, bound: Bound | None) -> Rule:
        if python is None:
            raise ValueError("pass --peers with the Python of their environment")

        def rule(people: People) -> Floats:
            with tempfile.TemporaryDirectory() as folder:
                files = [str(Path(folder) / f"{what}.npz") for what in ("log", "people", "out")]
                np.savez(
                    files[0],
                    features=log.people.features,
                    decision=log.decision,
                    propensity=log.people.propensity,
                    label=log.label,
                    cost=log.cost,
                )
                np.savez(files[1], features=people.features)
                script = Path(__file__).parent / "peers.py"
                command = [python, str(script), name, *files]
                subprocess.run(command, check=True, capture_output=True, text=True)
                with np.load(files[2]) as found:
                    return found["propensity"]

        return rule

    return Contestant(learn)


def constant(value: float) -> Contestant:
    return Contestant(lambda log, bound: lambda people: np.full(len(people.chance), value))


def contestants(peers: str | None = None) -> dict[str, Contestant]:
    """Return who takes part; `peers` is the Python of the environment of econml and obp."""
    return {
        "ours": ours(),
        "ours-model": ours(method="model"),
        "ours-scores": ours(method="scores"),
        "ours-direct": ours(method="direct"),
        "ours-sees-group": ours(sees_group=True),
        "logistic-accepted": thresholded(logistic, weighted=False),
        "logistic-weighted": thresholded(logistic, weighted=True),
        "boosting-accepted": thresholded(boosting, weighted=False),
        "boosting-weighted": thresholded(boosting, weighted=True),
        "fairlearn-reduction-logistic": reduction(logistic),
        "fairlearn-reduction-boosting": reduction(boosting),
        "fairlearn-thresholds-logistic": thresholds(logistic),
        "fairlearn-thresholds-boosting": thresholds(boosting),
        **{name: peer(name, peers) for name in PEERS},
        "past-rule": Contestant(lambda log, bound: lambda people: people.propensity),
        "accept-all": constant(1.0),
        "reject-all": constant(0.0),
    }
