"""The paper's theorems, enumerated: what holds, and what would not."""

from __future__ import annotations

import pytest

import consequential as cq
from consequential.paper.propositions import (
    Impossibility,
    Limitation,
    Supremum,
    error_based,
    ladder,
    limitation,
    lucky,
    supremum,
    unlimited_data,
)


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_a_harsh_start_is_the_best_its_own_labels_can_show_and_not_optimal(penalty):
    found = limitation(cq.worlds.first_setting(), 0.24, penalty)
    assert found.seen == pytest.approx(found.ceiling, abs=1e-12)
    assert found.true < found.best - 0.015
    assert found.holds


def test_a_start_at_the_optimum_has_no_limitation():
    found = limitation(cq.worlds.first_setting(), -0.3, 0.0)
    assert found.true == pytest.approx(found.best, abs=1e-6)
    assert not found.holds


def test_a_rule_below_the_ceiling_proves_nothing():
    assert not Limitation(ceiling=0.3, seen=0.2, true=0.1, best=0.2).holds


def test_unlimited_data_help_from_a_lenient_start_only():
    world = cq.worlds.lending()
    best = world.optimal().utility
    assert unlimited_data(world, 500.0) > 0.999 * best
    assert unlimited_data(world, 750.0) < 0.1 * best


def test_accidents_reach_the_optimum_no_more_often_than_they_happen():
    found = lucky((0.1, 0.2))
    assert (found.reached, found.bound) == pytest.approx((0.28, 0.3))
    assert found.holds
    assert found.holds_as_printed


def test_without_accidents_the_bound_is_attained_so_that_it_is_not_strict():
    found = lucky((0.0, 0.0, 0.0))
    assert found.holds
    assert not found.holds_as_printed
    assert not Impossibility(reached=0.5, bound=0.3).holds


def test_the_ladder_s_chain_is_that_of_its_first_two_steps():
    down, too_far = 0.93**2, 0.85**2  # nobody of two defaults, from rung 2 and from rung 1
    assert ladder(2, 1).reached == pytest.approx(down)
    assert ladder(2, 2).reached == pytest.approx((1 - down) * down + down * (1 - too_far))


def test_without_errors_nothing_moves_an_error_based_learner():
    found = error_based()
    assert found.holds
    assert found.moved == 0 < found.moved_with_errors
    assert found.faultless_yet_suboptimal == 0


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_exploring_policies_approach_the_optimum_at_rate_one_over_n(penalty):
    found = supremum(cq.worlds.first_setting(), penalty)
    assert found.holds
    assert found.distances[1] / found.distances[2] == pytest.approx(10.0, rel=0.02)
    assert found.identity < 1e-12
    assert found.as_printed > 0.1


def test_distances_that_stop_falling_are_told():
    assert not Supremum((10, 100, 1000), (0.1, 0.01, 0.01), 0.0, 0.0).holds
    assert not Supremum((10, 100, 1000), (0.1, 0.05, 0.04), 0.0, 0.0).holds
