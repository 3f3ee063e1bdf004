"""Archives: fitted objects come back to the bit, and only those of types that are trusted."""

from __future__ import annotations

import base64
import json
import zlib
from zipfile import ZIP_DEFLATED

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from policy_mutations import files_of, packed
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
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import consequential as cq
from consequential.policies.archive import archived, unarchived
from consequential.policies.mapped import MappedColumns
from consequential.policies.scores import Scores


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


def own_function(features):
    return features


class Own(StandardScaler):
    """A class that another process may not have."""


REFUSED = {
    "a function of one's own": (lambda: FunctionTransformer(own_function), "own_function"),
    "a class of one's own": (Own, "test_archive.Own"),
    "a support vector machine": (SVC, r"sklearn\.svm\._classes\.SVC"),
    "a tree": (lambda: DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1]), r"_tree\.Tree"),
    "a machine inside": (lambda: make_pipeline(StandardScaler(), SVC()), r"_classes\.SVC"),
    "what has no state": (lambda: iter([1]), "list_iterator"),
}


@pytest.mark.parametrize(("make", "name"), REFUSED.values(), ids=REFUSED)
def test_other_types_are_refused_by_name_when_they_are_stored(make, name):
    with pytest.raises(cq.PolicyError, match=name):
        archived(make())


def scaler() -> StandardScaler:
    return StandardScaler().fit([[1.0], [2.0]])


def renamed(module, name, loader="ObjectNode"):
    files = files_of(archived(scaler()))
    schema = json.loads(files["schema.json"])
    schema |= {"__module__": module, "__class__": name, "__loader__": loader}
    return packed(files | {"schema.json": json.dumps(schema).encode()})


FORGED = {
    "a function of the system": lambda: renamed("os", "system", "FunctionNode"),
    "a class of the system": lambda: renamed("subprocess", "Popen"),
    "a function of ours": lambda: renamed(
        "consequential.policies.storage", "save_policy", "FunctionNode"
    ),
    "a module that ours imports": lambda: renamed(
        "consequential.policies.storage", "os", "FunctionNode"
    ),
    "a class of ours that no file needs": lambda: renamed(
        "consequential.policies.summary", "FeatureSummary"
    ),
    "a module that is not there": lambda: renamed("consequential.policies.nothing", "Scores"),
}


@pytest.mark.parametrize("make", FORGED.values(), ids=FORGED)
def test_a_forged_type_is_refused(make):
    assert unarchived(packed(files_of(archived(scaler())))).mean_ == [1.5]
    with pytest.raises(cq.PolicyError, match="cannot be stored in a policy file or read from one"):
        unarchived(make())


def test_feature_maps_of_our_own_can_be_stored():
    people = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    mapped = MappedColumns(StandardScaler(), ("income",), by_name=False)
    model = make_pipeline(mapped, LogisticRegression()).fit(people, [0, 0, 1])
    scores = Scores([model], 0.1, [0.8])
    assert_array_equal(unarchived(archived(scores)).transform(people), scores.transform(people))


DAMAGED = {
    "no text": {"skops": "ü", "sha256": ""},
    "no compressed text": {"skops": "QUJD", "sha256": ""},
    "no archive": {"skops": base64.b64encode(zlib.compress(b"abc")).decode(), "sha256": ""},
    "cut off": {
        "skops": base64.b64encode(zlib.compress(b"abc" * 100)[:-9]).decode(),
        "sha256": "",
    },
    "no files": packed({}),
}


@pytest.mark.parametrize("stored", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive_is_refused(stored):
    with pytest.raises(cq.PolicyError, match="scikit-learn object is damaged"):
        unarchived(stored)


def test_changed_content_is_refused():
    stored = archived(scaler())
    with pytest.raises(cq.PolicyError, match="its content was changed"):
        unarchived(stored | {"sha256": "0" * 64})


def test_an_archive_that_swells_is_refused():
    files = files_of(archived(scaler())) | {"zeros": bytes(10**6)}
    with pytest.raises(cq.PolicyError, match="compressed twice"):
        unarchived(packed(files, compression=ZIP_DEFLATED))
