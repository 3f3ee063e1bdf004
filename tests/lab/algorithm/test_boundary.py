"""The semi-logistic link's missing boundary term, as docs/deviations.md states it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from consequential.objective.fairness import DemographicParity


def smooth_part(world, policy):
    """The derivative of the true utility that the printed formula gives."""
    population = world.population_for(policy)
    gain = population.coefficients(world.cost, DemographicParity()).utility
    by_point = gain.reshape(len(population.points), -1).sum(axis=1)
    phi = policy.inputs(population.points)
    return (by_point * policy.derivative(phi @ policy.theta)) @ phi


def finite_difference(world, policy, step=1e-4):
    def utility(shift):
        return world.exact(policy.at(policy.theta + np.array([shift, 0.0]))).utility

    return (utility(step) - utility(-step)) / (2 * step)


def test_the_printed_semi_logistic_gradient_leaves_the_jump_out():
    world = cq.worlds.first_setting()
    policy = world.initial_policy("semi_logistic")
    printed, true = smooth_part(world, policy)[0], finite_difference(world, policy)
    assert printed == pytest.approx(0.0037, abs=5e-5)
    assert true == pytest.approx(0.0111, abs=5e-5)
    # the boundary term f(x*) (p(x*) - c) / (2 theta_1)
    cut = -policy.theta[0] / policy.theta[1]
    around = np.array([cut - 1e-3, cut + 1e-3])
    fine = np.linspace(*world.bounds, 200_001)
    total = world.density(fine).mean(axis=0) * (fine[-1] - fine[0])
    density = (world.density(around).mean(axis=0) / total).mean()
    jump = density * (world.score_probability(np.array([cut]))[0] - world.cost)
    assert true - printed == pytest.approx(jump / (2 * policy.theta[1]), abs=5e-5)


@pytest.mark.parametrize("link", ["logistic", "smooth_semi_logistic"])
def test_the_other_links_have_a_whole_gradient(link):
    world = cq.worlds.first_setting()
    policy = world.initial_policy(link)
    assert_allclose(smooth_part(world, policy)[0], finite_difference(world, policy), atol=2e-5)
