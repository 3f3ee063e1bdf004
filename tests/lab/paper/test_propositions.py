"""The paper's theorems, enumerated: what holds, and what would not."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.lab.paper.propositions import (
    accept_from,
    coin_flip,
    error_based,
    gradient_errors,
    ladder,
    limitation,
    reweighted,
    supremum,
    unlimited_data,
    unseen_types,
)


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_a_harsh_start_is_the_best_its_own_labels_can_show_and_not_optimal(penalty):
    found = limitation(cq.worlds.first_setting(), 0.24, penalty)
    assert found.seen == pytest.approx(found.ceiling, abs=1e-12)
    assert found.true < found.best - 0.015


def test_a_start_at_the_optimum_has_no_limitation():
    found = limitation(cq.worlds.first_setting(), -0.3, 0.0)
    assert found.true == pytest.approx(found.best, abs=1e-6)


def test_rejecting_the_unseen_is_optimal_under_a_penalty_and_not_without():
    # by hand: the best is 1/4 with the penalty (accept those who always repay), .275 without
    assert unseen_types(1.0) == pytest.approx((0.1, 0.0))
    assert unseen_types(0.0) == pytest.approx((0.0, 0.025))


def test_unlimited_data_help_from_a_lenient_start_only():
    world = cq.worlds.lending()
    best = world.optimal().utility
    assert unlimited_data(world, 500.0) > 0.999 * best
    assert unlimited_data(world, 750.0) < 0.1 * best


def test_the_ladder_s_chain_is_that_of_its_first_two_steps():
    down, too_far = 0.93**2, 0.85**2  # nobody of two defaults, from rung 2 and from rung 1
    assert ladder(2, 1) == pytest.approx((down, down))
    reached, bound = ladder(2, 2)
    assert reached == pytest.approx((1 - down) * down + down * (1 - too_far))
    assert bound == pytest.approx(2 * down)


def test_without_accidents_the_bound_is_attained_and_exploring_on_purpose_breaks_it():
    assert ladder(10**6, 6) == (0.0, 0.0)
    reached, bound = ladder(10**6, 1, explores=0.5)
    assert (reached, bound) == (0.5, 0.0)


def test_without_errors_nothing_moves_an_error_based_learner():
    moved, utility, best = error_based()
    assert (moved, utility, best) == pytest.approx((0, 0.1, 0.25))
    assert error_based(5)[0] == 3  # scores 5 to 7 may default


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_exploring_policies_approach_the_optimum_at_rate_one_over_n(penalty):
    world = cq.worlds.first_setting()
    _, far, near = supremum(world, penalty)
    assert far / near == pytest.approx(10.0, rel=0.02)
    _, far, near = supremum(world, penalty, world.initial_policy("logistic"))
    assert near > 0.9 * far


def test_reweighted_labels_tell_utility_and_benefits_if_divided_by_applicants():
    world = cq.worlds.first_setting()
    for by_applicants, printed in reweighted(world).values():
        assert by_applicants < 1e-12
        assert printed > 0.1
    for by_applicants, _ in reweighted(world, accept_from(0.3)).values():
        assert by_applicants > 0.01


def test_the_gradient_of_a_semi_logistic_policy_lacks_its_jump():
    world = cq.worlds.first_setting()
    found = gradient_errors(world, "logistic")
    assert max(by_applicants for by_applicants, _ in found.values()) < 1e-6
    # as printed it is too long by one over the share of people accepted
    start = world.initial_policy("logistic")
    factor = 1.0 / world.exact(start).acceptance - 1.0
    assert found["utility"][1] == pytest.approx(factor, rel=1e-3)
    # the boundary term by its formula: density times (p - c) / (2 theta_1), at the cut
    semi = world.initial_policy("semi_logistic")
    cut = -semi.theta[0] / semi.theta[1]
    everywhere = np.linspace(-0.8, 0.8, 16_001)
    density = world.density(np.array([cut])).sum() / (world.density(everywhere).sum() * 1e-4)
    jump = density * (world.score_probability(np.array([cut]))[0] - world.cost) / 2 / semi.theta[1]
    missing = jump * np.hypot(1.0, cut)
    h = 1e-4
    ends = [
        [world.exact(semi.at(semi.theta + s * h * unit)).utility for s in (-1, 1)]
        for unit in np.eye(2)
    ]
    true = np.linalg.norm(np.diff(ends, axis=1)) / (2 * h)
    assert gradient_errors(world, "semi_logistic")["utility"][0] == pytest.approx(
        missing / true, rel=0.01
    )


def test_a_coin_sees_the_truth_and_another_start_does_not():
    world = cq.worlds.second_setting()
    found = coin_flip(world)
    assert found.distance < 1e-12
    assert found.utility == pytest.approx(world.exact(cq.AcceptAll()).utility / 2)
    assert coin_flip(world, world.initial_policy("logistic")).distance > 0.3
