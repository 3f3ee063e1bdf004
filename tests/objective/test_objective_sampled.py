"""Sampled decisions: what they do on average, by going through every possible draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from covering import covering

LINKS = ["logistic", "semi_logistic", "smooth_semi_logistic"]
NOTIONS = {
    "demographic_parity": cq.fairness.DemographicParity(),
    "equal_opportunity": cq.fairness.EqualOpportunity(),
    "equalised_odds": cq.fairness.EqualisedOdds(),
    "predictive_parity": cq.fairness.PredictiveParity(),
    "benefit_parity": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}
PENALTY = 4.0


@dataclass
class Prescribed:
    """A generator whose uniforms make exactly these decisions come out."""

    decisions: np.ndarray

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.decisions.shape
        return np.where(self.decisions == 1, 0.0, 1.0)  # accepted where uniform < propensity


@pytest.fixture
def log() -> cq.DecisionLog:
    return cq.DecisionLog.from_arrays(
        features=[[-1.2], [0.4], [0.9], [-0.5], [0.3], [-0.8]],
        decision=[1, 1, 0, 1, 1, 1],
        propensity=[0.3, 0.8, 0.6, 0.5, 0.7, 0.4],
        label=[1, 0, None, 1, 1, 0],
        sensitive=["a", "a", "a", "b", "b", "b"],
    )


def policy_of(link: str, floor: float = 0.0) -> cq.Policy:
    return cq.Policy([-0.2, 1.5], link, floor=floor)


def draws(
    objective: cq.Objective, policy: cq.Policy, log: cq.DecisionLog
) -> Iterator[tuple[float, np.ndarray]]:
    """Every vector of decisions the policy could draw on the objective's rows, with its chance."""
    propensity = policy.propensity(objective.rows(log).features)
    for outcome in product((0, 1), repeat=len(propensity)):
        decisions = np.array(outcome)
        chance = float(np.prod(np.where(decisions == 1, propensity, 1 - propensity)))
        if chance > 0:
            yield chance, decisions


def mean_over_draws(
    function: Callable[[Any], Any],
    objective: cq.Objective,
    policy: cq.Policy,
    log: cq.DecisionLog,
) -> Any:
    total = sum(chance for chance, _ in draws(objective, policy, log))
    assert total == pytest.approx(1.0, abs=1e-12)
    return sum(
        chance * np.asarray(function(Prescribed(decisions)))
        for chance, decisions in draws(objective, policy, log)
    )


def sampled_and_expected(**options: Any) -> tuple[cq.Objective, cq.Objective]:
    return (
        cq.Objective(0.4, decisions="sampled", **options),
        cq.Objective(0.4, decisions="expected", **options),
    )


@pytest.mark.parametrize(
    ("link", "floor", "normalisation"),
    covering(list(LINKS), [0.0, 0.1], ["applicants", "paper"]),
)
def test_without_a_penalty_sampling_changes_neither_mean_value_nor_mean_gradient(
    log, link, floor, normalisation
):
    sampled, expected = sampled_and_expected(normalisation=normalisation)
    policy = policy_of(link, floor)
    values = mean_over_draws(lambda rng: sampled.value(policy, log, rng=rng), sampled, policy, log)
    gradients = mean_over_draws(
        lambda rng: sampled.gradient(policy, log, rng=rng), sampled, policy, log
    )
    assert_allclose(values, expected.value(policy, log), rtol=0, atol=1e-12)
    assert_allclose(gradients, expected.gradient(policy, log), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("link", "notion", "normalisation"),
    covering(list(LINKS), list(NOTIONS), ["applicants", "paper"]),
)
def test_sums_from_elsewhere_make_the_sampled_penalised_gradient_unbiased(
    log, link, notion, normalisation
):
    sampled, expected = sampled_and_expected(
        fairness=NOTIONS[notion], penalty=PENALTY, normalisation=normalisation
    )
    policy = policy_of(link)
    rows = expected.rows(log)
    elsewhere = expected.coefficients(rows).sums(policy.propensity(rows.features))
    gradients = mean_over_draws(
        lambda rng: sampled.gradient(policy, log, rng=rng, sums=elsewhere), sampled, policy, log
    )
    # at the expected sums of the same rows this is the exact derivative
    assert_allclose(gradients, expected.gradient(policy, log), rtol=0, atol=1e-12)


@pytest.mark.parametrize("link", ["logistic", "smooth_semi_logistic"])
@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity", "benefit_parity"])
def test_penalised_gradient_from_one_draw_is_biased_by_the_variance_of_the_draw(log, link, notion):
    """E[G v] = E[G] E[v] + sum_i a_i^2 Var(d_i) (g'/g)_i phi_i, for a gap G = sum_i a_i d_i."""
    sampled, expected = sampled_and_expected(fairness=NOTIONS[notion], penalty=PENALTY)
    policy = policy_of(link)
    gradients = mean_over_draws(
        lambda rng: sampled.gradient(policy, log, rng=rng), sampled, policy, log
    )
    bias = gradients - expected.gradient(policy, log)

    label, weight = np.nan_to_num(log.label), log.decision / log.propensity
    sign = np.where(log.group == 0, 1.0, -1.0)
    people = {
        "demographic_parity": np.ones(6) / 3,
        "equal_opportunity": weight * label / np.where(log.group == 0, 1 / 0.3, 1 / 0.5 + 1 / 0.7),
        "benefit_parity": weight * (2 * label - 1) / 3,
    }[notion]
    phi = policy.inputs(log.features)
    pi = policy.propensity(log.features)
    derivative = policy.derivative(phi @ policy.theta)
    variance = (sign * people) ** 2 * pi * (1 - pi)
    # the penalty -lambda/2 G^2 has gradient -lambda G v
    assert_allclose(bias, -PENALTY * (variance * derivative / pi) @ phi, rtol=1e-10)
    assert bias[0] < -1e-2, "always towards rejecting: the intercept's bias has one sign"


def test_bias_of_one_draw_can_turn_the_gradient_around(log):
    """Measured by enumeration on these six rows: the mean draw says reject, the truth accept."""
    sampled, expected = sampled_and_expected(fairness="demographic_parity", penalty=PENALTY)
    policy = policy_of("logistic")
    gradients = mean_over_draws(
        lambda rng: sampled.gradient(policy, log, rng=rng), sampled, policy, log
    )
    assert_allclose(expected.gradient(policy, log), [0.07911808, -0.09457308], atol=1e-7)
    assert_allclose(gradients, [-0.19328361, -0.01684429], atol=1e-7)


@pytest.mark.parametrize(
    ("notion", "measured"),
    [
        ("predictive_parity", [-0.23564625, 0.58189472]),
        ("equalised_odds", [-1.53699524, 0.77321045]),
    ],
)
def test_one_draw_is_biased_for_ratios_and_pairs_of_benefits_too(log, notion, measured):
    """Measured by enumeration; draws that accept nobody of a group are among them."""
    sampled, expected = sampled_and_expected(fairness=NOTIONS[notion], penalty=PENALTY)
    policy = policy_of("logistic")
    gradients = mean_over_draws(
        lambda rng: sampled.gradient(policy, log, rng=rng), sampled, policy, log
    )
    assert_allclose(gradients - expected.gradient(policy, log), measured, atol=1e-7)


def test_mean_sampled_value_is_lower_by_the_variance_of_the_gap(log):
    """E[-lambda/2 G^2] = -lambda/2 (E[G]^2 + Var G)."""
    sampled, expected = sampled_and_expected(fairness="demographic_parity", penalty=PENALTY)
    policy = policy_of("logistic")
    values = mean_over_draws(lambda rng: sampled.value(policy, log, rng=rng), sampled, policy, log)
    pi = policy.propensity(log.features)
    variance = float((pi * (1 - pi)).sum()) / 9
    assert_allclose(values, expected.value(policy, log) - PENALTY / 2 * variance, rtol=1e-12)


def test_a_semi_logistic_policy_that_accepts_everybody_has_nothing_to_draw(log):
    """Where the propensity is 1 the log-derivative is 0, and a draw is the expectation."""
    sampled, expected = sampled_and_expected(fairness="demographic_parity", penalty=PENALTY)
    policy = cq.Policy([5.0, 1.0], "semi_logistic")
    drawn = np.random.default_rng(0)
    assert sampled.value(policy, log, rng=drawn) == expected.value(policy, log)
    assert_allclose(sampled.gradient(policy, log, rng=drawn), np.zeros(2), atol=0)


def test_equal_generators_draw_equal_decisions(log):
    objective = cq.Objective(0.4, "demographic_parity", penalty=1.0, decisions="sampled")
    policy = policy_of("logistic")
    first, again, other = (
        objective.gradient(policy, log, rng=np.random.default_rng(seed)) for seed in (3, 3, 4)
    )
    assert_allclose(first, again, atol=0)
    assert np.abs(first - other).max() > 1e-3


def test_value_of_a_draw_is_the_objective_at_the_decisions_themselves(log):
    objective = cq.Objective(0.4, "demographic_parity", penalty=PENALTY, decisions="sampled")
    policy = policy_of("logistic")
    decisions = np.array([1, 0, 1, 0, 0, 1])
    value = objective.value(policy, log, rng=Prescribed(decisions))
    weight = log.decision / log.propensity
    utility = float((weight * (np.nan_to_num(log.label) - 0.4) * decisions).mean())
    assert value == pytest.approx(utility - PENALTY / 2 * (2 / 3 - 1 / 3) ** 2, abs=1e-12)
