"""Columns are matched by name, by whatever rule and however deep it stands inside another."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import consequential as cq
from consequential.policies import NamedFeatures

POLICY = cq.Policy([0.1, 2.0, -1.0], feature_names=["income", "debt"])
TURNED = cq.Policy([0.1, -1.0, 2.0], feature_names=["debt", "income"])


@cache
def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(rng.normal(size=(60, 3)), columns=["income", "debt", "age"])


def predicted(threshold, *steps) -> cq.ThresholdPolicy:
    """A threshold over a model that was fitted to a frame with debt before income."""
    model = make_pipeline(*steps, LogisticRegression()) if steps else LogisticRegression()
    model.fit(table()[["debt", "income"]], (table()["income"] > 0).astype(int))
    return cq.ThresholdPolicy(model, threshold)


SCALED = [("scaled", StandardScaler(), ["income"]), ("same", "passthrough", ["debt"])]
RULES = {
    "policy": lambda: POLICY,
    "floor": lambda: POLICY.with_floor(0.1),
    "every third": lambda: cq.EveryNth(3, POLICY),
    "threshold": lambda: predicted(0.5),
    "pipeline": lambda: predicted(0.5, ColumnTransformer(SCALED)),
    "threshold with a floor": lambda: predicted(0.5).with_floor(0.2),
    "mixture of two orders": lambda: cq.Mixture([POLICY, TURNED], [0.5, 0.5]),
    "rules within rules": lambda: cq.Mixture(
        [cq.EveryNth(4, TURNED), predicted(0.4), cq.RejectAll()], [0.5, 0.3, 0.2]
    ),
}


@pytest.fixture(params=RULES)
def rule(request):
    return RULES[request.param]()


ORDERS = [["income", "debt"], ["debt", "income"], ["debt", "age", "income"]]


def people(names) -> NamedFeatures:
    return NamedFeatures(table()[names].to_numpy(), names)


@pytest.mark.parametrize("names", ORDERS[1:], ids=["turned round", "one more"])
def test_a_rule_finds_its_columns_by_name_in_whatever_order_they_come(rule, names):
    assert_allclose(rule.propensity(people(names)), rule.propensity(people(ORDERS[0])), rtol=1e-12)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_a_frame_and_a_matrix_with_names_are_answered_alike(rule, library):
    frame = library(table()[ORDERS[2]].to_dict("list"))
    assert_allclose(rule.propensity(frame), rule.propensity(people(ORDERS[0])), rtol=1e-12)


def test_decisions_follow_names_too(rule):
    one, other = (rule.decide(people(names), rng=np.random.default_rng(0)) for names in ORDERS[:2])
    assert_array_equal(one, other)


def test_a_rule_says_which_features_it_looks_at(rule):
    assert set(rule.feature_names) == {"income", "debt"}


def test_a_feature_that_is_not_there_is_named(rule):
    with pytest.raises(cq.PolicyError, match=r"no feature 'debt'.*there are income, age"):
        rule.propensity(people(["income", "age"]))


def test_two_orders_of_the_same_policy_are_the_same_policy():
    truth = expit(0.1 + 2.0 * table()["income"] - table()["debt"])
    for names in ORDERS:
        assert_allclose(POLICY.propensity(people(names)), truth, rtol=1e-12)
        assert_allclose(TURNED.propensity(people(names)), truth, rtol=1e-12)


# --- where one side has no names


MADE_UP = cq.Policy([0.1, 2.0, -1.0], feature_names=["x0", "x1"])
NAMELESS = cq.Policy([0.1, 2.0, -1.0])


@pytest.mark.parametrize("policy", [MADE_UP, NAMELESS], ids=["x0, x1", "none"])
def test_a_policy_learned_from_arrays_takes_columns_by_position(policy):
    by_position = expit(0.1 + 2.0 * table()["debt"] - table()["income"])
    turned = ["debt", "income"]
    assert_allclose(policy.propensity(people(turned)), by_position, rtol=1e-12)
    assert_allclose(policy.propensity(table()[turned]), by_position, rtol=1e-12)


def test_a_policy_with_names_takes_the_columns_of_an_array_by_position():
    matrix = table()[ORDERS[0]].to_numpy()
    for nameless in (matrix, NamedFeatures(matrix, ["x0", "x1"])):
        assert_allclose(POLICY.propensity(nameless), POLICY.propensity(table()), rtol=1e-12)


def test_names_that_look_made_up_but_come_in_another_order_are_names():
    matrix = table()[ORDERS[1]].to_numpy()
    turned = NamedFeatures(matrix, ["x1", "x0"])
    assert_allclose(MADE_UP.propensity(turned), POLICY.propensity(table()), rtol=1e-12)


WRONG_COUNTS = {
    "a policy with names": (lambda: POLICY, r"looks at 2 features \(income, debt\), .* 3 columns"),
    "a policy with made-up names": (
        lambda: MADE_UP,
        r"looks at 2 features \(x0, x1\), .* 3 columns",
    ),
    "a policy without names": (
        lambda: NAMELESS,
        "theta has 3 parameters but the features give 4 inputs",
    ),
    "a predictor without names": (
        lambda: cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0, 1.0]), 0.5),
        "fitted to 2 features, but there are 3 columns",
    ),
    "a predictor with names": (RULES["threshold"], "looks at 2 features .* 3 columns"),
}


@pytest.mark.parametrize(("make", "words"), WRONG_COUNTS.values(), ids=WRONG_COUNTS)
def test_by_position_as_many_columns_are_needed_as_the_rule_looks_at(make, words):
    for rule in (make(), cq.EveryNth(2, make())):
        with pytest.raises(cq.PolicyError, match=words):
            rule.propensity(NamedFeatures(table().to_numpy(), ["x0", "x1", "x2"]))


# --- words


WORDS = cq.Policy([0.0, 1.0, -1.0, 2.0], feature_names=["income", "by=car", "by=boat"])


def test_an_indicator_of_a_word_nobody_has_is_zero():
    here = NamedFeatures([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]], ["income", "by=car", "by=foot"])
    assert_allclose(WORDS.propensity(here), expit([0.0, 2.0]), rtol=1e-12)


def test_an_indicator_that_is_merely_left_out_is_missing():
    # the second person has another word than car: boat, maybe
    here = NamedFeatures([[1.0, 1.0], [2.0, 0.0]], ["income", "by=car"])
    with pytest.raises(cq.PolicyError, match=r"no feature 'by=boat'"):
        WORDS.propensity(here)


# --- the matrix itself


def test_names_do_not_survive_what_may_change_the_columns():
    named = people(ORDERS[0])
    assert named.names == ("income", "debt")
    for derived in (named[:, ::-1], named * 2.0, named[:5], named.T, np.sort(named)):
        assert derived.names == ()
    assert type(np.asarray(named)) is np.ndarray
    assert pickle.loads(pickle.dumps(named)).names == named.names


def test_a_rule_of_ones_own_gets_an_array_it_can_compute_with():
    class Rich(cq.DecisionRule):
        def propensity(self, features, sensitive=None):
            return (features[:, 0] > 0).astype(float)

    log = cq.DecisionLog.from_arrays(
        [[1.0, 2.0], [-1.0, 2.0]], [1, 0], [0.5, 0.5], [1, None], feature_names=["a", "b"]
    )
    found = log.propensity_of(Rich())
    assert type(found) is np.ndarray
    assert_array_equal(found, [1.0, 0.0])
