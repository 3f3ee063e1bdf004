"""The parametric policy: inputs, groups, floors, gradients, and what it refuses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

import consequential as cq
from consequential.policy import group_codes
from consequential.policy.links import LINKS

PEOPLE = np.array([[0.0, 2.0], [1.0, -1.0], [2.0, 0.5], [1.0, 3.0]])


@pytest.mark.parametrize(
    ("features", "eta"),
    [
        pytest.param([[0.0], [1.0], [-2.0]], [0.5, 2.5, -3.5], id="a matrix"),
        pytest.param([0, 1, -2], [0.5, 2.5, -3.5], id="a vector is one feature"),
        pytest.param(np.empty((0, 1)), [], id="nobody"),
    ],
)
def test_without_a_feature_map_the_score_is_the_intercept_plus_the_weighted_features(features, eta):
    assert_allclose(cq.Policy([0.5, 2.0]).propensity(features), expit(np.array(eta)), rtol=1e-15)


@pytest.mark.parametrize(
    "feature_map",
    [
        StandardScaler(),
        StandardScaler().set_output(transform="pandas"),
        SplineTransformer(n_knots=3),
        PolynomialFeatures(2, include_bias=False),
        OneHotEncoder(),
        make_pipeline(StandardScaler(), PolynomialFeatures(2)),
    ],
    ids=["scaled", "a frame", "splines", "polynomials", "sparse one-hot", "pipeline"],
)
def test_a_feature_map_goes_between_the_features_and_the_intercept(feature_map, rng):
    mapped = feature_map.fit(PEOPLE).transform(PEOPLE)
    mapped = mapped.toarray() if hasattr(mapped, "toarray") else np.asarray(mapped)
    theta = rng.normal(size=mapped.shape[1] + 1)
    policy = cq.Policy(theta, feature_map=feature_map)
    assert_allclose(policy.propensity(PEOPLE), expit(theta[0] + mapped @ theta[1:]), rtol=1e-13)


@pytest.mark.parametrize(
    "groups", [("a", "b"), (1, 0), ("w", "u", "v"), (True, False)], ids=lambda g: f"{g}"
)
def test_each_group_is_decided_by_its_own_block_of_theta(groups, rng):
    theta = rng.normal(size=(len(groups), 3))
    policy = cq.Policy(theta.ravel(), groups=groups)
    for group, block in zip(groups, theta, strict=True):
        propensity = policy.propensity(PEOPLE, [group] * len(PEOPLE))
        assert_allclose(propensity, expit(block[0] + PEOPLE @ block[1:]), rtol=1e-13)
    mixed = [groups[k % len(groups)] for k in range(len(PEOPLE))]
    rows = [policy.propensity(PEOPLE[[k]], [mixed[k]])[0] for k in range(len(PEOPLE))]
    assert_array_equal(policy.propensity(PEOPLE, mixed), rows)


def test_groups_may_come_as_an_array(rng):
    theta = rng.normal(size=6)
    policy = cq.Policy(theta, groups=np.array(["a", "b"]))
    expected = cq.Policy(theta, groups=["a", "b"]).propensity(PEOPLE, ["a", "b", "b", "a"])
    assert_array_equal(policy.propensity(PEOPLE, ["a", "b", "b", "a"]), expected)


def test_the_sensitive_attribute_is_no_input_unless_groups_are_given():
    blind, seeing = cq.Policy([0.0, 1.0]), cq.Policy([0.0, 1.0, 2.0, 1.0], groups=["a", "b"])
    assert_array_equal(blind.propensity([[1.0]], ["a"]), blind.propensity([[1.0]], ["b"]))
    assert seeing.propensity([[1.0]], ["a"]) < seeing.propensity([[1.0]], ["b"])
    assert not blind.uses_sensitive
    assert seeing.uses_sensitive


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (cq.Policy([0.1, 2.0]), "Policy(theta=[0.1 2. ], link='logistic')"),
        (
            cq.Policy([1.0, 2.0], "semi_logistic", StandardScaler(), floor=0.25),
            "Policy(theta=[1. 2.], link='semi_logistic', feature_map=StandardScaler(), floor=0.25)",
        ),
        (
            cq.Policy([1.0, 2.0], groups=["f", "m"]),
            "Policy(theta=[1. 2.], link='logistic', "
            "uses the sensitive attribute, groups=['f', 'm'])",
        ),
    ],
    ids=["plain", "everything", "sensitive"],
)
def test_a_policy_shows_what_it_is_and_whether_it_uses_the_sensitive_attribute(policy, text):
    assert repr(policy) == text


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_a_floor_lifts_every_propensity_and_keeps_the_certain_ones(link, floor):
    policy = cq.Policy([0.0, 1.0], link).with_floor(floor)
    base = cq.Policy([0.0, 1.0], link).propensity([-1e3, -1.0, 1e3])
    assert_allclose(policy.propensity([-1e3, -1.0, 1e3]), floor + (1 - floor) * base, rtol=1e-15)
    assert policy.propensity([-1e308])[0] == floor
    assert policy.propensity([1e308])[0] == 1.0


def test_a_second_floor_replaces_the_first():
    policy = cq.Policy([0.0, 1.0], floor=0.5)
    assert policy.with_floor(0.1).propensity([-1e3])[0] == 0.1
    assert policy.floor == 0.5


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_derivative_and_score_are_those_of_the_propensity(link, floor):
    policy = cq.Policy([0.0], link, floor=floor)
    eta, step = np.array([-6.0, -1.0, -0.1, 0.1, 3.0]), 1e-6
    above, below = policy.probability(eta + step), policy.probability(eta - step)
    assert_allclose(policy.derivative(eta), (above - below) / (2 * step), atol=1e-9)
    assert_allclose(policy.log_derivative(eta), np.log(above / below) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("link", LINKS)
def test_inputs_times_derivative_is_the_gradient_in_theta(link):
    policy = cq.Policy(
        [0.1, -0.6, 0.3, -0.2, 0.4, 0.5], link, StandardScaler().fit(PEOPLE), groups=["a", "b"]
    )
    sensitive = ["a", "b", "b", "a"]
    phi = policy.inputs(PEOPLE, sensitive)
    gradient = policy.derivative(phi @ policy.theta)[:, None] * phi
    numeric = approx_fprime(policy.theta, lambda t: policy.at(t).propensity(PEOPLE, sensitive))
    assert_allclose(gradient, numeric, atol=1e-7)


def test_at_changes_theta_and_nothing_else():
    scaler = StandardScaler().fit(PEOPLE[:, :1])
    policy = cq.Policy([0.0] * 4, "semi_logistic", scaler, floor=0.1, groups=["a", "b"])
    other = policy.at([1.0, 2.0, 3.0, 4.0])
    assert_array_equal(other.theta, [1.0, 2.0, 3.0, 4.0])
    for name in ("link", "feature_map", "floor", "groups"):
        assert getattr(other, name) == getattr(policy, name)
    assert_array_equal(policy.theta, [0.0] * 4)


def test_nobody_can_change_a_policy_after_the_fact():
    theta = np.array([1.0, 2.0])
    policy = cq.Policy(theta)
    theta[0] = 9.0
    assert policy.theta[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        policy.theta[0] = 9.0
    with pytest.raises(FrozenInstanceError):
        policy.floor = 0.5


@pytest.mark.parametrize("cost", [0.01, 0.5, 0.9])
@pytest.mark.parametrize("link", ["logistic", "semi_logistic"])
def test_a_policy_from_a_model_cuts_where_the_model_predicts_the_cost(cost, link):
    theta = np.array([-3.0, 5.0])
    where_cost = (logit(cost) - theta[0]) / theta[1]
    policy = cq.policy_from_model(theta, cost, link)
    below, above = policy.propensity([where_cost - 1e-9, where_cost + 1e-9])
    assert below == pytest.approx(0.5, abs=1e-8)
    assert above == pytest.approx(0.5 if link == "logistic" else 1.0, abs=1e-8)
    assert_array_equal(theta, [-3.0, 5.0])


GROUPED = cq.Policy([0.0, 1.0, 2.0, 3.0], groups=["a", "b"])


REFUSED = {
    "a scalar theta": (lambda: cq.Policy(1.0), r"theta is a vector of parameters, .* shape \(\)"),
    "a matrix theta": (lambda: cq.Policy([[1.0]]), r"a vector .* not of shape \(1, 1\)"),
    "an empty theta": (lambda: cq.Policy([]), r"a vector .* not of shape \(0,\)"),
    "NaN in theta": (lambda: cq.Policy([1.0, np.nan]), "theta must be finite"),
    "an infinite theta": (lambda: cq.Policy([1.0, np.inf]), "theta must be finite"),
    "theta that groups cannot share": (
        lambda: cq.Policy([1.0] * 3, groups=["a", "b"]),
        "3 parameters, which 2 groups cannot share equally",
    ),
    "a group twice": (lambda: cq.Policy([1.0] * 4, groups=["a", "a"]), "group"),
    "a floor of one": (lambda: cq.Policy([1.0], floor=1.0), r"lies in \[0, 1\), not 1.0"),
    "a negative floor": (lambda: cq.Policy([1.0], floor=-0.1), r"lies in \[0, 1\), not -0.1"),
    "a NaN floor": (lambda: cq.Policy([1.0], floor=np.nan), "exploration floor"),
    "a floor above one": (lambda: cq.Policy([1.0]).with_floor(1.5), "exploration floor"),
    "no transformer": (
        lambda: cq.Policy([1.0, 1.0], feature_map=LogisticRegression()),
        "fitted transformer; LogisticRegression has no transform",
    ),
    "too many features": (
        lambda: cq.Policy([1.0, 1.0]).propensity(PEOPLE),
        "theta has 2 parameters but the features give 3 inputs",
    ),
    "too many features in groups": (
        lambda: GROUPED.propensity(PEOPLE, ["a"] * 4),
        "theta has 4 parameters but the features give 6 inputs",
    ),
    "sensitive not given": (
        lambda: GROUPED.propensity([0.0]),
        "uses the sensitive attribute: pass `sensitive`",
    ),
    "an unknown group": (
        lambda: GROUPED.propensity([0.0, 1.0], ["a", "c"]),
        r"unknown sensitive group .*'c'.*known: \['a', 'b'\]",
    ),
    "sensitive too short": (lambda: GROUPED.propensity([0.0, 1.0], ["a"]), "sensitive"),
    "sensitive too long": (lambda: GROUPED.propensity([0.0, 1.0], ["a"] * 3), "sensitive"),
}


@pytest.mark.parametrize(("attempt", "words"), REFUSED.values(), ids=REFUSED)
def test_a_policy_says_what_it_cannot_do(attempt, words):
    with pytest.raises(cq.PolicyError, match=words):
        attempt()


@pytest.mark.parametrize("cost", [0.0, 1.0, np.nan, -0.2, 100])
def test_a_cost_lies_strictly_between_0_and_1(cost):
    with pytest.raises(ValueError, match=r"cost lies strictly between 0 and 1, not [\w.-]+$"):
        cq.policy_from_model([0.0, 1.0], cost)


PERCENTAGES = {
    "cost": (lambda: cq.policy_from_model([0.0, 1.0], 60), "the cost .* not 60"),
    "threshold": (
        lambda: cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), 62.5),
        "the threshold is a probability, not 62.5",
    ),
    "floor": (lambda: cq.Policy([1.0]).with_floor(5), "an exploration floor .* not 5"),
}


@pytest.mark.parametrize(("attempt", "words"), PERCENTAGES.values(), ids=PERCENTAGES)
def test_a_percentage_is_answered_with_the_fraction_to_write(attempt, words):
    with pytest.raises(ValueError, match=words):
        attempt()


def test_an_unknown_link_is_refused():
    with pytest.raises(ValueError, match="unknown link 'cauchy'"):
        cq.Policy([1.0], "cauchy")


@pytest.mark.parametrize("groups", [("b", "a"), [2, 0, 1], (False, True)], ids=str)
def test_group_codes_are_positions_in_the_given_order(groups):
    order = [0, *range(len(groups)), 0]
    assert_array_equal(group_codes([groups[k] for k in order], groups), order)


def test_features_are_a_vector_or_a_matrix():
    with pytest.raises(cq.PolicyError, match="one row per person"):
        cq.Policy([0.0, 1.0]).propensity([[[1.0]]])
