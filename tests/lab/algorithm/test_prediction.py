from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import consequential as cq
from exploring_logs import exploring_log


def rule(size=2, cost=0.5):
    return cq.ThresholdPolicy(cq.logistic_model(np.r_[0.5, np.ones(size)]), cost)


def fitted(learner, log, start=None):
    return learner(start or rule(), log, rng=np.random.default_rng(0))


def test_the_default_predictor_is_the_maximum_of_the_likelihood():
    log = exploring_log(3000)
    accepted = log.take(log.decision)
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    reference.fit(accepted.features, accepted.label)
    model = fitted(cq.lab.FitPredictor(0.5), log).policy.predictor
    assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    assert_allclose(model.intercept_, reference.intercept_, atol=1e-4)


def test_the_last_model_is_not_changed_by_the_next_fit():
    start = rule()
    before = start.predictor.coef_.copy()
    fitted(cq.lab.FitPredictor(0.5), exploring_log(), start)
    assert_allclose(start.predictor.coef_, before)


@pytest.mark.parametrize(
    "classifier", [DecisionTreeClassifier(max_depth=2), HistGradientBoostingClassifier(max_iter=5)]
)
def test_any_classifier_can_be_thresholded(classifier):
    log = exploring_log(1000)
    learned = fitted(cq.lab.FitPredictor(0.5, classifier), log).policy
    predicted = learned.predictor.predict_proba(log.features)[:, 1]
    assert_allclose(learned.propensity(log.features), predicted >= 0.5)
    assert not hasattr(classifier, "classes_"), "the classifier given is a template"


def test_only_accepted_people_are_learned_from():
    log = exploring_log(2000)
    accepted = log.take(log.decision)
    with_all = fitted(cq.lab.FitPredictor(0.5), log).policy.predictor
    without = fitted(cq.lab.FitPredictor(0.5), accepted).policy.predictor
    assert_allclose(with_all.coef_, without.coef_)


@pytest.mark.parametrize(
    "learner",
    [
        cq.lab.FitPredictor(0.5),
        cq.lab.FitFairPredictor(cq.Objective(0.5, "demographic_parity", 1.0)),
    ],
)
@pytest.mark.parametrize("case", ["nobody", "alike"])
def test_where_there_is_nothing_to_fit_the_predictor_stays(learner, case):
    log = exploring_log(200)
    kept = log.take(~log.decision) if case == "nobody" else log.take(log.label == 1)
    start = rule()
    update = fitted(learner, kept, start)
    assert update.policy is start
    assert "the predictor stays" in update.notes[0]


def shifted_log(n=4000):
    log = exploring_log(n)
    features = log.features + log.group[:, None]
    return cq.DecisionLog.from_arrays(features, log.decision, log.propensity, log.label, log.group)


def gap_among_accepted(policy, log):
    accepted = log.take(log.decision)
    rates = [policy.propensity(accepted.features[accepted.group == z]).mean() for z in (0, 1)]
    return abs(rates[0] - rates[1])


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_the_fair_predictor_narrows_the_gap_among_those_it_sees(notion):
    log = shifted_log()
    plain = fitted(cq.lab.FitPredictor(0.5), log).policy
    fair = fitted(cq.lab.FitFairPredictor(cq.Objective(0.5, notion, 1000.0)), log).policy
    assert gap_among_accepted(fair, log) < 0.5 * gap_among_accepted(plain, log)


def test_without_a_penalty_the_fair_predictor_is_the_plain_one():
    log = shifted_log()
    plain = fitted(cq.lab.FitPredictor(0.5), log).policy.predictor
    fair = fitted(cq.lab.FitFairPredictor(cq.Objective(0.5, "demographic_parity")), log)
    assert_allclose(fair.policy.predictor.coef_, plain.coef_, atol=2e-3)


def test_the_fair_predictor_starts_from_any_other_model():
    log = shifted_log(500)
    tree = DecisionTreeClassifier(max_depth=1).fit(log.features, log.outcome.astype(int))
    learner = cq.lab.FitFairPredictor(cq.Objective(0.5, "demographic_parity", 1.0))
    update = fitted(learner, log, cq.ThresholdPolicy(tree, 0.5))
    assert np.isfinite(update.policy.predictor.coef_).all()


def test_a_constant_feature_does_no_harm_to_the_fair_predictor():
    log = shifted_log(500)
    constant = cq.DecisionLog.from_arrays(
        np.column_stack([log.features, np.ones(len(log))]),
        log.decision,
        log.propensity,
        log.label,
        log.group,
    )
    learner = cq.lab.FitFairPredictor(cq.Objective(0.5, "demographic_parity", 1.0))
    update = fitted(learner, constant, rule(3))
    assert np.isfinite(update.policy.predictor.coef_).all()


def test_a_fit_that_stops_early_is_reported():
    learner = cq.lab.FitFairPredictor(
        cq.Objective(0.5, "demographic_parity", 1.0), max_iterations=1
    )
    assert "stopped early" in fitted(learner, shifted_log(500)).notes[0]


def test_what_a_classifier_warns_of_is_a_note():
    import warnings

    class Anxious(DecisionTreeClassifier):
        def fit(self, features, label):
            warnings.warn("few people", UserWarning, stacklevel=2)
            return super().fit(features, label)

    update = fitted(cq.lab.FitPredictor(0.5, Anxious(max_depth=1)), exploring_log())
    assert update.notes == ("while fitting: few people",)
