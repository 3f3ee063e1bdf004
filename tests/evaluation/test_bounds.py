"""Confidence sequences: bounds at every look, by the inequality they rest on and in use."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from consequential.evaluation.reach import Extremes
from consequential.evaluation.statistics import mean_sequence
from consequential.evaluation.weighted_log import WeightedLog
from exploring_logs import exploring_log


def psi(bet):
    return -np.log1p(-bet) - bet


def test_the_inequality_that_bounds_rest_on():
    """`exp(l xi - psi(l) xi^2) <= 1 + l xi` for xi >= -1 and 0 <= l < 1."""
    bet, xi = np.meshgrid(np.linspace(0.0, 0.999, 400), np.linspace(-1.0, 30.0, 4000))
    assert (np.exp(bet * xi - psi(bet) * xi**2) <= 1.0 + bet * xi + 1e-12).all()


def slow_lower(values, low, most, level, tuned_for):
    """The recursion as it is written, a row at a time."""
    scale = most - low
    total = squares = 0.0
    guess, variance = min(0.0, most / scale), 0.05
    sums = np.zeros(3)
    best, bounds = -np.inf, []
    for i, value in enumerate(values, start=1):
        x = value / scale
        wait = max(tuned_for, i * np.log(1 + i) / np.log(1 + tuned_for))
        bet = min(0.5, np.sqrt(2 * level / (variance * wait)))
        sums += [bet * x, psi(bet) * (x - guess) ** 2, bet]
        best = max(best, (sums[0] - level - sums[1]) / sums[2])
        bounds.append(best * scale)
        total += x
        guess = min(total / (i + 1), most / scale)
        squares += (x - guess) ** 2
        variance = (0.05 + squares) / (i + 1)
    return np.array(bounds)


def test_bounds_are_those_of_the_recursion():
    rng = np.random.default_rng(0)
    values = rng.choice([-2.0, 0.0, 0.5, 6.0], size=300, p=[0.1, 0.6, 0.25, 0.05])
    lower, upper = mean_sequence(
        values, low=-2.0, high=6.0, mean_low=-0.4, mean_high=0.6, tuned_for=50
    )
    level = log(2 / 0.05)
    assert_allclose(lower, np.clip(slow_lower(values, -2.0, 0.6, level, 50), -0.4, 0.6))
    assert_allclose(upper, np.clip(-slow_lower(-values, -6.0, 0.4, level, 50), -0.4, 0.6))


def test_no_bet_looks_ahead():
    """Bounds after t rows do not change with what comes later."""
    values = np.random.default_rng(1).random(400)
    whole = mean_sequence(values, low=0.0, high=1.0)
    part = mean_sequence(values[:150], low=0.0, high=1.0)
    assert_allclose(whole[0][:150], part[0])
    assert_allclose(whole[1][:150], part[1])


def test_bounds_only_ever_close_in():
    lower, upper = mean_sequence(np.random.default_rng(2).random(500), low=0.0, high=1.0)
    assert (np.diff(lower) >= 0).all()
    assert (np.diff(upper) <= 0).all()
    assert (lower <= upper).all()


@pytest.mark.parametrize("rows", [0, 1])
def test_bounds_of_next_to_nothing_say_nothing(rows):
    lower, upper = mean_sequence(np.full(rows, 0.5), low=0.0, high=1.0)
    assert (lower == 0.0).all()
    assert (upper == 1.0).all()


def test_a_mean_that_cannot_vary_is_known():
    lower, upper = mean_sequence(np.zeros(3), low=0.0, high=0.0)
    assert (lower == 0.0).all()
    assert (upper == 0.0).all()


def test_any_time_is_where_the_sequence_of_the_utility_stands():
    world = cq.worlds.first_setting()
    log_ = world.collect(world.initial_policy().with_floor(0.1), 2000, np.random.default_rng(1))
    policy = cq.Policy([1.5, 5.0])
    lower, upper = cq.statistics.utility_sequence(policy, log_, cost=world.cost)
    found = cq.evaluate(policy, log_, cost=world.cost, method="any_time").utility
    assert (found.low, found.high) == (lower[-1], upper[-1])
    lower, upper = cq.statistics.utility_sequence(policy, log_, cost=world.cost, versus=cq.Logged())
    paired = cq.compare(policy, cq.Logged(), log_, cost=world.cost, method="any_time").utility
    assert (paired.low, paired.high) == (lower[-1], upper[-1])


def test_the_range_is_that_of_costs_floor_and_rejections():
    """Label 1 is worth at most (1 - c) / floor, label 0 at least -c / floor."""
    world = cq.worlds.first_setting()
    log_ = world.collect(cq.Policy([0.0, 0.0]), 300, np.random.default_rng(1))
    pi = log_.propensity_of(cq.AcceptAll())
    gained = np.where(log_.decision, pi / 0.5 * (log_.outcome - 0.4), 0.0)
    by_hand = mean_sequence(gained, low=-0.4 / 0.25, high=0.6 / 0.25, mean_low=-0.4, mean_high=0.6)
    found = cq.statistics.utility_sequence(cq.AcceptAll(), log_, cost=0.4, floor=0.25)
    assert_allclose(found, by_hand)
    logged = cq.statistics.utility_sequence(cq.AcceptAll(), log_, cost=0.4)  # smallest logged: 0.5
    assert (logged[1] - logged[0])[-1] < (found[1] - found[0])[-1]


def test_bounds_hold_where_policies_were_learned_from_earlier_rows():
    """A coin of mean 0.6 whose weights depend on all earlier rows: wrong in 3 of 60 at most."""
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values, floor = np.empty(600), 0.2
        for i in range(600):
            p = max(floor, min(1.0, values[:i].mean())) if i else 0.5
            values[i] = (rng.random() < p) * (rng.random() < 0.6) / p
        lower, upper = mean_sequence(values, low=0.0, high=1 / floor, mean_low=0.0, mean_high=1.0)
        wrong += bool((lower > 0.6).any() or (upper < 0.6).any())
    assert wrong <= 3


@pytest.mark.parametrize(
    "weighting",
    [
        cq.weightings.InversePropensity(),
        cq.weightings.Clipped(3.0),
    ],
)
def test_no_row_goes_beyond_its_reach(weighting):
    """Rows of every kind: each rule, each pair of them, all costs and amounts; and close to it."""
    rng = np.random.default_rng(0)
    n, floor = 4000, 0.1
    log_ = exploring_log(n, 2, amount=rng.uniform(0.5, 2, n), cost=rng.uniform(0.2, 0.7, n), seed=3)
    objective = cq.Objective(0.5, "demographic_parity", weighting=weighting)
    there = WeightedLog.of(objective, log_, Extremes.of(weighting, floor))
    ones, zeros = np.ones(n), np.zeros(n)
    extreme = {"all": ones, "nobody": zeros, "logged": log_.propensity}
    for less in (None, *extreme.values()):
        for rule in extreme.values():
            for ratios in there.utility(rule, less).sides:
                low, high, mean_low, mean_high = ratios.reach.at(0.0)
                assert low <= ratios.numerator.min()
                assert ratios.numerator.max() <= high
                assert low <= mean_low <= mean_high <= high
                assert mean_low <= ratios.values[0] <= mean_high
    # each kind of reach is used: some row comes near both ends
    lone = there.utility(ones).low.reach.at(0.0)
    against = there.utility(ones, log_.propensity).low.reach.at(0.0)
    assert against[0] >= there.utility(ones, zeros).low.reach.at(0.0)[0]
    assert there.utility(ones).high.numerator.max() > 0.4 * lone[1]


def test_against_the_log_bounds_close_in_sooner():
    world = cq.worlds.first_setting()
    log_ = world.collect(world.initial_policy().with_floor(0.05), 3000, np.random.default_rng(0))
    policy, start = cq.Policy([1.5, 5.0]), world.initial_policy().with_floor(0.05)
    nearly = start.at(start.theta + 1e-6).with_floor(0.05)
    lower, _ = cq.statistics.utility_sequence(policy, log_, cost=world.cost, versus=cq.Logged())
    other, _ = cq.statistics.utility_sequence(policy, log_, cost=world.cost, versus=nearly)
    assert lower[-1] > 0.0 > other[-1]
