"""Guardrails: what they say of days and people whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from itertools import product

import numpy as np
import pytest

import consequential as cq
from consequential.service.exports import UNKNOWN
from consequential.service.guardrails import (
    DayCounts,
    acceptance,
    chance,
    drift,
    people_needed,
    utility,
)
from consequential.service.settings import LoopSettings, Number

WORLD = cq.worlds.first_setting()
SETTINGS = LoopSettings(WORLD.cost, {"x0": Number(-9.0, 9.0, "Score")}, 0.1, acceptance=(0.3, 0.5))
NAMES = ["income", "by=car", "by=foot"]


def day(k: int, people: int, accepted: int, p: float = 0.0) -> DayCounts:
    when = str(date(2027, 1, 1) + timedelta(k))
    variance = p * (1.0 - p) * people
    return DayCounts(when, people, accepted, p * people, variance, (1.0 - 2.0 * p) * variance)


def same_days(
    count: int, people: int, accepted: int, p: float = 0.0, start: int = 0
) -> list[DayCounts]:
    return [day(start + k, people, accepted, p) for k in range(count)]


# --- chance


@pytest.mark.parametrize("start", [0, 29])  # within a month, and over the end of one
def test_evidence_against_sound_chance_is_one_on_average(start):
    p, total = (0.1, 0.9, 0.5, 0.3), 0.0
    for drawn in product((0, 1), repeat=4):
        days = [day(start + k, 1, drawn[k], p[k]) for k in range(4)]
        likely = np.prod([q if d else 1.0 - q for d, q in zip(drawn, p, strict=True)])
        total += likely * chance(days).value
    assert 0.9999 < total <= 1.0


def test_evidence_against_a_share_at_its_limit_is_at_most_one_on_average():
    for p in (0.3, 0.4, 0.5):
        total = 0.0
        for drawn in product((0, 1), repeat=4):
            days = [day(29 + k, 1, drawn[k]) for k in range(4)]
            likely = np.prod([p if d else 1.0 - p for d in drawn])
            total += likely * acceptance(days, {}, SETTINGS).value
        assert 0.9 < total <= 1.0


@pytest.mark.parametrize("start", [0, 200])
def test_propensities_logged_a_fifth_too_high_are_found_in_ten_thousand_decisions(start):
    rng = np.random.default_rng(start)
    found = 0
    for _ in range(40):
        days = [day(k, 200, rng.binomial(200, 0.1), 0.1) for k in range(start)]
        days += [day(start + k, 200, rng.binomial(200, 0.1), 0.12) for k in range(50)]
        found += any(chance(days[:k]).broken for k in range(start + 1, start + 51))
    assert found >= 38


def test_a_year_begins_afresh_and_a_broken_one_says_since_when():
    last_year = [replace(each, date=f"2026{each.date[4:]}") for each in same_days(60, 100, 10, 0.5)]
    sound = same_days(60, 100, 50, 0.5)
    assert not chance(last_year + sound).broken
    broken = chance([*sound, *same_days(20, 100, 20, 0.5, start=60)])
    assert broken.broken
    assert broken.sentence.startswith("Since 2027-03-0")


def test_without_a_closed_day_there_is_nothing_to_say():
    with pytest.raises(ValueError, match="no closed day"):
        chance([])


# --- acceptance


def test_a_share_out_of_its_range_alarms_overall_and_by_group():
    inside = same_days(60, 100, 40)
    assert not acceptance(inside, {"a": inside}, SETTINGS).broken
    assert acceptance(same_days(60, 100, 60), {}, SETTINGS).broken
    found = acceptance(inside, {"a": inside, "b": same_days(60, 40, 8)}, SETTINGS)
    assert found.broken
    assert found.sentence == (
        "Since 2027-01-01 20.0% of people in group b were accepted; agreed are 30% to 50%."
    )


def test_groups_that_are_small_or_unknown_raise_no_alarm():
    inside = same_days(60, 100, 40)
    for name, days in (("tiny", same_days(9, 1, 0)), (UNKNOWN, same_days(60, 40, 0))):
        found = acceptance(inside, {name: days}, SETTINGS)
        assert not found.broken
        assert name not in found.sentence


# --- people


def people_of(n: int, rng: np.random.Generator, shift: float = 0.0, car: float = 0.4) -> np.ndarray:
    by_car = rng.random(n) < car
    return np.column_stack([rng.normal(shift, 1.0, n), by_car, ~by_car])


@pytest.fixture(scope="module")
def reference() -> cq.FeatureSummary:
    return cq.FeatureSummary.of(people_of(5000, np.random.default_rng(0)), NAMES)


def broken_features(reference, people) -> list[str]:
    return [found.name for found in drift(reference, people) if found.broken]


def test_a_shifted_population_alarms_on_the_day_it_comes(reference):
    rng = np.random.default_rng(1)
    n = people_needed(reference)
    assert n == 200
    for _ in range(200):
        assert broken_features(reference, people_of(n, rng)) == []
    assert broken_features(reference, people_of(n, rng, shift=0.8)) == ["drift:income"]
    assert broken_features(reference, people_of(n, rng, car=0.7)) == ["drift:by"]


def test_the_index_is_that_of_the_two_distributions(reference):
    people = people_of(200_000, np.random.default_rng(2), car=0.6)
    income, words = drift(reference, people)
    assert income.value < 0.002
    expected = np.array([reference.means[1], reference.means[2]])
    truth = ((np.array([0.6, 0.4]) - expected) * np.log(np.array([0.6, 0.4]) / expected)).sum()
    assert words.value == pytest.approx(truth, abs=0.005)


def test_too_few_people_are_not_judged(reference):
    found = drift(reference, people_of(50, np.random.default_rng(3), shift=3.0))
    assert not any(each.broken for each in found)
    assert found[0].sentence == "Too few people to judge income: 50 of 200."


@pytest.mark.parametrize("values", [2, 5])
def test_features_with_few_values_raise_no_false_alarm(values):
    rng = np.random.default_rng(values)
    reference = cq.FeatureSummary.of(rng.integers(values, size=(5000, 1)), ["children"])
    for _ in range(200):
        assert not broken_features(reference, rng.integers(values, size=(200, 1)))
    assert broken_features(reference, rng.integers(values, size=(200, 1)) + values)


# --- utility


def test_a_live_policy_that_brings_less_than_the_one_before_alarms():
    good, bad = (cq.Policy([-20.0 * x, 20.0], "semi_logistic", floor=0.1) for x in (-0.1, 0.3))
    log = WORLD.collect(bad, 40_000, np.random.default_rng(0))
    found = utility(bad, good, log, SETTINGS)
    truth = WORLD.exact(bad).utility - WORLD.exact(good).utility
    assert found.broken
    assert truth < found.value < 0.0
    assert not utility(good, bad, log, SETTINGS).broken
    lost = log.decision & (np.random.default_rng(1).random(len(log)) < 0.2)
    unsure = replace(log, missing="against", label=np.where(lost, np.nan, log.label))
    assert utility(bad, good, unsure, SETTINGS).value > found.value
