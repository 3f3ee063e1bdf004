"""Soundness: trees and splines that point outside their arrays are refused, never computed with."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, SplineTransformer

import consequential as cq
from consequential.policies.soundness import check_sound


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(size=(200, 2)), rng.integers(4, size=200)])
    return features, features[:, 0] + (features[:, 2] == 1) > 0.2


def boosted(people) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=2, categorical_features=[2]).fit(*people)


@pytest.mark.parametrize("transformer", [SplineTransformer(3), SplineTransformer(4, degree=2)])
def test_what_scikit_learn_fits_is_sound(transformer, people):
    boosting = HistGradientBoostingClassifier(max_iter=2)
    check_sound(make_pipeline(transformer, boosting).fit(*people))


def test_boosted_trees_with_categories_are_sound(people):
    model = boosted(people)
    nodes = np.concatenate([each[0].nodes for each in model._predictors])
    assert nodes["is_categorical"].any()
    check_sound(model)


def first(model):
    return model._predictors[0][0]


def set_node(field, value):
    def damage(model):
        first(model).nodes[field][0] = value

    return damage


def set_categories(value):
    def damage(model):
        place = int(model._bin_mapper.is_categorical_.argmax())
        model._bin_mapper.bin_thresholds_[place] = np.array([0.0, value])

    return damage


BOOSTED = {
    "a child beyond the tree": set_node("left", 10**6),
    "a circle": set_node("right", 0),
    "a feature beyond the features": set_node("feature_idx", 3),
    "a negative feature": set_node("feature_idx", -1),
    "a category beyond the bits": set_categories(10_000.0),
    "no nodes": lambda model: setattr(first(model), "nodes", first(model).nodes[:0]),
    "fewer features": lambda model: setattr(model, "n_features_in_", 2),
    "categories of no feature": lambda model: setattr(
        model._bin_mapper, "is_categorical_", np.zeros(3, dtype=np.uint8)
    ),
    "no categories": lambda model: delattr(model._bin_mapper, "is_categorical_"),
    "no bits": lambda model: [
        setattr(each[0], "raw_left_cat_bitsets", np.zeros((0, 8), dtype=np.uint32))
        for each in model._predictors
    ],
}


@pytest.mark.parametrize("damage", BOOSTED.values(), ids=BOOSTED)
def test_boosted_trees_that_point_elsewhere_are_refused(damage, people):
    model = boosted(people)
    damage(model)
    with pytest.raises(cq.PolicyError, match="HistGradientBoostingClassifier is damaged"):
        check_sound(model)


@pytest.mark.parametrize(
    "damage",
    [
        lambda spline: setattr(spline, "c", spline.c[:1]),
        lambda spline: setattr(spline, "t", spline.t[:3]),
        lambda spline: setattr(spline, "k", 40),
    ],
    ids=["coefficients cut to one row", "knots cut", "a degree beyond the knots"],
)
def test_a_damaged_spline_is_refused(damage, people):
    splines = SplineTransformer(4).fit(people[0])
    damage(splines.bsplines_[1])
    with pytest.raises(cq.PolicyError, match="BSpline is damaged"):
        check_sound(splines)


ENCODERS = {
    "plain": OneHotEncoder(),
    "without the first": OneHotEncoder(drop="first"),
    "without one of two": OneHotEncoder(drop="if_binary"),
    "rare ones together": OneHotEncoder(min_frequency=40, handle_unknown="infrequent_if_exist"),
    "rare ones together, the first left out": OneHotEncoder(min_frequency=40, drop="first"),
    "bins": KBinsDiscretizer(2, strategy="uniform"),
}


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_encoders_are_sound(encoder, people):
    check_sound(encoder.fit(np.column_stack([people[0][:, 2], people[0][:, 2] > 1.0])))


WRONG_COLUMNS = {
    "fewer columns": {"_n_features_outs": [1]},
    "a word left out that is not there": {"_drop_idx_after_grouping": np.array([9], dtype=object)},
    "a word left out of another column": {"_drop_idx_after_grouping": np.array([0, 0])},
    "a rare word beside the columns": {"_default_to_infrequent_mappings": [np.array([0, 1, 2, 9])]},
}


@pytest.mark.parametrize("change", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_an_encoder_that_writes_beside_its_columns_is_refused(change, people):
    encoder = OneHotEncoder(min_frequency=1, drop="first").fit(people[0][:, 2:])
    vars(encoder).update(change)
    with pytest.raises(cq.PolicyError, match="OneHotEncoder is damaged"):
        check_sound(encoder)
