"""`exact` against adaptive quadrature of the paper's formulas, split at the rule's kinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from quadrature import FIRST, SECOND, Moments, Setting, normal, sigma
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

import consequential as cq
from covering import covering

WORLDS = {
    "first": (cq.worlds.first_setting, FIRST),
    "second": (cq.worlds.second_setting, SECOND),
}
NOTIONS: dict[str, cq.fairness.Fairness] = {
    "demographic_parity": cq.fairness.DemographicParity(),
    "equal_opportunity": cq.fairness.EqualOpportunity(),
    "equalised_odds": cq.fairness.EqualisedOdds(),
    "predictive_parity": cq.fairness.PredictiveParity(),
    "correctness": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}


@cache
def world_named(name: str) -> cq.worlds.ScoreWorld:
    return WORLDS[name][0]()


@dataclass(frozen=True)
class Case:
    """A rule, the same rule as plain functions (one a group), and where they are not smooth."""

    rule: cq.DecisionRule
    plain: tuple[Callable[[float], float], Callable[[float], float]]
    kinks: tuple[float, ...] = ()
    tolerance: float = 1e-11


def alike(rule, plain, kinks=(), tolerance=1e-11) -> Case:
    return Case(rule, (plain, plain), tuple(kinks), tolerance)


def linear(theta: np.ndarray, squash: Callable[[float], float]) -> Callable[[float], float]:
    intercept, slope = theta.tolist()
    return lambda x: squash(intercept + slope * x)


def semi(eta: float) -> float:
    return 1.0 if eta >= 0 else sigma(eta)


def smooth(eta: float) -> float:
    return min(1.0, 2 * sigma(eta))


def tree_with_jumps_at(edges: tuple[float, ...]) -> DecisionTreeClassifier:
    """Predict 0 up to the first edge, then 1 and 0 in turn."""
    # a point close to each edge on either side puts the tree's cuts on the edges
    points = np.sort([edge + side for edge in edges for side in (-(2.0**-6), 2.0**-6)])
    label = (np.arange(len(points)) + 1) // 2 % 2
    return DecisionTreeClassifier().fit(points[:, None], label)


@cache
def cases(name: str) -> dict[str, Case]:
    world = world_named(name)
    start = world.initial_policy().theta
    cut = -start[0] / start[1]
    # multiples of 1/32: the tree works in single precision, and these it holds exactly
    edges = {"first": (-0.53125, -0.21875, 0.09375, 0.5), "second": (-2.5, 1.25, 3.0625, 5.5)}[name]
    tree = tree_with_jumps_at(edges)
    below, above = edges[1], edges[2]

    def in_band(x: float) -> float:
        return float(below <= x < above)

    by_group = cq.Policy([*start, 0.3, -2.0], "semi_logistic", groups=(0, 1))
    return {
        "logistic": alike(cq.Policy(start), linear(start, sigma)),
        "steep logistic": alike(cq.Policy(30 * start), linear(30 * start, sigma), [cut]),
        "falling logistic": alike(cq.Policy(-start), linear(-start, sigma)),
        "semi-logistic": alike(cq.Policy(start, "semi_logistic"), linear(start, semi), [cut]),
        "falling semi-logistic": alike(
            cq.Policy(-start, "semi_logistic"), linear(-start, semi), [cut]
        ),
        # a kink is no jump and is not cut at: some error of the order of a cell squared remains
        "smooth semi-logistic": alike(
            cq.Policy(start, "smooth_semi_logistic"), linear(start, smooth), [cut], 1e-8
        ),
        "logistic with a floor": alike(
            cq.Policy(start, floor=0.2), lambda x: 0.2 + 0.8 * linear(start, sigma)(x)
        ),
        "semi-logistic with a floor": alike(
            cq.Policy(start, "semi_logistic").with_floor(0.5),
            lambda x: 0.5 + 0.5 * linear(start, semi)(x),
            [cut],
        ),
        "feature map": alike(
            cq.Policy(
                [0.4, -0.5, -0.8],
                "semi_logistic",
                PolynomialFeatures(2, include_bias=False).fit([[0.0]]),
            ),
            lambda x: semi(0.4 - 0.5 * x - 0.8 * x * x),
            np.roots([-0.8, -0.5, 0.4]),
        ),
        "threshold": alike(
            cq.ThresholdPolicy(cq.logistic_model([-cut, 1.0]), 0.5),
            lambda x: float(x >= cut),
            [cut],
        ),
        "tree": alike(
            cq.ThresholdPolicy(tree, 0.5),
            lambda x: float(np.searchsorted(edges, x) % 2),
            edges,
            1e-6,  # the tree rounds scores to single precision, so its jumps are some 1e-7 off
        ),
        "tree with a floor": alike(
            cq.ThresholdPolicy(tree, 0.5).with_floor(0.1),
            lambda x: 0.1 + 0.9 * (np.searchsorted(edges, x) % 2),
            edges,
            1e-6,
        ),
        "mixture": alike(
            cq.Mixture([cq.Policy(start), cq.AcceptAll()], [0.75, 0.25]),
            lambda x: 0.25 + 0.75 * linear(start, sigma)(x),
        ),
        "mixture of semi-logistic": alike(
            cq.Mixture([cq.Policy(start, "semi_logistic"), cq.AcceptAll()], [0.75, 0.25]),
            lambda x: 0.25 + 0.75 * linear(start, semi)(x),
            [cut],
        ),
        "piecewise": alike(
            cq.worlds.PiecewisePolicy(
                np.array([below, above]), np.array([[0.0], [1.0], [0.0]]), (0, 1)
            ),
            in_band,
            [below, above],
        ),
        "by group": Case(
            by_group,
            (linear(start, semi), lambda x: semi(0.3 - 2.0 * x)),
            (cut, 0.15),
        ),
        "piecewise by group": Case(
            cq.worlds.PiecewisePolicy(
                np.array([below, above]), np.array([[0.0, 0.7], [1.0, 0.2], [0.3, 0.9]]), (0, 1)
            ),
            (
                lambda x: 0.0 if x < below else 1.0 if x < above else 0.3,
                lambda x: 0.7 if x < below else 0.2 if x < above else 0.9,
            ),
            (below, above),
        ),
        "mixture by group": Case(
            cq.Mixture([by_group, cq.AcceptAll()], [0.5, 0.5]),
            (
                lambda x: 0.5 + 0.5 * linear(start, semi)(x),
                lambda x: 0.5 + 0.5 * semi(0.3 - 2.0 * x),
            ),
            (cut, 0.15),
        ),
    }


@cache
def truth(world: str, rule: str) -> Moments:
    case = cases(world)[rule]
    return WORLDS[world][1].moments(case.plain, case.kinks)


SOME_RULES = [
    "logistic",
    "semi-logistic with a floor",
    "tree",
    "by group",
    "piecewise by group",
]


@pytest.mark.parametrize("world", WORLDS)
def test_utility_and_acceptance_are_the_integrals(world):
    for rule, case in cases(world).items():
        found, known = world_named(world).exact(case.rule), truth(world, rule)
        assert found.utility == pytest.approx(known.utility, abs=case.tolerance), rule
        assert found.acceptance == pytest.approx(known.acceptance, abs=case.tolerance), rule


@pytest.mark.parametrize(
    ("world", "rule", "notion"), covering(list(WORLDS), SOME_RULES, list(NOTIONS))
)
def test_benefits_and_their_gap_are_those_of_the_definition(world, rule, notion):
    case, known = cases(world)[rule], truth(world, rule).benefits(notion)
    found = world_named(world).exact(case.rule, NOTIONS[notion])
    tolerance = 10 * case.tolerance  # shares of a group magnify
    assert found.benefits == pytest.approx(dict(enumerate(known[0])), abs=tolerance)
    gap = max((values[0] - values[1] for values in known), key=abs)
    assert found.benefit_gap == pytest.approx(gap, abs=tolerance)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_to_measure_is_to_be_exact(world, notion):
    rule = cases(world)["by group"].rule
    known_world = world_named(world)
    assert known_world.measure(rule, notion) == known_world.exact(rule, notion)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rule", ["logistic", "tree", "by group"])
def test_the_mass_of_the_points_sums_to_one_and_groups_have_equal_shares(world, rule):
    people = world_named(world).population_for(cases(world)[rule].rule)
    assert people.mass.sum(axis=0) == pytest.approx([0.5, 0.5], abs=1e-12)
    assert people.mass.min() >= 0


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("closer_to", [None, -0.3, 0.8])
def test_cells_carry_all_the_mass_at_increasing_scores(world, closer_to):
    people = world_named(world).cells(500, closer_to)
    assert people.mass.sum(axis=0) == pytest.approx([0.5, 0.5], abs=1e-12)
    assert (np.diff(people.points[:, 0]) > 0).all()
    assert len(people.points) >= 500
    if closer_to is not None:
        near = np.abs(people.points[:, 0] - closer_to) < 2.1 * 60 / 500
        assert near.sum() > 200


@pytest.mark.parametrize("world", WORLDS)
def test_exact_follows_a_jump_as_it_moves(world):
    """Between two cuts a hair apart lie just the people between them."""
    known_world, setting = world_named(world), WORLDS[world][1]
    step, cut = 1e-6, 0.123
    low, high = (
        known_world.exact(cq.Policy([-1e9 * x, 1e9], "semi_logistic")).acceptance
        for x in (cut, cut + step)
    )
    density = sum(f(cut) for f in setting.densities) / 2
    assert (low - high) / step == pytest.approx(density, rel=1e-4)


def test_a_narrow_band_of_acceptance_is_not_overlooked():
    world, setting = world_named("second"), WORLDS["second"][1]
    low, high = -0.31, -0.29
    band = cq.worlds.PiecewisePolicy(np.array([low, high]), np.array([[0.0], [1.0], [0.0]]), (0, 1))
    inside = lambda x: float(low <= x < high)  # noqa: E731
    known = setting.moments((inside, inside), (low, high)).acceptance
    assert world.exact(band).acceptance == pytest.approx(known, abs=1e-5)


@pytest.mark.parametrize("world", WORLDS)
def test_a_small_jump_costs_less_than_four_digits_show(world):
    """Jumps below .02 are not cut at; a third of a cell's mass can go astray, times the jump."""
    known_world, setting = world_named(world), WORLDS[world][1]
    rule = lambda x: 0.985 + 0.015 * (x >= 0.123)  # noqa: E731
    known = setting.moments((rule, rule), (0.123,))
    policy = cq.Policy([-0.123e9, 1e9], "semi_logistic", floor=0.985)
    found = known_world.exact(policy)
    assert found.utility == pytest.approx(known.utility, abs=2e-5)
    assert found.acceptance == pytest.approx(known.acceptance, abs=2e-5)


class Triangles(cq.worlds.DensityWorld):
    """Three groups on [0, 2] with densities that only need to be right up to scale."""

    cost = 0.4
    bounds = (0.0, 2.0)
    n_groups = 3

    def density(self, score):
        return np.column_stack([score, 7.0 * (2.0 - score), np.ones_like(score)])

    def score_probability(self, score):
        return score / 2.0

    def propose(self, n, rng):
        raise NotImplementedError


def test_a_density_world_of_ones_own_with_three_groups_is_integrated_exactly():
    """Accepting from 1 on: acceptance 3/4, 1/4, 1/2; with label 1: 7/12, 1/6, 3/8."""
    world = Triangles()
    truth = world.exact(cq.ThresholdPolicy(cq.logistic_model([-1.0, 1.0]), 0.5))
    assert world.groups == (0, 1, 2)
    assert truth.benefits == pytest.approx({0: 3 / 4, 1: 1 / 4, 2: 1 / 2}, abs=1e-12)
    assert truth.benefit_gap == pytest.approx(1 / 2, abs=1e-12)
    assert truth.acceptance == pytest.approx(1 / 2, abs=1e-12)
    positives = (7 / 12 + 1 / 6 + 3 / 8) / 3
    assert truth.utility == pytest.approx(positives - 0.4 / 2, abs=1e-12)


def test_in_a_density_world_groups_can_have_cuts_of_their_own():
    policy = cq.Policy([-0.5e9, 1e9, -1e9, 1e9, -1.5e9, 1e9], "semi_logistic", groups=(0, 1, 2))
    truth = Triangles().exact(policy)
    assert truth.benefits == pytest.approx({0: 15 / 16, 1: 1 / 4, 2: 1 / 4}, abs=1e-9)


def test_the_quadrature_itself_knows_a_normal_distribution():
    """The reference is checked where the answer is in every table."""
    setting = Setting(0.5, (-40.0, 40.0), (normal(0, 1), normal(0, 1)), lambda x: 0.25)
    known = setting.moments((lambda x: float(x >= 1.0),) * 2, [1.0])
    assert known.acceptance == pytest.approx(0.158655253931457, abs=1e-12)
    assert known.utility == pytest.approx(-0.25 * 0.158655253931457, abs=1e-12)
