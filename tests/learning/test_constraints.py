"""Constraints on benefits, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

from consequential.learning.constraints import Constraint, GapBound, acceptance_bounds
from consequential.objective.functionals import Sums

BENEFITS = np.array([[0.5, 0.2, 0.6], [0.1, 0.1, 0.4]])
RATES = np.array([0.5, 0.2, 0.6, 0.4])

TOTALS = np.array([[100.0, 300.0, 50.0], [40.0, 10.0, 7.0]])
MERGED = tuple(
    bound.weighed(TOTALS)
    for bound in (GapBound(0.05, rows=(0,), merged=("f", "f", "m")), GapBound(0.1, rows=(1,)))
)


def reached(benefits, rates=None):
    return Sums(0.0, benefits, np.ones_like(benefits), rates)


def test_the_excess_of_a_gap_is_what_any_two_groups_differ_by_beyond_it():
    excess = Constraint(max_gap=0.25).excess(reached(BENEFITS)).reshape(2, 3, 3)
    assert_allclose(excess[0, 0, 1], 0.5 - 0.2 - 0.25)
    assert_allclose(excess[0, 1, 0], 0.2 - 0.5 - 0.25)
    assert_allclose(Constraint(max_gap=0.25).violation(reached(BENEFITS)), 0.6 - 0.2 - 0.25)


def test_the_excess_of_a_ratio_is_what_the_smaller_benefit_lacks():
    constraint = Constraint(min_ratio=0.8)
    assert_allclose(constraint.violation(reached(np.array([[0.5, 0.3]]))), 0.8 * 0.5 - 0.3)
    assert constraint.violation(reached(np.array([[0.5, 0.4]]))) == 0.0


def test_the_excess_of_a_capacity_is_what_is_accepted_beyond_it():
    constraint = Constraint(most=(0.4, np.inf, np.inf, 0.35))
    assert_allclose(constraint.violation(reached(BENEFITS, RATES)), 0.5 - 0.4)
    assert_allclose(constraint.relaxed(0.08).violation(reached(BENEFITS, RATES)), 0.02)
    assert constraint.relaxed(0.2).violation(reached(BENEFITS, RATES)) == 0.0


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(max_gap=0.1),
        Constraint(min_ratio=0.9, most=(0.3, 0.2, 0.1, 0.3)),
        Constraint(most=(0.3, 0.2, 0.1, 0.3)),
        Constraint(most=(0.3, 0.2, 0.1, 0.3), least=(0.2, 0.6, 0.1, 0.5)),
        Constraint(least=(0.2, 0.3, 0.1, 0.5), bounds=MERGED),
    ],
)
def test_pressure_is_pulled_back_to_the_benefits_and_the_acceptance_rates(constraint):
    excess = constraint.excess(reached(BENEFITS, RATES))
    pressure = np.random.default_rng(0).random(len(excess))

    def pressed(flat):
        return float(pressure @ constraint.excess(reached(flat[:6].reshape(2, 3), flat[6:])))

    numeric = approx_fprime(np.append(BENEFITS, RATES), pressed, 1e-7)
    pressure[excess == -1.0] = 0.0  # a group is not compared with itself
    pulled = constraint.pulled_back(pressure, reached(BENEFITS, RATES))
    assert_allclose(np.concatenate([each.ravel() for each in pulled]), numeric, atol=1e-5)


def test_merged_groups_are_means_over_all_their_people():
    merged = (100.0 * 0.5 + 300.0 * 0.2) / 400.0
    assert_allclose(MERGED[0].benefits(reached(BENEFITS)), [[merged, 0.6]])
    constraint = Constraint(bounds=MERGED)
    assert_allclose(constraint.violation(reached(BENEFITS)), 0.6 - merged - 0.05)
    assert_allclose(constraint.relaxed(0.2).violation(reached(BENEFITS)), 0.6 - merged - 0.25)
    nobody = MERGED[0].weighed(np.array([[100.0, 300.0, 0.0]]))
    alone = Constraint(bounds=(nobody,))
    assert alone.violation(reached(np.array([[0.5, 0.2, np.nan]]))) == 0.0


def test_the_excess_of_a_least_acceptance_is_what_is_lacking():
    constraint = Constraint(least=(-np.inf, 0.3, -np.inf, 0.45))
    assert_allclose(constraint.violation(reached(BENEFITS, RATES)), 0.3 - 0.2)
    assert_allclose(constraint.relaxed(0.08).violation(reached(BENEFITS, RATES)), 0.02)


def test_a_group_without_a_benefit_binds_nobody():
    assert Constraint(max_gap=0.1).violation(reached(np.array([[0.5, np.nan, 0.55]]))) == 0.0


def test_without_a_constraint_nothing_is_violated():
    assert Constraint().violation(reached(BENEFITS)) == 0.0
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


def test_bounds_on_acceptance_are_of_each_group_and_then_of_everybody():
    assert acceptance_bounds(None, ("a", "b")) == ()
    assert acceptance_bounds(0.3, ("a", "b")) == (np.inf, np.inf, 0.3)
    assert acceptance_bounds({"b": 0.2}, ("a", "b")) == (np.inf, 0.2, np.inf)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan"), {"a": 0.0}])
def test_a_bound_on_acceptance_is_a_share(share):
    with pytest.raises(ValueError, match=r"share of people in \(0, 1\]"):
        acceptance_bounds(share, ("a", "b"))


def test_a_bound_for_an_unknown_group_names_the_groups_there_are():
    with pytest.raises(ValueError, match="a group 'c'; the log has 'a', 'b'"):
        acceptance_bounds({"c": 0.2}, ("a", "b"))
