"""The gate: what its lines say of candidates whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import consequential as cq
from consequential.service.exports import UNKNOWN
from consequential.service.gate import Gain, Limits, look
from consequential.service.problems import Problem
from consequential.service.settings import LoopSettings, Number

WORLD = cq.worlds.first_setting()
SETTINGS = LoopSettings(
    WORLD.cost,
    {"x0": Number(-9.0, 9.0, "Score")},
    0.1,
    sensitive="group",
    max_gap=0.25,
    acceptance=(0.2, 0.95),
)


def cut_at(x: float, floor: float = 0.1) -> cq.Policy:
    return cq.Policy([-20.0 * x, 20.0], "semi_logistic", floor=floor)


LIVE, BETTER = cut_at(0.25), cut_at(-0.1)
GAIN = WORLD.exact(BETTER).utility - WORLD.exact(LIVE).utility


@pytest.fixture(scope="module")
def log() -> cq.DecisionLog:
    found = WORLD.collect(LIVE, 20_000, np.random.default_rng(0))
    return replace(found, missing="against")


def without_labels(log: cq.DecisionLog, lost: np.ndarray) -> cq.DecisionLog:
    return replace(log, label=np.where(lost, np.nan, log.label))


def in_groups(log: cq.DecisionLog, names: np.ndarray) -> cq.DecisionLog:
    label = np.where(log.decision, log.label, np.nan)
    columns = log.features, log.decision, log.propensity, label, names
    return cq.DecisionLog.from_arrays(*columns, missing="against")


def test_a_better_candidate_passes_every_line(log):
    found = look(BETTER, LIVE, log, SETTINGS, 1)
    assert found.passed
    names = [line.name for line in found.lines]
    assert names == ["utility", "fairness", "effective", "acceptance", "floor", "chance"]
    utility = found["utility"]
    assert 0.0 < utility.low < GAIN < utility.high
    assert json.loads(json.dumps(found.to_dict()))["lines"][0]["low"] == utility.low
    assert not any(line.needed for line in found.lines)


def test_a_worse_candidate_and_an_equal_one_do_not(log):
    for candidate, against in ((LIVE, BETTER), (LIVE, LIVE)):
        line = look(candidate, against, log, SETTINGS, 1)["utility"]
        assert not line.passed
        assert line.needed.startswith("an estimate above 0")
        assert "waiting alone will not help" in line.needed


def test_a_candidate_that_was_better_and_is_worse_by_now_does_not_pass(log):
    worse = replace(log, label=np.where(log.decision, 0.0, log.label))
    both = cq.DecisionLog.concatenate([log, worse])
    gain = Gain.of(BETTER, LIVE, both, SETTINGS)
    assert gain.least.mean() < 0.0 < gain.lower(0.025)[-1]
    line = look(BETTER, LIVE, both, SETTINGS, 1)["utility"]
    assert not line.passed
    assert line.low == line.value
    assert line.needed.startswith("an estimate above 0")


@pytest.mark.parametrize("number", [1, 4])
def test_the_bound_is_one_side_of_the_sequence_at_the_candidates_own_level(log, number):
    alpha = 0.05 / (number * (number + 1))
    lower, upper = cq.statistics.utility_sequence(
        BETTER, log, cost=WORLD.cost, versus=LIVE, floor=0.1, tuned_for=20_000,
        confidence=1.0 - 2.0 * alpha,
    )  # fmt: skip
    line = look(BETTER, LIVE, log, SETTINGS, number)["utility"]
    assert (line.low, line.high) == pytest.approx((lower[-1], upper[-1]), abs=1e-12)


def test_missing_labels_speak_against_the_candidate(log):
    rng = np.random.default_rng(1)
    lost = log.decision & (rng.random(len(log)) < 0.05)
    found = Gain.of(BETTER, LIVE, without_labels(log, lost), SETTINGS)
    change = log.propensity_of(BETTER) - log.propensity_of(LIVE)
    worst = replace(log, label=np.where(lost, change < 0.0, log.label))
    np.testing.assert_allclose(found.least, Gain.of(BETTER, LIVE, worst, SETTINGS).least)
    for _ in range(5):
        label = np.where(lost, rng.integers(2, size=len(log)), log.label)
        filled = Gain.of(BETTER, LIVE, replace(log, label=label), SETTINGS)
        assert (found.least <= filled.least + 1e-12).all()
        assert (found.most >= filled.most - 1e-12).all()


def test_a_canary_of_the_candidate_leaves_nine_tenths_of_its_gain(log):
    mixed = cq.Mixture([LIVE, BETTER], [0.9, 0.1])
    line = look(BETTER, mixed, log, SETTINGS, 1)["utility"]
    assert line.passed
    assert line.value == pytest.approx(0.9 * look(BETTER, LIVE, log, SETTINGS, 1)["utility"].value)


def test_policies_may_have_changed_while_the_candidate_was_proven():
    rng = np.random.default_rng(2)
    rules = LIVE, cq.Mixture([LIVE, BETTER], [0.5, 0.5]), cut_at(0.6, floor=0.15)
    logs = [WORLD.collect(rule, 10_000, rng, time_step=k) for k, rule in enumerate(rules)]
    gain = Gain.of(BETTER, LIVE, cq.DecisionLog.concatenate(logs), SETTINGS)
    error = gain.least.std() / len(gain.least) ** 0.5
    assert abs(gain.least.mean() - GAIN) < 3.0 * error
    assert gain.lower(0.025)[-1] < GAIN < gain.upper(0.025)[-1]


def test_a_floor_of_the_past_below_the_settings_is_reckoned_with(log):
    strict = replace(SETTINGS, floor=0.2)
    limits = Limits.of([SETTINGS, strict])
    found = look(cut_at(-0.1, floor=0.2), LIVE, log, strict, 1, limits)
    assert found["floor"].passed
    assert found["utility"].low < found["utility"].value
    assert not look(BETTER, LIVE, log, strict, 1, limits)["floor"].passed
    with pytest.raises(Problem, match=r"a floor of 0\.1, below 0\.2") as raised:
        look(BETTER, LIVE, log, strict, 1)
    assert raised.value.code == "past_floor"


def test_bounds_rest_on_the_limits_and_not_on_what_was_seen(log):
    def low(**changes: float) -> float:
        settings = replace(SETTINGS, **changes)
        return float(Gain.of(BETTER, LIVE, log, settings).lower(0.025)[-1])

    assert low(floor=0.05) < low()
    assert low(largest_amount=5.0) < low()
    small = replace(log, amount=np.full(len(log), 0.5))
    settings = replace(SETTINGS, largest_amount=0.5)
    narrow, wide = (Gain.of(BETTER, LIVE, small, each) for each in (settings, SETTINGS))
    assert narrow.lower(0.025)[-1] == pytest.approx(0.5 * low(), abs=1e-12)
    assert wide.span == Gain.of(BETTER, LIVE, log, SETTINGS).span
    with pytest.raises(Problem, match=r"an amount of 1, above 0\.5") as raised:
        look(BETTER, LIVE, replace(log, amount=np.ones(len(log))), settings, 1)
    assert raised.value.code == "past_amount"


def test_small_groups_and_unknown_ones_are_neither_judged_nor_named(log):
    names = np.where(log.group == 0, "a", "b").astype(object)
    names[:9], names[100:2000] = "tiny", UNKNOWN
    grouped = in_groups(log, names)
    # whoever is tiny or unknown would fail: the candidate accepts them all
    features = log.features.copy()
    features[:9], features[100:2000] = 0.79, 0.79
    found = look(BETTER, LIVE, replace(grouped, features=features), SETTINGS, 1)
    accepted = BETTER.propensity(features)
    a, b = (accepted[names == name].mean() for name in "ab")
    assert found["fairness"].value == pytest.approx(abs(a - b))
    strict = replace(SETTINGS, acceptance=(0.94, 0.95))
    line = look(BETTER, LIVE, replace(grouped, features=features), strict, 1)["acceptance"]
    assert "of group a" in line.sentence
    assert "of group b" in line.sentence
    for line in found.lines:
        assert "tiny" not in line.sentence


def test_without_two_groups_a_limit_cannot_be_kept(log):
    alone = in_groups(log, np.where(np.arange(len(log)) < 9, "tiny", "a").astype(object))
    line = look(BETTER, LIVE, alone, SETTINGS, 1)["fairness"]
    assert not line.passed
    assert line.value is None
    assert line.needed
    assert look(BETTER, LIVE, alone, replace(SETTINGS, max_gap=None), 1)["fairness"].passed


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_a_gap_is_bounded_in_every_direction(log, notion):
    truth = abs(WORLD.exact(BETTER, notion).benefit_gap)
    found = look(BETTER, LIVE, log, replace(SETTINGS, fairness=notion), 1)["fairness"]
    assert found.low <= truth <= found.high
    swapped = in_groups(log, np.where(log.group == 0, "z", "a"))
    other = look(BETTER, LIVE, swapped, replace(SETTINGS, fairness=notion), 1)["fairness"]
    assert (other.value, other.high) == pytest.approx((found.value, found.high))
    tight = replace(SETTINGS, fairness=notion, max_gap=0.01)
    assert (
        look(BETTER, LIVE, log, tight, 1)["fairness"].needed == "a candidate with a gap below 0.01"
    )


@pytest.mark.parametrize("name", ["utility", "fairness", "effective"])
def test_what_is_needed_is_enough_if_people_stay_as_they_are(log, name):
    settings = replace(SETTINGS, max_gap=0.22)
    n = 2500
    line = look(BETTER, LIVE, log.take(slice(0, n)), settings, 1)[name]
    assert not line.passed
    needed = int(line.needed.removeprefix("about ").removesuffix(" more decisions"))

    def passes(more: float) -> bool:
        again = log.take(np.arange(n + int(more)) % n)
        return look(BETTER, LIVE, again, settings, 1)[name].passed

    assert passes(1.3 * needed)
    assert not passes(0.6 * needed)


def test_too_few_effective_people_fail(log):
    line = look(BETTER, LIVE, log.take(slice(0, 3000)), SETTINGS, 1)["effective"]
    assert not line.passed
    assert line.needed.endswith("more decisions")


def test_propensities_that_were_not_drawn_from_fail(log):
    wrong = replace(log, propensity=np.minimum(1.2 * log.propensity, 1.0))
    assert not look(BETTER, LIVE, wrong, SETTINGS, 1)["chance"].passed
