"""The paper's propositions, run. docs/theorems.md tells them with figures."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from toy_learners import (
    Hopeful,
    KeepWhatPays,
    LearnByBoosting,
    LearnByPerceptron,
    Lucky,
    best_cut_by_inverse_propensity,
    estimate,
    fit_to_population,
    ridge_with_folds,
)
from toy_worlds import Ladder, Plateaus, cut_at, induced, value, where_it_cuts

import consequential as cq
from consequential.lab.worlds import Optimum, PiecewisePolicy, ScoreWorld

FIRST, SECOND, LENDING = "first", "second", "lending"


@cache
def world_named(name: str) -> ScoreWorld:
    makers = {
        FIRST: cq.worlds.first_setting,
        SECOND: cq.worlds.second_setting,
        LENDING: cq.worlds.lending,
    }
    return makers[name]()


@cache
def optimum(name: str, penalty: float = 0.0, fair: bool = False) -> Optimum:
    """The best policy; `fair` has no gap at all and may use the sensitive attribute."""
    world = world_named(name)
    if fair:
        return world.optimal(max_gap=0.0, uses_sensitive=True)
    return world.optimal(penalty=penalty)


def paper_start(name: str) -> cq.ThresholdPolicy:
    """The deterministic rule that the paper's initial model gives."""
    world = world_named(name)
    theta = world.initial_theta(np.random.default_rng(0))
    return cq.ThresholdPolicy(cq.logistic_model(theta), world.cost)


# Proposition 1 [K20: limitation]


class Only(cq.DecisionRule):
    """What one rule accepts and another would accept as well."""

    def __init__(self, rule: cq.DecisionRule, inside: cq.DecisionRule) -> None:
        self.rule, self.inside = rule, inside

    def propensity(self, features, sensitive=None):
        return self.rule.propensity(features) * self.inside.propensity(features)


def random_rule(scores: np.ndarray, rng: np.random.Generator) -> PiecewisePolicy:
    """Accept some of twelve stretches of the score; the lowest ends below the middle."""
    edges = np.sort(rng.uniform(scores.min(), scores.max(), size=11))
    accepts = rng.integers(2, size=(12, 1)).astype(float)
    accepts[0] = 1.0
    return PiecewisePolicy(edges, accepts, (0, 1))


HARSH = [pytest.param(FIRST, 0.24, id="first"), pytest.param(LENDING, 700.0, id="lending")]
PENALTIES = (0.0, 1.0, 10.0)


@pytest.mark.parametrize(("name", "harsh"), HARSH)
def test_what_a_predictor_says_outside_does_not_change_the_objective_it_maximises(name, harsh, rng):
    world, start, parity = world_named(name), cut_at(harsh), cq.fairness.DemographicParity()
    everybody = world.population_for(start)
    seen = induced(everybody, start)
    for _ in range(10):
        rule = random_rule(everybody.points, rng)
        cropped = Only(rule, start)
        there = [seen.metrics(r, world.cost, parity) for r in (rule, cropped)]
        truth = [everybody.metrics(r, world.cost, parity) for r in (rule, cropped)]
        for penalty in PENALTIES:
            first, second = (value(metrics, penalty) for metrics in there)
            assert first == pytest.approx(second, abs=1e-12)
            first, second = (value(metrics, penalty) for metrics in truth)
            assert abs(first - second) > 1e-4  # the truth does see the difference


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(("name", "harsh"), HARSH)
def test_rejecting_everybody_outside_maximises_the_induced_objective_and_is_not_optimal(
    name, harsh, penalty
):
    world, start = world_named(name), cut_at(harsh)
    everybody = world.population_for(start)
    seen = induced(everybody, start)
    # no rule gains more than from all who are worth it, or has a smaller gap than none
    ceiling = (seen.mass * np.maximum(seen.label_probability - world.cost, 0.0)).sum()
    on_seen = seen.metrics(start, world.cost, cq.fairness.DemographicParity())
    assert value(on_seen, penalty) == pytest.approx(ceiling, abs=1e-12)
    best = value(world.exact(optimum(name, penalty).policy), penalty)
    assert value(world.exact(start), penalty) < best - 0.015


@pytest.mark.parametrize(
    ("harsh", "n", "seeds"),
    [
        (650.0, 10_000, 1),
        (700.0, 10_000, 1),
        (700.0, 100_000, 1),
        pytest.param(650.0, 100_000, 5, marks=pytest.mark.slow),
    ],
)
def test_a_harsh_start_in_lending_leaves_the_predictor_useless_with_ten_times_the_data_too(
    harsh, n, seeds
):
    # among people who all repay, every ridge is as accurate as the next and the strongest wins
    for seed in range(seeds):
        assert lending_example(harsh, "accuracy", n, seed) < 0.0


@pytest.mark.parametrize(
    ("n", "seeds"),
    [
        (10_000, 5),
        pytest.param(10_000, 24, marks=pytest.mark.slow),
        pytest.param(100_000, 8, marks=pytest.mark.slow),
    ],
)
def test_a_harsh_start_loses_half_on_average_where_the_ridge_is_chosen_by_likelihood(n, seeds):
    # a lottery: single runs range from accept-all (-.026) to nearly the optimum (.143)
    learned = [lending_example(750.0, "neg_log_loss", n, seed) for seed in range(seeds)]
    assert np.mean(learned) < 0.5 * optimum(LENDING).utility


def lending_example(initial: float, scoring: str, n: int, seed: int) -> float:
    """True utility of the rule learned from n applicants above an initial threshold."""
    world, start = world_named(LENDING), cut_at(initial)
    log = world.collect(start, n, np.random.default_rng(seed))
    learner = cq.lab.FitPredictor(world.cost, ridge_with_folds(scoring))
    return world.exact(learner(start, log, rng=np.random.default_rng(0)).policy).utility


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
def test_a_lenient_start_in_lending_lets_the_same_predictor_be_nearly_optimal(scoring):
    assert lending_example(525.0, scoring, 10_000, seed=0) > optimum(LENDING).utility - 0.001


@pytest.mark.parametrize(
    ("name", "start", "loss"),
    [
        (LENDING, 650.0, 0.004),
        (LENDING, 700.0, 0.015),
        (LENDING, 750.0, 0.130),
        (FIRST, "the paper's", 0.018),
    ],
)
def test_unlimited_data_from_a_harsh_start_do_not_help(name, start, loss):
    world = world_named(name)
    start = paper_start(name) if start == "the paper's" else cut_at(start)
    learned = fit_to_population(induced(world.population_for(start), start), world.cost)
    assert world.exact(learned).utility < optimum(name).utility - loss


@pytest.mark.parametrize("n", [32_768, 327_680])
def test_the_first_setting_s_start_leaves_the_predictor_short_with_ten_times_the_data_too(n):
    world, start = world_named(FIRST), paper_start(FIRST)
    log = world.collect(start, n, np.random.default_rng(0))
    learned = cq.lab.FitPredictor(world.cost)(start, log, rng=np.random.default_rng(0)).policy
    assert 0.155 < world.exact(learned).utility < 0.162  # of .178


def test_one_exploring_log_with_inverse_propensities_finds_nearly_the_best_cut_in_lending():
    world = cq.worlds.lending(initial_threshold=700.0)
    start = world.initial_policy("logistic")
    for seed in range(10):
        log = world.collect(start, 10_000, np.random.default_rng(seed))
        found = best_cut_by_inverse_propensity(log, world.cost)
        assert world.exact(found).utility > world.optimal().utility - 0.006


# Proposition 2 [K20: impossibility]


@pytest.mark.parametrize(
    ("name", "start"), [(FIRST, 0.24), (SECOND, 6.17), (LENDING, 650.0)], ids=str
)
def test_a_learner_that_never_looks_outside_only_ever_rejects_more(name, start):
    world = world_named(name)
    points = world.cells(1000).points
    best = world.optimal(among="thresholds").policy
    assert (cut_at(start).propensity(points) <= best.propensity(points)).all()  # stricter
    stuck = world.exact(cut_at(start)).utility
    assert stuck < optimum(name).utility - 0.013
    grew = 0
    for seed in range(20):
        steps = cq.consequential_learning(
            world,
            cut_at(start),
            KeepWhatPays(world.cost),
            time_steps=6,
            n_proposals=500,
            rng=np.random.default_rng(seed),
        )
        for step in steps:
            before, after = (r.propensity(points) for r in (step.policy, step.learned))
            assert (after <= before).all()
            grew += int((after < before).any())
        # everybody it accepted was worth accepting, so every step it took was for the worse
        assert world.exact(step.learned).utility <= stuck
    assert grew > 15  # of 120 steps: it does move


def final_rules(world, start, learner, *, runs: int, time_steps: int, n_proposals: int):
    for seed in range(runs):
        steps = cq.consequential_learning(
            world,
            start,
            learner,
            time_steps=time_steps,
            n_proposals=n_proposals,
            rng=np.random.default_rng(seed),
        )
        yield list(steps)[-1].learned


@pytest.mark.parametrize(
    ("chances", "runs"),
    [((0.12, 0.02, 0.02, 0.08, 0.0, 0.05), 300), ((0.0,) * 6, 30)],
    ids=["accidents", "none"],
)
def test_the_luckiest_accidents_reach_the_optimum_no_more_often_than_they_happen(chances, runs):
    world = Ladder()
    best = cut_at(world.best)
    rules = final_rules(
        world, cut_at(3.0), Lucky(best, chances), runs=runs, time_steps=6, n_proposals=1
    )
    reached = np.mean([rule is best for rule in rules])
    exactly = 1.0 - np.prod(1.0 - np.array(chances))
    standard_error = np.sqrt(exactly * (1.0 - exactly) / runs)
    assert exactly <= sum(chances)  # with no accident at all both are 0: the bound is attained
    assert reached == pytest.approx(exactly, abs=4 * standard_error)
    assert reached <= sum(chances) + 4 * standard_error


def test_accidents_of_the_data_reach_the_optimum_no_more_often_than_the_bound_says():
    world, runs, n, time_steps = Ladder(), 300, 40, 6
    down, too_far = world.no_default(2, n), world.no_default(1, n)
    exactly = sum(
        (1 - down) ** t * down * (1 - too_far) ** (time_steps - 1 - t) for t in range(time_steps)
    )
    bound = time_steps * down  # delta_t: going down from rung 2, where every run starts
    assert exactly < bound < 0.35
    rules = final_rules(
        world, cut_at(2.0), Hopeful(), runs=runs, time_steps=time_steps, n_proposals=n
    )
    reached = np.mean([where_it_cuts(rule) == world.best for rule in rules])
    standard_error = np.sqrt(exactly * (1 - exactly) / runs)
    assert reached == pytest.approx(exactly, abs=4 * standard_error)
    assert reached <= bound + 4 * standard_error


@pytest.mark.parametrize(
    ("name", "cut", "utility"), [(FIRST, 0.2185, 0.1596), (SECOND, 5.2007, 0.0222)]
)
def test_refitting_on_unlimited_data_stands_still_short_of_the_optimum(name, cut, utility):
    world, rule = world_named(name), paper_start(name)
    for _ in range(16):
        rule = fit_to_population(induced(world.population_for(rule), rule), world.cost)
    assert where_it_cuts(rule) == pytest.approx(cut, abs=1e-4)
    assert world.exact(rule).utility == pytest.approx(utility, abs=5e-5)
    assert utility < optimum(name).utility - 0.015


@pytest.mark.parametrize(
    ("time_steps", "seeds"), [(8, 1), pytest.param(60, 5, marks=pytest.mark.slow)]
)
def test_the_deterministic_strategy_settles_around_where_unlimited_data_stand_still(
    time_steps, seeds
):
    world, strategy = world_named(FIRST), cq.lab.LearnToPredict("iterative")
    cuts, utilities = [], []
    for seed in range(seeds):
        steps = cq.consequential_learning(
            world,
            strategy.start(world, np.random.default_rng(0)),
            strategy.learner(world, cq.fairness.DemographicParity(), 0.0),
            time_steps=time_steps,
            n_proposals=world.parameters.n_proposals,
            rng=np.random.default_rng(seed),
        )
        late = [step.learned for step in steps][time_steps // 2 :]
        cuts += [where_it_cuts(rule) for rule in late]
        utilities += [world.exact(rule).utility for rule in late]
    # one fit's cut has a standard deviation of about .007; neighbouring steps are correlated
    assert np.mean(cuts) == pytest.approx(0.2185, abs=0.03 / np.sqrt(seeds))
    assert np.mean(utilities) == pytest.approx(0.1596, abs=0.002 / np.sqrt(seeds))
    assert max(utilities) < optimum(FIRST).utility - 0.015


def test_a_fit_that_accepts_everybody_by_mistake_has_explored_and_the_next_is_nearly_optimal():
    # the proposition's condition matters: this update is not non-exploring
    world = cq.worlds.lending(initial_threshold=750.0)
    steps = cq.consequential_learning(
        world,
        cut_at(750.0),
        cq.lab.FitPredictor(world.cost),
        time_steps=2,
        n_proposals=4096,
        rng=np.random.default_rng(0),
    )
    mistaken, mended = (world.exact(step.learned) for step in steps)
    assert mistaken.acceptance > 0.99
    assert mistaken.utility < 0.0
    assert mended.utility > world.optimal().utility - 0.002


# Its corollary [K20: error-based]


def steep_start(score: float) -> cq.ThresholdPolicy:
    return cq.ThresholdPolicy(cq.logistic_model([-20.0 * score, 20.0]), 0.5)


ERROR_BASED = [
    pytest.param(LearnByPerceptron(), LearnByPerceptron.start, id="perceptron"),
    pytest.param(LearnByBoosting(), LearnByBoosting.start, id="boosted trees"),
    pytest.param(cq.lab.FitPredictor(Plateaus.cost), steep_start, id="FitPredictor"),
]
GRID = np.linspace(0.0, 1.0, 1601)[:, None]


@pytest.mark.parametrize(("learner", "start"), ERROR_BASED)
def test_without_an_error_among_the_accepted_an_error_based_learner_never_moves(learner, start):
    world, rule = Plateaus(), start(0.75)
    for seed in range(10):
        steps = cq.consequential_learning(
            world, rule, learner, time_steps=6, n_proposals=400, rng=np.random.default_rng(seed)
        )
        for step in steps:
            assert (step.log.label[step.log.decision] == 1).all()
            assert (step.learned.propensity(GRID) == rule.propensity(GRID)).all()
    assert world.exact(rule).utility == pytest.approx(0.125, abs=1e-9)
    assert world.optimal().utility == pytest.approx(0.275, abs=1e-9)


@pytest.mark.parametrize(("learner", "start"), ERROR_BASED)
def test_with_errors_among_the_accepted_the_same_learner_does_move(learner, start):
    world, rule = Plateaus(), start(0.5)
    log = world.collect(rule, 400, np.random.default_rng(0))
    learned = learner(rule, log, rng=np.random.default_rng(0), time_step=0).policy
    assert (learned.propensity(GRID) != rule.propensity(GRID)).any()


def test_a_predictor_says_why_it_stays_when_all_labels_are_alike():
    world, rule = Plateaus(), steep_start(0.75)
    log = world.collect(rule, 400, np.random.default_rng(0))
    update = cq.lab.FitPredictor(world.cost)(rule, log, rng=np.random.default_rng(0))
    assert update.policy is rule
    assert "all labels are alike" in update.notes[0]


def test_an_exploring_policy_leaves_the_rule_that_makes_no_error():
    world, policy = Plateaus(), cq.Policy([-7.5, 10.0])  # an even chance at .75
    learner = cq.UpdatePolicy(cq.Objective(world.cost), n_iterations=64, batch_size=128)
    steps = cq.consequential_learning(
        world, policy, learner, time_steps=20, n_proposals=8192, rng=np.random.default_rng(0)
    )
    learned = list(steps)[-1].learned
    assert world.exact(learned).utility > 0.255  # of .275; the rule itself has .125


# Proposition 3 [K20: supremum]

TARGETS = [
    pytest.param(FIRST, 0.0, False, id="first"),
    pytest.param(FIRST, 1.0, False, id="first, penalty 1"),
    pytest.param(FIRST, 10.0, True, id="first, no gap"),
    pytest.param(SECOND, 0.0, False, id="second"),
    pytest.param(SECOND, 1.0, False, id="second, penalty 1"),
    pytest.param(SECOND, 10.0, True, id="second, no gap"),
]


def nth_policy(name: str, penalty: float, fair: bool, n: int) -> cq.DecisionRule:
    """The proof's pi_n: the optimum where it accepts, a chance of 1/n elsewhere."""
    return optimum(name, penalty, fair).policy.with_floor(1.0 / n)


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_the_proof_s_policies_accept_the_optimum_s_people_and_one_in_n_of_the_others(name):
    points = world_named(name).cells(1000).points
    accepted = optimum(name).policy.propensity(points) == 1.0
    assert 0 < accepted.sum() < len(points)
    for n in (2, 10, 1000):
        propensity = nth_policy(name, 0.0, False, n).propensity(points)
        assert_allclose(propensity, np.where(accepted, 1.0, 1.0 / n), rtol=1e-12)


@pytest.mark.parametrize(("name", "penalty", "fair"), TARGETS)
def test_exploring_policies_approach_the_optimum_at_rate_one_over_n(name, penalty, fair):
    world = world_named(name)
    best = world.exact(optimum(name, penalty, fair).policy)
    all_in = world.exact(cq.AcceptAll())
    rate = (
        best.utility
        - all_in.utility
        - penalty * best.benefit_gap * (best.benefit_gap - all_in.benefit_gap)
    )
    assert rate > 0.004
    ns = np.array([2, 10, 100, 1000, 10_000])
    truth = [world.exact(nth_policy(name, penalty, fair, n)) for n in ns]
    shortfall = value(best, penalty) - np.array([value(metrics, penalty) for metrics in truth])
    # utility and benefits are linear in 1/n; the penalty adds a square
    square = penalty / 2 * (best.benefit_gap - all_in.benefit_gap) ** 2
    assert_allclose(shortfall, rate / ns + square / ns**2, rtol=0, atol=1e-12)
    assert (np.diff(shortfall) < 0).all()
    assert shortfall[-1] * ns[-1] == pytest.approx(rate, rel=0.05)


def exploring_starts(name: str) -> dict[str, cq.DecisionRule]:
    world = world_named(name)
    return {
        "logistic with a floor": world.initial_policy("logistic").with_floor(0.05),
        "threshold with a floor": paper_start(name).with_floor(0.25),
        "semi-logistic with a floor": world.initial_policy("semi_logistic").with_floor(0.02),
    }


@pytest.mark.parametrize(("name", "penalty", "fair"), TARGETS)
def test_a_log_of_any_exploring_policy_tells_the_value_of_the_proof_s_policies(name, penalty, fair):
    world = world_named(name)
    for start in exploring_starts(name).values():
        log = world.collect(start, 20_000, np.random.default_rng(1))
        for n in (2, 10, 100):
            rule = nth_policy(name, penalty, fair, n)
            guess, standard_error = estimate(rule, log, world.cost, penalty)
            assert standard_error < 0.015
            assert guess == pytest.approx(value(world.exact(rule), penalty), abs=4 * standard_error)


def test_the_standard_error_of_an_estimated_value_is_its_spread_over_logs():
    world, start = world_named(FIRST), exploring_starts(FIRST)["logistic with a floor"]
    rule, n_logs = nth_policy(FIRST, 1.0, False, 10), 300
    logs = (world.collect(start, 1000, np.random.default_rng(seed)) for seed in range(n_logs))
    told = np.array([estimate(rule, log, world.cost, 1.0) for log in logs])
    # a standard deviation from 300 values is known to 4 %
    assert told[:, 0].std() == pytest.approx(told[:, 1].mean(), rel=0.16)


def test_a_log_of_a_threshold_does_not_tell_the_value_of_the_proof_s_policies():
    world, rule = world_named(FIRST), nth_policy(FIRST, 0.0, False, 100)
    log = world.collect(paper_start(FIRST), 20_000, np.random.default_rng(1))
    guess, standard_error = estimate(rule, log, world.cost, 0.0)
    assert guess < world.exact(rule).utility - 6 * standard_error


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_the_paper_s_reweighted_utility_is_the_truth_over_the_share_accepted(name):
    world, rule = world_named(name), nth_policy(name, 0.0, False, 10)
    start = exploring_starts(name)["logistic with a floor"]
    everybody = world.population_for(rule)
    seen = induced(everybody, start)
    ratio = everybody.propensity(rule) / everybody.propensity(start)
    reweighted = (seen.mass * ratio * (seen.label_probability - world.cost)).sum()
    share = (everybody.mass * everybody.propensity(start)).sum()
    assert share < 0.7
    assert reweighted * share == pytest.approx(world.exact(rule).utility, abs=1e-12)


@pytest.mark.parametrize(
    ("strategy", "time_steps", "seeds"),
    [
        (cq.lab.LearnToDecide("logistic"), 15, 1),
        *(
            pytest.param(cq.lab.LearnToDecide(link, sequence), 40, 3, marks=pytest.mark.slow)
            for link in ("logistic", "semi_logistic")
            for sequence in ("iterative", "aggregated")
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_from_an_exploring_start_learning_to_decide_comes_within_two_thousandths(
    strategy, time_steps, seeds
):
    world = world_named(FIRST)
    for seed in range(seeds):
        steps = cq.consequential_learning(
            world,
            strategy.start(world, np.random.default_rng(0)),
            strategy.learner(world, cq.fairness.DemographicParity(), 0.0),
            sequence=strategy.sequence,
            time_steps=time_steps,
            n_proposals=world.parameters.n_proposals,
            rng=np.random.default_rng(seed),
        )
        learned = list(steps)[-1].learned
        assert world.exact(learned).utility > optimum(FIRST).utility - 0.002


@pytest.mark.slow
def test_the_lending_example_over_all_initial_thresholds():
    best = optimum(LENDING).utility
    for scoring, fine, useless in (("accuracy", 525, 600), ("neg_log_loss", 600, 750)):
        for threshold in range(500, 776, 25):
            learned = np.mean([lending_example(threshold, scoring, 10_000, s) for s in range(5)])
            if threshold <= fine:
                assert learned > best - 0.002, (scoring, threshold)
            if threshold >= useless:
                assert learned < 0.5 * best, (scoring, threshold)


def test_the_page_names_every_test_here_and_shows_figures_that_are_there_and_small():
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "theorems.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(test_\w+)`", page))
    here = {name for name in globals() if name.startswith("test_") and "_the_page_" not in name}
    assert told == here
    figures = re.findall(r"\]\((figures/[\w-]+\.svg)\)", page)
    assert len(figures) == 4
    for figure in figures:
        assert 0 < (docs / figure).stat().st_size < 150_000
