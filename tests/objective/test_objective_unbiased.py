"""What estimates are on average, by going through every log a finite world can produce.

Nothing here is simulated: means are exact, so unbiased means equal to 1e-12, and a bias is a
number that can be compared with its formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from finite_world import FiniteWorld, Kind, conditional_mean, propensity_of

WORLD = FiniteWorld(
    (
        Kind(0.30, -1.0, "a", p_label=0.2, propensity=0.3),
        Kind(0.25, 0.5, "a", p_label=0.7, propensity=0.8),
        Kind(0.30, -0.4, "b", p_label=0.4, propensity=0.5),
        Kind(0.15, 1.2, "b", p_label=0.9, propensity=0.6),
    )
)
COST = 0.4
POLICY = cq.Policy([0.1, 0.8])
F_TABLE = {(0, 0): 0.7, (0, 1): -0.2, (1, 0): 0.1, (1, 1): 1.3}
BENEFITS: dict[str, Callable[[int, int], float]] = {
    "accepted": lambda d, y: d,
    "rejected": lambda d, y: 1 - d,
    "true positive": lambda d, y: d * y,
    "false positive": lambda d, y: d * (1 - y),
    "judged correctly": lambda d, y: float(d == y),
    "a table": lambda d, y: F_TABLE[d, y],
}


@cache
def all_logs(n: int) -> list[tuple[float, cq.DecisionLog]]:
    logs = list(WORLD.logs(n))
    assert sum(chance for chance, _ in logs) == pytest.approx(1.0, abs=1e-12)
    return logs


pi = propensity_of(POLICY)


def mean_over_logs(
    logs: list[tuple[float, cq.DecisionLog]], estimate: Callable[[cq.DecisionLog], object]
) -> np.ndarray:
    return conditional_mean(
        [chance for chance, _ in logs], [np.asarray(estimate(log)) for _, log in logs]
    )


def estimated_benefits(objective: cq.Objective) -> Callable[[cq.DecisionLog], np.ndarray]:
    def estimate(log: cq.DecisionLog) -> np.ndarray:
        sums = objective.coefficients(log).sums(POLICY.propensity(log.features))
        return sums.benefits[0]

    return estimate


# Inverse propensity: unbiased for everything linear


@pytest.mark.parametrize("n", [1, 2, 3])
def test_inverse_propensity_utility_is_unbiased(n):
    objective = cq.Objective(COST)
    truth = WORLD.mean(lambda kind, y: pi(kind) * (y - COST))
    mean = mean_over_logs(all_logs(n), lambda log: objective.value(POLICY, log))
    assert_allclose(mean, truth, atol=1e-12)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", list(BENEFITS))
def test_inverse_propensity_benefits_are_unbiased_where_the_group_is_in_the_log(name, n):
    f = BENEFITS[name]
    truth = [
        WORLD.mean(lambda kind, y: pi(kind) * f(1, y) + (1 - pi(kind)) * f(0, y), group)
        for group in WORLD.groups
    ]
    estimate = estimated_benefits(cq.Objective(COST, cq.fairness.BenefitParity(f)))
    assert_allclose(mean_over_logs(all_logs(n), estimate), truth, atol=1e-12)


@pytest.mark.parametrize("name", ["judged correctly", "a table"])
def test_the_constant_of_a_benefit_is_unbiased_for_the_benefit_of_rejecting_everybody(name):
    f = BENEFITS[name]
    objective = cq.Objective(COST, cq.fairness.BenefitParity(f))

    def constant(log: cq.DecisionLog) -> np.ndarray:
        benefit = objective.coefficients(log).benefits[0]
        return np.where(benefit.defined, benefit.constant, np.nan)

    truth = [WORLD.mean(lambda kind, y: f(0, y), group) for group in WORLD.groups]
    assert np.ptp(truth) > 0.05, "the constant differs by group, so it enters the gap"
    assert_allclose(mean_over_logs(all_logs(3), constant), truth, atol=1e-12)


def test_utility_with_a_cost_and_an_amount_of_each_row_is_unbiased():
    objective = cq.Objective(0.9)  # the rows' own cost wins

    def amount(x: np.ndarray) -> np.ndarray:
        return 2.0 + x

    def cost(x: np.ndarray) -> np.ndarray:
        return 0.5 - 0.2 * x

    def estimate(log: cq.DecisionLog) -> float:
        x = log.features[:, 0]
        return objective.value(POLICY, replace(log, amount=amount(x), cost=cost(x)))

    def worth(kind: Kind, y: int) -> float:
        return amount(kind.feature) * pi(kind) * (y - cost(kind.feature))

    assert_allclose(mean_over_logs(all_logs(3), estimate), WORLD.mean(worth), atol=1e-12)


# The others: a bias, and how much


@pytest.mark.parametrize("maximum", [1.0, 1.5, 2.5])
def test_clipping_biases_by_what_it_takes_from_the_rare(maximum):
    """Kinds accepted with p < 1/M count with p M instead of 1."""
    objective = cq.Objective(COST, weighting=cq.weightings.Clipped(maximum))
    mean = mean_over_logs(all_logs(2), lambda log: objective.value(POLICY, log))
    truth = WORLD.mean(lambda kind, y: pi(kind) * (y - COST))
    taken = WORLD.mean(
        lambda kind, y: (min(1.0, kind.propensity * maximum) - 1) * pi(kind) * (y - COST)
    )
    assert_allclose(mean, truth + taken, atol=1e-12)
    assert abs(taken) > 4e-3


def test_clipping_is_not_pessimistic_when_rewards_have_both_signs():
    objective = cq.Objective(COST, weighting=cq.weightings.Clipped(2.5))
    mean = mean_over_logs(all_logs(2), lambda log: objective.value(POLICY, log))
    # only the first kind (p = .3, worth .2 - .4 < 0) is clipped, so the estimate is too high
    assert mean > WORLD.mean(lambda kind, y: pi(kind) * (y - COST)) + 4e-3


def test_clipping_above_every_weight_changes_nothing():
    plain, clipped = (
        cq.Objective(COST),
        cq.Objective(COST, weighting=cq.weightings.Clipped(1 / 0.3)),
    )
    for _, log in all_logs(2):
        assert clipped.value(POLICY, log) == plain.value(POLICY, log)


def test_unweighted_rows_estimate_the_utility_of_deciding_twice():
    """Accepted people as if they were everybody: each kind counts only as often as accepted."""
    objective = cq.Objective(COST, weighting=cq.weightings.Unweighted())
    mean = mean_over_logs(all_logs(2), lambda log: objective.value(POLICY, log))
    twice = WORLD.mean(lambda kind, y: kind.propensity * pi(kind) * (y - COST))
    assert_allclose(mean, twice, atol=1e-12)
    assert abs(twice - WORLD.mean(lambda kind, y: pi(kind) * (y - COST))) > 0.01


# Four things a row can show, so that logs of twenty rows can still be gone through
COINS = FiniteWorld(
    (
        Kind(0.6, -1.0, "a", p_label=0.0, propensity=0.4),
        Kind(0.4, 1.0, "a", p_label=1.0, propensity=0.9),
    )
)
REPAYING = FiniteWorld(
    (
        Kind(0.6, -1.0, "a", p_label=1.0, propensity=0.5),
        Kind(0.4, 1.0, "a", p_label=1.0, propensity=0.9),
    )
)


def leading_bias(
    world: FiniteWorld,
    numerator: Callable[[Kind, int], float],
    denominator: Callable[[Kind, int], float],
) -> float:
    """n times the bias of a ratio of means, to first order: (R Var D - Cov(N, D)) / E[D]^2."""
    moments = [0.0] * 4
    for chance, row in world.rows(lambda kind: kind.propensity):
        weight = 0.0 if row.label is None else 1 / row.kind.propensity
        n = weight * numerator(row.kind, row.label or 0)
        d = weight * denominator(row.kind, row.label or 0)
        moments = [m + chance * v for m, v in zip(moments, (n, d, d * d, n * d), strict=True)]
    mean_n, mean_d, square_d, product = moments
    ratio = mean_n / mean_d
    return (ratio * (square_d - mean_d**2) - (product - mean_n * mean_d)) / mean_d**2


def biases(
    world: FiniteWorld, estimate: Callable[[cq.DecisionLog], object], truth: float
) -> list[float]:
    return [float(mean_over_logs(list(world.logs(n)), estimate)) - truth for n in (4, 8, 16)]


def test_self_normalised_utility_is_biased_by_one_over_n():
    objective = cq.Objective(COST, weighting=cq.weightings.SelfNormalised())

    def estimate(log: cq.DecisionLog) -> float:
        return objective.value(POLICY, log) if log.n_accepted else np.nan

    truth = COINS.mean(lambda kind, y: pi(kind) * (y - COST))
    at_4, at_8, at_16 = biases(COINS, estimate, truth)
    first_order = leading_bias(COINS, lambda kind, y: pi(kind) * (y - COST), lambda kind, y: 1.0)
    assert at_4 > at_8 > at_16 > 1e-3
    # the next term is of order 1/n^2
    assert at_16 * 16 == pytest.approx(first_order, rel=0.15)
    assert abs(at_16 * 16 - first_order) < abs(at_8 * 8 - first_order)


def test_equal_opportunity_is_biased_by_one_over_n():
    """A ratio of unbiased estimates is not unbiased; logs that show no label 1 are left out."""
    objective = cq.Objective(COST, "equal_opportunity")
    truth = REPAYING.mean(lambda kind, y: pi(kind))
    at_4, at_8, at_16 = biases(REPAYING, lambda log: estimated_benefits(objective)(log)[0], truth)
    first_order = leading_bias(REPAYING, lambda kind, y: y * pi(kind), lambda kind, y: y)
    assert at_4 > at_8 > at_16 > 1e-3
    assert at_16 * 16 == pytest.approx(first_order, rel=0.1)
    assert abs(at_16 * 16 - first_order) < abs(at_8 * 8 - first_order)


def test_self_normalised_weights_within_groups_average_to_one_in_each_group():
    """So a group's benefit from them is the plain ratio of its accepted rows, normaliser known."""
    weighting = cq.weightings.SelfNormalised()
    for _, log in all_logs(3):
        weights = weighting.group_weights(log)
        for code in range(2):
            here = log.group == code
            if log.decision[here].any():
                assert weights[here].sum() == pytest.approx(here.sum())
            else:
                assert not weights[here].any()


# The balance heuristic

TRIO = FiniteWorld(
    (
        Kind(0.4, -1.0, "a", p_label=0.2),
        Kind(0.3, 0.5, "a", p_label=0.7),
        Kind(0.3, 0.2, "b", p_label=0.5),
    )
)
HARSH, LENIENT = cq.Policy([-1.0, 1.5], floor=0.1), cq.Policy([1.0, -0.5])


@pytest.fixture(scope="module")
def logs_of_two_policies() -> list[tuple[float, cq.DecisionLog]]:
    logs = list(TRIO.logs_of([HARSH, LENIENT], steps=(0, 0, 1)))
    assert sum(chance for chance, _ in logs) == pytest.approx(1.0, abs=1e-12)
    return logs


@pytest.mark.parametrize(
    "weighting", [cq.weightings.BalanceHeuristic(), cq.weightings.InversePropensity()], ids=repr
)
def test_logs_of_two_fixed_policies_give_unbiased_utility(logs_of_two_policies, weighting):
    objective = cq.Objective(COST, weighting=weighting)
    mean = mean_over_logs(logs_of_two_policies, lambda log: objective.value(POLICY, log))
    truth = TRIO.mean(lambda kind, y: pi(kind) * (y - COST))
    assert_allclose(mean, truth, atol=1e-12)


@pytest.mark.parametrize("name", ["true positive", "judged correctly", "a table"])
def test_balance_heuristic_benefits_are_unbiased_within_groups(logs_of_two_policies, name):
    """Each group's mixture of policies has its own shares, N_tz / N_z."""
    f = BENEFITS[name]
    objective = cq.Objective(
        COST, cq.fairness.BenefitParity(f), weighting=cq.weightings.BalanceHeuristic()
    )
    truth = [
        TRIO.mean(lambda kind, y: pi(kind) * f(1, y) + (1 - pi(kind)) * f(0, y), group)
        for group in TRIO.groups
    ]
    mean = mean_over_logs(logs_of_two_policies, estimated_benefits(objective))
    assert_allclose(mean, truth, atol=1e-12)


def test_balance_heuristic_has_less_variance_than_the_rows_own_propensities(logs_of_two_policies):
    variances = {}
    for weighting in (cq.weightings.BalanceHeuristic(), cq.weightings.InversePropensity()):
        objective = cq.Objective(COST, weighting=weighting)
        mean, square = (
            float(
                mean_over_logs(
                    logs_of_two_policies,
                    lambda log, power=power, o=objective: o.value(POLICY, log) ** power,
                )
            )
            for power in (1, 2)
        )
        variances[type(weighting)] = square - mean**2
    # measured: .0443 against .0512
    assert (
        variances[cq.weightings.BalanceHeuristic] < 0.9 * variances[cq.weightings.InversePropensity]
    )


def test_balance_heuristic_is_biased_when_the_second_policy_learned_from_the_first_rows():
    """The second step turns lenient after a good outcome: own propensities stay unbiased."""
    estimates: dict[type, list[float]] = {
        cq.weightings.BalanceHeuristic: [],
        cq.weightings.InversePropensity: [],
    }
    chances = []
    first_outcomes = TRIO.rows(propensity_of(HARSH))
    for first_chance, first in first_outcomes:
        second_rule = LENIENT if first.label == 1 else HARSH.with_floor(0.2)
        rules = {0: HARSH, 1: second_rule}
        for second_chance, second in TRIO.rows(propensity_of(second_rule)):
            rows = [first.decided_by(HARSH), second.decided_by(second_rule)]
            log = TRIO.log(rows, time_step=[0, 1], policies=rules)
            chances.append(first_chance * second_chance)
            for weighting in (cq.weightings.BalanceHeuristic(), cq.weightings.InversePropensity()):
                value = cq.Objective(COST, weighting=weighting).value(POLICY, log)
                estimates[type(weighting)].append(value)
    truth = TRIO.mean(lambda kind, y: pi(kind) * (y - COST))
    bias = {
        weighting: float(conditional_mean(chances, values)) - truth
        for weighting, values in estimates.items()
    }
    assert bias[cq.weightings.InversePropensity] == pytest.approx(0.0, abs=1e-12)
    assert bias[cq.weightings.BalanceHeuristic] == pytest.approx(-0.0130, abs=1e-4)
