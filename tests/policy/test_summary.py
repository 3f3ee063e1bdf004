"""Summaries: what people were like, and made-up people who are none of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import consequential as cq

NAMES = ["income", "purpose=car", "purpose=tv", "purpose=home", "debt"]


@pytest.fixture
def people(rng):
    words = np.eye(3)[rng.choice(3, p=[0.2, 0.3, 0.5], size=501)]
    income, debt = rng.normal(3.0, 1.0, 501), rng.normal(1.0, 1.0, 501)
    return np.column_stack([income, words, debt])


def test_the_reference_is_the_median_and_the_commonest_word(people):
    summary = cq.FeatureSummary.of(people, NAMES)
    expected = [np.median(people[:, 0]), 0.0, 0.0, 1.0, np.median(people[:, 4])]
    assert_array_equal(summary.reference, expected)


def test_quantiles_are_values_that_people_have(people):
    summary = cq.FeatureSummary.of(people, NAMES)
    assert (np.diff(summary.quantiles, axis=0) >= 0.0).all()
    for k in range(len(NAMES)):
        assert set(summary.quantiles[:, k]) <= set(people[:, k])
    below = (people[:, 0] < summary.quantiles[0, 0]).mean()
    assert below == pytest.approx(0.05, abs=0.003)


def test_made_up_people_have_one_word_each_and_are_nobody_learned_from(people):
    summary = cq.FeatureSummary.of(people, NAMES)
    made_up = summary.made_up_people(12)
    assert made_up.shape == (12, 5)
    assert_array_equal(made_up[:, 1:4].sum(axis=1), np.ones(12))
    assert (made_up[:, 1:4].sum(axis=0) > 0).all()
    assert_array_equal(made_up, summary.made_up_people(12))
    assert len(np.unique(made_up, axis=0)) >= 10
    real = {tuple(person) for person in people}
    assert not real & {tuple(person) for person in made_up}


def test_of_many_people_a_part_is_looked_at(monkeypatch):
    people = np.arange(5.0)[:, None]
    assert_array_equal(cq.FeatureSummary.of(people, ["x0"]).quantiles[:, 0], [0, 1, 2, 3, 4])
    monkeypatch.setattr("consequential.policy.summary._LOOKED_AT", 3)  # every second
    assert set(cq.FeatureSummary.of(people, ["x0"]).quantiles[:, 0]) == {0.0, 2.0, 4.0}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((["a"], [0.0, 1.0], [[0.0]], [0.0]), "reference, quantiles and a mean for each feature"),
        ((["a"], [0.0], [[0.0, 1.0]], [0.0]), "reference, quantiles and a mean for each feature"),
        (
            (["a"], [0.0], np.empty((0, 1)), [0.0]),
            "reference, quantiles and a mean for each feature",
        ),
        ((["a"], [np.nan], [[0.0]], [0.0]), "must be finite"),
        ((["a"], [0.0], [[np.inf]], [0.0]), "must be finite"),
        ((["a"], [0.0], [[0.0]], [np.inf]), "must be finite"),
        ((["a"], [0.0], [[0.0]], [0.0, 1.0]), "for each feature"),
    ],
)
def test_a_summary_that_cannot_be_is_refused(values, words):
    with pytest.raises(cq.PolicyError, match=words):
        cq.FeatureSummary(*values)


def test_means_are_kept():
    summary = cq.FeatureSummary.of(
        [[1.0, 1, 0], [2.0, 0, 1], [9.0, 0, 1]], ["income", "by=car", "by=foot"]
    )
    assert_array_equal(summary.means, [4.0, 1 / 3, 2 / 3])
    assert_array_equal(cq.FeatureSummary(**summary.to_dict()).means, summary.means)


def test_a_learned_policy_has_a_summary_of_its_log(rng):
    n = 400
    features = rng.normal(size=(n, 2))
    decision = rng.random(n) < 0.5
    label = np.where(decision, features[:, 0] > rng.normal(size=n), np.nan)
    log = cq.DecisionLog.from_arrays(
        features, decision, np.full(n, 0.5), label, feature_names=["income", "debt"]
    )
    policy = cq.FairPolicyLearner(cost=0.5).fit_log(log).policy_
    assert policy.summary.names == ("income", "debt")
    assert policy.with_floor(0.1).summary is policy.summary
    again = cq.policy_from_json(cq.policy_to_json(policy))
    assert_array_equal(again.summary.quantiles, policy.summary.quantiles)
