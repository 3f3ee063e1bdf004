"""Strategies: names, starts, step rules, floors and predictors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tiny_worlds import TINY, Districts, assert_same_run, tiny, watched

import consequential as cq
from consequential.lab.simulation import Strategy

PARITY = cq.fairness.DemographicParity()


def simulated(strategies, world=None, **options):
    options = {"seeds": 2, "progress": False} | options
    return cq.simulate(world or Districts(), strategies, **options)


# --- names


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (cq.lab.LearnToDecide(), "logistic, iterative"),
        (cq.lab.LearnToDecide("semi_logistic", "aggregated"), "semi-logistic, aggregated"),
        (cq.lab.LearnToDecide("smooth_semi_logistic"), "smooth-semi-logistic, iterative"),
        (cq.lab.LearnToDecide(sequence=cq.lab.sequences.Aggregated(99)), "logistic, aggregated"),
        (cq.lab.LearnToDecide(sequence=cq.lab.sequences.LastSteps(3)), "logistic, last steps"),
        (cq.lab.LearnToPredict(), "deterministic, iterative"),
        (cq.lab.LearnToPredict("aggregated"), "deterministic, aggregated"),
        (cq.lab.LearnToPredict(fair=True), "fair deterministic, iterative"),
    ],
)
def test_a_strategy_is_named_by_its_kind_and_sequence(strategy, name):
    assert strategy.name == name


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_the_paper_has_six_learned_strategies(normalisation):
    strategies = cq.paper_strategies(normalisation)
    assert [strategy.name for strategy in strategies] == [
        "deterministic, iterative",
        "deterministic, aggregated",
        "logistic, iterative",
        "logistic, aggregated",
        "semi-logistic, iterative",
        "semi-logistic, aggregated",
    ]
    for strategy in strategies[2:]:
        assert strategy.normalisation == normalisation


def test_a_strategy_of_ones_own_takes_three_methods():
    class Cautious(Strategy):
        name = "cautious"
        sequence = "aggregated"

        def start(self, world, rng):
            return cq.ThresholdPolicy(cq.logistic_model([0.0, 0.0, 0.0]), 0.0)

        def learner(self, world, fairness, penalty):
            return cq.lab.FitPredictor(0.9)

    runs = simulated(Cautious())
    acceptance = runs.metric("acceptance", "cautious")
    assert_array_equal(acceptance[:, 0].round(9), [1, 1])
    assert (acceptance[:, 1:] < 0.5).all()


def test_an_incomplete_strategy_cannot_be_made():
    class Nothing(Strategy):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Nothing()


# --- step rules


def learner(strategy, world=None, penalty=0.0):
    return strategy.learner(world or Districts(), PARITY, penalty)


@pytest.mark.parametrize("strategy", cq.paper_strategies("applicants")[2:], ids=lambda s: s.name)
def test_with_right_estimators_the_step_is_ours(strategy):
    learn = learner(strategy)
    assert learn.step == cq.lab.steps.PreconditionedStep()
    assert learn.objective.normalisation == "applicants"


@pytest.mark.parametrize("strategy", cq.paper_strategies("paper")[2:], ids=lambda s: s.name)
def test_with_the_papers_estimators_the_step_is_the_papers(strategy):
    learn = learner(strategy)
    assert learn.step == cq.lab.steps.GradientStep(TINY.learning_rate, TINY.decay, TINY.decay_every)
    assert learn.objective.normalisation == "paper"


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_a_step_rule_that_is_given_is_taken(normalisation):
    mine = cq.lab.steps.GradientStep(0.123)
    strategy = cq.lab.LearnToDecide(normalisation=normalisation, step=mine)
    assert learner(strategy).step is mine


def test_the_learner_takes_what_the_strategy_and_the_world_say():
    weighting = cq.weightings.Clipped(5.0)
    strategy = cq.lab.LearnToDecide(decisions="sampled", weighting=weighting)
    learn = learner(strategy, penalty=3.0)
    assert (learn.n_iterations, learn.batch_size) == (TINY.n_iterations, TINY.batch_size)
    objective = learn.objective
    assert (objective.cost, objective.fairness, objective.penalty) == (0.5, PARITY, 3.0)
    assert (objective.decisions, objective.weighting) == ("sampled", weighting)


@pytest.mark.parametrize(
    "change",
    [
        {"normalisation": "paper"},
        {"decisions": "sampled"},
        {"weighting": cq.weightings.Clipped(1.0)},
        {"step": cq.lab.steps.GradientStep(0.3)},
        {"floor": 0.3},
        {"link": "smooth_semi_logistic"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_option_changes_what_is_learned(change):
    plain, changed = (simulated(cq.lab.LearnToDecide(**options)) for options in ({}, change))
    thetas = [runs.runs[0].policy.theta for runs in (plain, changed)]
    assert not np.array_equal(*thetas)


# --- starts and floors


@pytest.mark.parametrize("link", ["logistic", "semi_logistic", "smooth_semi_logistic"])
def test_the_start_is_the_worlds_initial_policy(link):
    world = Districts()
    start = cq.lab.LearnToDecide(link).start(world, np.random.default_rng(9))
    expected = world.initial_policy(link, rng=np.random.default_rng(9))
    assert start.link.name == link
    assert_array_equal(start.theta, expected.theta)


def test_the_predictor_starts_where_the_policy_cuts():
    world = cq.worlds.first_setting()
    threshold = cq.lab.LearnToPredict().start(world, np.random.default_rng(0))
    policy = cq.lab.LearnToDecide("semi_logistic").start(world, np.random.default_rng(0))
    scores = np.linspace(-0.8, 0.8, 401)[:, None]
    assert_array_equal(threshold.propensity(scores) == 1, policy.propensity(scores) == 1)


@pytest.mark.parametrize("link", ["logistic", "semi_logistic"])
def test_an_exploration_floor_is_kept_by_every_policy(link):
    world = Districts()
    seen = watched(world)
    runs = simulated(cq.lab.LearnToDecide(link, floor=0.2), world, penalties=[0.0, 5.0])
    rules = [step.rule for step in seen] + [run.policy for run in runs.runs]
    assert {rule.floor for rule in rules} == {0.2}
    assert min(step.log.propensity.min() for step in seen) >= 0.2


# --- learning to predict


@pytest.mark.parametrize(
    ("classifier", "kind"),
    [
        (DecisionTreeClassifier(max_depth=2, random_state=0), DecisionTreeClassifier),
        (GaussianNB(), GaussianNB),
        (make_pipeline(StandardScaler(), LogisticRegression()), Pipeline),
    ],
    ids=["tree", "naive Bayes", "pipeline"],
)
def test_any_classifier_can_be_the_predictor(classifier, kind):
    world = Districts()
    runs = simulated(cq.lab.LearnToPredict("aggregated", classifier), world)
    rule = runs.final_policy("deterministic, aggregated", seed=1)
    assert isinstance(rule, cq.ThresholdPolicy)
    assert isinstance(rule.predictor, kind)
    assert rule.predictor is not classifier  # a clone: what was given stays unfitted
    assert not hasattr(classifier, "classes_")
    assert rule.threshold == world.cost
    assert (runs.metric("acceptance", "deterministic, aggregated")[:, -1] > 0.1).all()


def test_a_given_classifier_gives_the_same_run_alone_and_in_company():
    tree = cq.lab.LearnToPredict("aggregated", DecisionTreeClassifier(max_depth=2, random_state=0))
    alone = simulated(tree, seeds=[1])
    among = simulated([cq.lab.LearnToDecide(), tree], penalties=[0.0, 1.0])
    assert_same_run(alone.runs[0], among.select(tree.name, 0.0)[1])


def test_only_the_fair_predictor_uses_the_penalty():
    strategies = [cq.lab.LearnToPredict(), cq.lab.LearnToPredict(fair=True)]
    runs = simulated(strategies, penalties=[0.0, 20.0])
    for strategy, uses_it in zip(strategies, (False, True), strict=True):
        free, punished = (runs.metric("utility", strategy.name, p) for p in (0.0, 20.0))
        assert (not np.array_equal(free, punished)) is uses_it


def test_the_fair_predictor_narrows_the_gap_it_can_see():
    """All are accepted at first, so that it sees everybody once."""

    class Generous(cq.lab.LearnToPredict):
        def start(self, world, rng):
            return cq.ThresholdPolicy(cq.logistic_model([0.0, 0.0, 0.0]), 0.0)

    world = tiny(Districts(), n_proposals=2000, time_steps=1)
    runs = simulated(Generous(fair=True), world, penalties=[0.0, 100.0])
    name = "fair deterministic, iterative"
    free, punished = (runs.metric("benefit_gap", name, p)[:, -1] for p in (0.0, 100.0))
    assert (np.abs(punished) < 0.5 * np.abs(free)).all()


def test_without_a_penalty_the_fair_predictor_is_the_plain_one():
    runs = simulated([cq.lab.LearnToPredict(), cq.lab.LearnToPredict(fair=True)], n_proposals=2000)
    plain, fair = (runs.metric("utility", name)[:, -1] for name in runs.strategies)
    np.testing.assert_allclose(fair, plain, atol=2e-3)


def test_the_fair_predictor_is_logistic():
    with pytest.raises(ValueError, match="give no classifier with fair=True"):
        cq.lab.LearnToPredict(classifier=GaussianNB(), fair=True)


def test_strategies_are_values():
    assert cq.lab.LearnToDecide("logistic", floor=0.1) == cq.lab.LearnToDecide(
        "logistic", floor=0.1
    )
    with pytest.raises(AttributeError):
        cq.lab.LearnToDecide().floor = 0.5


# --- strategies of one's own


class AcceptEverybody(cq.lab.Strategy):
    name = "accept everybody"

    def start(self, world, rng):
        return cq.AcceptAll()

    def learner(self, world, fairness, penalty):
        return None


def test_a_strategy_needs_a_name_and_two_methods():
    runs = simulated([AcceptEverybody(), cq.lab.LearnToPredict()])
    assert runs.strategies == ("accept everybody", "deterministic, iterative")
    assert runs.metric("acceptance", "accept everybody") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (AcceptEverybody, r"AcceptEverybody is a class: make one, AcceptEverybody\(\)"),
        ("logistic", r"such as LearnToDecide\('logistic'\).* not 'logistic'"),
        ([cq.lab.LearnToPredict(), None], "one of your own, not None"),
        (type("Numbered", (AcceptEverybody,), {"name": 3})(), "name of Numbered is not a str: 3"),
    ],
)
def test_what_is_no_strategy_is_answered_with_what_is_one(given, message):
    with pytest.raises(TypeError, match=message):
        simulated(given)


@pytest.mark.parametrize("given", [[], [AcceptEverybody(), AcceptEverybody()]])
def test_strategies_have_names_of_their_own(given):
    with pytest.raises(ValueError, match="strategies with names of their own"):
        simulated(given)
