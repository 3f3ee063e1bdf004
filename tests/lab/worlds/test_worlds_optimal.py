"""`optimal` against solvers that know nothing of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from finite_scores import FiniteScores, Programme, random_scores
from quadrature import FIRST, SECOND, Setting
from scipy.optimize import brentq, minimize_scalar

import consequential as cq
from consequential.evaluation import Population
from covering import covering

NOTIONS: dict[str, cq.fairness.Fairness] = {
    "demographic_parity": cq.fairness.DemographicParity(),
    "equal_opportunity": cq.fairness.EqualOpportunity(),
    "equalised_odds": cq.fairness.EqualisedOdds(),
    "correctness": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}
SETTINGS = {
    "first": (cq.worlds.first_setting, FIRST),
    "second": (cq.worlds.second_setting, SECOND),
}


@cache
def world_named(name: str) -> cq.worlds.ScoreWorld:
    return SETTINGS[name][0]()


@cache
def scores(n_groups: int) -> FiniteScores:
    return random_scores(n_points=10, n_groups=n_groups, seed=n_groups)


def variables(world: FiniteScores, best: cq.worlds.Optimum, uses_sensitive: bool) -> np.ndarray:
    table = world.people_there.propensity(best.policy)
    return table.ravel() if uses_sensitive else table[:, 0]


# A handful of scores: every propensity in one linear programme


@pytest.mark.parametrize(
    ("n_groups", "notion", "uses_sensitive", "max_gap"),
    covering([2, 3, 4], list(NOTIONS), [False, True], [0.0, 0.05]),
)
def test_with_a_bound_on_gaps_no_propensities_do_better(n_groups, notion, uses_sensitive, max_gap):
    world = scores(n_groups)
    programme = Programme.of(world.people_there, world.cost, notion, uses_sensitive)
    best = world.optimal(max_gap, fairness=NOTIONS[notion], uses_sensitive=uses_sensitive)
    assert best.utility == pytest.approx(programme.best(max_gap), abs=1e-7)
    assert programme.gaps(variables(world, best, uses_sensitive)).max() <= max_gap + 1e-7


@pytest.mark.parametrize(
    ("n_groups", "notion", "uses_sensitive", "penalty"),
    covering([2, 3], list(NOTIONS), [False, True], [1.0, 30.0]),
)
def test_under_a_penalty_no_propensities_do_better(n_groups, notion, uses_sensitive, penalty):
    world = scores(n_groups)
    programme = Programme.of(world.people_there, world.cost, notion, uses_sensitive)
    best = world.optimal(penalty=penalty, fairness=NOTIONS[notion], uses_sensitive=uses_sensitive)
    value = programme.penalised(variables(world, best, uses_sensitive), penalty)
    assert value == pytest.approx(programme.best(penalty=penalty), abs=1e-6)


def test_a_bound_and_a_penalty_can_be_had_together():
    world, penalty, max_gap = scores(4), 0.3, 0.12
    programme = Programme.of(world.people_there, world.cost, "demographic_parity", True)
    best = variables(world, world.optimal(max_gap, penalty, uses_sensitive=True), True)
    assert programme.gaps(best).max() <= max_gap + 1e-7
    value = programme.penalised(best, penalty)
    assert value == pytest.approx(programme.best(max_gap, penalty), abs=1e-6)
    # both matter here: neither alone gives this policy
    bounded = variables(world, world.optimal(max_gap, uses_sensitive=True), True)
    punished = variables(world, world.optimal(penalty=penalty, uses_sensitive=True), True)
    assert programme.penalised(bounded, penalty) < value - 1e-5
    assert programme.gaps(punished).max() > max_gap + 1e-3


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_the_policy_has_the_metrics_that_the_optimum_states(notion, uses_sensitive):
    world = scores(3)
    best = world.optimal(0.05, fairness=NOTIONS[notion], uses_sensitive=uses_sensitive)
    truth = world.exact(best.policy, NOTIONS[notion])
    assert truth.utility == pytest.approx(best.utility, abs=1e-12)
    assert truth.acceptance == pytest.approx(best.acceptance, abs=1e-12)
    assert truth.benefit_gap == pytest.approx(best.benefit_gap, abs=1e-12)
    assert truth.benefits == pytest.approx(best.benefits, abs=1e-12)
    assert best.threshold is None
    assert best.policy.uses_sensitive is uses_sensitive


def test_with_one_group_there_is_no_gap_to_bound():
    world = random_scores(n_points=8, n_groups=1, seed=4)
    people = world.people_there
    gain = (people.mass * (people.label_probability - world.cost)).ravel()
    for best in (world.optimal(), world.optimal(0.0), world.optimal(penalty=100.0)):
        assert best.utility == pytest.approx(gain[gain > 0].sum(), abs=1e-9)
        assert best.benefit_gap == 0.0


# The synthetic settings: by duality, and where the label's probability crosses the cost


@pytest.mark.parametrize("name", SETTINGS)
def test_without_fairness_the_best_policy_accepts_exactly_where_the_label_is_worth_it(name):
    world, setting = world_named(name), SETTINGS[name][1]
    starts = {"first": [(-0.7, 0.7)], "second": [(-6.0, 0.0), (0.0, 4.0), (4.0, 9.0)]}[name]
    crossings = [brentq(lambda x: setting.label(x) - setting.cost, *pair) for pair in starts]

    def worth_it(x: float) -> float:
        return float(setting.label(x) >= setting.cost)

    known = setting.moments((worth_it, worth_it), crossings)
    best = world.optimal()
    assert best.utility == pytest.approx(known.utility, abs=1e-7)
    assert best.acceptance == pytest.approx(known.acceptance, abs=1e-3)
    assert best.policy.edges == pytest.approx(crossings, abs=2e-3)
    assert best.policy.propensities[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0][: len(crossings) + 1]


class Dual:
    """The least upper bound on utility over prices of the gap.

    For every price mu, `max over pi of u - mu gap` plus what the price can cost bounds the best
    utility: `|mu| max_gap` for a bound on the gap, `mu^2 / (2 lambda)` for a penalty. The best
    price makes the bound tight.
    """

    def __init__(self, setting: Setting, notion: str) -> None:
        edges = np.linspace(*setting.support, 30_001)
        middles, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
        label = np.array([setting.label(x) for x in middles])
        mass = np.array([[f(x) for f in setting.densities] for x in middles]) * width / 2
        positive = mass * label[:, None]
        self.gain = positive - setting.cost * mass
        counted = mass if notion == "demographic_parity" else positive
        self.gap = counted / counted.sum(axis=0) * [1.0, -1.0]

    def bound(self, uses_sensitive: bool, max_gap: float | None, penalty: float) -> float:
        def at(price: float) -> float:
            worth = self.gain - price * self.gap
            if not uses_sensitive:
                worth = worth.sum(axis=1)
            price_of_gap = abs(price) * max_gap if max_gap is not None else price**2 / (2 * penalty)
            return float(np.maximum(worth, 0).sum()) + price_of_gap

        return float(minimize_scalar(at, bounds=(-3, 3), options={"xatol": 1e-9}).fun)


@cache
def dual(name: str, notion: str) -> Dual:
    return Dual(SETTINGS[name][1], notion)


@pytest.mark.parametrize(
    ("name", "notion", "uses_sensitive", "max_gap"),
    covering(
        list(SETTINGS), ["demographic_parity", "equal_opportunity"], [False, True], [0.0, 0.05]
    ),
)
def test_in_the_settings_a_bounded_gap_costs_what_duality_says(
    name, notion, uses_sensitive, max_gap
):
    best = world_named(name).optimal(max_gap, fairness=notion, uses_sensitive=uses_sensitive)
    bound = dual(name, notion).bound(uses_sensitive, max_gap, 0.0)
    assert best.utility == pytest.approx(bound, abs=2e-6)
    assert abs(best.benefit_gap) <= max_gap + 1e-7


@pytest.mark.parametrize(
    ("name", "uses_sensitive", "penalty"),
    covering(list(SETTINGS), [False, True], [1.0, 10.0]),
)
def test_in_the_settings_a_penalty_costs_what_duality_says(name, uses_sensitive, penalty):
    best = world_named(name).optimal(penalty=penalty, uses_sensitive=uses_sensitive)
    bound = dual(name, "demographic_parity").bound(uses_sensitive, None, penalty)
    assert best.utility - penalty / 2 * best.benefit_gap**2 == pytest.approx(bound, abs=2e-6)


@pytest.mark.parametrize(
    ("name", "notion", "uses_sensitive", "max_gap"),
    [
        ("first", "demographic_parity", True, 0.0),
        ("first", "equalised_odds", True, 0.05),
        ("second", "demographic_parity", False, 0.05),
        ("second", "equal_opportunity", True, 0.05),
    ],
)
def test_integrated_exactly_the_best_policy_is_as_good_as_stated(
    name, notion, uses_sensitive, max_gap
):
    """The best policy is found on 65 536 cells; the integral over the score says the same."""
    world = world_named(name)
    best = world.optimal(max_gap, fairness=notion, uses_sensitive=uses_sensitive)
    truth = world.exact(best.policy, notion)
    assert truth.utility == pytest.approx(best.utility, abs=2e-5)
    assert truth.acceptance == pytest.approx(best.acceptance, abs=1e-4)
    assert truth.benefit_gap == pytest.approx(best.benefit_gap, abs=1e-4)
    assert truth.benefits == pytest.approx(best.benefits, abs=1e-4)


# How optima relate


@pytest.mark.parametrize("notion", ["demographic_parity", "equalised_odds"])
@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_a_wider_bound_never_costs_utility_and_a_wide_one_costs_nothing(notion, uses_sensitive):
    world = scores(3)
    bounds = [0.0, 0.02, 0.1, 0.3, 1.0]
    found = [
        world.optimal(max_gap, fairness=notion, uses_sensitive=uses_sensitive).utility
        for max_gap in bounds
    ]
    assert np.diff(found).min() >= -1e-9
    assert found[0] < found[-1] - 1e-3
    free = world.optimal(fairness=notion, uses_sensitive=uses_sensitive)
    assert found[-1] == pytest.approx(free.utility, abs=1e-9)


@pytest.mark.parametrize("max_gap", [0.0, 0.05, None])
@pytest.mark.parametrize("notion", NOTIONS)
def test_using_the_sensitive_attribute_never_hurts(notion, max_gap):
    world = scores(2)
    without, with_it = (
        world.optimal(max_gap, fairness=NOTIONS[notion], uses_sensitive=use).utility
        for use in (False, True)
    )
    assert with_it > without + 1e-4  # groups' labels differ at equal scores, so it helps


@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_equalised_odds_ask_for_more_than_equal_opportunity(uses_sensitive):
    world = scores(3)
    odds, opportunity = (
        world.optimal(0.02, fairness=notion, uses_sensitive=uses_sensitive).utility
        for notion in ("equalised_odds", "equal_opportunity")
    )
    assert odds < opportunity - 1e-3


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(lambda: scores(2), marks=pytest.mark.slow),
        lambda: scores(3),
        pytest.param(lambda: world_named("first"), marks=pytest.mark.slow),
        pytest.param(lambda: world_named("second"), marks=pytest.mark.slow),
    ],
    ids=["two groups", "three groups", "first", "second"],
)
@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_a_growing_penalty_leads_to_the_best_policy_without_a_gap(world, uses_sensitive):
    world = world()
    fair = world.optimal(0.0, uses_sensitive=uses_sensitive).utility
    found = [world.optimal(penalty=x, uses_sensitive=uses_sensitive) for x in (1.0, 10.0, 1000.0)]
    assert np.diff([best.utility for best in found]).max() < 0
    assert np.diff([abs(best.benefit_gap) for best in found]).max() < 0
    assert found[-1].utility == pytest.approx(fair, abs=2e-4)
    assert abs(found[-1].benefit_gap) < 1e-3


@pytest.mark.parametrize("penalty", [1e6, 1e7])
def test_a_huge_penalty_still_leaves_the_utility_of_the_best_policy_without_a_gap(penalty):
    world = scores(2)
    fair = world.optimal(0.0, uses_sensitive=True).utility
    found = world.optimal(penalty=penalty, uses_sensitive=True)
    assert found.utility == pytest.approx(fair, abs=1e-4)


# Single thresholds


def cuts_by_hand(people: Population, cost: float, notion: str):
    """Utility and benefits of accepting the last k points, for every k."""
    positives = people.mass * people.label_probability
    for first in range(len(people.points) + 1):
        accepted, good = people.mass[first:].sum(axis=0), positives[first:].sum(axis=0)
        bad, total = accepted - good, people.mass.sum(axis=0)
        with np.errstate(invalid="ignore"):
            benefits = {
                "demographic_parity": [accepted / total],
                "equal_opportunity": [good / positives.sum(axis=0)],
                "equalised_odds": [
                    good / positives.sum(axis=0),
                    bad / (people.mass - positives).sum(axis=0),
                ],
                "predictive_parity": [good / accepted],
            }[notion]
        yield first, float((good - cost * accepted).sum()), np.array(benefits)


@pytest.mark.parametrize(
    ("n_groups", "notion", "asked"),
    covering(
        [2, 3],
        ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"],
        [(None, 0.0), (0.15, 0.0), (None, 2.0), (0.2, 1.0)],
    ),
)
def test_no_other_single_threshold_does_better(n_groups, notion, asked):
    max_gap, penalty = asked
    people = scores(n_groups).people_there
    world = FiniteScores(people, cost=0.3)
    value = {}
    for first, utility, benefits in cuts_by_hand(people, world.cost, notion):
        gaps = np.nan_to_num(np.ptp(benefits, axis=1))
        spread = np.nan_to_num(benefits - benefits.mean(axis=1, keepdims=True))
        if max_gap is None or gaps.max() <= max_gap:
            value[first] = utility - penalty * (spread**2).sum()
    best = world.optimal(max_gap, penalty, notion, among="thresholds")
    winner = max(value, key=value.get)
    accepted = people.points[:, 0] >= best.threshold
    assert accepted.tolist() == (np.arange(len(people.points)) >= winner).tolist()
    assert accepted.any()
    truth = world.exact(best.policy, notion)
    assert truth.utility == pytest.approx(best.utility, abs=1e-12)
    assert truth.benefit_gap == pytest.approx(best.benefit_gap, abs=1e-12)


@pytest.mark.parametrize("max_gap", [None, 0.02, 0.10])
@pytest.mark.parametrize("name", SETTINGS)
def test_in_the_settings_a_dense_scan_finds_no_better_threshold(name, max_gap):
    world, setting = world_named(name), SETTINGS[name][1]
    grid = dual(name, "demographic_parity")
    utility = np.cumsum(grid.gain.sum(axis=1)[::-1])[::-1]
    gap = np.cumsum(grid.gap.sum(axis=1)[::-1])[::-1]
    allowed = np.ones(len(gap), dtype=bool) if max_gap is None else np.abs(gap) <= max_gap
    best = world.optimal(max_gap, among="thresholds")
    cell = (setting.support[1] - setting.support[0]) / len(gap)
    assert best.utility == pytest.approx(utility[allowed].max(), abs=cell)
    truth = world.exact(best.policy)
    assert (truth.utility, truth.benefit_gap) == pytest.approx(
        (best.utility, best.benefit_gap), abs=1e-7
    )


@pytest.mark.parametrize(
    "scale",
    [
        0.1,
        1000.0,
    ],
)
def test_where_everybody_costs_more_than_they_bring_the_best_threshold_accepts_nobody(scale):
    people = scores(2).people_there
    world = FiniteScores(replace(people, points=scale * people.points), cost=0.999)
    best = world.optimal(among="thresholds")
    assert (best.utility, best.acceptance) == (0.0, 0.0)
    assert best.threshold > world.people_there.points.max()
    assert world.exact(best.policy).acceptance == 0.0


# Errors


def positives_only(d: int, y: int) -> float:
    """A benefit that no decision changes: groups differ in it whatever a policy does."""
    return float(y)


@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_a_bound_that_no_policy_keeps_is_an_error_that_names_it(uses_sensitive):
    notion = cq.fairness.BenefitParity(positives_only)
    world = world_named("first")
    wide = world.exact(cq.AcceptAll(), notion).benefit_gap
    assert world.optimal(wide + 1e-6, fairness=notion).utility > 0
    with pytest.raises(ValueError, match=r"no policy keeps every gap within 0\.01"):
        world.optimal(0.01, fairness=notion, uses_sensitive=uses_sensitive)


def test_a_bound_that_no_threshold_keeps_is_an_error_that_names_it():
    notion = cq.fairness.BenefitParity(positives_only)
    with pytest.raises(ValueError, match=r"no threshold keeps every gap within 0\.01"):
        world_named("first").optimal(0.01, fairness=notion, among="thresholds")


@pytest.mark.parametrize("max_gap", [-0.1, float("nan")])
@pytest.mark.parametrize("among", ["all", "thresholds"])
def test_a_bound_that_is_no_bound_is_an_error_that_says_so(max_gap, among):
    with pytest.raises(ValueError, match="max_gap"):
        scores(2).optimal(max_gap, among=among)


def test_a_solver_that_runs_out_of_rounds_says_so(monkeypatch):
    monkeypatch.setattr("consequential.lab.worlds.optimum._MOST_ROUNDS", 1)
    with pytest.raises((RuntimeError, ValueError, UserWarning)):
        scores(3).optimal(0.0, uses_sensitive=True)


def test_a_benefit_in_small_units_can_be_bounded_too():
    world = world_named("first")
    known = world.optimal(0.02).utility
    pennies = cq.fairness.BenefitParity(lambda d, y: 1e-4 * d)
    assert world.optimal(0.02e-4, fairness=pennies).utility == pytest.approx(known, abs=1e-6)


def test_the_bound_holds_between_the_groups_whose_predictive_value_is_defined():
    people = Population(
        points=np.array([[0.0], [1.0], [2.0]]),
        mass=np.array([[0.1, 0.1, 0.2], [0.1, 0.1, 0.0], [0.2, 0.2, 0.0]]),
        label_probability=np.array([[0.1, 0.1, 0.1], [0.6, 0.55, 0.5], [0.95, 0.7, 0.5]]),
        groups=("a", "b", "c"),
    )
    best = FiniteScores(people).optimal(0.05, fairness="predictive_parity", among="thresholds")
    assert best.benefit_gap <= 0.05


@pytest.mark.parametrize("penalty", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("among", ["all", "thresholds"])
def test_a_penalty_that_is_no_penalty_is_an_error_that_says_so(penalty, among):
    with pytest.raises(ValueError, match="penalty"):
        scores(2).optimal(penalty=penalty, among=among)


def test_predictive_parity_over_all_policies_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r'predictive_parity is a ratio.*use among="thresholds"'):
        scores(2).optimal(0.1, fairness="predictive_parity")


def test_single_thresholds_cannot_use_the_sensitive_attribute():
    with pytest.raises(ValueError, match="single thresholds do not use the sensitive attribute"):
        scores(2).optimal(among="thresholds", uses_sensitive=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"among": "lines"}, "among is 'all' or 'thresholds', not 'lines'"),
        ({"fairness": "kindness"}, "unknown fairness notion 'kindness'"),
    ],
)
def test_unknown_names_are_errors_that_list_the_known_ones(arguments, message):
    with pytest.raises(ValueError, match=message):
        scores(2).optimal(**arguments)


# PiecewisePolicy

EDGES, TABLE = np.array([0.0, 1.0]), np.array([[0.1, 0.2], [0.5, 0.6], [0.9, 1.0]])


def test_a_stretch_begins_with_its_edge():
    policy = cq.worlds.PiecewisePolicy(EDGES, TABLE[:, :1], ("a", "b"))
    assert policy.propensity([[-5.0], [0.0], [0.99], [1.0], [7.0]]).tolist() == [
        0.1,
        0.5,
        0.5,
        0.9,
        0.9,
    ]
    assert not policy.uses_sensitive


def test_groups_have_stretches_of_their_own():
    policy = cq.worlds.PiecewisePolicy(EDGES, TABLE, ("a", "b"))
    assert policy.uses_sensitive
    assert policy.propensity([[-1.0], [0.5], [0.5]], ["b", "a", "b"]).tolist() == [0.2, 0.5, 0.6]


def test_a_piecewise_policy_that_needs_the_sensitive_attribute_asks_for_it():
    policy = cq.worlds.PiecewisePolicy(EDGES, TABLE, ("a", "b"))
    with pytest.raises(ValueError, match="uses the sensitive attribute: pass `sensitive`"):
        policy.propensity([[0.0]])
    with pytest.raises(cq.PolicyError, match="unknown sensitive group 'c'"):
        policy.propensity([[0.0]], ["c"])


def test_a_piecewise_policy_decides_with_its_propensities(rng):
    policy = cq.worlds.PiecewisePolicy(EDGES, TABLE, ("a", "b"))
    decisions = policy.decide(np.full((10_000, 1), 0.5), np.full(10_000, "b"), rng=rng)
    assert decisions.mean() == pytest.approx(0.6, abs=4 * np.sqrt(0.24 / 10_000))
