"""One large log of an exploring policy tells what other policies would do, in both settings.

Truth is the world's own, by quadrature. Every tolerance is four standard errors, from the
influence function of a ratio of means written out here; with about a hundred comparisons and
fixed seeds, chance alone would break one of them once in 150 choices of the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from consequential.objective.functionals import Coefficients

N = 300_000
ACCEPT_ALL = cq.Policy([50.0, 0.0])
POLICIES = {
    "first": {
        "initial": None,  # the start of its world
        "near the optimum": cq.Policy([6.0, 20.0]),
        "accept all": ACCEPT_ALL,
        "the wrong way round": cq.Policy([0.3, -2.0], "smooth_semi_logistic"),
    },
    "second": {
        "initial": None,
        "near the best cut": cq.Policy([5.0, 3.0]),
        "accept all": ACCEPT_ALL,
        "the wrong way round": cq.Policy([0.3, -0.3], "smooth_semi_logistic"),
    },
}
CASES = [(setting, policy) for setting, policies in POLICIES.items() for policy in policies]
JUDGED_CORRECTLY = cq.fairness.BenefitParity(lambda d, y: float(d == y))


@cache
def world_of(setting: str) -> cq.worlds.ScoreWorld:
    return {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}[setting]()


@cache
def policy_of(setting: str, name: str) -> cq.Policy:
    return POLICIES[setting][name] or world_of(setting).initial_policy("semi_logistic")


@cache
def exploring_log(setting: str) -> cq.DecisionLog:
    world = world_of(setting)
    rule = world.initial_policy("logistic").with_floor(0.05)
    return world.collect(rule, N, np.random.default_rng(17))


@dataclass(frozen=True)
class Rows:
    """The columns the estimates are made of, written out apart from the code under test."""

    w: np.ndarray
    y: np.ndarray
    pi: np.ndarray
    group: np.ndarray


@cache
def rows_of(setting: str, policy: cq.Policy) -> Rows:
    log = exploring_log(setting)
    label = np.where(log.decision, log.label, 0.0)
    weight = np.where(log.decision, 1 / log.propensity, 0.0)
    return Rows(weight, label, policy.propensity(log.features), log.group)


def ratio_error(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Standard error of mean(numerator) / mean(denominator)."""
    ratio = numerator.mean() / denominator.mean()
    influence = (numerator - ratio * denominator) / denominator.mean()
    return float(influence.std() / np.sqrt(len(influence)))


# notion -> its benefits as (numerator, denominator), per person
RATIOS = {
    "demographic_parity": lambda r: [(r.pi, np.ones_like(r.pi))],
    "equal_opportunity": lambda r: [(r.w * r.y * r.pi, r.w * r.y)],
    "equalised_odds": lambda r: [
        (r.w * r.y * r.pi, r.w * r.y),
        (r.w * (1 - r.y) * r.pi, r.w * (1 - r.y)),
    ],
    "predictive_parity": lambda r: [(r.w * r.y * r.pi, r.w * r.pi)],
    "judged_correctly": lambda r: [
        (r.w * (r.y * r.pi + (1 - r.y) * (1 - r.pi)), np.ones_like(r.pi))
    ],
}


def notion_named(name: str) -> cq.fairness.Fairness:
    return JUDGED_CORRECTLY if name == "judged_correctly" else cq.fairness.fairness_named(name)


@cache
def coefficients(setting: str, notion: str) -> Coefficients:
    objective = cq.Objective(world_of(setting).cost, notion_named(notion))
    return objective.coefficients(exploring_log(setting))


def false_positive_rates(world: cq.worlds.World, policy: cq.Policy) -> dict[int, float]:
    """`benefits` holds the first benefit of a notion only; the second comes from two means."""
    accepted = world.exact(policy, cq.fairness.BenefitParity(lambda d, y: d * (1 - y))).benefits
    everybody = world.exact(
        cq.AcceptAll(), cq.fairness.BenefitParity(lambda d, y: d * (1 - y))
    ).benefits
    return {group: accepted[group] / everybody[group] for group in accepted}


@pytest.mark.parametrize(("setting", "name"), CASES)
def test_utility_estimated_from_a_large_log_is_the_true_utility(setting, name):
    world, policy, log = world_of(setting), policy_of(setting, name), exploring_log(setting)
    rows = rows_of(setting, policy)
    error = ratio_error(rows.w * (rows.y - world.cost) * rows.pi, np.ones(N))
    assert error < 0.004, "the log is large enough to mean something"
    estimate = cq.Objective(world.cost).value(policy, log)
    assert abs(estimate - world.exact(policy).utility) < 4 * error


def true_benefits(world: cq.worlds.World, policy: cq.Policy, notion: str) -> list[dict]:
    truths = [world.exact(policy, notion_named(notion)).benefits]
    if notion == "equalised_odds":
        truths.append(false_positive_rates(world, policy))
    return truths


@pytest.mark.parametrize(("setting", "name"), CASES)
def test_benefits_estimated_from_a_large_log_are_the_true_benefits(setting, name):
    policy = policy_of(setting, name)
    rows = rows_of(setting, policy)
    for notion, ratios in RATIOS.items():
        estimates = coefficients(setting, notion).sums(rows.pi).benefits
        truths = true_benefits(world_of(setting), policy, notion)
        assert estimates.shape == (len(truths), 2)
        for estimate, truth, (above, below) in zip(estimates, truths, ratios(rows), strict=True):
            for code in (0, 1):
                here = rows.group == code
                error = ratio_error(above[here], below[here])
                assert error < 0.02
                # accepting everybody leaves no randomness: then they agree to rounding
                assert abs(estimate[code] - truth[code]) < 4 * error + 1e-9, notion


@pytest.mark.parametrize(("setting", "stated"), [("first", -0.104), ("second", -0.118)])
def test_the_constant_of_being_judged_correctly_is_part_of_the_gap(setting, stated):
    """Rejecting everybody judges the groups' label-0 people correctly: a gap without acceptance."""
    truth = world_of(setting).exact(cq.RejectAll(), JUDGED_CORRECTLY).benefit_gap
    assert truth == pytest.approx(stated, abs=5e-4)  # stated to three digits
    constant = coefficients(setting, "judged_correctly").benefits[0].constant
    rows = rows_of(setting, ACCEPT_ALL)
    errors = [
        ratio_error(
            ((1 - rows.y) * rows.w)[rows.group == code], np.ones((rows.group == code).sum())
        )
        for code in (0, 1)
    ]
    assert abs(constant[0] - constant[1] - truth) < 4 * np.hypot(*errors)


@pytest.mark.parametrize(("setting", "name"), CASES)
def test_self_normalised_weights_find_the_same_utility(setting, name):
    world, policy, log = world_of(setting), policy_of(setting, name), exploring_log(setting)
    rows = rows_of(setting, policy)
    worth = rows.w * (rows.y - world.cost) * rows.pi
    estimate = cq.Objective(world.cost, weighting=cq.weightings.SelfNormalised()).value(policy, log)
    assert abs(estimate - world.exact(policy).utility) < 4 * ratio_error(worth, rows.w)


@pytest.mark.parametrize("setting", POLICIES)
def test_unweighted_rows_do_not_find_the_true_utility_however_large_the_log(setting):
    world, log = world_of(setting), exploring_log(setting)
    rows = rows_of(setting, ACCEPT_ALL)
    worth = log.decision * (rows.y - world.cost)
    estimate = cq.Objective(world.cost, weighting=cq.weightings.Unweighted()).value(ACCEPT_ALL, log)
    assert abs(estimate - world.exact(ACCEPT_ALL).utility) > 20 * ratio_error(worth, np.ones(N))


def test_a_log_of_two_policies_gives_the_true_utility_with_and_without_balance():
    world = world_of("first")
    rules = [world.initial_policy("logistic").with_floor(0.05), cq.Policy([0.0, -2.0])]
    log = cq.DecisionLog.concatenate(
        [
            world.collect(rule, n, np.random.default_rng(step), time_step=step)
            for step, (rule, n) in enumerate(zip(rules, (100_000, 50_000), strict=True))
        ]
    )
    errors = {}
    for weighting in (cq.weightings.InversePropensity(), cq.weightings.BalanceHeuristic()):
        weights = weighting.weights(log)
        worth = weights * (log.outcome - world.cost)
        errors[type(weighting)] = worth.std() / np.sqrt(len(log))
        estimate = cq.Objective(world.cost, weighting=weighting).value(ACCEPT_ALL, log)
        assert abs(estimate - world.exact(ACCEPT_ALL).utility) < 4 * errors[type(weighting)]
    assert errors[cq.weightings.BalanceHeuristic] < errors[cq.weightings.InversePropensity]


# The paper's normalisation: another quantity


@cache
def log_of_the_start() -> cq.DecisionLog:
    world = world_of("first")
    return world.collect(world.initial_policy("logistic"), 400_000, np.random.default_rng(3))


@pytest.mark.parametrize(
    ("cut", "stated", "true_gap"),
    [(None, 0.0, 0.1366), (-0.3, -0.34, 0.158), (-0.8, -1.15, 0.0)],
    ids=["start", "optimum", "accept all"],
)
def test_paper_normalisation_estimates_acceptance_relative_to_the_old_policy(cut, stated, true_gap):
    """`b0(pi) / b0(pi0) - b1(pi) / b1(pi0)`: zero at the start, the wrong sign at the optimum."""
    world, log = world_of("first"), log_of_the_start()
    start = world.initial_policy("logistic")
    rule = start if cut is None else cq.Policy([-1e4 * cut, 1e4])  # as good as a threshold
    objective = cq.Objective(world.cost, "demographic_parity", normalisation="paper")
    rows = objective.rows(log)
    benefits = objective.coefficients(rows).sums(rule.propensity(rows.features)).benefits[0]
    new, old = world.exact(rule), world.exact(start)
    assert new.benefit_gap == pytest.approx(true_gap, abs=5e-4)
    relative = {group: new.benefits[group] / old.benefits[group] for group in (0, 1)}
    assert relative[0] - relative[1] == pytest.approx(stated, abs=0.006)  # stated to two digits

    weighted = np.where(log.decision, rule.propensity(log.features) / log.propensity, 0.0)
    errors = [
        ratio_error(weighted[log.group == code], log.decision[log.group == code].astype(float))
        for code in (0, 1)
    ]
    gap = benefits[0] - benefits[1]
    assert abs(gap - (relative[0] - relative[1])) < 4 * np.hypot(*errors) + 1e-9
    assert np.hypot(*errors) < 0.05


def test_paper_normalisation_changes_nothing_in_a_ratio():
    """Equal opportunity divides by its own sum of weights, whoever is counted."""
    log, policy = exploring_log("second").take(slice(0, 5000)), policy_of("second", "initial")
    benefits = []
    for normalisation in ("applicants", "paper"):
        objective = cq.Objective(0.55, "equal_opportunity", normalisation=normalisation)
        rows = objective.rows(log)
        propensity = policy.propensity(rows.features)
        benefits.append(objective.coefficients(rows).sums(propensity).benefits)
    assert_allclose(benefits[0], benefits[1], rtol=1e-12)


def test_paper_normalisation_scales_the_utility_by_one_over_the_acceptance_rate():
    log, policy = exploring_log("second").take(slice(0, 5000)), policy_of("second", "initial")
    applicants, paper = (
        cq.Objective(0.55, normalisation=normalisation).value(policy, log)
        for normalisation in ("applicants", "paper")
    )
    assert paper == pytest.approx(applicants * len(log) / log.n_accepted, rel=1e-12)
