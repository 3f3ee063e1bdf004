"""A learner takes data frames as they come, and decides on frames of the same columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

import consequential as cq
from messy_tables import FEATURES, NAMED, messy_table

OPTIONS = {"cost": 0.5, "l2": 1e-4}


@pytest.fixture(scope="module")
def table():
    return messy_table().query("month < 10")  # whose labels have come


def metadata(table):
    return {
        "sensitive_features": table["region"],
        "decisions": table["approved"],
        "propensities": table["p"],
    }


@pytest.fixture(scope="module")
def learner(table):
    learner = cq.FairPolicyLearner(**OPTIONS, max_gap=0.1, method="model")
    return learner.fit(table[FEATURES], table["repaid"], **metadata(table))


def test_a_frame_teaches_what_its_log_teaches(table, learner):
    log = cq.DecisionLog.from_frame(table, features=FEATURES, **NAMED)
    of_log = cq.FairPolicyLearner(**OPTIONS, max_gap=0.1, method="model").fit_log(log)
    assert_array_equal(learner.policy_.theta, of_log.policy_.theta)
    assert learner.coding_ == log.notes
    for each in (learner, of_log):
        assert each.feature_names_in_.tolist() == FEATURES
        assert each.n_features_in_ == len(FEATURES)
        found = each.predict_proba(table[FEATURES])[:, 1]
        assert_array_equal(found, log.propensity_of(each.policy_))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_raw_frames_are_decided_scored_and_predicted(library, table, learner):
    people = messy_table(300, seed=3, purposes=("car", "home", "plane", "boat"))
    people = people[people["month"] < 10]
    frame = library(people[FEATURES])
    decided = learner.decide(frame, random_state=0)
    assert type(decided) is type(frame)
    propensity = learner.policy_.propensity(people[FEATURES])
    assert_array_equal(decided["propensity"].to_numpy(), propensity)
    assert_array_equal(learner.predict(frame), learner.classes_[(propensity >= 0.5).astype(int)])
    score = learner.score(frame, people["repaid"], **metadata(people))
    log = cq.DecisionLog.from_frame(people, features=FEATURES, **NAMED)
    assert score == pytest.approx(cq.evaluate(learner, log, cost=0.5).utility.value)


def test_columns_that_differ_from_those_learned_from_are_named(table, learner):
    with pytest.raises(ValueError, match="seen at fit time, yet now missing:\n- debt"):
        learner.predict(table[FEATURES[:-1]])
    with pytest.raises(ValueError, match="unseen at fit time:\n- month"):
        learner.predict(table[[*FEATURES, "month"]])


def test_everybody_accepted_needs_no_more_than_a_frame_and_labels(table):
    accepted = table[table["approved"] == 1]
    scores = cross_val_score(
        cq.FairPolicyLearner(**OPTIONS), accepted[FEATURES], accepted["repaid"], cv=2
    )
    assert np.isfinite(scores).all()


def test_an_array_has_the_raw_columns_in_their_order(table):
    numbers = table[["p", "month"]].astype(float)
    learner = cq.FairPolicyLearner(**OPTIONS, method="direct").fit(
        numbers, table["repaid"], **metadata(table)
    )
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        found = learner.predict_proba(numbers.to_numpy())
    assert_array_equal(found, learner.predict_proba(numbers))


BY_NAME = [("curve", SplineTransformer(n_knots=4), ["income"]), ("same", "passthrough", ["debt"])]


@pytest.mark.parametrize(
    "feature_map",
    [
        ColumnTransformer(BY_NAME),
        make_pipeline(ColumnTransformer(BY_NAME), StandardScaler(), PolynomialFeatures(2)),
    ],
    ids=["columns", "pipeline"],
)
def test_a_feature_map_may_select_prepared_columns_by_name(feature_map, table):
    learner = cq.FairPolicyLearner(**OPTIONS, method="direct", feature_map=feature_map)
    learner.fit(table[FEATURES], table["repaid"], **metadata(table))
    policy = learner.policy_
    log = cq.DecisionLog.from_frame(table, features=FEATURES, **NAMED)
    people = log.features[:, [log.feature_names.index(name) for name in ("income", "debt")]]
    curve = SplineTransformer(n_knots=4).fit_transform(people[:, :1])
    inputs = policy.mapped(table[FEATURES])
    with pytest.raises(
        cq.PolicyError, match=r"13 columns are needed .income, .* there is 1 column"
    ):
        cq.Policy([0.0], feature_map=policy.feature_map).mapped([[1.0]])
    if isinstance(feature_map, ColumnTransformer):
        assert_allclose(inputs, np.column_stack([curve, people[:, 1]]))
    assert inputs.shape[1] + 1 == policy.theta.size
    assert_array_equal(learner.predict_proba(table[FEATURES])[:, 1], log.propensity_of(policy))


@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_the_plain_regression_uses_the_feature_map(table, uses_sensitive):
    log = cq.DecisionLog.from_frame(table, features=FEATURES, **NAMED)
    options = {"feature_map": ColumnTransformer(BY_NAME), "uses_sensitive": uses_sensitive}
    learner = cq.FairPolicyLearner(**OPTIONS, method="scores", **options).fit_log(log)
    mapped = learner.policy_.feature_map.models[0].steps[0][1]
    assert isinstance(mapped.feature_map, ColumnTransformer)
    again = cq.policy_from_json(cq.policy_to_json(learner.policy_))
    assert_array_equal(log.propensity_of(again), log.propensity_of(learner.policy_))
