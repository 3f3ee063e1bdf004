"""How often intervals cover the truth, over logs drawn from worlds whose truth is known.

By default up to a hundred logs, with a tolerance of three binomial errors; the slow versions draw
2000 and demand 93 to 97.5 percent. Skew, many groups and peeking have tests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.special import expit

import consequential as cq
from consequential.lab.worlds.synthetic import NormalScores, SyntheticWorld

FEW, MANY = 100, 2000
WORLDS = {
    "first": (cq.worlds.first_setting, cq.Policy([1.5, 5.0])),
    "second": (cq.worlds.second_setting, cq.Policy([1.0, 0.6])),
}
A_FEW = [pytest.param(40, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
SOME = [pytest.param(60, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
ALL = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]


class FiveGroups(SyntheticWorld):
    """Five groups, equal or not, of normal scores; labels follow the score."""

    cost = 0.5
    bounds = (-9.0, 9.0)
    n_groups = 5
    theta = (0.0, 1.0)

    def __init__(self, means: tuple[float, ...]) -> None:
        self.scores = NormalScores(means, 1.0, (-np.inf, np.inf))

    def score_probability(self, score):
        return expit(score)


def logs(world, n: int, count: int, seed: int = 0) -> Iterator[cq.DecisionLog]:
    """Logs of the world's initial policy with a floor of .05."""
    start = world.initial_policy().with_floor(0.05)
    for k in range(count):
        yield world.collect(start, n, np.random.default_rng([seed, k]))


def coverage(found: Iterator[list[bool]]) -> np.ndarray:
    return np.mean(list(found), axis=0)


def assert_covers(rates: np.ndarray, count: int, low: float = 0.93, high: float = 0.975) -> None:
    print(np.round(rates, 4))  # for the record, with -s
    slack = 0.0 if count >= MANY else 3 * np.sqrt(low * (1 - low) / count)
    assert (rates >= low - slack).all(), rates
    assert (rates <= high + slack).all(), rates


@pytest.mark.parametrize("count", ALL)
@pytest.mark.parametrize("setting", list(WORLDS))
@pytest.mark.parametrize(
    "weighting",
    [cq.weightings.InversePropensity(), cq.weightings.SelfNormalised()],
    ids=["plain", "self-normalised"],
)
def test_utility_and_parity_gap_are_covered(setting, weighting, count):
    make, policy = WORLDS[setting]
    world = make()
    truth = world.exact(policy)

    def covered(log):
        found = cq.evaluate(policy, log, cost=world.cost, weighting=weighting)
        return [
            truth.utility in found.utility,
            truth.benefit_gap in found.benefit_gap,
            truth.acceptance in found.acceptance,
            truth.benefits[0] in found.benefits[0],
        ]

    assert_covers(coverage(map(covered, logs(world, 5000, count))), count)


@pytest.mark.parametrize("count", ALL)
@pytest.mark.parametrize("setting", list(WORLDS))
def test_paired_differences_are_covered_with_the_correction_for_skewness(setting, count):
    make, policy = WORLDS[setting]
    world = make()
    start = world.initial_policy().with_floor(0.05)
    new, old = world.exact(policy), world.exact(start)

    def covered(log):
        found = cq.compare(policy, cq.Logged(), log, cost=world.cost)
        return [
            new.utility - old.utility in found.utility,
            new.benefit_gap - old.benefit_gap in found.benefit_gap,
        ]

    assert_covers(coverage(map(covered, logs(world, 5000, count, seed=1))), count)


@pytest.mark.parametrize(
    ("setting", "notion", "count"),
    [
        ("first", "equal_opportunity", 40),
        ("second", "predictive_parity", 40),
        *(
            pytest.param(setting, notion, MANY, marks=pytest.mark.slow)
            for setting in WORLDS
            for notion in ("equal_opportunity", "predictive_parity")
        ),
    ],
)
def test_gaps_of_ratios_are_covered(setting, notion, count):
    make, policy = WORLDS[setting]
    world = make()
    truth = world.exact(policy, notion)

    def covered(log):
        found = cq.evaluate(policy, log, cost=world.cost, fairness=notion)
        return [truth.benefit_gap in found.benefit_gap]

    assert_covers(coverage(map(covered, logs(world, 20_000, count, seed=2))), count)


@pytest.mark.parametrize("count", SOME)
@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_the_largest_gap_of_five_equal_groups_is_covered(notion, count):
    """All gaps are 0, where the plug-in maximum is too large by far."""
    world, policy = FiveGroups((0.0,) * 5), cq.Policy([0.3, 1.5])

    def covered(log):
        gap = cq.evaluate(policy, log, cost=0.5, fairness=notion).benefit_gap
        naive = gap.value - 1.96 * gap.standard_error <= 0.0
        return [0.0 in gap, naive]

    rates = coverage(map(covered, logs(world, 5000, count, seed=3)))
    assert_covers(rates[:1], count)
    assert rates[1] < 0.8


@pytest.mark.parametrize("count", SOME)
def test_the_largest_gap_of_five_unequal_groups_is_covered(count):
    """Simultaneous bounds are generous here: never below, and not only, 95 percent."""
    world, policy = FiveGroups((-0.4, -0.2, 0.0, 0.2, 0.4)), cq.Policy([0.3, 1.5])
    truth = abs(world.exact(policy).benefit_gap)

    def covered(log):
        return [truth in cq.evaluate(policy, log, cost=0.5).benefit_gap]

    assert_covers(coverage(map(covered, logs(world, 5000, count, seed=4))), count, high=1.0)


@pytest.mark.parametrize("count", SOME)
@pytest.mark.parametrize("setting", list(WORLDS))
@pytest.mark.parametrize("paired", [False, True], ids=["utility", "difference"])
def test_sequences_cover_at_every_look_at_once(setting, paired, count):
    make, policy = WORLDS[setting]
    world = make()
    start = world.initial_policy().with_floor(0.05)
    truth = world.exact(policy).utility - (world.exact(start).utility if paired else 0.0)
    versus = cq.Logged() if paired else None

    def covered(log):
        lower, upper = cq.statistics.utility_sequence(policy, log, cost=world.cost, versus=versus)
        return [bool((lower <= truth).all() and (upper >= truth).all())]

    rates = coverage(map(covered, logs(world, 5000, count, seed=6)))
    assert_covers(rates, count, low=0.95, high=1.0)


@pytest.mark.parametrize("count", A_FEW)
@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_bounded_intervals_cover_at_least_as_often_as_they_say(notion, count):
    world, policy = cq.worlds.first_setting(), cq.Policy([1.5, 5.0])
    truth = world.exact(policy, notion)

    def covered(log):
        found = cq.evaluate(policy, log, cost=world.cost, fairness=notion, method="any_time")
        return [
            truth.utility in found.utility,
            truth.benefits[1] in found.benefits[1],
            truth.benefit_gap in found.benefit_gap,
        ]

    rates = coverage(map(covered, logs(world, 1000, count, seed=7)))
    assert_covers(rates, count, low=0.95, high=1.0)


def test_intervals_that_are_peeked_at_do_not_cover():
    """A look every 50 decisions at 95 percent intervals: always right in three of four at most."""
    world, policy = cq.worlds.first_setting(), cq.Policy([1.5, 5.0])
    truth, looks = world.exact(policy).utility, np.arange(100, 5001, 50)

    def covered(log):
        gained = np.where(log.decision, 1 / log.propensity, 0.0)
        gained = gained * log.propensity_of(policy) * (log.outcome - world.cost)
        mean = np.cumsum(gained)[looks - 1] / looks
        error = np.sqrt((np.cumsum(gained**2)[looks - 1] / looks - mean**2) / looks)
        return bool((np.abs(mean - truth) <= 1.96 * error).all())

    assert np.mean([covered(log) for log in logs(world, 5000, 200, seed=8)]) < 0.75
