"""Reasons: what holds a person's score down, in the order of how much."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

import consequential as cq
from consequential.policy import NamedFeatures

NAMES = ["income", "debt", "purpose=car", "purpose=tv", "age"]


@pytest.fixture
def people(rng):
    numbers = rng.normal([3.0, 1.0, 40.0], [1.0, 0.5, 9.0], size=(301, 3))
    car = (rng.random(301) < 0.7).astype(float)
    return np.column_stack([numbers[:, :2], car, 1.0 - car, numbers[:, 2]])


@pytest.fixture
def policy(people):
    theta = [0.0, 1.0, -2.0, 0.5, -0.25, 0.0]
    return cq.Policy(theta, feature_names=NAMES, summary=cq.FeatureSummary.of(people, NAMES))


POOR = {"income": 1.0, "debt": 2.0, "purpose": "tv", "age": 20.0}


def test_the_rise_of_a_linear_policy_is_its_weight_times_the_distance(policy):
    income, debt = policy.summary.reference[:2]
    found = policy.reasons(POOR)
    assert {reason.feature: reason.rise for reason in found} == pytest.approx(
        {"income": income - 1.0, "debt": -2.0 * (debt - 2.0), "purpose": 0.75}
    )
    assert [reason.rise for reason in found] == sorted((r.rise for r in found), reverse=True)


def test_words_are_changed_together_and_reported_as_words(policy):
    (reason,) = [each for each in policy.reasons(POOR) if each.feature == "purpose"]
    assert (reason.value, reason.reference) == ("tv", "car")
    assert reason.rise == pytest.approx(0.75)
    assert (
        str(reason)
        == "purpose is tv (car would raise the score by 0.75, the probability to 0.0759)"
    )


def test_a_reason_says_what_the_probability_would_become(policy, people):
    explored = policy.with_floor(0.1)
    income, debt = explored.summary.reference[:2]
    then = {
        "income": [income, 2.0, 0.0, 1.0, 20.0],
        "debt": [1.0, debt, 0.0, 1.0, 20.0],
        "purpose": [1.0, 2.0, 1.0, 0.0, 20.0],
    }
    found = {reason.feature: reason.propensity for reason in explored.reasons(POOR)}
    assert found == pytest.approx(
        {name: explored.propensity([person])[0] for name, person in then.items()}
    )


def test_a_word_never_seen_is_another_word(policy):
    (reason,) = [e for e in policy.reasons(POOR | {"purpose": "boat"}) if e.feature == "purpose"]
    assert (reason.value, reason.reference) == ("another word", "car")
    assert reason.rise == pytest.approx(0.5)


def test_only_what_holds_the_score_down_is_a_reason_and_at_most_so_many(policy):
    rich = {"income": 9.0, "debt": 0.0, "purpose": "car", "age": 20.0}
    assert policy.reasons(rich) == ()
    assert [len(policy.reasons(POOR, most=most)) for most in (0, 1, 2, 9)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "feature_map",
    [
        SplineTransformer(4),
        make_pipeline(StandardScaler(), PolynomialFeatures(2)),
    ],
    ids=["splines", "products"],
)
def test_any_feature_map_is_evaluated_at_the_changed_person(feature_map, people, rng):
    feature_map.fit(people)
    theta = rng.normal(size=feature_map.transform(people[:1]).shape[1] + 1)
    summary = cq.FeatureSummary.of(people, NAMES)
    policy = cq.Policy(theta, "logistic", feature_map, feature_names=NAMES, summary=summary)
    person = people[[7]]
    found = {reason.feature: reason.rise for reason in policy.reasons(person, most=9)}
    for name, places in {"income": [0], "debt": [1], "purpose": [2, 3], "age": [4]}.items():
        changed = person.copy()
        changed[:, places] = summary.reference[places]
        rise = (policy.linear_score(changed) - policy.linear_score(person))[0]
        assert found.get(name, 0.0) == pytest.approx(max(rise, 0.0), abs=1e-12)


def test_a_policy_by_group_needs_the_group(people):
    summary = cq.FeatureSummary.of(people[:, :1], ["income"])
    policy = cq.Policy(
        [0.0, 1.0, 0.0, 3.0], groups=["f", "m"], feature_names=["income"], summary=summary
    )
    distance = summary.reference[0] - 1.0
    for group, weight in {"f": 1.0, "m": 3.0}.items():
        (reason,) = policy.reasons({"income": 1.0}, group)
        assert reason.rise == pytest.approx(weight * distance)
    with pytest.raises(cq.PolicyError, match="pass `sensitive`"):
        policy.reasons({"income": 1.0})


def test_one_person_is_given_as_a_row_of_any_table(policy, people):
    expected = policy.reasons(people[[3]])
    assert policy.reasons(NamedFeatures(people[[3]], NAMES)) == expected
    frame = pd.DataFrame([POOR])
    assert policy.reasons(frame) == policy.reasons(POOR)
    with pytest.raises(cq.PolicyError, match="one person at a time, not for 2"):
        policy.reasons([POOR, POOR])


def test_reasons_survive_a_file(policy):
    again = cq.policy_from_json(cq.policy_to_json(policy))
    assert again.reasons(POOR) == policy.reasons(POOR)


def test_a_policy_without_a_summary_says_what_to_do():
    with pytest.raises(cq.PolicyError, match=r"no summary .* FairPolicyLearner learns has one"):
        cq.Policy([0.0, 1.0]).reasons([[1.0]])
