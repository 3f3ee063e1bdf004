"""Metrics of a policy in a known population, against sums written as loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import consequential as cq
from consequential.evaluation import Metrics, Population
from covering import covering

COST = 0.35
GROUPS = ("north", "south", "west")


def population(n_groups: int, n_points: int = 7) -> Population:
    rng = np.random.default_rng(n_groups)
    mass = rng.random((n_points, n_groups))
    return Population(
        rng.normal(size=(n_points, 2)),
        mass / mass.sum(),
        rng.random((n_points, n_groups)),
        GROUPS[:n_groups],
    )


def policies(n_groups: int) -> dict[str, cq.DecisionRule]:
    theta = np.array([0.2, 0.9, -0.6])
    by_group = cq.Policy(
        np.concatenate([theta - 0.5 * code for code in range(n_groups)]), groups=GROUPS[:n_groups]
    )
    return {
        "logistic": cq.Policy(theta),
        "semi-logistic": cq.Policy(theta, "semi_logistic", floor=0.1),
        "by group": by_group,
        "mixture by group": cq.Mixture([by_group, cq.AcceptAll()], [0.5, 0.5]),
        "accept all": cq.AcceptAll(),
    }


Weigh = Callable[[int, int], float]


def total(people: Population, rule: cq.DecisionRule, weigh: Weigh, group: int) -> float:
    """Sum of `weigh(d, y)` over everybody in a group: points, labels and decisions in turn."""
    result = 0.0
    for point, mass, p_label in zip(
        people.points, people.mass[:, group], people.label_probability[:, group], strict=True
    ):
        sensitive = np.array([people.groups[group]], dtype=object)
        p_accept = float(rule.propensity(point[None, :], sensitive)[0])
        for d, p_d in ((0, 1 - p_accept), (1, p_accept)):
            for y, p_y in ((0, 1 - p_label), (1, p_label)):
                result += mass * p_d * p_y * weigh(d, y)
    return result


# notion -> what its first benefit is a ratio of
BENEFITS: dict[str, tuple[cq.fairness.Fairness, Weigh, Weigh]] = {
    "demographic_parity": (cq.fairness.DemographicParity(), lambda d, y: d, lambda d, y: 1),
    "equal_opportunity": (cq.fairness.EqualOpportunity(), lambda d, y: d * y, lambda d, y: y),
    "predictive_parity": (cq.fairness.PredictiveParity(), lambda d, y: d * y, lambda d, y: d),
    "benefit_parity": (
        cq.fairness.BenefitParity(lambda d, y: float(d == y)),
        lambda d, y: d == y,
        lambda d, y: 1,
    ),
}
RULES = ["logistic", "semi-logistic", "by group", "mixture by group", "accept all"]


@pytest.mark.parametrize("n_groups", [1, 2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_utility_and_acceptance_are_the_sums_over_everybody(rule, n_groups):
    people, policy = population(n_groups), policies(n_groups)[rule]
    metrics = people.metrics(policy, COST, cq.fairness.DemographicParity())
    groups = range(n_groups)
    utility = sum(total(people, policy, lambda d, y: d * (y - COST), z) for z in groups)
    acceptance = sum(total(people, policy, lambda d, y: d, z) for z in groups)
    assert metrics.utility == pytest.approx(utility, abs=1e-12)
    assert metrics.acceptance == pytest.approx(acceptance, abs=1e-12)


@pytest.mark.parametrize(("rule", "notion", "n_groups"), covering(RULES, list(BENEFITS), [1, 2, 3]))
def test_benefits_and_their_gap_are_those_of_the_definition(rule, notion, n_groups):
    people, policy = population(n_groups), policies(n_groups)[rule]
    fairness, numerator, denominator = BENEFITS[notion]
    by_hand = {
        group: total(people, policy, numerator, z) / total(people, policy, denominator, z)
        for z, group in enumerate(people.groups)
    }
    metrics = people.metrics(policy, COST, fairness)
    assert metrics.benefits == pytest.approx(by_hand, abs=1e-12)
    values = list(by_hand.values())
    gap = values[0] - values[1] if n_groups == 2 else max(values) - min(values)
    assert metrics.benefit_gap == pytest.approx(gap, abs=1e-12)


def test_equalised_odds_shows_true_positive_rates_and_the_wider_of_its_two_gaps():
    """Labels are such that the false positive rates lie further apart."""
    people = Population(
        points=np.array([[-1.0], [1.0]]),
        mass=np.full((2, 2), 0.25),
        label_probability=np.array([[0.5, 0.4], [0.9, 0.4]]),
        groups=("a", "b"),
    )
    policy = cq.Policy([0.0, 2.0])
    low, high = policy.propensity([[-1.0], [1.0]])
    positive = (0.5 * low + 0.9 * high) / 1.4, (low + high) / 2
    negative = (0.5 * low + 0.1 * high) / 0.6, (low + high) / 2
    assert abs(negative[0] - negative[1]) > abs(positive[0] - positive[1])
    metrics = people.metrics(policy, COST, cq.fairness.EqualisedOdds())
    assert metrics.benefits == pytest.approx({"a": positive[0], "b": positive[1]})
    assert metrics.benefit_gap == pytest.approx(negative[0] - negative[1])


@pytest.mark.parametrize("rule", ["by group", "mixture by group"])
def test_a_policy_that_uses_the_sensitive_attribute_is_asked_once_a_group(rule):
    people, policy = population(3), policies(3)[rule]
    table = people.propensity(policy)
    assert table.shape == (7, 3)
    for code, group in enumerate(people.groups):
        sensitive = np.full(7, group, dtype=object)
        assert table[:, code] == pytest.approx(policy.propensity(people.points, sensitive))
    assert (np.ptp(table, axis=1) > 0.01).all()


def test_a_policy_that_does_not_use_it_treats_groups_alike():
    people = population(3)
    table = people.propensity(policies(3)["logistic"])
    assert table.shape == (7, 3)
    assert not np.ptp(table, axis=1).any()


def test_propensities_can_be_given_instead_of_a_policy():
    people, policy = population(2), policies(2)["by group"]
    notion = cq.fairness.EqualOpportunity()
    given = people.metrics_at(people.propensity(policy), COST, notion)
    assert given == people.metrics(policy, COST, notion)


@pytest.mark.parametrize(
    ("notion", "nobody"),
    [
        (cq.fairness.DemographicParity(), {"north": 0.0, "south": 0.0}),
        (cq.fairness.PredictiveParity(), {"north": np.nan, "south": np.nan}),
    ],
    ids=["demographic parity", "predictive parity"],
)
def test_rejecting_everybody_is_worth_nothing_and_leaves_no_gap(notion, nobody):
    metrics = population(2).metrics(cq.RejectAll(), COST, notion)
    assert (metrics.utility, metrics.acceptance, metrics.benefit_gap) == (0.0, 0.0, 0.0)
    assert metrics.benefits == pytest.approx(nobody, nan_ok=True)


def test_a_group_without_people_has_no_benefit_and_no_part_in_the_gap():
    people = Population(np.zeros((1, 1)), np.array([[0.5, 0.0, 0.5]]), np.full((1, 3), 0.5), GROUPS)
    metrics = people.metrics(cq.AcceptAll(), COST, cq.fairness.DemographicParity())
    assert metrics.benefits == pytest.approx(
        {"north": 1.0, "south": np.nan, "west": 1.0}, nan_ok=True
    )
    assert metrics.benefit_gap == 0.0


def test_a_labelled_table_is_a_population_whose_probabilities_are_the_labels():
    """Ten people, each a point with a tenth of the mass; an average over rows is the metric."""
    rng = np.random.default_rng(4)
    features, group = rng.normal(size=(10, 2)), np.arange(10) % 2
    label = (rng.random(10) < 0.5).astype(float)
    mass = np.zeros((10, 2))
    mass[np.arange(10), group] = 0.1
    people = Population(features, mass, np.repeat(label[:, None], 2, axis=1), ("a", "b"))
    policy = cq.Policy([0.2, 0.9, -0.6])
    pi = policy.propensity(features)
    metrics = people.metrics(policy, COST, cq.fairness.DemographicParity())
    assert metrics.utility == pytest.approx((pi * (label - COST)).mean())
    assert metrics.benefits == pytest.approx(
        {"a": pi[group == 0].mean(), "b": pi[group == 1].mean()}
    )


def test_metrics_are_four_fields_that_cannot_be_changed():
    metrics = Metrics(utility=0.1, benefit_gap=-0.2, acceptance=0.5, benefits={"a": 0.4, "b": 0.6})
    assert metrics == Metrics(0.1, -0.2, 0.5, {"a": 0.4, "b": 0.6})
    with pytest.raises(FrozenInstanceError):
        metrics.utility = 0.0  # type: ignore[misc]
