"""Patterns: people with equal features, in a world that no curve or product explains."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.lab.algorithm.patterns import Patterns
from consequential.policy.features import row_keys


class Parity(cq.worlds.World):
    """Three flags; label 1 is likely where an odd number of them is raised."""

    cost = 0.5

    def propose(self, n, rng):
        flags = (rng.random((n, 3)) < 0.5).astype(float)
        return flags, flags[:, 0].astype(int)

    def label_probability(self, features, sensitive):
        return np.where(features.sum(axis=1) % 2 == 1, 0.7, 0.4)


def learned(explore="sampling", **options):
    world = Parity()
    steps = cq.consequential_learning(
        world,
        cq.Policy([0.0, 0.0, 0.0, 0.0]),
        cq.lab.FitPosterior(world.cost, explore=explore, **options),
        time_steps=12,
        n_proposals=1000,
        rng=np.random.default_rng(0),
    )
    return list(steps)[-1].learned


@pytest.mark.parametrize("explore", ["sampling", "optimistic", "pseudo_labels"])
def test_what_no_curve_explains_is_learned_where_people_return(explore):
    odd = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    policy = learned(explore)
    assert len(policy.patterns) == 8
    assert policy.propensity(odd).min() > 0.95
    assert policy.propensity(1.0 - odd).max() < 0.05


def test_patterns_can_be_left_out():
    assert len(learned(patterns=False).patterns) == 0


def test_a_bound_on_the_gap_counts_patterns_as_the_policy_does():
    notion = cq.fairness.fairness_named("demographic_parity")
    policy = learned(fairness=notion, max_gap=0.02)
    assert abs(Parity().measure(policy).benefit_gap) < 0.04


def test_people_who_never_return_have_no_patterns():
    people = np.random.default_rng(0).normal(size=(500, 2))
    assert Patterns.among(people) is None
    assert Patterns.among(people.round()) is not None


def test_counts_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    people = rng.integers(3, size=(200, 2)).astype(float)
    labelled, labels = rng.random(200) < 0.5, rng.integers(2, size=200).astype(float)
    known = Patterns.among(people)
    for half in (slice(0, 60), slice(60, 200)):
        known.add(people[half], people[half], labelled[half], labels[half])
    for k, pattern in enumerate(known.features):
        own = (people == pattern).all(axis=1)
        assert known.n_people[k] == own.sum()
        assert known.n_labels[k] == (own & labelled).sum()
        assert known.n_positive[k] == labels[own & labelled].sum()
    known.forget()
    assert_array_equal(known.n_labels, 0.0)


def test_rows_are_equal_where_their_numbers_are():
    keys = row_keys(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]))
    assert keys[0] == keys[1] != keys[2]


def test_a_person_never_met_is_judged_by_the_average_over_effects():
    """Log-odds m with a normal effect of variance v have the mean probability of the logistic."""
    known = Patterns(np.zeros((0, 1)))
    known.add(np.zeros((1, 1)), np.zeros((1, 2)), np.array([False]), np.zeros(1))
    known.variance, known.deviation = 4.0, np.ones(1)
    policy = cq.PosteriorPolicy(cq.Policy([0.0, 1.0]), np.zeros((2, 2)), 0.6)
    mean = np.linspace(-3.0, 3.0, 7)
    draws = mean[:, None] + 2.0 * np.random.default_rng(0).normal(size=50_000)
    average = (1.0 / (1.0 + np.exp(-draws))).mean(axis=1)
    found = known.put_into(policy, certain=False).model.propensity(mean[:, None])
    assert_allclose(found, average, atol=0.02)
