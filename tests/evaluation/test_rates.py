"""Intervals of rates: what they are known to be in simple cases, and how often they cover."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import betaincinv
from scipy.stats import norm

import consequential as cq
from consequential.evaluation.rates import (
    FEW,
    Count,
    RateSums,
    contrast_bounds,
    few_notes,
    largest_bounds,
    share_quantile,
)
from consequential.lab.worlds.synthetic import FirstSetting, NormalScores, SecondSetting

NAMES = ("true_positive_rates", "false_positive_rates", "predictive_values")
DIFFERENCE = np.array([1.0, -1.0])


def sums_of(weights, outcome, chance, propensity, group=None, **more) -> RateSums:
    weights, outcome, chance, propensity = np.broadcast_arrays(
        *(np.asarray(each, dtype=float) for each in (weights, outcome, chance, propensity))
    )
    group = np.zeros(len(weights), dtype=np.intp) if group is None else group
    return RateSums.of(weights, outcome, chance, propensity, group, int(group.max()) + 1, **more)


def drawn_sums(world, start, rule, n, rng) -> RateSums:
    """What the log of a start says about the rates of a rule."""
    features, group = world.propose(n, rng)
    chance = start.propensity(features)
    outcome = rng.random(n) < world.score_probability(features[:, 0])
    weights = (rng.random(n) < chance) / chance
    pi = rule.propensity(features)
    return RateSums.of(weights, outcome * (weights > 0), chance, pi, group, len(world.groups))


def true_rates(world, rule) -> dict[str, np.ndarray]:
    """The three rates of each group, by quadrature."""
    points = world.population_for(rule)
    positives = points.mass * points.label_probability
    negatives = points.mass - positives
    pi = rule.propensity(points.points)[:, None]
    accepted, refused = (positives * pi).sum(axis=0), (negatives * pi).sum(axis=0)
    return {
        "true_positive_rates": accepted / positives.sum(axis=0),
        "false_positive_rates": refused / negatives.sum(axis=0),
        "predictive_values": accepted / (accepted + refused),
    }


def normal_interval(weights, label, share, others):
    """The usual interval of `sum w label share / sum w label (share + others)`."""
    counted, rest = weights * label[0] * share, weights * label[1] * others
    total = (counted + rest).sum()
    value = counted.sum() / total
    error = np.sqrt((((1 - value) * counted - value * rest) ** 2).sum()) / total
    return value - 1.96 * error, value + 1.96 * error


# ---- what intervals are in simple cases


@pytest.mark.parametrize(("accepted", "n"), [(0, 8), (3, 8), (18, 20), (50, 50), (30, 200)])
def test_with_equal_weights_the_interval_is_close_to_that_of_a_proportion(accepted, n):
    pi = np.r_[np.ones(accepted), np.zeros(n - accepted), 0.0, 1.0]  # and a negative of each kind
    outcome = np.r_[np.ones(n), 0.0, 0.0]
    low, high = sums_of(1.0, outcome, 1.0, pi).true_positive_rates.bounds(0.95)
    jeffreys = betaincinv(accepted + 0.5, n - accepted + 0.5, [0.025, 0.975])
    assert_allclose([low[0], high[0]], jeffreys, atol=0.5 / n + 0.01)


@pytest.mark.parametrize("name", NAMES)
def test_large_logs_give_the_usual_normal_interval(name):
    world, rule = cq.worlds.first_setting(), cq.Policy([1.5, 5.0])
    rng = np.random.default_rng(4)
    features, _ = world.propose(400_000, rng)
    chance = world.initial_policy().with_floor(0.2).propensity(features)
    outcome = (rng.random(len(chance)) < world.score_probability(features[:, 0])).astype(float)
    weights, pi = (rng.random(len(chance)) < chance) / chance, rule.propensity(features)
    low, high = getattr(sums_of(weights, outcome, chance, pi), name).bounds(0.95)
    shares = {
        "true_positive_rates": ((outcome, outcome), pi, 1.0 - pi),
        "false_positive_rates": ((1.0 - outcome, 1.0 - outcome), pi, 1.0 - pi),
        "predictive_values": ((outcome, 1.0 - outcome), pi, pi),
    }
    below, above = normal_interval(weights, *shares[name])
    width = above - below
    assert_allclose([low[0], high[0]], [below, above], atol=0.03 * width)


def test_values_are_the_weighted_rates():
    weights, outcome = np.array([2.0, 1.0, 4.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    pi = np.array([0.5, 1.0, 0.25, 1.0, 0.3])
    sums = sums_of(weights, outcome, np.array([0.5, 1.0, 0.25, 1.0, 0.5]), pi)
    assert_allclose(sums.true_positive_rates.values, 2.0 / 3.0)
    assert_allclose(sums.false_positive_rates.values, 2.0 / 5.0)
    assert_allclose(sums.predictive_values.values, 2.0 / 4.0)


def test_sums_of_pieces_are_the_sums_of_the_whole():
    rng = np.random.default_rng(0)
    n = 60
    chance, pi, outcome = rng.uniform(0.1, 1.0, n), rng.random(n), rng.integers(2, size=n)
    weights, group = (rng.random(n) < chance) / chance, rng.integers(3, size=n)
    columns = [weights, outcome.astype(float), chance, pi, group]
    whole = RateSums.of(*columns, 3)
    first, second = (
        RateSums.of(*(each[part] for each in columns), 3, n_rows=n)
        for part in (slice(0, 25), slice(25, n))
    )
    for name in NAMES:
        ends = [np.stack(getattr(sums, name).bounds(0.9)) for sums in (whole, first + second)]
        assert_allclose(*ends, rtol=1e-10)


def test_people_with_small_chances_count_although_none_was_accepted():
    """Wald's interval is [1, 1]: nobody whom the rule rejects was ever accepted."""
    pi = np.repeat([1.0, 0.0], 100)
    chance = np.repeat([1.0, 0.02], 100)
    rates = sums_of(pi, pi, chance, pi).true_positive_rates
    low, high = rates.bounds(0.95)
    # of 50 times the rule of three, 100 people may carry no more than all of themselves
    assert rates.values[0] == 1.0
    assert 0.40 < low[0] < 0.55
    assert high[0] > 0.99


def test_few_rejected_people_cannot_hide_many_positives():
    pi = np.r_[np.ones(997), np.zeros(3)]
    chance = np.r_[np.ones(997), np.full(3, 0.02)]
    low, _ = sums_of(pi, pi, chance, pi).true_positive_rates.bounds(0.95)
    assert low[0] > 0.985


def test_one_person_with_a_tiny_chance_changes_little():
    pi = np.tile([1.0, 0.0], 200)
    chance = np.full(400, 0.5)
    weights = np.tile([2.0, 2.0, 0.0, 0.0], 100)
    ends = []
    for smallest in (0.5, 1e-9):
        chance[-1] = smallest
        ends.append(sums_of(weights, 1.0, chance, pi).true_positive_rates.bounds(0.95))
    assert_allclose(ends[1], ends[0], atol=0.01)


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 1.0])
def test_a_rule_that_accepts_everybody_alike_has_a_known_rate(acceptance):
    rates = sums_of(np.tile([2.0, 0.0], 10), 1.0, 0.5, np.full(20, acceptance)).true_positive_rates
    assert_allclose(rates.values, acceptance)
    assert_allclose(np.stack(rates.bounds(0.95)), acceptance)
    assert_allclose(rates.standard_errors, 0.0)
    assert rates.effective[0] == np.inf


def test_propensities_that_cannot_be_right_do_not_turn_an_interval_around():
    """Half of the people accepted who had one chance in twenty: they stand for ten times all."""
    rng = np.random.default_rng(1)
    sums = sums_of(np.tile([20.0, 0.0], 50), 1.0, 0.05, rng.random(100))
    low, high = sums.true_positive_rates.bounds(0.95)
    assert low[0] < sums.true_positive_rates.values[0] < high[0]


def test_a_rule_that_hardly_differs_between_people_has_a_narrow_interval():
    rng = np.random.default_rng(1)
    sums = sums_of(np.tile([2.0, 0.0], 50), 1.0, 0.5, rng.uniform(0.50, 0.52, 100))
    low, high = sums.true_positive_rates.bounds(0.95)
    assert 0.5 <= low[0] < high[0] <= 0.52
    assert high[0] - low[0] < 0.006


def test_without_any_label_anything_is_possible():
    nobody = sums_of(np.zeros(50), 0.0, 0.5, np.tile([0.0, 1.0], 25))
    for name in NAMES:
        rates = getattr(nobody, name)
        low, high = rates.bounds(0.95)
        assert np.isnan(rates.values[0])
        assert low[0] < 0.01
        assert high[0] > 0.99
        assert rates.effective[0] < 1.0


@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_there_are_bounds_where_a_rate_has_no_meaning(chance):
    """Nobody who could be accepted, or nobody whom the rule would accept."""
    rejects = sums_of(np.zeros(4), 0.0, chance, np.zeros(4))
    assert_allclose(np.stack(rejects.predictive_values.bounds(0.95)).ravel(), [0.0, 1.0])
    assert np.isnan(rejects.predictive_values.values[0])


def test_filled_labels_are_people_of_weight_one():
    """What nobody knows is added as if these people had been accepted for certain."""
    pi = np.r_[np.ones(40), np.zeros(40), np.zeros(30)]
    known = sums_of(
        np.r_[np.full(80, 1.0), np.zeros(30)], 1.0, np.r_[np.ones(80), np.zeros(30)], pi
    )
    filled = sums_of(1.0, 1.0, 1.0, pi)
    assert_allclose(known.true_positive_rates.values, 0.5)
    assert filled.true_positive_rates.bounds(0.95)[1][0] < known.true_positive_rates.values[0]


@pytest.mark.parametrize(("a", "b"), [(0.6, 3.0), (4.0, 900.0), (9e3, 2e4), (1.1e4, 1.3e4)])
@pytest.mark.parametrize("level", [0.025, 0.9])
def test_shares_have_the_quantiles_of_gamma_variables(a, b, level):
    """Also on both sides of where a normal approximation takes over."""
    rng = np.random.default_rng(2)
    one, other = 3.0 * rng.gamma(a, size=400_000), 0.5 * rng.gamma(b, size=400_000)
    counts = [
        # the next person adds nothing here, so means and variances are those of the count
        Count(np.array([k * n]), np.array([k**2 * n]), np.zeros(1), np.zeros(1))
        for k, n in ((3.0, a), (0.5, b))
    ]
    found = share_quantile(*counts, 0.0, level)[0]
    assert np.mean(one / (one + other) < found) == pytest.approx(level, abs=0.004)


# ---- contrasts


def test_differences_are_those_of_newcombe():
    """56 of 70 against 48 of 80, from Wilson's intervals: method 10 of the paper's table II."""
    z = norm.ppf(0.975)
    hits, n = np.array([56.0, 48.0]), np.array([70.0, 80.0])
    middle = (hits + z**2 / 2) / (n + z**2)
    half = z * np.sqrt(hits * (n - hits) / n + z**2 / 4) / (n + z**2)
    found = contrast_bounds(hits / n, np.stack([middle - half, middle + half]), DIFFERENCE)
    assert_allclose(found, [0.0524, 0.3339], atol=5e-5)


def test_correlation_narrows_a_difference():
    values, ends = np.array([0.6, 0.5]), np.array([[0.5, 0.4], [0.7, 0.6]])
    same = contrast_bounds(values, ends, DIFFERENCE, np.ones((2, 2)))
    assert_allclose(same, [0.1, 0.1], atol=1e-7)
    half = contrast_bounds(values, ends, DIFFERENCE, np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert_allclose(half, [0.0, 0.2], atol=1e-7)


def test_a_missing_rate_leaves_a_difference_as_uncertain_as_its_bounds():
    ends = np.array([[0.8, 0.0], [0.8, 1.0]])
    low, high = contrast_bounds(np.array([0.8, np.nan]), ends, DIFFERENCE)
    assert_allclose([low, high], [-0.2, 0.8])


def test_the_largest_difference_is_above_what_is_sure_and_below_what_is_possible():
    values = np.array([0.2, 0.5, 0.9])
    narrow, wide = (np.stack([values - by, values + by]) for by in (0.03, 0.05))
    pairs = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    low, high = largest_bounds(values, narrow, wide, pairs)
    assert low == pytest.approx(0.7 - np.hypot(0.05, 0.05))
    assert high == pytest.approx(0.7 + np.hypot(0.03, 0.03))
    equal = np.full(3, 0.5)
    ends = np.stack([equal - 0.1, equal + 0.1])
    assert largest_bounds(equal, ends, ends, pairs)[0] == 0.0


def test_notes_name_the_groups_that_few_people_carry():
    effective = np.array([FEW, 3.0, 0.3])
    notes = few_notes("predictive value", "accepted people", ["a", "b", "c"], effective)
    assert len(notes) == 1
    assert "3 in group b, 0 in group c" in notes[0]
    assert "group a" not in notes[0]
    assert few_notes("predictive value", "accepted people", ["a"], effective[:1]) == ()


def test_rates_name_both_kinds_of_people_of_whom_there_may_be_few():
    sums = sums_of([1.0, 1.0, 1.0], [1, 0, 1], [0.5] * 3, [1.0, 1.0, 0.0])
    assert "few accepted or few rejected positives carry" in _note(sums.true_positive_rates)
    assert "few accepted or few rejected negatives carry" in _note(sums.false_positive_rates)
    assert "few accepted positives or few accepted neg" in _note(sums.predictive_values)


def _note(rates) -> str:
    return few_notes(*rates.kind, ["a"], rates.effective)[0]


# ---- how often they cover


def three_groups(base, means, deviation, bounds):
    class ThreeGroups(base):
        """A third group with three percent of the people."""

        n_groups = 3
        scores = NormalScores(means, deviation, bounds)

        def propose(self, n, rng):
            group = rng.choice(3, size=n, p=[0.57, 0.40, 0.03])
            return self.scores.sample(group, rng)[:, None], group

    return ThreeGroups()


WORLDS = {
    "first": FirstSetting,
    "second": SecondSetting,
    "first, three groups": lambda: three_groups(FirstSetting, (0.5, -0.5, 0.0), 1.0, (-0.8, 0.8)),
    "second, three groups": lambda: three_groups(
        SecondSetting, (1.5, -1.5, 0.0), 3.5, (-np.inf, np.inf)
    ),
}
RULES = {
    "first": {"soft": cq.Policy([1.5, 5.0]), "steep": cq.Policy([12.0, 40.0])},
    "second": {"soft": cq.Policy([1.0, 0.6]), "steep": cq.Policy([10.0, 6.0])},
}
CELLS = [
    pytest.param(setting, rule, floor, n, 2000 if n < 20_000 else 1000, marks=pytest.mark.slow)
    for setting in WORLDS
    for rule in ("soft", "steep")
    for floor in (0.02, 0.05)
    for n in (2000, 5000, 20_000)
]
SOME = [
    pytest.param("first", "soft", 0.02, 2000, 100),
    pytest.param("second", "steep", 0.05, 2000, 100),
    pytest.param("first, three groups", "steep", 0.02, 5000, 100),
]


@pytest.mark.parametrize(("setting", "rule", "floor", "n", "count"), SOME + CELLS)
def test_rates_and_gaps_are_covered(setting, rule, floor, n, count):
    """In 92.5 to 97.5 percent of the logs; in more only where notes name the group.

    Half a percent is allowed for what is drawn in slow tests, three binomial errors in fast ones.
    """
    world = WORLDS[setting]()
    policy = RULES[setting.split(",")[0]][rule]
    start = world.initial_policy().with_floor(floor)
    truth = true_rates(world, policy)
    rng = np.random.default_rng([len(setting), round(100 * floor), n])
    covered, noted = [], []
    for _ in range(count):
        sums = drawn_sums(world, start, policy, n, rng)
        found = [_covered(getattr(sums, name), truth[name]) for name in NAMES]
        covered.append([inside for inside, _ in found])
        noted.append([few for _, few in found])
    rates, notes = np.mean(covered, axis=0), np.mean(noted, axis=0)
    print(np.round(rates, 3), np.round(notes, 2), sep="\n")  # for the record, with -s
    slack = 0.005 if count >= 1000 else 3.0 * np.sqrt(0.05 * 0.95 / count)
    assert (rates >= 0.925 - slack).all()
    assert (rates[notes < 0.5] <= 0.975 + slack).all()


def _covered(rates, truth):
    """Which of the rates and of their differences are covered, and which have a note."""
    low, high = rates.bounds(0.95)
    few = rates.effective < FEW
    inside = [
        min(low[k], v) <= t <= max(high[k], v)
        for k, (t, v) in enumerate(zip(truth, rates.values, strict=True))
    ]
    noted = few.tolist()
    for pair in map(list, combinations(range(len(truth)), 2)):
        ends = contrast_bounds(rates.values[pair], np.stack([low[pair], high[pair]]), DIFFERENCE)
        inside.append(ends[0] <= truth[pair] @ DIFFERENCE <= ends[1])
        noted.append(few[pair].any())
    return inside, noted
