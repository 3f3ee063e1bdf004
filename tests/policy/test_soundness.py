"""Soundness: trees and splines that point outside their arrays are refused, never computed with."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, SplineTransformer

import consequential as cq
from consequential.policy.archive import check_sound

RNG = np.random.default_rng(0)
FEATURES = np.column_stack([RNG.normal(size=(200, 2)), RNG.integers(4, size=200)])
LABEL = FEATURES[:, 0] + (FEATURES[:, 2] == 1) > 0.2
WORDS = np.column_stack([FEATURES[:, 2], FEATURES[:, 2] > 1.0])


def boosted() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=2, categorical_features=[2]).fit(FEATURES, LABEL)


def encoder() -> OneHotEncoder:
    return OneHotEncoder(min_frequency=1, drop="first").fit(FEATURES[:, 2:])


SOUND = {
    "splines before trees": lambda: make_pipeline(
        SplineTransformer(4, degree=2), HistGradientBoostingClassifier(max_iter=2)
    ).fit(FEATURES, LABEL),
    "trees with categories": boosted,
    "an encoder": lambda: OneHotEncoder().fit(WORDS),
    "without the first": lambda: OneHotEncoder(drop="first").fit(WORDS),
    "without one of two": lambda: OneHotEncoder(drop="if_binary").fit(WORDS),
    "rare words together": lambda: OneHotEncoder(
        min_frequency=40, handle_unknown="infrequent_if_exist"
    ).fit(WORDS),
    "rare words together, without the first": lambda: OneHotEncoder(
        min_frequency=40, drop="first"
    ).fit(WORDS),
    "bins": lambda: KBinsDiscretizer(2, strategy="uniform").fit(WORDS),
}


@pytest.mark.parametrize("make", SOUND.values(), ids=SOUND)
def test_what_scikit_learn_fits_is_sound(make):
    check_sound(make())


def test_categories_of_trees_are_among_what_is_checked():
    nodes = np.concatenate([each[0].nodes for each in boosted()._predictors])
    assert nodes["is_categorical"].any()


def set_node(field, value):
    def damage(model):
        model._predictors[0][0].nodes[field][0] = value

    return boosted, damage


def set_categories(model):
    place = int(model._bin_mapper.is_categorical_.argmax())
    model._bin_mapper.bin_thresholds_[place] = np.array([0.0, 10_000.0])


def change_trees(**changes):
    def damage(model):
        for (tree,) in model._predictors:
            for name, change in changes.items():
                setattr(tree, name, change(getattr(tree, name)))

    return boosted, damage


def change_splines(name, change):
    def damage(splines):
        setattr(splines.bsplines_[1], name, change(getattr(splines.bsplines_[1], name)))

    return lambda: SplineTransformer(4).fit(FEATURES), damage


def change_encoder(**changes):
    return encoder, lambda fitted: vars(fitted).update(changes)


DAMAGED = {
    "a child beyond the tree": set_node("left", 10**6),
    "a circle": set_node("right", 0),
    "a feature beyond the features": set_node("feature_idx", 3),
    "a negative feature": set_node("feature_idx", -1),
    "a category beyond the bits": (boosted, set_categories),
    "no nodes": change_trees(nodes=lambda nodes: nodes[:0]),
    "no bits": change_trees(raw_left_cat_bitsets=lambda _: np.zeros((0, 8), dtype=np.uint32)),
    "fewer features": (boosted, lambda model: setattr(model, "n_features_in_", 2)),
    "categories of no feature": (
        boosted,
        lambda model: setattr(model._bin_mapper, "is_categorical_", np.zeros(3, dtype=np.uint8)),
    ),
    "no categories": (boosted, lambda model: delattr(model._bin_mapper, "is_categorical_")),
    "coefficients cut to one row": change_splines("c", lambda c: c[:1]),
    "knots cut": change_splines("t", lambda t: t[:3]),
    "a degree beyond the knots": change_splines("k", lambda _: 40),
    "fewer columns": change_encoder(_n_features_outs=[1]),
    "a word left out that is not there": change_encoder(
        _drop_idx_after_grouping=np.array([9], dtype=object)
    ),
    "a word left out of another column": change_encoder(_drop_idx_after_grouping=np.array([0, 0])),
    "a rare word beside the columns": change_encoder(
        _default_to_infrequent_mappings=[np.array([0, 1, 2, 9])]
    ),
}


@pytest.mark.parametrize(("make", "damage"), DAMAGED.values(), ids=DAMAGED)
def test_what_points_elsewhere_is_refused_by_its_type(make, damage):
    fitted = make()
    damage(fitted)
    kind = "BSpline" if isinstance(fitted, SplineTransformer) else type(fitted).__name__
    with pytest.raises(cq.PolicyError, match=f"{kind} is damaged"):
        check_sound(fitted)
