from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from consequential.lab.algorithm.steps import Surroundings


def surroundings(m=2, slopes=None, acceptance=0.5, acceptance_slope=None):
    rng = np.random.default_rng(0)
    phi = np.column_stack([np.ones(500), rng.normal(size=(500, m - 1))])
    scale = phi.T @ phi / 500
    return Surroundings(
        theta=np.zeros(m),
        curvature=0.2 * scale,
        steepness=0.2,
        scale=scale,
        residual_slopes=np.zeros((0, m)) if slopes is None else slopes,
        acceptance=acceptance,
        acceptance_slope=np.zeros(m) if acceptance_slope is None else acceptance_slope,
    )


@pytest.mark.parametrize(
    ("time_step", "rate"), [(0, 0.5), (29, 0.5), (30, 0.4), (59, 0.4), (60, 0.32), (199, 0.131072)]
)
def test_the_papers_rate_decays_by_a_factor_every_so_many_steps(time_step, rate):
    assert cq.lab.steps.GradientStep(0.5, decay=0.8, decay_every=30).rate(
        time_step
    ) == pytest.approx(rate)


def test_the_papers_step_is_the_rate_times_the_gradient():
    step = cq.lab.steps.GradientStep(0.5).prepare(surroundings(), penalty=7.0, rate=0.5)
    assert_allclose(step(np.array([1.0, -2.0]), np.zeros(2)), [0.5, -1.0])


def test_a_step_is_shortened_without_changing_its_direction():
    step = cq.lab.steps.GradientStep(1.0, max_step=0.1).prepare(surroundings(), 0.0, 1.0)
    assert_allclose(step(np.array([1.0, -2.0]), np.zeros(2)), [0.05, -0.1])


def test_thin_data_are_trusted_less():
    rule = cq.lab.steps.PreconditionedStep(learning_rate=0.4, enough_rows=1000)
    assert rule.rate(0) == rule.rate(0, 5000) == pytest.approx(0.4)
    assert rule.rate(0, 10) == pytest.approx(0.04)
    assert rule.rate(60) == pytest.approx(0.2)


def test_the_preconditioned_step_does_not_depend_on_the_scale_of_a_feature():
    # a feature in other units: gradient times 1/s, theta times s
    units = np.diag([1.0, 1000.0])
    around = surroundings()
    scaled = Surroundings(
        around.theta,
        units @ around.curvature @ units,
        around.steepness,
        units @ around.scale @ units,
        around.residual_slopes,
        around.acceptance,
        around.acceptance_slope,
    )
    rule = cq.lab.steps.PreconditionedStep(ridge=1e-9)
    gradient = np.array([0.01, 0.003])
    plain = rule.prepare(around, 0.0, 0.1)(gradient, np.zeros(2))
    other = rule.prepare(scaled, 0.0, 0.1)(units @ gradient, np.zeros(2))
    assert_allclose(units @ other, plain, rtol=1e-2)


def test_a_huge_penalty_makes_the_step_that_removes_the_residual_and_no_longer_one():
    slopes = np.array([[0.3, -0.2]])
    residual, penalty = 0.01, 1e9
    step = cq.lab.steps.PreconditionedStep().prepare(surroundings(slopes=slopes), penalty, rate=1.0)
    change = step(-penalty * residual * slopes[0], np.zeros(2))
    assert slopes[0] @ change == pytest.approx(-residual, rel=1e-4)


def test_scores_change_by_at_most_the_longest_step():
    around = surroundings()
    change = cq.lab.steps.PreconditionedStep(max_step=0.1).prepare(around, 0.0, 1.0)(
        np.array([5.0, 5.0]), np.zeros(2)
    )
    assert np.sqrt(change @ around.scale @ change) == pytest.approx(0.1)


@pytest.mark.parametrize("acceptance", [0.001, 0.999])
@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_step_near_accept_all_or_reject_all_changes_half_of_what_is_left(acceptance, direction):
    around = surroundings(acceptance=acceptance, acceptance_slope=np.array([0.2, 0.0]))
    step = cq.lab.steps.PreconditionedStep(max_share=0.5).prepare(around, 0.0, 1.0)
    change = step(np.array([direction, 0.0]), np.zeros(2))
    assert around.acceptance_slope @ change == pytest.approx(direction * 0.0005)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cq.lab.steps.GradientStep(0.0),
        lambda: cq.lab.steps.GradientStep(1.0, decay=-1.0),
        lambda: cq.lab.steps.GradientStep(1.0, max_step=0.0),
        lambda: cq.lab.steps.PreconditionedStep(ridge=0.0),
        lambda: cq.lab.steps.PreconditionedStep(max_step=-0.1),
    ],
)
def test_a_step_that_leads_nowhere_is_refused(make):
    with pytest.raises(ValueError, match="must be above 0"):
        make()
