"""Curves: straight lines that bend at knots."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import consequential as cq

PEOPLE = np.column_stack(
    [
        np.random.default_rng(0).normal(3.0, 2.0, 500),
        np.random.default_rng(1).integers(2, size=500),
        np.exp(np.random.default_rng(2).normal(size=500)),
    ]
)


def test_there_are_features_curves_of_those_with_many_values_and_products():
    curves = cq.Curves(n_knots=7).fit(PEOPLE)
    assert np.bincount(curves.blocks_).tolist() == [3, 14, 3]
    assert curves.transform(PEOPLE).shape == (500, 20)
    assert set(curves.curved_) == {0, 2}  # an indicator has no curve


def test_a_column_of_a_curve_is_zero_up_to_its_knot_and_straight_beyond():
    curves = cq.Curves(n_knots=6).fit(PEOPLE[:, :1])
    x = np.linspace(-2.0, 8.0, 1001)
    for column in curves.transform(x)[:, curves.blocks_ == 1].T:
        bends = np.abs(np.diff(column, 2)) > 1e-9
        assert 1 <= bends.sum() <= 2  # one bend, seen in the cells on both sides of it
        assert_allclose(min(column[0], column[-1]), 0.0)


def test_independent_bends_make_the_slope_a_random_walk_outwards():
    curves = cq.Curves(n_knots=200).fit(np.linspace(-1.0, 1.0, 2001))
    columns = curves.transform(np.linspace(-1.0, 1.0, 2001))[:, curves.blocks_ == 1]
    x = np.linspace(-1.0, 1.0, 2001) / curves.spread_[0]
    variance = (columns**2).sum(axis=1)
    assert_allclose(variance, np.abs(x) ** 3 / 3.0, atol=0.05)  # of an integrated random walk


def test_outliers_neither_move_the_knots_nor_blow_up_the_columns():
    outlier = np.vstack([PEOPLE, [[1e9, 0.0, 1e9]]])
    curves = cq.Curves().fit(outlier)
    assert np.abs(curves.transform(outlier)).max() < 50.0
    assert (np.abs(curves.knots_) < 3.0).sum() >= len(curves.knots_) // 2


def test_a_constant_feature_is_a_column_of_zeros():
    curves = cq.Curves().fit(np.ones((10, 1)))
    assert_array_equal(curves.transform(np.ones((2, 1))), np.zeros((2, 1)))


def test_it_can_be_cloned():
    assert clone(cq.Curves(n_knots=7)).n_knots == 7
