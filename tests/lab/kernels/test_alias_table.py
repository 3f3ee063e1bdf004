"""Alias tables to draw people from, against the distributions they stand for.

A table's table is a distribution itself, so most of it is compared by expectation. Cells are of
some width w where the score is continuous; tolerances are of second order in it. Samples are
within five standard errors, with fixed seeds.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

import consequential as cq
from consequential.lab.kernels.alias_table import FEATURES, GROUP, alias_table, draw_proposals
from consequential.lab.kernels.step import StepPeople
from consequential.lab.simulation.replay import Proposals, fill_proposals
from consequential.lab.worlds.synthetic import FirstSetting, SecondSetting

SETTINGS = {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}
TABLES = {
    "compas": cq.worlds.compas,
    "compas by sex": lambda: cq.worlds.compas(sensitive="sex"),
    "german": cq.worlds.german,
    "german by age": lambda: cq.worlds.german(sensitive="age"),
}
LENDING = {
    "lending": cq.worlds.lending,
    "lending, four groups": lambda: cq.worlds.lending(
        {"asian": 0.1, "black": 0.3, "hispanic": 0.2, "white": 0.4}
    ),
}
WORLDS = SETTINGS | TABLES | LENDING
KEEP, ALIAS, LABEL, CHANGE = 0, 1, 3, 4


@cache
def world_named(name):
    return WORLDS[name]()


def score_of(name, group):
    """The score's distribution, from scipy."""
    if name == "first":
        mean = 0.5 - group
        return truncnorm(-0.8 - mean, 0.8 - mean, loc=mean, scale=1.0)
    return norm(loc=3 * (0.5 - group), scale=3.5)


def masses(table):
    """The probability of each cell, from what the draw looks up."""
    n = len(table.cells)
    keep, alias = table.cells[:, KEEP], table.cells[:, ALIAS].astype(int)
    return (keep + np.bincount(alias, 1.0 - keep, n)) / n


def in_group(table, group):
    """A group's cells with their masses, which sum to one."""
    here = table.cells[:, GROUP] == group
    mass = masses(table)[here]
    return table.cells[here], mass / mass.sum()


def drawn(table, n, key=1):
    features, group, label = np.empty((table.n_features, n)), np.empty(n, np.int16), np.empty(n)
    draw_proposals(table, np.uint64(key), 0, features, group, label, np.empty(0))
    return features, group, label


# --- the table


@pytest.mark.parametrize("name", WORLDS)
def test_a_tables_masses_are_probabilities(name):
    table = world_named(name).alias_table
    assert_allclose(masses(table).sum(), 1.0, rtol=1e-12)
    keep, alias = table.cells[:, KEEP], table.cells[:, ALIAS]
    assert ((keep >= 0) & (keep <= 1)).all()
    assert_array_equal(np.unique(np.clip(alias, 0, len(alias) - 1)), np.unique(alias))
    label, change = table.cells[:, LABEL], table.cells[:, CHANGE]
    for chance in (label, label + change):
        assert chance.min() >= 0.0
        assert chance.max() <= 1.0 + 1e-15


@pytest.mark.parametrize("weights", ["even", "uneven", "with empty cells", "all in one", "alone"])
def test_a_lookup_table_has_the_masses_it_was_made_from(weights):
    rng = np.random.default_rng(0)
    mass = {
        "even": np.ones(1001),
        "uneven": rng.lognormal(sigma=5.0, size=1000),
        "with empty cells": rng.random(500) * (rng.random(500) < 0.3),
        "all in one": np.eye(64)[17],
        "alone": np.array([3.0]),
    }[weights]
    table = alias_table(
        mass, np.zeros((len(mass), 1)), np.zeros(len(mass), int), np.zeros(len(mass))
    )
    assert_allclose(masses(table), mass / mass.sum(), rtol=1e-9, atol=1e-13)
    # nobody is in an empty cell
    assert_allclose(masses(table)[mass == 0.0], 0.0, atol=0.0)


# --- the paper's settings


@pytest.mark.parametrize("name", SETTINGS)
def test_a_settings_groups_are_equally_large(name):
    table = world_named(name).alias_table
    share = np.bincount(table.cells[:, GROUP].astype(int), masses(table))
    assert_allclose(share, [0.5, 0.5], rtol=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("group", [0, 1])
def test_a_settings_scores_have_their_distribution(name, group):
    table, score = world_named(name).alias_table, score_of(name, group)
    cells, mass = in_group(table, group)
    low, width = cells[:, FEATURES], table.width
    assert (np.diff(low) > 0).all()
    # at the cells' edges, where uniform places within cells do not matter
    assert_allclose(np.cumsum(mass), score.cdf(low + width), rtol=0.0, atol=1e-7)
    assert_allclose(mass @ (low + width / 2), score.mean(), rtol=0.0, atol=1e-7)
    square = mass @ (low**2 + low * width + width**2 / 3)
    # uniform places add w^2 / 12
    assert_allclose(square, score.var() + score.mean() ** 2, rtol=0.0, atol=width**2 / 6)
    third = mass @ (((low + width) ** 4 - low**4) / (4 * width))
    assert_allclose(third, score.moment(3), rtol=0.0, atol=width**2 * 2)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("group", [0, 1])
def test_a_settings_cells_have_their_densities(name, group):
    table, score = world_named(name).alias_table, score_of(name, group)
    cells, mass = in_group(table, group)
    low, width = cells[:, FEATURES], table.width
    unit = 1.0 if name == "first" else 3.5
    near = np.abs(low - (0.5 - group) * (1.0 if name == "first" else 3.0)) < 4 * unit
    places, weights = np.polynomial.legendre.leggauss(4)
    inside = low[near, None] + width * (places + 1) / 2
    exact = width * score.pdf(inside) @ weights / 2
    # the midpoint rule is off by (w / sigma)^2 (t^2 - 1) / 24, t deviations from the mean
    assert_allclose(mass[near], exact, rtol=(width / unit) ** 2 * 16 / 24)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("group", [0, 1])
def test_a_settings_labels_have_their_rates(name, group):
    world = world_named(name)
    table, score = world.alias_table, score_of(name, group)
    cells, mass = in_group(table, group)

    def chance(x):
        return float(world.score_probability(np.array([x]))[0])

    def integral(f):
        # the curve of the second setting falls steeply at 3
        low, high = world.bounds
        cuts = np.unique(np.clip([low, -12, -3, 0, 2, 3, 4, 8, 15, high], low, high))
        parts = [quad(f, a, b, epsabs=1e-12, epsrel=1e-12)[0] for a, b in pairwise(cuts)]
        return sum(parts)

    low, change, width = cells[:, FEATURES], cells[:, CHANGE], table.width
    rate = mass @ (cells[:, LABEL] + change / 2)
    assert_allclose(rate, integral(lambda x: chance(x) * score.pdf(x)), rtol=0.0, atol=2e-6)
    # x and y together: E[x y] with both linear in the place within a cell
    product = mass @ (low * cells[:, LABEL] + (low * change + width * cells[:, LABEL]) / 2
                      + width * change / 3)  # fmt: skip
    exact = integral(lambda x: x * chance(x) * score.pdf(x))
    assert_allclose(product, exact, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_settings_label_probabilities_are_right_within_each_cell(name):
    world = world_named(name)
    table = world.alias_table
    for place in (0.0, 0.25, 0.5, 0.99):
        score = table.cells[:, FEATURES] + place * table.width
        chance = table.cells[:, LABEL] + place * table.cells[:, CHANGE]
        assert_allclose(chance, world.score_probability(score), rtol=0.0, atol=2e-5)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("notion", ["demographic_parity", "equalised_odds", "predictive_parity"])
def test_what_a_policy_gains_from_a_table_is_what_the_world_says(name, notion):
    world = world_named(name)
    table, policy = world.alias_table, world.initial_policy("logistic")
    mass, cells = masses(table), table.cells
    group = cells[:, GROUP].astype(int)
    utility, accepted, right = 0.0, np.zeros(2), np.zeros(2)
    wrong, positives = np.zeros(2), np.zeros(2)
    places, weights = np.polynomial.legendre.leggauss(4)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        chance = cells[:, LABEL] + place * cells[:, CHANGE]
        pi = policy.propensity(cells[:, FEATURES, None] + place * table.width)
        utility += weight * (mass * pi) @ (chance - world.cost)
        accepted += np.bincount(group, weight * mass * pi)
        right += np.bincount(group, weight * mass * pi * chance)
        wrong += np.bincount(group, weight * mass * pi * (1 - chance))
        positives += np.bincount(group, weight * mass * chance)
    truth = world.measure(policy, notion)
    gap = {
        "demographic_parity": -np.diff(2 * accepted),
        "equalised_odds": max(
            (-np.diff(right / positives), -np.diff(wrong / (0.5 - positives))), key=abs
        ),
        "predictive_parity": -np.diff(right / accepted),
    }[notion]
    assert_allclose(utility, truth.utility, rtol=0.0, atol=1e-5)
    assert_allclose(accepted.sum(), truth.acceptance, rtol=0.0, atol=1e-5)
    assert_allclose(gap, truth.benefit_gap, rtol=0.0, atol=2e-5)


# --- worlds whose people are discrete


@pytest.mark.parametrize("name", LENDING)
def test_lendings_table_is_its_table(name):
    world = world_named(name)
    table, exact = world.alias_table, world.cells(0)
    assert table.width == 0.0
    mass = masses(table).reshape(len(world.groups), -1)
    assert_allclose(mass.T, exact.mass, rtol=1e-9, atol=1e-15)
    label = table.cells[:, LABEL].reshape(mass.shape)
    assert_array_equal(label.T, exact.label_probability)
    score = table.cells[:, FEATURES].reshape(mass.shape)
    assert_array_equal(score.T, np.repeat(exact.points, len(world.groups), axis=1))
    assert_array_equal(table.cells[:, CHANGE], 0.0)


def test_lendings_groups_have_the_shares_asked_for():
    world = world_named("lending, four groups")
    table = world.alias_table
    share = np.bincount(table.cells[:, GROUP].astype(int), masses(table))
    assert world.groups == ("asian", "black", "hispanic", "white")
    assert_allclose(share, [0.1, 0.3, 0.2, 0.4], rtol=1e-12)


@pytest.mark.parametrize("name", TABLES)
def test_the_table_of_a_data_set_is_its_training_rows(name):
    world = world_named(name)
    table, rows, data = world.alias_table, world.training_rows, world.table
    assert table.width == 0.0
    assert_allclose(masses(table), 1 / len(rows), rtol=1e-12)
    assert_array_equal(table.cells[:, FEATURES:], data.features[rows])
    assert_array_equal(table.cells[:, GROUP], data.group[rows])
    assert_array_equal(table.cells[:, LABEL], data.label[rows])
    assert_array_equal(table.cells[:, CHANGE], 0.0)


# --- people drawn


@pytest.mark.parametrize("name", WORLDS)
def test_people_drawn_are_like_the_table(name):
    table, n = world_named(name).alias_table, 200_000
    features, group, label = drawn(table, n)
    mass, cells = masses(table), table.cells
    for z in range(len(world_named(name).groups)):
        here = cells[:, GROUP] == z
        share, own = mass[here].sum(), mass[here] / mass[here].sum()
        count = (group == z).sum()
        assert abs(count / n - share) < 5 * np.sqrt(share * (1 - share) / n)
        rate = own @ (cells[here, LABEL] + cells[here, CHANGE] / 2)
        error = np.sqrt(rate * (1 - rate) / count)
        assert abs(label[group == z].mean() - rate) < 5 * error
        for k in range(table.n_features):
            place = table.width / 2 if k == 0 else 0.0
            column, x = features[k, group == z], cells[here, FEATURES + k] + place
            mean = own @ x
            error = np.sqrt(own @ (x - mean) ** 2 / count)
            assert abs(column.mean() - mean) <= 5 * error + 1e-12
            # x and y together
            both = own @ (x * (cells[here, LABEL] + cells[here, CHANGE] / 2))
            found = column * label[group == z]
            assert abs(found.mean() - both) <= 5 * found.std() / np.sqrt(count) + 1e-4 * place


@pytest.mark.parametrize("name", SETTINGS)
def test_people_drawn_are_like_the_worlds_own(name):
    world, n = world_named(name), 200_000
    features, group, label = drawn(world.alias_table, n)
    own = world.people(n, np.random.default_rng(1))
    edges = np.quantile(own.features[:, 0], np.linspace(0, 1, 21)[1:-1])
    for z in world.groups:
        counts = [
            np.bincount(np.searchsorted(edges, x[g == z]), minlength=20)
            for x, g in ((features[0], group), (own.features[:, 0], own.group))
        ]
        error = np.sqrt(np.maximum(counts[0] + counts[1], 1))
        assert (np.abs(counts[0] - counts[1]) < 5 * error).all()
    bins = np.searchsorted(edges, features[0]), np.searchsorted(edges, own.features[:, 0])
    for each in range(20):
        ours, theirs = label[bins[0] == each], own.label[bins[1] == each]
        error = np.sqrt(ours.var() / ours.size + theirs.var() / theirs.size)
        assert abs(ours.mean() - theirs.mean()) < 5 * error


def test_people_of_the_first_setting_stay_within_its_bounds():
    features, *_ = drawn(world_named("first").alias_table, 100_000)
    assert features.min() >= -0.8
    assert features.max() <= 0.8
    assert len(np.unique(features)) > 99_000  # a place of their own, not their cell's


@pytest.mark.parametrize("name", TABLES)
def test_people_of_a_table_are_rows_of_it(name):
    world = world_named(name)
    features, group, label = drawn(world.alias_table, 2000)
    rows, table = world.training_rows, world.table
    known = {
        (*table.features[row].tolist(), int(table.group[row]), float(table.label[row]))
        for row in rows
    }
    found = zip(features.T.tolist(), group.tolist(), label.tolist(), strict=True)
    assert {(*x, z, y) for x, z, y in found} <= known


def test_equal_keys_bring_equal_people_and_other_keys_others():
    table = world_named("second").alias_table
    one, again, other = (drawn(table, 100, key)[0] for key in (1, 1, 2))
    assert_array_equal(one, again)
    assert len(np.intersect1d(one, other)) == 0


def test_a_step_of_a_run_and_its_log_have_the_same_people():
    world, n = world_named("second"), 50
    features, group, label = np.empty((1, n)), np.empty(n, np.int16), np.empty(n)
    fill_proposals(world, 4, 7, StepPeople(features, group, label, np.empty(0)))
    rng = np.random.default_rng(0)
    log = Proposals(world, 4).collect(cq.AcceptAll(), n, rng, time_step=7)
    assert_array_equal(log.features, features.T)
    assert_array_equal(log.group, group)
    assert_array_equal(log.label, label)


# --- who is drawn from a table


class Shifted(SecondSetting):
    """Other people come."""

    def propose(self, n, rng):
        features, group = super().propose(n, rng)
        return features + 100.0, group


class Lucky(SecondSetting):
    """The same people, who all repay."""

    def label_probability(self, features, sensitive):
        return np.ones(len(features))


class Doubled(cq.worlds.TableWorld):
    """A table whose people come in another way."""

    def people(self, n, rng):
        people = super().people(n, rng)
        return cq.worlds.People(2 * people.features, people.group, people.label)


class Renamed(SecondSetting):
    """Nothing changes in how people come."""

    name = "renamed"


class Calibrated(SecondSetting):
    """Another curve, which the table follows."""

    def score_probability(self, score):
        return 1 / (1 + np.exp(-score))


class OwnCrowd(Shifted):
    """Other people, and a table of them."""

    def as_alias_table(self):
        return alias_table(np.ones(2), np.array([[7.0], [8.0]]), np.array([0, 1]), np.ones(2))


def proposed(world, n=20):
    rng = np.random.default_rng(0)
    return Proposals(world, 0).collect(cq.AcceptAll(), n, rng, time_step=0)


def test_a_subclass_with_other_people_is_not_drawn_from_its_parents_table():
    assert Shifted().alias_table is None
    assert proposed(Shifted()).features.min() > 50.0


def test_a_subclass_with_other_labels_is_not_drawn_from_its_parents_table():
    assert Lucky().alias_table is None
    assert_array_equal(proposed(Lucky()).label, 1.0)


def test_a_table_whose_people_come_in_another_way_is_not_drawn_from_its_rows():
    world = Doubled([[1.0], [3.0]] * 10, [0, 1] * 10, [0, 1] * 10, cost=0.5)
    assert world.alias_table is None
    assert set(proposed(world).features[:, 0]) == {2.0, 6.0}


@pytest.mark.parametrize("method", ["propose", "label_probability", "people", "decided", "collect"])
def test_any_change_of_how_people_come_leaves_the_table_behind(method):
    parent = FirstSetting

    def changed(self, *args, **options):
        return getattr(parent, method)(self, *args, **options)

    assert type("Changed", (parent,), {method: changed})().alias_table is None
    grandchild = type("Grandchild", (type("Changed", (parent,), {method: changed}),), {})
    assert grandchild().alias_table is None


def test_a_subclass_whose_people_come_as_before_is_drawn_from_the_table():
    assert_array_equal(Renamed().alias_table.cells, world_named("second").alias_table.cells)


def test_a_table_follows_a_curve_of_ones_own():
    table = Calibrated().alias_table
    assert_allclose(table.cells[:, LABEL], 1 / (1 + np.exp(-table.cells[:, FEATURES])), rtol=1e-12)


def test_a_table_of_ones_own_is_drawn_from():
    assert set(proposed(OwnCrowd()).features[:, 0]) == {7.0, 8.0}


def test_a_world_of_two_methods_has_no_table():
    class Coins(cq.worlds.World):
        cost = 0.5

        def propose(self, n, rng):
            return rng.random((n, 1)), rng.integers(2, size=n)

        def label_probability(self, features, sensitive):
            return features[:, 0]

    assert Coins().alias_table is None
