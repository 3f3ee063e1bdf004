"""Two engines, one result: whole runs in NumPy and in compiled code.

Engines agree to 1e-8 in every metric (relative, or absolute near 0) and have equal notes. What
must not matter at all (threads, other runs beside) is compared bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier
from tiny_worlds import (
    Districts,
    OwnStart,
    Unpunished,
    assert_alike,
    assert_same_run,
    assert_same_runs,
    small_table,
    tiny,
)

import consequential as cq
from consequential.lab.simulation.compiled_runs import compiled_starts
from consequential.lab.simulation.replay import Experiment

FEW = cq.lab.sequences.Aggregated(500)  # less than two steps of people: it overflows
WORLDS = {
    "second": lambda: tiny(cq.worlds.second_setting(), n_iterations=8),
    "compas": lambda: tiny(cq.worlds.compas(), n_iterations=8),
    "lending": lambda: tiny(cq.worlds.lending(), n_iterations=8),  # has a feature map
    "districts": Districts,  # three groups, and people without an alias table
    "table": small_table,
}
NOTIONS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalised_odds": "equalised_odds",
    "predictive_parity": "predictive_parity",
    "benefit_parity": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}
LINKS = [
    {"link": "logistic"},
    {"link": "semi_logistic"},
    {"link": "smooth_semi_logistic"},
    {"link": "logistic", "floor": 0.05},
]
SEQUENCES = [{"sequence": "iterative"}, {"sequence": "aggregated"}, {"sequence": FEW}]
WEIGHTINGS = [
    {"weighting": None},
    {"weighting": cq.weightings.Clipped(3.0)},
    {"weighting": cq.weightings.SelfNormalised()},
    {"weighting": cq.weightings.Unweighted()},
]
UPDATES = [
    {},
    {"decisions": "sampled"},
    {"normalisation": "paper"},
    {"normalisation": "paper", "decisions": "sampled"},
    {"step": cq.lab.steps.GradientStep(0.4, max_step=0.2)},
]


@pytest.fixture(scope="module")
def worlds():
    """Worlds by name, each made when a test first asks for it."""
    return cache(lambda name: WORLDS[name]())


def covering_cases():
    """Return a world, a notion and a strategy per case; any two options meet in one of the cases.

    Columns a, b, a + b, a + 2b, ... modulo a prime are an orthogonal array.
    """
    for a, b in product(range(5), repeat=2):
        parts = [LINKS, SEQUENCES, WEIGHTINGS, UPDATES]
        chosen = [part[(a + k * b) % 5 % len(part)] for k, part in enumerate(parts, start=1)]
        strategy = cq.lab.LearnToDecide(**{k: v for part in chosen for k, v in part.items()})
        yield list(WORLDS)[a], list(NOTIONS)[b], strategy


def simulated(world, strategies, **options):
    usual = {"seeds": (3, 8), "penalties": (0.0, 3.0), "time_steps": 3, "n_proposals": 300}
    return cq.simulate(world, strategies, progress=False, **usual | options)


def on_both(world, strategies, **options):
    """Compare compiled code with NumPy; return the runs."""
    compiled, defined = (
        simulated(world, strategies, engine=engine, **options) for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)
    return compiled


def known_to_compiled_code(world, strategies, fairness="demographic_parity"):
    fairness = cq.fairness.fairness_named(fairness)
    experiment = Experiment(world, tuple(strategies), (0.0,), 4, 300, fairness, "compiled")
    return list(compiled_starts(experiment, [0]))


# --- compiled code against NumPy


@pytest.mark.parametrize(("name", "notion", "strategy"), list(covering_cases()))
def test_compiled_runs_are_the_runs_of_numpy(worlds, name, notion, strategy):
    assert known_to_compiled_code(worlds(name), [strategy], NOTIONS[notion]) == [strategy.name]
    on_both(worlds(name), strategy, seeds=[5], fairness=NOTIONS[notion])


@pytest.mark.parametrize("name", WORLDS)
def test_compiled_predictors_are_those_of_numpy(worlds, name):
    strategies = [cq.lab.LearnToPredict(), cq.lab.LearnToPredict(FEW)]
    assert len(known_to_compiled_code(worlds(name), strategies)) == 2
    on_both(worlds(name), strategies, seeds=[5], penalties=[0.0])


def test_compiled_runs_really_learn(worlds):
    runs = simulated(worlds("second"), cq.paper_strategies(), time_steps=8)
    for run in runs.runs:
        assert len(np.unique(run.metrics["utility"])) > 4, run.strategy


FEW_PEOPLE = [
    cq.lab.LearnToDecide("logistic"),
    cq.lab.LearnToDecide("smooth_semi_logistic", FEW, "paper", "sampled"),
    cq.lab.LearnToDecide("semi_logistic", FEW, weighting=cq.weightings.SelfNormalised()),
    cq.lab.LearnToPredict(FEW),
]


@pytest.mark.parametrize(
    ("n_proposals", "notion"), [(1, "demographic_parity"), (20, "predictive_parity")]
)
def test_engines_agree_on_a_handful_of_people(worlds, n_proposals, notion):
    runs = on_both(
        worlds("second"), FEW_PEOPLE, n_proposals=n_proposals, seeds=4, penalties=[3.0],
        fairness=notion,
    )  # fmt: skip
    if n_proposals == 1:
        notes = {note for run in runs.runs for note in run.notes}
        assert any("nobody was accepted" in note for note in notes)
        assert any("no row to measure the benefit of" in note for note in notes)


def test_engines_agree_that_an_update_made_things_worse():
    world = tiny(cq.worlds.second_setting(), learning_rate=300.0, decay=1.0)
    runs = on_both(world, cq.lab.LearnToDecide("logistic", normalisation="paper"), penalties=[50.0])
    assert any("lowered the estimated objective" in n for run in runs.runs for n in run.notes)


@pytest.mark.parametrize(
    ("start", "sequence"),
    [
        (lambda world, rng: cq.Policy([-0.5, 0.4, 0.2, -0.1], groups=world.groups), FEW),
        (
            lambda world, rng: cq.Policy(
                [-0.5, 0.4, -0.05],
                "semi_logistic",
                PolynomialFeatures(2, include_bias=False).fit([[0.0]]),
                floor=0.02,
            ),
            FEW,
        ),
        (lambda world, rng: cq.Policy(0.3 * rng.normal(size=2)), "iterative"),
    ],
    ids=["by group", "squares", "another theta per seed"],
)
def test_engines_agree_from_a_start_of_ones_own(worlds, start, sequence):
    strategy = OwnStart(start, cq.lab.LearnToDecide(sequence=sequence))
    assert known_to_compiled_code(worlds("second"), [strategy]) == ["own start"]
    on_both(worlds("second"), strategy, fairness="equalised_odds")


def test_seeds_may_be_as_large_as_numpys(worlds):
    on_both(worlds("second"), cq.lab.LearnToDecide(), seeds=[2**63], time_steps=2)


# --- what must not matter

TOGETHER = [
    cq.lab.LearnToPredict(),
    cq.lab.LearnToPredict("aggregated"),
    cq.lab.LearnToDecide("logistic"),
    cq.lab.LearnToDecide("semi_logistic", "aggregated"),
    cq.lab.LearnToDecide("smooth_semi_logistic", FEW, weighting=cq.weightings.SelfNormalised()),
    cq.lab.LearnToDecide("logistic", FEW, "paper", named="paper, few"),
    cq.lab.LearnToDecide("semi_logistic", "iterative", "paper", "sampled", named="paper, sampled"),
    cq.lab.LearnToDecide("logistic", decisions="sampled", floor=0.05, named="sampled, floor"),
]


@pytest.fixture(scope="module", params=["second", "districts"])
def together(request, worlds):
    """A world, and the runs of several strategies, seeds and penalties in it."""
    world = worlds(request.param)
    return world, simulated(world, TOGETHER, seeds=(3, 8, 1), n_jobs=1)


@pytest.mark.parametrize("n_jobs", [2, 7, -1])
def test_results_do_not_depend_on_the_number_of_threads(together, n_jobs):
    world, runs = together
    assert_same_runs(runs, simulated(world, TOGETHER, seeds=(3, 8, 1), n_jobs=n_jobs))


def test_a_run_does_not_depend_on_the_runs_beside_it(together):
    world, runs = together
    for strategy in TOGETHER:
        (alone,) = simulated(world, strategy, seeds=[8], penalties=[3.0]).runs
        (among,) = (run for run in runs.select(strategy.name, 3.0) if run.seed == 8)
        assert_same_run(alone, among)


def test_a_shorter_run_is_the_beginning_of_a_longer_one(together):
    world, runs = together
    shorter = simulated(world, TOGETHER, time_steps=2, seeds=(3, 8, 1))
    for long, short in zip(runs.runs, shorter.runs, strict=True):
        for name in ("utility", "benefit_gap", "acceptance", "effective_sample_size"):
            assert long.metrics[name][:3].tobytes() == short.metrics[name].tobytes()


# --- strategies that compiled code does not know


class SparedFailure(cq.fairness.Fairness):
    """A notion of one's own: people with label 0 that are rejected."""

    name = "spared_failure"

    def benefits(self, tally):
        return (tally.mean(at_reject=(1.0, 0.0), at_accept=(0.0, 0.0)),)


class Widened(cq.fairness.DemographicParity):
    """A notion that inherits shapes but has benefits of its own."""

    name = "widened"

    def benefits(self, tally):
        return (tally.mean(at_reject=(0.0, 0.0), at_accept=(0.2, 1.0)),)


class Weighed(cq.weightings.InversePropensity):
    """A weighting of one's own."""

    def weights(self, log):
        return np.sqrt(super().weights(log))


UNKNOWN = {
    "last steps": cq.lab.LearnToDecide("logistic", cq.lab.sequences.LastSteps(2)),
    "predictor, last steps": cq.lab.LearnToPredict(cq.lab.sequences.LastSteps(2)),
    "balance heuristic": cq.lab.LearnToDecide(
        "logistic", "aggregated", weighting=cq.weightings.BalanceHeuristic()
    ),
    "own weighting": cq.lab.LearnToDecide("logistic", weighting=Weighed()),
    "own classifier": cq.lab.LearnToPredict(
        classifier=DecisionTreeClassifier(max_depth=2, random_state=0)
    ),
    "fair predictor": cq.lab.LearnToPredict(fair=True),
}
UNTOUCHED = ("predictor, last steps", "own classifier", "fair predictor")  # no kernel at all


@pytest.mark.parametrize("kind", UNKNOWN)
def test_strategies_that_compiled_code_does_not_know_run_in_python(worlds, kind):
    world, strategy = worlds("second"), UNKNOWN[kind]
    beside = cq.lab.LearnToDecide("semi_logistic")
    assert known_to_compiled_code(world, [strategy, beside]) == [beside.name]
    options = {"seeds": [3], "n_proposals": 150}
    compiled, defined = (
        simulated(world, [strategy, beside], engine=engine, **options)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)
    if kind in UNTOUCHED:
        for run, other in zip(compiled.runs[:2], defined.runs[:2], strict=True):
            assert_same_run(run, other)


@pytest.mark.parametrize(
    ("name", "notion"),
    [("districts", SparedFailure()), ("second", Widened())],
    ids=["own benefits", "inherited shapes"],
)
def test_a_fairness_notion_of_ones_own_runs_in_python(worlds, name, notion):
    strategy = cq.lab.LearnToDecide("logistic", FEW)
    known = known_to_compiled_code(worlds(name), [strategy, cq.lab.LearnToPredict()], notion)
    assert known == ["deterministic, iterative"]  # a predictor does not look at it
    on_both(worlds(name), strategy, fairness=notion, n_proposals=200, seeds=[3])


@dataclass(frozen=True, slots=True)
class Careful(cq.lab.Strategy):
    """Takes shorter steps under a larger penalty."""

    sequence: Any = "iterative"
    name = "careful"

    def start(self, world, rng):
        return world.initial_policy("logistic", rng=rng)

    def learner(self, world, fairness, penalty):
        objective = cq.Objective(world.cost, fairness, penalty)
        return cq.UpdatePolicy(
            objective, 8, 32, cq.lab.steps.GradientStep(0.5 / (1 + penalty)), shuffle=False
        )


@pytest.mark.parametrize("strategy", [Careful(), Unpunished()], ids=lambda each: each.name)
def test_a_strategy_of_ones_own_may_do_with_a_penalty_what_it_likes(worlds, strategy):
    on_both(worlds("second"), strategy, seeds=[3])


@dataclass(frozen=True, slots=True)
class TwoFaced(Careful):
    """Starts with another link, by chance."""

    name = "two-faced"

    def start(self, world, rng):
        link = ("logistic", "semi_logistic")[rng.integers(2)]
        return world.initial_policy(link, rng=rng).with_floor(0.1 * rng.random())

    def learner(self, world, fairness, penalty):
        return cq.UpdatePolicy(cq.Objective(world.cost, fairness, penalty), 8, 32, shuffle=False)


def test_a_strategy_of_ones_own_may_start_differently_for_each_seed(worlds):
    runs = on_both(worlds("second"), TwoFaced(), seeds=6, penalties=[3.0])
    assert len({run.policy.link.name for run in runs.runs}) == 2


def test_an_unknown_engine_is_refused(worlds):
    with pytest.raises(ValueError, match="engine is 'compiled' or 'numpy'"):
        simulated(worlds("second"), cq.lab.LearnToDecide(), engine="abacus")
