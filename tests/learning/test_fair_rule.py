"""The best fair rule for a model that is right, against the best policies there are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit

import consequential as cq
from consequential.learning.constraints import GapBound
from consequential.learning.fair_rule import FairRule
from consequential.policy.scores import score_columns

WORLDS = {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}
N = 40_000


def known_truth(world, whom, rng):
    """Return score columns that are the truth, the probability of label 1, and groups."""
    features, group = world.propose(N, rng)
    density = world.density(features[:, 0])
    chances = density / density.sum(axis=1, keepdims=True)
    probability = world.label_probability(features, group)
    odds = np.log(probability / (1.0 - probability))[:, None]
    columns = score_columns(odds, 0.0, np.ones(1), dict.fromkeys(whom, chances))
    return columns, probability, group


@pytest.mark.parametrize(
    ("world", "gap", "best"),
    [
        ("first", None, 0.1780),
        ("first", 0.0, 0.1596),
        ("second", None, 0.0920),
        ("second", 0.0, 0.0649),
    ],
)
def test_the_rule_for_the_truth_is_the_best_policy_that_does_not_see_the_group(
    world, gap, best, rng
):
    world = WORLDS[world]()
    columns, probability, group = known_truth(world, ("people",), rng)
    rule = FairRule.of(columns, ("people",), 2, world.cost)
    propensity = expit(rule.inputs @ rule.theta(() if gap is None else (GapBound(gap),)))
    assert ((probability - world.cost) * propensity).mean() == pytest.approx(best, abs=0.003)
    if gap is not None:
        rates = [propensity[group == z].mean() for z in (0, 1)]
        assert rates[0] == pytest.approx(rates[1], abs=0.015)  # groups are known by chance only


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("penalty", [0.316, 2.0, 100.0])
def test_the_rule_for_the_truth_maximises_utility_less_the_penalty(world, penalty, rng):
    world = WORLDS[world]()
    columns, probability, _ = known_truth(world, ("people",), rng)
    rule = FairRule.of(columns, ("people",), 2, world.cost)
    propensity = expit(rule.inputs @ rule.theta(penalty=penalty))
    chance = columns[:, 1]
    gap = np.average(propensity, weights=1.0 - chance) - np.average(propensity, weights=chance)
    best = world.optimal(penalty=penalty)
    assert gap == pytest.approx(best.benefit_gap, abs=0.01)
    gained = ((probability - world.cost) * propensity).mean()
    assert gained == pytest.approx(best.utility, abs=0.003)


@pytest.mark.parametrize(("world", "best"), [("first", 0.1770), ("second", 0.0887)])
def test_the_rule_for_the_truth_is_the_best_policy_that_sees_the_group(world, best, rng):
    world = WORLDS[world]()
    columns, probability, group = known_truth(world, (), rng)
    rule = FairRule.by_group(columns, ("people",), group, 2, world.cost)
    propensity = expit(rule.inputs @ rule.theta((GapBound(0.0),)))
    rates = [propensity[group == z].mean() for z in (0, 1)]
    assert rates[0] == pytest.approx(rates[1], abs=1e-3)
    assert ((probability - world.cost) * propensity).mean() == pytest.approx(best, abs=0.003)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_under_a_capacity_those_with_the_best_chances_are_accepted(world, share, rng):
    world = WORLDS[world]()
    columns, probability, group = known_truth(world, (), rng)
    most = (np.inf, np.inf, share)
    chosen = probability >= np.quantile(probability, 1.0 - share)
    best = ((probability - world.cost) * chosen).mean()
    for rule in (
        FairRule.of(columns, (), 2, world.cost),
        FairRule.by_group(columns, ("people",), group, 2, world.cost),
    ):
        propensity = expit(rule.inputs @ rule.theta(most=most))
        assert propensity.mean() == pytest.approx(share, abs=1e-3)
        value = ((probability - world.cost) * propensity).mean()
        assert value == pytest.approx(best, abs=1e-3)


def test_a_capacity_of_one_group_is_kept_by_chances_and_by_the_group_itself(rng):
    world = cq.worlds.first_setting()
    columns, _, group = known_truth(world, ("people",), rng)
    most = (0.2, np.inf, np.inf)
    blind = FairRule.of(columns, ("people",), 2, world.cost)
    seen = FairRule.by_group(columns, ("people",), group, 2, world.cost)
    for rule, tolerance in ((blind, 0.015), (seen, 1e-3)):
        propensity = expit(rule.inputs @ rule.theta(most=most))
        assert propensity[group == 0].mean() == pytest.approx(0.2, abs=tolerance)


def test_equal_opportunity_is_kept_among_those_with_label_one(rng):
    world = cq.worlds.second_setting()
    columns, probability, _ = known_truth(world, ("positives",), rng)
    rule = FairRule.of(columns, ("positives",), 2, world.cost)
    for bound in (0.0, 0.05):
        propensity = expit(rule.inputs @ rule.theta((GapBound(bound),)))
        weights = rule.inputs[:, 2], probability - rule.inputs[:, 2]
        rates = [weight @ propensity / weight.sum() for weight in weights]
        assert abs(rates[0] - rates[1]) <= bound + 1e-3
    best = world.optimal(max_gap=0.05, fairness="equal_opportunity").utility
    value = ((probability - world.cost) * propensity).mean()
    assert value == pytest.approx(best, abs=0.003)


def test_people_whom_the_model_cannot_tell_apart_are_decided_by_lot(rng):
    # two values of q, one on each side of the cost, and groups that differ in their shares
    group = rng.integers(0, 2, N)
    good = rng.random(N) < np.where(group == 0, 0.8, 0.4)
    probability = np.where(good, 0.7, 0.3)
    chance = np.where(good, 0.4 / 1.2, 0.6 / 0.8)
    odds = np.log(probability / (1.0 - probability))[:, None]
    columns = score_columns(
        odds, 0.0, np.ones(1), {"people": np.column_stack([1.0 - chance, chance])}
    )
    rule = FairRule.of(columns, ("people",), 2, 0.5)
    propensity = expit(rule.inputs @ rule.theta((GapBound(0.2),)))
    # acceptance differs by .4 (of good people less bad ones): the gap is halved by lot
    difference = propensity[good].mean() - propensity[~good].mean()
    assert difference == pytest.approx(0.5, abs=0.02)


SEX, AGE = ("f", "f", "m", "m"), ("old", "young", "old", "young")


@pytest.mark.parametrize(
    ("bounds", "most", "least"),
    [
        ([("people", 0.03, SEX), ("positives", 0.02, AGE)], None, None),
        ([("people", 0.03, SEX), ("people", 0.05, AGE), ("people", 0.1, None)], None, None),
        ([("positives", 0.0, None)], None, 0.7),
        ([("people", 0.02, SEX)], 0.3, 0.3),
        ([], None, 0.8),
    ],
)
def test_several_bounds_are_solved_as_by_a_linear_program(bounds, most, least):
    # the program maximises sum (q - c) pi over 0 <= pi <= 1, one variable for each person
    rng, n, cost = np.random.default_rng(0), 1_500, 0.5
    group = rng.integers(0, 4, n)
    probability = expit(rng.normal(size=n) + np.array([-0.8, 0.1, 0.2, 0.6])[group])
    odds = np.log(probability / (1.0 - probability))[:, None]
    columns = score_columns(odds, 0.0, np.ones(1), {})
    counted = {"people": np.ones(n), "positives": probability}
    rows, limits = [], []
    for whom, gap, merged in bounds:
        names = np.arange(4) if merged is None else np.array(merged)
        weights = [counted[whom] * (names[group] == name) for name in np.unique(names)]
        rates = np.array([weight / weight.sum() for weight in weights])
        for first, second in zip(*np.nonzero(~np.eye(len(rates), dtype=bool)), strict=True):
            rows.append(rates[first] - rates[second])
            limits.append(gap)
    for sign, share in ((1.0, most), (-1.0, least)):
        if share is not None:
            rows.append(np.full(n, sign / n))
            limits.append(sign * share)
    gain = (probability - cost) / n
    best = linprog(-gain, np.array(rows), limits, bounds=(0.0, 1.0))
    rule = FairRule.by_group(columns, ("people", "positives"), group, 4, cost)
    asked = [GapBound(gap, whom=(whom,), merged=merged) for whom, gap, merged in bounds]
    rates = [
        () if share is None else (*[sign * np.inf] * 4, share)
        for sign, share in ((1.0, most), (-1.0, least))
    ]
    propensity = expit(rule.inputs @ rule.theta(asked, *rates))
    # a little entropy is added to the utility
    assert gain @ propensity == pytest.approx(-best.fun, abs=2e-3)
    assert (np.array(rows) @ propensity - np.array(limits)).max() < 2e-3
