"""Overlap: does a log explore, and for whom not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom, norm, poisson
from sklearn.linear_model import LogisticRegression

import consequential as cq
from consequential.evaluation.contradictions import propensity_contradictions, surprise
from consequential.evaluation.overlap import CoverageSums, share_at_most


@pytest.fixture
def world():
    return cq.worlds.first_setting()


@pytest.fixture
def cut(world):
    return cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), world.cost)


def made_log(propensity, group=None, features=None, decided_with=None, seed=0, **columns):
    rng = np.random.default_rng(seed)
    n = len(propensity)
    chance = propensity if decided_with is None else decided_with
    decision = rng.random(n) < chance
    label = np.where(decision, 1.0, np.nan)
    if features is None:
        features = rng.normal(size=(n, 2))
    return cq.DecisionLog.from_arrays(features, decision, propensity, label, group, **columns)


# --- verdicts


def test_a_deterministic_log_does_not_explore(world, cut):
    found = cq.overlap(world.collect(cut, 4000, np.random.default_rng(0)))
    assert found.exploring == "no"
    assert found.overall.smallest == 0.0
    assert "cannot be told from this log" in found.reasons[0]


def test_a_floor_makes_a_log_explore(world, cut):
    found = cq.overlap(world.collect(cut.with_floor(0.05), 8000, np.random.default_rng(0)))
    assert (found.exploring, found.reasons) == ("yes", ())
    assert found.overall.below_floor == 0.0
    assert found.overall.below_floor_high == pytest.approx(3 / 8000, rel=0.01)  # rule of three


def test_accepting_everybody_leaves_nothing_unexplored(world):
    found = cq.overlap(world.collect(cq.AcceptAll(), 2000, np.random.default_rng(0)))
    assert found.exploring == "yes"
    assert found.overall.effective_sample_size == 2000
    assert found.overall.surprise == 0.0
    assert found.worst_region.rule == "anywhere"


def test_accepting_nobody_explores_nothing(world):
    found = cq.overlap(world.collect(cq.RejectAll(), 500, np.random.default_rng(0)))
    assert found.exploring == "no"
    assert found.reasons == ("nobody was accepted: the log has no label at all",)


def test_some_people_below_the_floor_are_a_part():
    p = np.r_[np.full(1900, 0.4), np.full(100, 0.001)]
    found = cq.overlap(made_log(p))
    assert found.exploring == "partly"
    assert found.overall.below_floor == pytest.approx(0.05)
    assert found.reasons[0].startswith("5.0% of people are below the floor")


def test_a_small_group_is_named():
    group = np.where(np.arange(3000) < 50, "few", "many")
    found = cq.overlap(made_log(np.full(3000, 0.5), group))
    assert found.exploring == "partly"
    assert any("weights of group 'few' say as much as" in reason for reason in found.reasons)


def test_estimated_propensities_are_never_beyond_doubt():
    p = np.full(2000, 0.5)
    log = made_log(p)
    estimated = cq.DecisionLog.from_arrays(
        log.features, log.decision, cq.EstimatedPropensity(), log.label
    )
    found = cq.overlap(estimated)
    assert found.estimated_propensity
    assert "propensities are estimates" in found.reasons[-1]


# --- figures


def test_coverage_counts_what_it_says():
    p = np.array([0.5, 0.25, 0.004, 1.0, 0.5])
    log = cq.DecisionLog.from_arrays(
        np.zeros((5, 1)), [1, 1, 0, 1, 0], p, [1, 0, None, 1, None], ["a", "a", "b", "b", "b"]
    )
    found = cq.overlap(log)
    everyone, a, b = found.overall, *found.groups
    assert (everyone.people, everyone.accepted, everyone.median) == (5, 3, 0.5)
    assert everyone.effective_sample_size == pytest.approx((2 + 4 + 1) ** 2 / (4 + 16 + 1))
    assert everyone.largest_weight_share == pytest.approx(4 / 7)
    assert everyone.mean_weight == pytest.approx(7 / 5)
    assert (a.name, a.mean_weight, a.below_floor) == ("a", 3.0, 0.0)
    assert b.below_floor == pytest.approx(1 / 3)
    assert b.smallest == 0.004


def test_the_upper_bound_is_clopper_and_pearsons():
    for count, n in [(0, 50), (3, 50), (49, 50), (50, 50)]:
        high = share_at_most(count, n, 0.9)
        # at the bound, seeing so few or fewer has probability 1 - confidence
        assert binom.cdf(count, n, high) == pytest.approx(0.1 if count < n else 1.0)


def test_pending_labels_do_not_matter():
    log = cq.DecisionLog.from_arrays(np.zeros((4, 1)), [1, 1, 0, 1], [0.5] * 4, [1] + [None] * 3)
    assert cq.overlap(log).overall.accepted == 3


def test_a_group_without_rows_is_left_out():
    log = made_log(np.full(100, 0.5), np.repeat("a", 100), groups=["a", "b"])
    assert [group.name for group in cq.overlap(log).groups] == ["a"]


# --- are logged propensities true?


def weight_surprise(decision, p):
    label = np.where(decision, 1.0, np.nan)
    log = cq.DecisionLog.from_arrays(np.zeros((len(p), 1)), decision, p, label, copy=False)
    return CoverageSums.of(log, 0.01).coverage("all", p, 0.95).surprise


@pytest.mark.parametrize("repeats", [500, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("low", [0.01, 0.05, 0.3])
def test_true_propensities_are_seldom_doubted(low, repeats):
    rng = np.random.default_rng(1)
    n = 2000
    p = low + (1 - low) * rng.random(n) ** 3
    drawn = (rng.random((repeats, n)) < p) / p
    surprises = np.array([weight_surprise(weights > 0, p) for weights in drawn])
    # 1 % expected; three binomial standard errors
    doubted = (np.abs(surprises) > norm.ppf(0.995)).mean()
    assert doubted == pytest.approx(0.01, abs=3 * np.sqrt(0.01 * 0.99 / repeats))


def test_propensities_that_are_not_true_are_noticed_and_the_group_is_named():
    group = np.repeat(["a", "b"], 2000)
    p = np.full(4000, 0.4)
    really = np.where(group == "a", 0.4, 0.5)
    found = cq.overlap(made_log(p, group, decided_with=really))
    assert found.exploring == "partly"
    doubts = [reason for reason in found.reasons if "the weights" in reason]
    assert len(doubts) == 1
    assert "weights of group 'b' average 1.2" in doubts[0]
    assert "not drawn with the propensities logged" in doubts[0]
    assert [each.rule for each in found.contradictions] == ["not group 'a'"]


def test_people_without_a_chance_do_not_spoil_the_check():
    p = np.r_[np.full(1000, 0.5), np.zeros(1000)]
    found = cq.overlap(made_log(p))
    assert abs(found.overall.surprise) < 3
    assert found.overall.mean_weight == pytest.approx(1.0, abs=0.15)


def test_surprise_is_the_normal_number_of_a_skewed_sums_tail():
    """A Poisson count of mean 10: all three central moments are 10."""
    for count in (1, 3, 5, 10, 16, 20, 24):
        # with half of the count's own probability, since a normal number has no lumps
        below = poisson.cdf(count, 10) - poisson.pmf(count, 10) / 2
        assert surprise(count - 10.0, 10.0, 10.0) == pytest.approx(norm.ppf(below), abs=0.25)
    deviations = [surprise(excess, 10.0, 10.0) for excess in np.linspace(-300, 300, 601)]
    assert (np.diff(deviations) > 0).all()


@pytest.mark.parametrize("rare", [1e-3, 1e-6, 1.0 - 1e-13])
def test_true_propensities_next_to_0_or_1_do_not_raise_a_doubt(rare):
    """One person among others, or nobody left to chance: the sum is as skewed as can be."""
    p = np.full(2000, rare) if rare > 0.5 else np.r_[np.full(2000, 0.5), rare]
    rng = np.random.default_rng(0)
    surprises = [weight_surprise(rng.random(len(p)) < p, p) for _ in range(200)]
    assert np.abs(surprises).max() < 4


def test_decisions_that_propensities_all_but_rule_out_do_raise_a_doubt():
    p = np.full(2000, 1.0 - 1e-13)
    assert weight_surprise(np.arange(2000) % 2 == 0, p) < -4


# --- region by region


def logged_with_the_groups_rate(n, seed=0):
    """Propensities that are right for each group on average and wrong for everybody in it."""
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.05), n, np.random.default_rng(seed))
    rate = np.array([log.decision[log.group == code].mean() for code in range(2)])
    return cq.DecisionLog.from_arrays(
        log.features, log.decision, rate[log.group], log.label, log.sensitive
    )


def test_propensities_that_are_right_on_average_only_are_contradicted():
    log = logged_with_the_groups_rate(2000)
    found = cq.overlap(log)
    assert all(group.mean_weight == pytest.approx(1.0) for group in found.groups)
    assert found.exploring == "partly"
    assert "not drawn with the propensities logged: x0" in found.reasons[-1]
    assert found.contradictions[0].surprise == max(
        (each.surprise for each in found.contradictions), key=abs
    )


def test_the_contradicted_region_is_given_in_words_with_the_people_in_it():
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(6000, 2))
    really = np.where(x[:, 1] > 0.7, 0.2, 0.5)
    log = made_log(
        np.full(6000, 0.5), features=x, decided_with=really, feature_names=["income", "debt"]
    )
    (found,) = propensity_contradictions(log)
    name, sign, cut = found.rule.split()
    assert (name, sign, float(cut)) == ("debt", ">", pytest.approx(0.7, abs=0.02))
    inside = x[:, 1] > float(cut)
    assert (found.people, found.accepted) == pytest.approx(
        (inside.sum(), log.decision[inside].sum()), abs=3
    )
    assert str(found) == (
        f"{found.rule}: {found.accepted} of {found.people} accepted where the propensities say "
        f"{found.expected:.0f}"
    )
    assert found.expected == pytest.approx(0.5 * found.people)


def small_propensities(rng):
    x = rng.normal(size=(2000, 3))
    return x, 0.01 + 0.99 / (1 + np.exp(3 - 2 * x[:, 0]))


def many_features(rng):
    return rng.normal(size=(1500, 20)), 0.05 + 0.9 * rng.random(1500)


def rare_acceptances(rng):
    return rng.normal(size=(8000, 2)), np.full(8000, 0.01)


@pytest.mark.parametrize("people", [small_propensities, many_features, rare_acceptances])
@pytest.mark.parametrize("repeats", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_true_propensities_are_seldom_contradicted(people, repeats):
    rng = np.random.default_rng(5)
    doubted = 0
    for _ in range(repeats):
        x, p = people(rng)
        log = made_log(p, rng.integers(2, size=len(p)), x, seed=rng.integers(2**32))
        doubted += bool(propensity_contradictions(log))
    # 1 % expected; three binomial standard errors, and a little for skewness
    assert doubted / repeats < 0.012 + 3 * np.sqrt(0.01 * 0.99 / repeats)


def test_ordinary_estimates_of_propensities_are_not_contradicted(world):
    log = world.collect(world.initial_policy(), 20_000, np.random.default_rng(0))
    estimated = cq.DecisionLog.from_arrays(
        log.features, log.decision, cq.EstimatedPropensity(), log.label, log.sensitive
    )
    assert propensity_contradictions(estimated) == ()


def test_estimates_of_the_wrong_form_are_contradicted(world, cut):
    """A logistic curve cannot follow an exploration floor."""
    log = world.collect(cut.with_floor(0.05), 20_000, np.random.default_rng(0))
    model = cq.EstimatedPropensity(LogisticRegression(), calibration="sigmoid")
    estimated = cq.DecisionLog.from_arrays(
        log.features, log.decision, model, log.label, log.sensitive
    )
    assert propensity_contradictions(estimated)


def test_propensities_of_another_convention_are_recognised():
    p = np.random.default_rng(3).uniform(0.1, 0.6, 2000)
    log = made_log(p)
    taken = cq.DecisionLog.from_arrays(
        log.features, log.decision, np.where(log.decision, p, 1 - p), log.label
    )
    found = cq.overlap(taken)
    assert found.exploring == "partly"
    assert any("probabilities of the action taken" in reason for reason in found.reasons)


def test_odd_columns_are_noted_and_do_not_change_the_verdict():
    features = np.column_stack([np.random.default_rng(0).normal(size=3000), np.ones(3000)])
    found = cq.overlap(made_log(np.full(3000, 0.5), features=features))
    assert (found.exploring, found.reasons) == ("yes", ())
    assert "the feature 'x1' has the same value in all rows" in found.concerns[0]
    assert f"note: {found.concerns[0]}" in str(found)


def test_decisions_without_chance_are_not_tested(world, cut):
    certain = world.collect(cut, 2000, np.random.default_rng(0))
    assert propensity_contradictions(certain) == ()
    few = made_log(np.full(30, 0.5), decided_with=np.ones(30))
    assert propensity_contradictions(few) == ()


# --- the worst-covered region


def test_the_region_nobody_explored_is_found_in_words():
    x = np.random.default_rng(0).uniform(size=(5000, 2))
    hidden = (x[:, 0] < 0.4) & (x[:, 1] > 0.7)
    log = made_log(np.where(hidden, 0.002, 0.5), features=x, feature_names=["income", "debt"])
    region = cq.overlap(log).worst_region
    below, above = region.rule.split(" and ")
    assert below.startswith("income <= ")
    assert above.startswith("debt > ")
    assert float(below.split()[-1]) == pytest.approx(0.4, abs=1e-3)
    assert float(above.split()[-1]) == pytest.approx(0.7, abs=1e-3)
    assert region.people == hidden.sum()
    assert region.largest == 0.002
    assert "propensity 0.002 in the middle, 0.002 at most" in str(region)


def test_a_band_has_two_ends():
    x = np.linspace(0, 1, 2000)
    log = made_log(np.where((x > 0.3) & (x < 0.6), 0.001, 0.5), features=x)
    low, _, name, _, high = cq.overlap(log).worst_region.rule.split()
    assert (name, float(low), float(high)) == (
        "x0",
        pytest.approx(0.3, abs=1e-3),
        pytest.approx(0.6, abs=1e-3),
    )


def test_a_region_can_be_a_group():
    group = np.repeat(["a", "b"], 1000)
    p = np.where(group == "b", 0.003, 0.5)
    found = cq.overlap(made_log(p, group))
    assert found.worst_region.rule in ("group 'b'", "not group 'a'")
    assert found.worst_region.people == 1000


def test_an_indicator_is_or_is_not():
    word = np.repeat([0.0, 1.0], 1000)
    log = made_log(np.where(word == 0, 0.003, 0.5), features=word, feature_names=["job=clerk"])
    assert cq.overlap(log).worst_region.rule == "not job=clerk"


# --- shown and stored


def test_it_prints_a_table_and_the_verdict(world, cut):
    found = cq.overlap(world.collect(cut.with_floor(0.05), 8000, np.random.default_rng(0)))
    lines = str(found).splitlines()
    assert lines[0].split()[:4] == ["people", "accepted", "effective", "below"]
    assert [line.split()[0] for line in lines[1:4]] == ["everyone", "0", "1"]
    assert lines[4].startswith("worst covered: ")
    assert lines[5] == "exploring: yes"


def test_it_goes_into_json(world, cut):
    found = cq.overlap(world.collect(cut, 1000, np.random.default_rng(0)))
    back = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert back["exploring"] == "no"
    assert [group["name"] for group in back["groups"]] == [0, 1]
    assert back["worst_region"]["people"] > 0
    wrong = cq.overlap(logged_with_the_groups_rate(2000))
    back = json.loads(json.dumps(wrong.to_dict(), allow_nan=False))
    assert back["contradictions"][0]["rule"] == wrong.contradictions[0].rule


WRONG = {
    "no floor": ({"floor": 0.0}, "floor lies strictly between 0 and 1, not 0.0"),
    "a floor of 1": ({"floor": 1.0}, "floor lies strictly between 0 and 1, not 1.0"),
    "NaN floor": ({"floor": np.nan}, "floor lies strictly between 0 and 1, not nan"),
    "confidence in percent": ({"confidence": 95}, "confidence lies strictly .* not 95"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        cq.overlap(made_log(np.full(20, 0.5)), **arguments)


def test_an_empty_log_is_refused():
    log = made_log(np.full(20, 0.5))
    with pytest.raises(cq.DecisionLogError, match="the log is empty"):
        cq.overlap(log.take(slice(0, 0)))
