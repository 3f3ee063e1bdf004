"""Constraints on benefits, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

from consequential.learning import Constraint

BENEFITS = np.array([[0.5, 0.2, 0.6], [0.1, 0.1, 0.4]])


def test_the_excess_of_a_gap_is_what_any_two_groups_differ_by_beyond_it():
    excess = Constraint(max_gap=0.25).excess(BENEFITS)
    assert_allclose(excess[0, 0, 1], 0.5 - 0.2 - 0.25)
    assert_allclose(excess[0, 1, 0], 0.2 - 0.5 - 0.25)
    assert_allclose(Constraint(max_gap=0.25).violation(BENEFITS), 0.6 - 0.2 - 0.25)


def test_the_excess_of_a_ratio_is_what_the_smaller_benefit_lacks():
    constraint = Constraint(min_ratio=0.8)
    assert_allclose(constraint.violation(np.array([[0.5, 0.3]])), 0.8 * 0.5 - 0.3)
    assert constraint.violation(np.array([[0.5, 0.4]])) == 0.0


@pytest.mark.parametrize("constraint", [Constraint(max_gap=0.1), Constraint(min_ratio=0.9)])
def test_pressure_is_pulled_back_to_the_benefits(constraint):
    pressure = np.random.default_rng(0).random((2, 3, 3))
    pressure[:, np.eye(3, dtype=bool)] = 0.0

    def pressed(flat):
        return float((pressure * np.maximum(constraint.excess(flat.reshape(2, 3)), -9)).sum())

    numeric = approx_fprime(BENEFITS.ravel(), pressed, 1e-7).reshape(2, 3)
    assert_allclose(constraint.pulled_back(pressure), numeric, atol=1e-5)


def test_a_group_without_a_benefit_binds_nobody():
    assert Constraint(max_gap=0.1).violation(np.array([[0.5, np.nan, 0.55]])) == 0.0


def test_without_a_constraint_nothing_is_violated():
    assert Constraint().violation(BENEFITS) == 0.0
    assert not Constraint().binds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_gap": -0.1}, "max_gap lies between 0 and 1"),
        ({"max_gap": 1.5}, "max_gap lies between 0 and 1"),
        ({"max_gap": float("nan")}, "max_gap lies between 0 and 1"),
        ({"min_ratio": 0.0}, "min_ratio lies in"),
        ({"min_ratio": 1.2}, "min_ratio lies in"),
        ({"max_gap": 0.1, "min_ratio": 0.8}, "not both"),
    ],
)
def test_what_cannot_be_asked_for(options, message):
    with pytest.raises(ValueError, match=message):
        Constraint(**options)
