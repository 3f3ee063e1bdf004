"""Ground truth along runs: what the world itself measures of each of their policies."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.preprocessing import PolynomialFeatures
from tiny_worlds import Districts, small_table

import consequential as cq
from consequential.lab.algorithm.sequences import Iterative
from consequential.lab.simulation.compiled_runs import CompiledRuns
from consequential.lab.simulation.ground_truth import GroundTruth

WORLDS = {
    "first": cq.worlds.first_setting,
    "second": cq.worlds.second_setting,
    "lending": cq.worlds.lending,
    "compas": cq.worlds.compas,
    "districts": Districts,
    "table": small_table,
}
SETTINGS = ["first", "second"]
LINKS = ["logistic", "semi_logistic", "smooth_semi_logistic"]
NOTIONS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalised_odds": "equalised_odds",
    "predictive_parity": "predictive_parity",
    "benefit_parity": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}


@pytest.fixture(scope="module")
def worlds():
    """Worlds by name, each made when a test first asks for it."""
    return cache(lambda name: WORLDS[name]())


def run_along(rule, thetas):
    """Return a run that went through these thetas."""
    thetas = np.asarray(thetas, dtype=float)
    learner = cq.lab.FitPredictor(0.5)
    if isinstance(rule, cq.Policy):
        learner = cq.UpdatePolicy(cq.Objective(0.5), 1, 1)
    runs = CompiledRuns("path", learner, Iterative(), 0, rule, (0.0,), len(thetas) - 1)
    runs.path[0] = thetas
    return runs


def assert_truth_along(world, rule, thetas, notion="demographic_parity", tolerance=1e-9):
    runs, fairness = run_along(rule, thetas), cq.fairness.fairness_named(notion)
    ((found,),) = GroundTruth(world, fairness).measure([runs], map, last_only=False)
    exact = [world.measure(runs.rule(0, step), fairness) for step in range(len(thetas))]
    expected = {
        "utility": [each.utility for each in exact],
        "acceptance": [each.acceptance for each in exact],
        "benefit_gap": [each.benefit_gap for each in exact],
    } | {f"benefit {group}": [each.benefits[group] for each in exact] for group in world.groups}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


def thetas_with_cuts(cuts, slopes):
    return np.array([[-slope * cut, slope] for cut in cuts for slope in slopes])


def cuts_everywhere(world):
    """In the middle of a cell, anywhere in it, on its edge, next to it, and outside of all."""
    low, high = world.bounds
    edges = np.linspace(low, high, 4097)
    width = edges[1] - edges[0]
    inside = edges[1500] + width * np.array([0.0, 1e-9, 0.01, 0.25, 0.5, 0.77, 0.999, 1.0])
    others = np.random.default_rng(0).uniform(low, high, size=4)
    ends = [low, low + width / 3, high - width / 3, high, low - 1.0, high + 1.0]
    return np.concatenate([inside, others, ends])


@pytest.mark.parametrize(
    ("name", "link", "floor"),
    [
        ("first", "logistic", 0.0),
        ("second", "logistic", 0.2),
        ("first", "semi_logistic", 0.2),
        ("second", "semi_logistic", 0.0),
        ("first", "smooth_semi_logistic", 0.0),
        ("second", "smooth_semi_logistic", 0.2),
    ],
)
def test_the_truth_along_a_run_is_what_the_world_measures(worlds, name, link, floor):
    world = worlds(name)
    thetas = thetas_with_cuts(cuts_everywhere(world), (0.7, -1.3))
    assert_truth_along(world, cq.Policy(thetas[0], link, floor=floor), thetas)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("link", LINKS)
def test_the_truth_of_steep_and_flat_policies_is_what_the_world_measures(worlds, name, link):
    world = worlds(name)
    steep = thetas_with_cuts(cuts_everywhere(world)[[3, 13]], (8.0, 60.0, -300.0, 1e7))
    flat = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-700.0, 1.0], [700.0, 1.0], [0.0, 1e-12]]
    assert_truth_along(world, cq.Policy(steep[0], link), [*steep, *flat])


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_truth_knows_every_notion(worlds, notion):
    world = worlds("second")
    thetas = thetas_with_cuts(cuts_everywhere(world)[[3, 9]], (0.7, -1.3, 40.0))
    for link in LINKS:
        assert_truth_along(world, cq.Policy(thetas[0], link), thetas, NOTIONS[notion])


@pytest.mark.parametrize(("name", "threshold"), [("first", 0.1424), ("second", 0.9)])
def test_the_truth_of_thresholds_is_what_the_world_measures(worlds, name, threshold):
    world = worlds(name)
    cuts = cuts_everywhere(world)
    thetas = np.vstack([thetas_with_cuts(cuts, [-50.0]), thetas_with_cuts(cuts[3::6], [0.7, 1e5])])
    thetas = np.vstack([thetas, [[1.0, 0.0], [-5.0, 0.0]]])
    thetas[:, 0] += np.log(threshold / (1 - threshold))
    rule = cq.ThresholdPolicy(cq.logistic_model(thetas[0]), threshold)
    assert_truth_along(world, rule, thetas)


@pytest.mark.parametrize(
    ("link", "notion"),
    [
        ("logistic", "predictive_parity"),
        ("semi_logistic", "demographic_parity"),
        ("smooth_semi_logistic", "predictive_parity"),
    ],
)
def test_the_truth_of_policies_with_a_feature_map_is_what_the_world_measures(worlds, link, notion):
    lending = worlds("lending")
    start = lending.initial_policy(link)
    assert_truth_along(lending, start, [[0.0, 1.0], [-2.0, 0.3], [1.0, 50.0], [0.0, 0.0]], notion)
    squares = PolynomialFeatures(2, include_bias=False).fit([[0.0]])
    thetas = [[0.1, 0.5, -0.2], [-1.0, 2.0, 0.4]]
    assert_truth_along(worlds("second"), cq.Policy(thetas[0], link, squares), thetas, notion)


@pytest.mark.parametrize("link", LINKS)
def test_the_truth_of_policies_by_group_is_what_the_world_measures(worlds, link):
    thetas = np.random.default_rng(0).normal(size=(4, 4))
    assert_truth_along(worlds("second"), cq.Policy(thetas[0], link, groups=(0, 1)), thetas)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_truth_of_gentle_policies_has_twelve_digits(worlds, name):
    world = worlds(name)
    # the steepest that are measured on few nodes, and steeper ones
    steepest = 0.38 * 256 / (world.bounds[1] - world.bounds[0])
    rng = np.random.default_rng(0)
    slopes = steepest * np.concatenate([rng.uniform(-1.0, 1.0, 20), [1.0, -1.0, 1.01, -1.01]])
    thetas = np.stack([rng.normal(size=slopes.size) * 3.0, slopes], axis=1)
    assert_truth_along(world, cq.Policy(thetas[0]), thetas, "predictive_parity", 1e-12)


@pytest.mark.parametrize(
    ("name", "notions"),
    [
        ("compas", ["demographic_parity", "equalised_odds"]),
        ("districts", ["equal_opportunity", "predictive_parity"]),
        ("table", ["benefit_parity", "equalised_odds"]),
    ],
)
def test_the_truth_on_held_out_people_is_what_the_world_measures(worlds, name, notions):
    world = worlds(name)
    m = world.held_out.points.shape[1] + 1
    thetas = np.random.default_rng(0).normal(size=(5, m)) * np.array([[0.1], [1], [3], [30], [0]])
    for notion in notions:
        for link in LINKS:
            assert_truth_along(world, cq.Policy(thetas[0], link), thetas, NOTIONS[notion])
        rule = cq.ThresholdPolicy(cq.logistic_model(thetas[0]), 0.4)
        assert_truth_along(world, rule, thetas[:4], NOTIONS[notion])


class Measured(Districts):
    """A world with a measure of its own."""

    def measure(self, rule, fairness="demographic_parity"):
        return replace(super().measure(rule, fairness), utility=0.25)


def test_a_measure_of_ones_own_is_asked():
    runs = cq.simulate(Measured(), cq.lab.LearnToDecide(), seeds=2, time_steps=2, progress=False)
    assert {value for run in runs.runs for value in run.metrics["utility"]} == {0.25}


@pytest.mark.parametrize("drifts", [False, True])
def test_only_the_last_policies_may_be_measured(drifts):
    world = cq.worlds.drift(steps=2) if drifts else cq.worlds.first_setting()
    fairness = cq.fairness.fairness_named("demographic_parity")
    runs = run_along(cq.Policy([0.0, 1.0]), [[0.0, 1.0], [0.1, 1.0], [0.2, 1.0]])
    truth = GroundTruth(world, fairness)
    ((all_of_them,),) = truth.measure([runs], map, last_only=False)
    ((last,),) = truth.measure([runs], map, last_only=True)
    for name, values in last.items():
        assert np.isnan(values[:-1]).all()
        assert values[-1] == all_of_them[name][-1]
