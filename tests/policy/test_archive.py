"""Archives: fitted objects come back to the bit, and only those of types that are trusted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, StackingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

from consequential.policy.archive import archived, unarchived
from consequential.policy.mapped import MappedColumns
from consequential.policy.scores import Scores


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    income = np.where(rng.random(300) < 0.1, np.nan, rng.normal(size=300))
    columns = {"income": income, "debt": rng.normal(size=300)}
    return pd.DataFrame(columns).assign(purpose=rng.choice(["car", "home", "tv"], 300))


@pytest.fixture(scope="module")
def label(frame):
    return (frame["debt"] + (frame["purpose"] == "car") > 0.3).astype(int)


def columns(numbers, words=None) -> ColumnTransformer:
    words = words or OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5)
    return ColumnTransformer([("n", numbers, ["income", "debt"]), ("w", words, ["purpose"])])


def imputed(*steps):
    return make_pipeline(SimpleImputer(add_indicator=True), *steps)


MODELS = {
    "everything": lambda: make_pipeline(
        columns(imputed(StandardScaler(), SplineTransformer(4))),
        PolynomialFeatures(2, interaction_only=True),
        LogisticRegression(max_iter=2_000),
    ),
    "boosting with categories": lambda: make_pipeline(
        columns("passthrough", OrdinalEncoder()),
        HistGradientBoostingClassifier(categorical_features=[2], max_iter=5),
    ),
    "calibrated by steps": lambda: CalibratedClassifierCV(
        make_pipeline(columns(imputed()), LogisticRegression()), method="isotonic", cv=2
    ),
    "calibrated": lambda: CalibratedClassifierCV(
        make_pipeline(columns(imputed()), LogisticRegression()), cv=2
    ),
    "stacked": lambda: make_pipeline(
        columns(imputed(QuantileTransformer(n_quantiles=20), FunctionTransformer(np.abs))),
        StackingClassifier(
            [("a", LogisticRegression()), ("b", HistGradientBoostingClassifier(max_iter=3))], cv=2
        ),
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_fitted_pipeline_comes_back_to_the_bit_and_archives_alike(make, frame, label):
    model = make().fit(frame, label)
    stored = archived(model)
    again = unarchived(stored)
    assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert archived(again)["sha256"] == stored["sha256"] == archived(model)["sha256"]


def test_feature_maps_of_our_own_can_be_stored():
    people = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    mapped = MappedColumns(StandardScaler(), ("income",), by_name=False)
    model = make_pipeline(mapped, LogisticRegression()).fit(people, [0, 0, 1])
    scores = Scores([model], 0.1, [0.8])
    assert_array_equal(unarchived(archived(scores)).transform(people), scores.transform(people))


def test_an_object_of_many_zeros_is_stored_all_the_same():
    scaler = StandardScaler().fit([[1.0], [2.0]])
    scaler.zeros_ = np.zeros(10**6)
    assert unarchived(archived(scaler)).zeros_.shape == (10**6,)
