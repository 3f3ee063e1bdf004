"""The gradient is the derivative of the value, whatever is combined with what."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import consequential as cq
from ascent_means import residual_slopes
from consequential.objective.objective import deviations
from exploring_logs import exploring_log

F_TABLE = {(0, 0): 0.7, (0, 1): -0.2, (1, 0): 0.1, (1, 1): 1.3}
LABEL_DEPENDENT = cq.fairness.BenefitParity(lambda d, y: F_TABLE[d, y])

NOTIONS = {
    "demographic_parity": cq.fairness.DemographicParity(),
    "equal_opportunity": cq.fairness.EqualOpportunity(),
    "equalised_odds": cq.fairness.EqualisedOdds(),
    "predictive_parity": cq.fairness.PredictiveParity(),
    "benefit_parity": LABEL_DEPENDENT,
}
# utility alone in one group, every notion in two and in three
CASES = [("none", 1), *[(name, n_groups) for name in NOTIONS for n_groups in (2, 3)]]
WEIGHTINGS = [
    cq.weightings.InversePropensity(),
    cq.weightings.Clipped(2.0),
    cq.weightings.SelfNormalised(),
    cq.weightings.BalanceHeuristic(),
    cq.weightings.Unweighted(),
]
LINKS = ["logistic", "semi_logistic", "smooth_semi_logistic"]
THETA = np.array([0.2, 0.9, -0.6])
STEP = 1e-6


@cache
def two_step_log(n_groups: int, extras: bool = False) -> cq.DecisionLog:
    """80 decisions by two known policies, so that every weighting applies."""
    rng = np.random.default_rng(7)
    columns = {"amount": 0.5 + rng.random(80), "cost": 0.2 + 0.5 * rng.random(80)}
    return exploring_log(
        80,
        n_groups,
        time_step=np.arange(80) % 2,
        policies={0: cq.Policy([0.4, 0.3, 0.0], floor=0.1), 1: cq.RejectAll().with_floor(1 / 3)},
        **(columns if extras else {}),
    )


def penalised(case: str, **options: object) -> cq.Objective:
    notion = NOTIONS.get(case)
    return cq.Objective(0.4, notion, penalty=0.0 if notion is None else 3.0, **options)


def central_differences(function: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    steps = STEP * np.eye(len(at))
    return np.array([function(at + step) - function(at - step) for step in steps]) / (2 * STEP)


def assert_gradient_is_derivative(
    objective: cq.Objective, policy: cq.Policy, log: cq.DecisionLog
) -> None:
    eta = policy.inputs(log.features, log.sensitive) @ policy.theta
    # the semi-logistic links are not differentiable at 0: both sides are there, no row near it
    assert np.abs(eta).min() > 1e-3
    assert eta.min() < 0 < eta.max()
    numeric = central_differences(
        lambda theta: objective.value(policy.at(theta), log), policy.theta
    )
    assert np.abs(numeric).max() > 1e-4, "a flat objective would prove nothing"
    # rounding of a value of order 1 over a step of 1e-6 leaves about 1e-10
    assert_allclose(objective.gradient(policy, log), numeric, rtol=1e-5, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    link=st.sampled_from(LINKS),
    case=st.sampled_from(CASES),
    weighting=st.sampled_from(WEIGHTINGS),
    normalisation=st.sampled_from(["applicants", "paper"]),
    floor=st.sampled_from([0.0, 0.1]),
    own_amounts_and_costs=st.booleans(),
    uses_sensitive=st.booleans(),
)
def test_gradient_is_the_derivative_of_the_objective(
    link, case, floor, own_amounts_and_costs, uses_sensitive, **options
):
    name, n_groups = case
    log = two_step_log(n_groups, own_amounts_and_costs)
    policy = cq.Policy(THETA, link, floor=floor)
    if uses_sensitive:
        theta = np.concatenate([THETA + 0.3 * code for code in range(n_groups)])
        policy = cq.Policy(theta, link, groups=log.groups, floor=floor)
    assert_gradient_is_derivative(penalised(name, **options), policy, log)


@pytest.mark.parametrize(("case", "n_groups"), CASES[1:])
@pytest.mark.parametrize(
    ("link", "normalisation"),
    list(zip(LINKS, ["applicants", "paper", "applicants"], strict=True)),
)
def test_residual_slopes_are_the_derivative_of_each_residual(link, case, n_groups, normalisation):
    log, policy = two_step_log(n_groups), cq.Policy(THETA, link, floor=0.05)
    objective = penalised(case, normalisation=normalisation)
    rows = objective.rows(log)
    coefficients, phi = objective.coefficients(rows), policy.inputs(rows.features)

    def residuals(theta: np.ndarray) -> np.ndarray:
        benefits = coefficients.sums(policy.probability(phi @ theta)).benefits
        return np.sqrt(2.0) * deviations(benefits).ravel()

    numeric = np.stack(
        [(residuals(THETA + h) - residuals(THETA - h)) / (2 * STEP) for h in STEP * np.eye(3)],
        axis=-1,
    )
    slopes = residual_slopes(objective, policy, rows)
    assert np.abs(numeric).max() > 1e-2
    assert_allclose(slopes, numeric, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("case", list(NOTIONS))
def test_gradient_at_other_sums_is_the_derivative_with_those_prices(case):
    """`sums=` fixes dF/dS, so the gradient is that of the linearised objective."""
    log, other = two_step_log(2), exploring_log(120, 2, seed=5)
    policy, objective = cq.Policy(THETA), penalised(case)
    elsewhere = objective.coefficients(other).sums(policy.propensity(other.features))
    prices = objective.slopes_at(elsewhere)
    coefficients = objective.coefficients(log)

    def linearised(theta: np.ndarray) -> float:
        here = coefficients.sums(policy.at(theta).propensity(log.features))
        return float(
            prices.utility * here.utility
            + (prices.numerators * here.numerators).sum()
            + (prices.denominators * here.denominators).sum()
        )

    gradient = objective.gradient(policy, log, sums=elsewhere)
    numeric = central_differences(linearised, THETA)
    assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-9)
    assert np.abs(gradient - objective.gradient(policy, log)).max() > 1e-3


def test_semi_logistic_gradient_leaves_out_the_jump():
    """A person carried over eta = 0 changes the value at once; the gradient does not see it."""
    log = cq.DecisionLog.from_arrays([[1.0]], [1], [0.5], [1])
    objective, policy = cq.Objective(0.4), cq.Policy([0.0, -1e-9], "semi_logistic")
    below, above = objective.value(policy, log), objective.value(policy.at([0.0, 1e-9]), log)
    assert above - below == pytest.approx(2 * (1 - 0.4) / 2)  # w (y - c) times the jump of 1/2
    # g'(0) = 1/4 from below, times w (y - c)
    assert_allclose(objective.gradient(policy, log), np.full(2, 2 * 0.6 / 4))
    assert_allclose(objective.gradient(policy.at([0.0, 1e-9]), log), np.zeros(2))
