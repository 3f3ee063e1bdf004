"""What is known of the two synthetic settings, to four digits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import consequential as cq

FOUR_DIGITS = 6e-5


@cache
def setting(name: str) -> cq.worlds.ScoreWorld:
    return {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}[name]()


def cut_at(score: float) -> cq.ThresholdPolicy:
    return cq.ThresholdPolicy(cq.logistic_model([-score, 1.0]), 0.5)


def four_digits(*values: float) -> object:
    return pytest.approx(values, abs=FOUR_DIGITS)


@pytest.mark.parametrize(("name", "cost"), [("first", 0.142372), ("second", 0.55)])
def test_the_cost_is_the_papers(name, cost):
    assert setting(name).cost == pytest.approx(cost, abs=1e-6)


def test_the_first_settings_cost_is_its_label_probability_at_the_optimal_cut():
    world = setting("first")
    assert world.label_probability(np.array([[-0.3]]), np.array([0])) == [world.cost]


@pytest.mark.parametrize(
    ("name", "utility", "gap", "acceptance"),
    [("first", 0.1780, 0.1576, 0.7004), ("second", 0.0920, 0.1770, 0.5371)],
)
def test_the_optimal_policy(name, utility, gap, acceptance):
    best = setting(name).optimal()
    assert (best.utility, best.benefit_gap, best.acceptance) == four_digits(
        utility, gap, acceptance
    )


@pytest.mark.parametrize(
    ("name", "threshold", "utility", "gap"),
    [("first", -0.3, 0.1780, 0.1576), ("second", -1.6978, 0.0651, 0.2970)],
)
def test_the_best_single_threshold(name, threshold, utility, gap):
    best = setting(name).optimal(among="thresholds")
    assert (best.threshold, best.utility, best.benefit_gap) == four_digits(threshold, utility, gap)


@pytest.mark.parametrize(("name", "utility"), [("first", 0.1596), ("second", -0.0170)])
def test_accepting_everybody(name, utility):
    truth = setting(name).exact(cq.AcceptAll())
    assert (truth.utility, truth.benefit_gap, truth.acceptance) == four_digits(utility, 0.0, 1.0)


@pytest.mark.parametrize("name", ["first", "second"])
def test_rejecting_everybody_is_worth_nothing(name):
    truth = setting(name).exact(cq.RejectAll())
    assert (truth.utility, truth.benefit_gap, truth.acceptance) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "link", "utility"),
    [
        ("first", "logistic", 0.1381),
        ("first", "semi_logistic", 0.1638),
        ("second", "logistic", 0.0130),
        ("second", "semi_logistic", 0.0183),
    ],
)
def test_the_initial_policy(name, link, utility):
    world = setting(name)
    assert world.exact(world.initial_policy(link)).utility == pytest.approx(
        utility, abs=FOUR_DIGITS
    )


@pytest.mark.parametrize(("name", "utility"), [("first", 0.1580), ("second", 0.0186)])
def test_the_deterministic_initial_rule(name, utility, rng):
    world = setting(name)
    rule = cq.ThresholdPolicy(cq.logistic_model(world.initial_theta(rng)), world.cost)
    assert world.exact(rule).utility == pytest.approx(utility, abs=FOUR_DIGITS)


@pytest.mark.parametrize(("name", "theta"), [("first", (-3.0, 5.0)), ("second", (-3.5, 0.6))])
def test_the_initial_policy_cuts_where_the_initial_model_predicts_the_cost(name, theta, rng):
    world = setting(name)
    assert world.initial_theta(rng) == pytest.approx(theta)
    where = (np.log(world.cost / (1 - world.cost)) - theta[0]) / theta[1]
    assert world.initial_policy().propensity([[where]]) == pytest.approx(0.5)
    assert cq.logistic_model(theta).predict_proba([[where]])[0, 1] == pytest.approx(world.cost)


@pytest.mark.parametrize(
    ("name", "cut", "utility"), [("first", 0.2185, 0.1596), ("second", 5.2007, 0.0222)]
)
def test_where_the_deterministic_iterative_rule_ends(name, cut, utility):
    assert setting(name).exact(cut_at(cut)).utility == pytest.approx(utility, abs=FOUR_DIGITS)


@pytest.mark.parametrize(
    ("name", "uses_sensitive", "utility"),
    [
        ("first", False, 0.1596),
        ("first", True, 0.1770),
        ("second", False, 0.0649),
        ("second", True, 0.0887),
    ],
)
def test_the_best_policy_without_a_gap(name, uses_sensitive, utility):
    best = setting(name).optimal(max_gap=0.0, uses_sensitive=uses_sensitive)
    assert (best.utility, best.benefit_gap) == four_digits(utility, 0.0)
    assert best.policy.uses_sensitive is uses_sensitive
    accepts_all = name == "first" and not uses_sensitive  # nothing else is left there
    assert (best.acceptance > 1 - 1e-6) is accepts_all


@pytest.mark.parametrize(
    ("name", "max_gap", "utility"),
    [
        ("first", 0.02, 0.1632),
        ("first", 0.10, 0.1744),
        ("second", 0.02, 0.0053),
        ("second", 0.10, 0.0215),
    ],
)
def test_the_best_single_threshold_with_a_small_gap(name, max_gap, utility):
    best = setting(name).optimal(max_gap=max_gap, among="thresholds")
    assert best.utility == pytest.approx(utility, abs=FOUR_DIGITS)
    assert abs(best.benefit_gap) <= max_gap + 1e-9


@pytest.mark.parametrize(
    ("penalty", "utility", "gap"), [(1.0, 0.1746, 0.1019), (10, 0.1628, 0.0174)]
)
def test_the_best_penalised_threshold_of_the_first_setting(penalty, utility, gap):
    best = setting("first").optimal(penalty=penalty, among="thresholds")
    assert (best.utility, best.benefit_gap) == four_digits(utility, gap)


def test_the_semi_logistic_gradient_is_the_papers_formula_plus_the_term_at_the_jump():
    """Both numbers are in docs/deviations.md; the second needs `exact` to follow the jump."""
    world = setting("first")
    policy = world.initial_policy("semi_logistic")

    def utility(step: float) -> float:
        return world.exact(policy.at(policy.theta + np.array([step, 0.0]))).utility

    people = world.population_for(policy)
    eta = policy.inputs(people.points) @ policy.theta
    gain = (people.mass * (people.label_probability - world.cost)).sum(axis=1)
    formula = float(gain @ policy.derivative(eta))
    assert formula == pytest.approx(0.0037, abs=FOUR_DIGITS)
    whole = (utility(1e-5) - utility(-1e-5)) / 2e-5
    assert whole == pytest.approx(0.0111, abs=FOUR_DIGITS)


@pytest.mark.parametrize(
    ("name", "n_proposals", "n_iterations", "batch_size"),
    [("first", 256 * 128, 128, 256), ("second", 128 * 32, 32, 128)],
)
def test_algorithm_1_is_run_with_the_papers_sizes(name, n_proposals, n_iterations, batch_size):
    p = setting(name).parameters
    assert (p.time_steps, p.n_proposals) == (200, n_proposals)
    assert (p.n_iterations, p.batch_size) == (n_iterations, batch_size)
