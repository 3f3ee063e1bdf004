"""Rules without a gradient: what they accept, how often, and how they combine."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import consequential as cq

SLOPE = cq.Policy([0.0, 1.0])
CUT = cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), threshold=0.5)
PEOPLE = np.array([[-2.0], [-0.5], [0.0], [1.0], [3.0]])
SURE = (PEOPLE[:, 0] >= 0.0).astype(float)
RULES = {
    "accept all": (cq.AcceptAll(), np.ones(5)),
    "reject all": (cq.RejectAll(), np.zeros(5)),
    "threshold": (CUT, SURE),
    "policy": (SLOPE, expit(PEOPLE[:, 0])),
    "a quarter of a policy": (
        cq.Mixture([SLOPE, cq.RejectAll()], [0.25, 0.75]),
        0.25 * expit(PEOPLE[:, 0]),
    ),
    "mixture": (
        cq.Mixture([CUT, SLOPE, cq.RejectAll()], [0.5, 0.3, 0.2]),
        0.5 * SURE + 0.3 * expit(PEOPLE[:, 0]),
    ),
    "mixture of mixtures": (
        cq.Mixture([cq.Mixture([CUT, cq.AcceptAll()], [0.5, 0.5]), cq.RejectAll()], [0.8, 0.2]),
        0.4 * SURE + 0.4,
    ),
}
every_rule = pytest.mark.parametrize(("rule", "truth"), RULES.values(), ids=RULES)


@every_rule
def test_the_propensity_is_the_chance_of_acceptance(rule, truth):
    assert_allclose(rule.propensity(PEOPLE), truth, rtol=1e-15)


@every_rule
def test_decisions_are_as_frequent_as_the_propensity_says(rule, truth, rng):
    n = 4_000
    often = rule.decide(np.tile(PEOPLE, (n, 1)), rng=rng).reshape(n, 5).mean(axis=0)
    four_sigma = 4 * np.sqrt(truth * (1 - truth) / n)
    assert (np.abs(often - truth) <= four_sigma).all()


@every_rule
@pytest.mark.parametrize("floor", [0.0, 0.15])
def test_any_rule_can_have_an_exploration_floor(rule, truth, floor):
    floored = rule.with_floor(floor).propensity(PEOPLE)
    assert_allclose(floored, floor + (1 - floor) * truth, rtol=1e-15)
    assert floored.min() >= floor
    assert floored.max() <= 1.0


@every_rule
def test_a_decision_is_a_function_of_the_generator(rule, truth):
    first, again = (rule.decide(PEOPLE, rng=np.random.default_rng(7)) for _ in range(2))
    assert first.dtype == np.bool_
    assert_array_equal(first, again)


@pytest.mark.parametrize("name", ["accept all", "policy", "a quarter of a policy"])
def test_nobody_to_decide_on_is_no_error(name, rng):
    rule, _ = RULES[name]
    assert rule.propensity(np.empty((0, 1))).shape == (0,)
    assert rule.decide(np.empty((0, 1)), rng=rng).shape == (0,)


@pytest.mark.parametrize(
    "classifier",
    [
        LogisticRegression(C=np.inf),
        RandomForestClassifier(n_estimators=5, bootstrap=False, random_state=0),
        DecisionTreeClassifier(),
        GaussianNB(),
    ],
    ids=lambda c: type(c).__name__,
)
def test_a_threshold_over_any_classifier_accepts_those_it_thinks_good(classifier):
    classifier.fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    rule = cq.ThresholdPolicy(classifier, threshold=0.5)
    assert_array_equal(rule.propensity([0.0, 1.0, 4.0, 5.0]), [0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("threshold", "accepted"),
    [(0.0, [1, 1, 1]), (0.5, [0, 1, 1]), (np.nextafter(0.5, 1), [0, 0, 1]), (1.0, [0, 0, 0])],
)
def test_a_prediction_at_the_threshold_is_accepted(threshold, accepted):
    rule = cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), threshold)
    assert_array_equal(rule.propensity([-1.0, 0.0, 1.0]), accepted)


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 1, 2]], ids=["one class", "three classes"])
def test_a_predictor_of_other_than_two_classes_is_refused(labels):
    tree = DecisionTreeClassifier().fit([[0.0], [1.0], [2.0]], labels)
    with pytest.raises(cq.PolicyError, match=r"two columns .* fitted on labels of both kinds"):
        cq.ThresholdPolicy(tree, 0.5).propensity([0.0])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda rule: cq.Mixture([cq.AcceptAll(), rule], [0.5, 0.5]),
        lambda rule: rule.with_floor(0.1),
    ],
    ids=["mixture", "floor"],
)
def test_a_rule_made_of_rules_says_whether_one_uses_the_sensitive_attribute(wrap):
    seeing = cq.Policy([-1e3, 1e3], groups=["a", "b"])
    features = np.empty((2, 0))
    assert wrap(seeing).uses_sensitive
    assert not wrap(SLOPE).uses_sensitive
    a, b = wrap(seeing).propensity(features, ["a", "b"])
    assert a < b == 1.0


def test_a_mixture_keeps_its_own_copy_of_its_parts():
    rules, probabilities = [cq.AcceptAll(), cq.RejectAll()], [0.25, 0.75]
    mixture = cq.Mixture(rules, probabilities)
    rules.reverse()
    probabilities[0] = 1.0
    assert mixture.propensity([0.0])[0] == 0.25
    with pytest.raises(FrozenInstanceError):
        mixture.rules = ()


def test_certain_acceptance_by_ten_rules_is_not_above_one():
    shares = [0.1] * 9 + [0.1 + 1e-10]
    assert cq.Mixture([cq.AcceptAll()] * 10, shares).propensity([0.0])[0] == 1.0


def test_a_logistic_model_predicts_by_its_parameters(rng):
    features = rng.normal(size=(50, 2))
    predicted = cq.logistic_model([0.3, -1.0, 2.0]).predict_proba(features)[:, 1]
    assert_allclose(predicted, expit(0.3 + features @ [-1.0, 2.0]), rtol=1e-14)


HALVES = [cq.AcceptAll(), cq.RejectAll()]
REFUSED = {
    "no predict_proba": (
        lambda: cq.ThresholdPolicy(object(), 0.5),
        "needs a fitted predictor with predict_proba; object has none",
    ),
    "a threshold above 1": (
        lambda: cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), 1.5),
        "threshold is a probability, not 1.5",
    ),
    "a NaN threshold": (
        lambda: cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), np.nan),
        "threshold is a probability",
    ),
    "a probability short": (
        lambda: cq.Mixture(HALVES, [1.0]),
        "one probability per rule: 2 rules, 1 probabilities",
    ),
    "no rules": (lambda: cq.Mixture([], []), "one probability per rule: 0 rules"),
    "probabilities short of one": (lambda: cq.Mixture(HALVES, [0.5, 0.4]), "sum to one"),
    "a negative probability": (lambda: cq.Mixture(HALVES, [-0.5, 1.5]), "probabilities"),
    "NaN probabilities": (lambda: cq.Mixture(HALVES, [np.nan, np.nan]), "probabilities"),
    "a floor of one": (lambda: cq.AcceptAll().with_floor(1.0), r"lies in \[0, 1\), not 1.0"),
    "a model without features": (lambda: cq.logistic_model([1.0]), r"not shape \(1,\)"),
    "a matrix for a model": (lambda: cq.logistic_model([[1.0, 2.0]]), r"not shape \(1, 2\)"),
}


@pytest.mark.parametrize(("attempt", "words"), REFUSED.values(), ids=REFUSED)
def test_a_rule_says_what_it_cannot_do(attempt, words):
    with pytest.raises(cq.PolicyError, match=words):
        attempt()


def test_a_predictor_of_other_labels_than_0_and_1_is_refused():
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier().fit([[0.0], [1.0]], ["good", "ill"])
    with pytest.raises(cq.PolicyError, match="fit it on labels 0 and 1"):
        cq.ThresholdPolicy(tree, 0.5)


def test_nobody_is_decided_on_by_a_missing_feature():
    with pytest.raises(cq.PolicyError, match="features must be finite"):
        cq.Policy([5.0, 1.0]).decide([[float("nan")]], rng=np.random.default_rng(0))


def test_what_the_log_did_is_known_of_the_log_only():
    log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    np.testing.assert_array_equal(log.propensity_of(cq.Logged()), [0.25, 0.5])
    with pytest.raises(cq.PolicyError, match="no propensity for other people"):
        cq.Logged().propensity([[0.0]])


def test_a_log_asks_a_rule_about_its_people_with_their_groups_where_it_uses_them():
    log = cq.DecisionLog.from_arrays(
        [[0.0], [0.0]], [1, 0], [0.25, 0.5], [1, None], sensitive=["a", "b"]
    )
    apart = cq.Policy([0.0, 0.0, 50.0, 0.0], groups=["a", "b"])
    np.testing.assert_allclose(log.propensity_of(apart), [0.5, 1.0])
    np.testing.assert_allclose(log.propensity_of(cq.AcceptAll()), [1.0, 1.0])
