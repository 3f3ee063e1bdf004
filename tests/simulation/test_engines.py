"""Three engines, one result: whole runs in NumPy, in compiled code and as a JAX program.

Engines agree to 1e-8 in every metric (relative, or absolute near 0) and have equal notes. What
must not matter at all (threads, company) is compared bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from consequential.simulation.crew import Crew
from consequential.simulation.fleet import Fleet
from consequential.simulation.loop import Plan
from consequential.simulation.sweep import compiled_starts
from consequential.simulation.truth import Truth
from numpy.testing import assert_allclose
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier
from tiny_worlds import Districts, TwoMethods, assert_same_run, small_table, tiny

import consequential as cq
from consequential.sequences import Iterative

FEW = cq.sequences.Aggregated(500)  # less than two steps of people: it overflows
JUDGED_CORRECTLY = cq.fairness.BenefitParity(lambda d, y: float(d == y))
NOTIONS = [
    "demographic_parity",
    "equal_opportunity",
    "equalised_odds",
    "predictive_parity",
    JUDGED_CORRECTLY,
]
STRATEGIES = [
    *cq.paper_strategies(),
    *(replace(s, named=f"paper: {s.name}") for s in cq.paper_strategies("paper")[2:]),
    cq.LearnToPredict(FEW, named="predict, few"),
    cq.LearnToDecide("smooth_semi_logistic", FEW, named="smooth, few"),
    cq.LearnToDecide("logistic", FEW, "paper", named="paper, few"),
    cq.LearnToDecide("logistic", decisions="sampled", floor=0.05, named="sampled, floor"),
    cq.LearnToDecide("semi_logistic", FEW, "paper", "sampled", named="paper, sampled, few"),
    cq.LearnToDecide(
        "logistic", FEW, weighting=cq.weightings.SelfNormalised(), named="self-normalised"
    ),
    cq.LearnToDecide(
        "logistic",
        FEW,
        "paper",
        weighting=cq.weightings.SelfNormalised(),
        named="paper, self-normalised",
    ),
    cq.LearnToDecide("semi_logistic", weighting=cq.weightings.Clipped(3.0), named="clipped"),
    cq.LearnToDecide("logistic", FEW, weighting=cq.weightings.Unweighted(), named="unweighted"),
    cq.LearnToDecide("logistic", step=cq.steps.GradientStep(0.4, max_step=0.2), named="gradient"),
]
WORLDS = {
    "second": lambda: tiny(cq.worlds.second_setting(), n_iterations=8),
    "compas": lambda: tiny(cq.worlds.compas(), n_iterations=8),
    "lending": lambda: tiny(cq.worlds.lending(), n_iterations=8),
    "districts": Districts,  # three groups, and people without a crowd
    "two methods": TwoMethods,
    "table": small_table,
}


def named(value):
    return value if isinstance(value, str) else getattr(value, "name", type(value).__name__)


def simulated(world, strategies, **options):
    usual = {"seeds": (3, 8), "penalties": (0.0, 3.0), "time_steps": 4, "n_proposals": 300}
    return cq.simulate(world, strategies, progress=False, **usual | options)


def assert_alike(runs, others, tolerance=1e-8):
    assert len(runs.runs) == len(others.runs) > 0
    for run, other in zip(runs.runs, others.runs, strict=True):
        about = (run.strategy, run.penalty, run.seed)
        assert about == (other.strategy, other.penalty, other.seed)
        assert run.notes == other.notes, about
        assert list(run.metrics) == list(other.metrics)
        for name, values in run.metrics.items():
            assert_allclose(
                values,
                other.metrics[name],
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{about} {name}",
            )
        assert type(run.policy) is type(other.policy)
        if isinstance(run.policy, cq.Policy):
            assert_allclose(run.policy.theta, other.policy.theta, rtol=1e-7, atol=1e-7)
            assert run.policy.link is other.policy.link
            assert run.policy.floor == other.policy.floor


def assert_same_runs(runs, others):
    assert len(runs.runs) == len(others.runs) > 0
    for run, other in zip(runs.runs, others.runs, strict=True):
        assert_same_run(run, other)


def known_to_compiled_code(world, strategies, fairness="demographic_parity"):
    plan = Plan(
        world, tuple(strategies), (0.0,), 4, 300, cq.fairness.fairness_named(fairness), "compiled"
    )
    return list(compiled_starts(plan, [0]))


# --- compiled code against NumPy


@pytest.mark.parametrize("name", ["second", "compas", "lending", "districts", "table"])
def test_compiled_runs_are_the_runs_of_numpy(name):
    world = WORLDS[name]()
    compiled, defined = (
        simulated(world, STRATEGIES, seeds=[5], time_steps=3, engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


# each normalisation with each kind of weight, drawn decisions, and both sequences
VARIED = [s for s in STRATEGIES if isinstance(s, cq.LearnToDecide) and s.named][4:]


@pytest.mark.parametrize(
    ("name", "notion"),
    [
        *(("second", notion) for notion in NOTIONS[1:]),
        *(("districts", notion) for notion in NOTIONS[1:]),
        ("compas", "equalised_odds"),
        ("lending", "predictive_parity"),
    ],
    ids=named,
)
def test_compiled_runs_are_the_runs_of_numpy_for_every_notion(name, notion):
    world = WORLDS[name]()
    compiled, defined = (
        simulated(
            world, VARIED, seeds=[5], penalties=[3.0], time_steps=3, fairness=notion, engine=engine
        )
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


@pytest.mark.parametrize("name", WORLDS)
def test_compiled_code_knows_all_of_these_strategies(name):
    known = known_to_compiled_code(WORLDS[name](), STRATEGIES)
    assert known == [strategy.name for strategy in STRATEGIES]


def test_engines_agree_where_the_first_model_is_fitted():
    strategies = [cq.LearnToPredict("aggregated"), cq.LearnToDecide("semi_logistic")]
    compiled, defined = (
        simulated(TwoMethods(), strategies, engine=engine) for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


def test_compiled_runs_really_learn():
    runs = simulated(cq.worlds.second_setting(), cq.paper_strategies(), time_steps=8)
    for run in runs.runs:
        assert len(np.unique(run.metrics["utility"])) > 4, run.strategy


@pytest.mark.parametrize("name", ["second", "lending"])
def test_engines_agree_for_longer_at_the_worlds_own_sizes(name):
    world = {"second": cq.worlds.second_setting, "lending": cq.worlds.lending}[name]()
    strategies = cq.paper_strategies()[2:]
    options = {"seeds": 1, "time_steps": 6, "n_proposals": 3000, "penalties": (2.0,)}
    compiled, defined = (
        simulated(world, strategies, engine=engine, **options) for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


@pytest.mark.parametrize(
    ("n_proposals", "notion"), [(1, "demographic_parity"), (20, "predictive_parity")]
)
def test_engines_agree_on_a_handful_of_people(n_proposals, notion):
    world = WORLDS["second"]()
    deciding = [s for s in STRATEGIES if isinstance(s, cq.LearnToDecide)]
    compiled, defined = (
        simulated(
            world,
            deciding,
            n_proposals=n_proposals,
            seeds=[1],
            penalties=[3.0],
            fairness=notion,
            engine=engine,
        )
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)
    if n_proposals == 1:
        notes = {note for run in compiled.runs for note in run.notes}
        assert any("nobody was accepted" in note for note in notes)
        assert any("no row to measure the benefit of" in note for note in notes)


def test_engines_agree_on_predictors_from_a_handful_of_people():
    world, strategies = WORLDS["second"](), [cq.LearnToPredict(), cq.LearnToPredict(FEW, named="f")]
    compiled, defined = (
        simulated(world, strategies, n_proposals=20, penalties=[0.0], seeds=6, engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


def test_engines_agree_that_an_update_made_things_worse():
    world = tiny(cq.worlds.second_setting(), learning_rate=300.0, decay=1.0)
    strategy = cq.LearnToDecide("logistic", normalisation="paper")
    compiled, defined = (
        simulated(world, strategy, penalties=[50.0], engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)
    assert any("lowered the estimated objective" in n for run in compiled.runs for n in run.notes)


@dataclass(frozen=True, slots=True)
class OwnStart(cq.Strategy):
    """Another strategy from a policy of one's own, with short reference windows."""

    policy: Any
    inner: Any
    name = "own start"

    @property
    def sequence(self):
        return self.inner.sequence

    def start(self, world, rng):
        return self.policy(world, rng)

    def learner(self, world, fairness, penalty):
        return replace(self.inner.learner(world, fairness, penalty), n_reference=100)


STARTS = {
    "by group": lambda world, rng: cq.Policy([-0.5, 0.4, 0.2, -0.1], groups=world.groups),
    "squares": lambda world, rng: cq.Policy(
        [-0.5, 0.4, -0.05],
        "semi_logistic",
        PolynomialFeatures(2, include_bias=False).fit([[0.0]]),
        floor=0.02,
    ),
    "other thetas each seed": lambda world, rng: cq.Policy(0.3 * rng.normal(size=2)),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("sequence", ["iterative", FEW], ids=named)
def test_engines_agree_from_a_start_of_ones_own(start, sequence):
    world = WORLDS["second"]()
    strategy = OwnStart(STARTS[start], cq.LearnToDecide(sequence=sequence))
    assert known_to_compiled_code(world, [strategy]) == ["own start"]
    compiled, defined = (
        simulated(world, strategy, fairness="equalised_odds", engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


# --- what must not matter


@pytest.fixture(scope="module")
def together():
    return simulated(WORLDS["second"](), STRATEGIES, seeds=(3, 8, 1), n_jobs=1)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_results_do_not_depend_on_the_number_of_threads(together, n_jobs):
    again = simulated(WORLDS["second"](), STRATEGIES, seeds=(3, 8, 1), n_jobs=n_jobs)
    assert_same_runs(together, again)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
def test_a_run_does_not_depend_on_the_runs_beside_it(together, strategy):
    (alone,) = simulated(WORLDS["second"](), strategy, seeds=[8], penalties=[3.0]).runs
    (among,) = (
        run
        for run in together.runs
        if (run.strategy, run.penalty, run.seed) == (strategy.name, 3.0, 8)
    )
    assert_same_run(alone, among)


def test_a_run_of_a_world_without_a_crowd_does_not_depend_on_the_runs_beside_it():
    world, strategies = Districts(), STRATEGIES[:7]
    among = simulated(world, strategies, seeds=(3, 8, 1), n_jobs=3)
    for strategy in strategies:
        alone = simulated(world, strategy, seeds=[1], penalties=[3.0], n_jobs=1)
        (same,) = (
            run
            for run in among.runs
            if (run.strategy, run.penalty, run.seed) == (strategy.name, 3.0, 1)
        )
        assert_same_run(alone.runs[0], same)


def test_a_run_does_not_depend_on_the_room_for_seeds(together, monkeypatch):
    # so little room that seeds go one at a time
    monkeypatch.setattr("consequential.simulation.sweep._ROOM", 1)
    assert_same_runs(together, simulated(WORLDS["second"](), STRATEGIES, seeds=(3, 8, 1)))


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    world = WORLDS["second"]()
    longer, shorter = (simulated(world, STRATEGIES, time_steps=t, seeds=[3]) for t in (4, 2))
    for long, short in zip(longer.runs, shorter.runs, strict=True):
        for name in ("utility", "benefit_gap", "acceptance", "effective_sample_size"):
            assert long.metrics[name][:3].tobytes() == short.metrics[name].tobytes()


# --- strategies that compiled code does not know


class SparedFailure(cq.fairness.Fairness):
    """A notion of one's own: people with label 0 that are rejected."""

    name = "spared_failure"

    def benefits(self, tally):
        return (tally.mean(at_reject=(1.0, 0.0), at_accept=(0.0, 0.0)),)


class Weighed(cq.weightings.InversePropensity):
    """A weighting of one's own."""

    def weights(self, log):
        return np.sqrt(super().weights(log))


UNKNOWN = {
    "last steps": cq.LearnToDecide("logistic", cq.sequences.LastSteps(2)),
    "predictor, last steps": cq.LearnToPredict(cq.sequences.LastSteps(2)),
    "balance heuristic": cq.LearnToDecide(
        "logistic", "aggregated", weighting=cq.weightings.BalanceHeuristic(), named="balanced"
    ),
    "own weighting": cq.LearnToDecide("logistic", weighting=Weighed(), named="weighed"),
    "pessimistic weighting": cq.LearnToDecide(
        "logistic", FEW, weighting=cq.weightings.Clipped(2.0, pessimistic=True), named="pessimistic"
    ),
    "own classifier": cq.LearnToPredict(
        classifier=DecisionTreeClassifier(max_depth=2, random_state=0), named="tree"
    ),
    "fair predictor": cq.LearnToPredict(fair=True),
}
UNTOUCHED = ("predictor, last steps", "own classifier", "fair predictor")  # no kernel at all


@pytest.mark.parametrize("kind", UNKNOWN)
def test_strategies_that_compiled_code_does_not_know_run_in_python(kind):
    world, strategy = WORLDS["second"](), UNKNOWN[kind]
    beside = cq.LearnToDecide("semi_logistic")
    assert known_to_compiled_code(world, [strategy, beside]) == [beside.name]
    compiled, defined = (
        simulated(world, [strategy, beside], engine=engine) for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)
    if kind in UNTOUCHED:
        for run, other in zip(compiled.runs[:4], defined.runs[:4], strict=True):
            assert_same_run(run, other)


@pytest.mark.parametrize("name", ["second", "districts"])
def test_a_fairness_notion_of_ones_own_runs_in_python(name):
    world = WORLDS[name]()
    strategy = cq.LearnToDecide("logistic", FEW)
    known = known_to_compiled_code(world, [strategy, cq.LearnToPredict()], SparedFailure())
    assert known == ["deterministic, iterative"]  # a predictor does not look at it
    compiled, defined = (
        simulated(world, strategy, fairness=SparedFailure(), engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


def test_python_runs_do_not_depend_on_the_number_of_processes():
    strategies = [UNKNOWN["last steps"], UNKNOWN["own classifier"], cq.LearnToDecide("logistic")]
    world = WORLDS["second"]()
    alone = simulated(world, strategies, time_steps=2)
    assert_same_runs(alone, simulated(world, strategies, time_steps=2, n_jobs=2))


class Widened(cq.fairness.DemographicParity):
    """A notion that inherits shapes but has benefits of its own."""

    name = "widened"

    def benefits(self, tally):
        return (tally.mean(at_reject=(0.0, 0.0), at_accept=(0.2, 1.0)),)


def test_a_notion_that_only_inherits_its_shapes_means_what_its_benefits_say():
    world = WORLDS["second"]()
    compiled, defined = (
        simulated(world, cq.LearnToDecide(), fairness=Widened(), engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


@dataclass(frozen=True, slots=True)
class Careful(cq.Strategy):
    """Takes shorter steps under a larger penalty."""

    sequence: Any = "iterative"
    name = "careful"

    def start(self, world, rng):
        return world.initial_policy("logistic", rng=rng)

    def learner(self, world, fairness, penalty):
        objective = cq.Objective(world.cost, fairness, penalty)
        return cq.UpdatePolicy(
            objective, 8, 32, cq.steps.GradientStep(0.5 / (1 + penalty)), shuffle=False
        )


@dataclass(frozen=True, slots=True)
class Heedless(cq.Strategy):
    """Does not look at the penalty."""

    sequence: Any = "iterative"
    name = "heedless"

    def start(self, world, rng):
        return world.initial_policy("logistic", rng=rng)

    def learner(self, world, fairness, penalty):
        objective = cq.Objective(world.cost, decisions="sampled")
        return cq.UpdatePolicy(objective, 8, 32, shuffle=False)


@pytest.mark.parametrize("strategy", [Careful(), Heedless()], ids=named)
def test_a_strategy_of_ones_own_may_do_with_a_penalty_what_it_likes(strategy):
    world = WORLDS["second"]()
    compiled, defined = (
        simulated(world, strategy, engine=engine) for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


@dataclass(frozen=True, slots=True)
class TwoFaced(cq.Strategy):
    """Starts with another link, by chance."""

    sequence: Any = "iterative"
    name = "two-faced"

    def start(self, world, rng):
        link = ("logistic", "semi_logistic")[rng.integers(2)]
        return world.initial_policy(link, rng=rng).with_floor(0.1 * rng.random())

    def learner(self, world, fairness, penalty):
        return cq.UpdatePolicy(cq.Objective(world.cost, fairness, penalty), 8, 32, shuffle=False)


def test_a_strategy_of_ones_own_may_start_differently_for_each_seed():
    world = WORLDS["second"]()
    compiled, defined = (
        simulated(world, TwoFaced(), seeds=6, engine=engine) for engine in ("compiled", "numpy")
    )
    assert len({run.policy.link.name for run in defined.runs}) == 2
    assert_alike(compiled, defined)


@pytest.mark.parametrize(
    "seed",
    [
        2**40,
        2**63 - 1,
        2**63,
    ],
)
def test_seeds_may_be_as_large_as_numpys(seed):
    world, strategy = WORLDS["second"](), cq.LearnToDecide()
    compiled, defined = (
        simulated(world, strategy, seeds=[seed], time_steps=2, engine=engine)
        for engine in ("compiled", "numpy")
    )
    assert_alike(compiled, defined)


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="engine is 'compiled', 'numpy' or 'jax'"):
        simulated(WORLDS["second"](), cq.LearnToDecide(), engine="abacus")


# --- the truth along a path


def path_of(rule, thetas):
    """A crew of one run that went through these thetas."""
    thetas = np.asarray(thetas, dtype=float)
    learner = cq.FitPredictor(0.5)
    if isinstance(rule, cq.Policy):
        learner = cq.UpdatePolicy(cq.Objective(0.5), 1, 1)
    crew = Crew("path", learner, Iterative(), [rule], (0.0,), len(thetas) - 1)
    crew.path[0] = thetas
    return crew


def assert_truth_along(world, rule, thetas, notion="demographic_parity"):
    crew = path_of(rule, thetas)
    fairness = cq.fairness.fairness_named(notion)
    found = Truth(world, fairness).along(crew, 0)[0]
    exact = [world.measure(crew.rule(0, k), fairness) for k in range(len(thetas))]
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert_allclose(found.utility, [e.utility for e in exact], **close)
    assert_allclose(found.acceptance, [e.acceptance for e in exact], **close)
    assert_allclose(found.benefit_gap, [e.benefit_gap for e in exact], **close)
    for group in world.groups:
        assert_allclose(found.benefits[group], [e.benefits[group] for e in exact], **close)


SCORES = {"first": cq.worlds.first_setting(), "second": cq.worlds.second_setting()}
LINKED = ["logistic", "semi_logistic", "smooth_semi_logistic"]


def thetas_with_cuts(world, cuts, slopes):
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


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("link", LINKED)
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_the_truth_along_a_path_is_what_the_world_measures(name, link, floor):
    world = SCORES[name]
    thetas = thetas_with_cuts(world, cuts_everywhere(world), (0.7, -1.3))
    assert_truth_along(world, cq.Policy(thetas[0], link, floor=floor), thetas)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("link", LINKED)
def test_the_truth_of_steep_policies_is_what_the_world_measures(name, link):
    world = SCORES[name]
    cuts = cuts_everywhere(world)[[3, 8, 13]]
    thetas = thetas_with_cuts(world, cuts, (8.0, 60.0, -300.0, 1e4, 1e7))
    assert_truth_along(world, cq.Policy(thetas[0], link), thetas)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("link", LINKED)
def test_the_truth_of_flat_policies_is_what_the_world_measures(name, link):
    thetas = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-700.0, 1.0], [700.0, 1.0], [0.0, 1e-12]]
    assert_truth_along(SCORES[name], cq.Policy(thetas[0], link), thetas)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("notion", NOTIONS[1:], ids=named)
def test_the_truth_knows_every_notion(name, notion):
    world = SCORES[name]
    thetas = thetas_with_cuts(world, cuts_everywhere(world)[[3, 9, 10]], (0.7, -1.3, 40.0))
    for link in LINKED:
        assert_truth_along(world, cq.Policy(thetas[0], link), thetas, notion)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("threshold", [0.1424, 0.9])
def test_the_truth_of_thresholds_is_what_the_world_measures(name, threshold):
    world = SCORES[name]
    thetas = thetas_with_cuts(world, cuts_everywhere(world), (0.7, -50.0, 1e5))
    thetas = np.vstack([thetas, [[1.0, 0.0], [-5.0, 0.0]]])
    thetas[:, 0] += np.log(threshold / (1 - threshold))
    rule = cq.ThresholdPolicy(cq.logistic_model(thetas[0]), threshold)
    assert_truth_along(world, rule, thetas)


@pytest.mark.parametrize("notion", ["demographic_parity", "predictive_parity"])
@pytest.mark.parametrize("link", LINKED)
def test_the_truth_of_policies_with_a_feature_map_is_what_the_world_measures(link, notion):
    lending = cq.worlds.lending()
    start = lending.initial_policy(link)
    assert_truth_along(lending, start, [[0.0, 1.0], [-2.0, 0.3], [1.0, 50.0], [0.0, 0.0]], notion)
    squares = PolynomialFeatures(2, include_bias=False).fit([[0.0]])
    thetas = [[0.1, 0.5, -0.2], [-1.0, 2.0, 0.4]]
    assert_truth_along(SCORES["second"], cq.Policy(thetas[0], link, squares), thetas, notion)


@pytest.mark.parametrize("link", LINKED)
def test_the_truth_of_policies_by_group_is_what_the_world_measures(link):
    thetas = np.random.default_rng(0).normal(size=(4, 4))
    assert_truth_along(SCORES["second"], cq.Policy(thetas[0], link, groups=(0, 1)), thetas)


@pytest.mark.parametrize("name", SCORES)
def test_the_truth_of_gentle_policies_has_twelve_digits(name):
    world, fairness = SCORES[name], cq.fairness.fairness_named("predictive_parity")
    truth = Truth(world, fairness)
    steepest = 0.38 * 256 / (world.bounds[1] - world.bounds[0])
    rng = np.random.default_rng(0)
    slopes = np.concatenate([rng.uniform(-steepest, steepest, 40), [steepest, -steepest]])
    thetas = np.stack([rng.normal(size=slopes.size) * 3.0, slopes], axis=1)
    crew = path_of(cq.Policy(thetas[0]), thetas)
    found = truth.along(crew, 0)[0]
    truth._wide = None  # all of the world's own nodes
    closely = truth.along(crew, 0)[0]
    assert_allclose(found.utility, closely.utility, rtol=1e-12, atol=1e-12)
    assert_allclose(found.acceptance, closely.acceptance, rtol=1e-12, atol=1e-12)
    assert_allclose(found.benefit_gap, closely.benefit_gap, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["compas", "districts", "table"])
@pytest.mark.parametrize("notion", NOTIONS, ids=named)
def test_the_truth_on_held_out_people_is_what_the_world_measures(name, notion):
    world = WORLDS[name]()
    m = world.held_out.points.shape[1] + 1
    thetas = np.random.default_rng(0).normal(size=(5, m)) * np.array([[0.1], [1], [3], [30], [0]])
    for link in LINKED:
        assert_truth_along(world, cq.Policy(thetas[0], link), thetas, notion)
    rule = cq.ThresholdPolicy(cq.logistic_model(thetas[0]), 0.4)
    assert_truth_along(world, rule, thetas[:4], notion)


class Measured(Districts):
    """A world with a measure of its own."""

    def measure(self, rule, fairness="demographic_parity"):
        return replace(super().measure(rule, fairness), utility=0.25)


def test_a_measure_of_ones_own_is_asked():
    runs = simulated(Measured(), cq.LearnToDecide(), time_steps=2)
    assert {value for run in runs.runs for value in run.metrics["utility"]} == {0.25}


# --- a device


@pytest.fixture
def fleets(monkeypatch):
    """Count which fleets sail: those on a device, and those on the CPU."""
    device = pytest.importorskip("consequential.simulation.device")
    pytest.importorskip("jax")
    sailed = {"device": [], "cpu": []}

    def watch(kind, where):
        sail = kind.sail

        def watched(self, time_steps):
            sailed[where].append(self)
            yield from sail(self, time_steps)

        monkeypatch.setattr(kind, "sail", watched)

    watch(device.DeviceFleet, "device")
    watch(Fleet, "cpu")
    return sailed


def names_on(fleets):
    return sorted(crew.name for fleet in fleets for crew in fleet.crews)


def on_a_device(world, strategies, fleets, **options):
    """Compare with compiled code; return the runs and leave only the device's fleets counted."""
    compiled = simulated(world, strategies, **options)
    for sailed in fleets.values():
        sailed.clear()
    runs = simulated(world, strategies, engine="jax", **options)
    assert_alike(runs, compiled)
    return runs


# few programs of few iterations: compiling one takes seconds


def test_a_device_runs_several_links_in_one_program(fleets):
    strategies = [cq.LearnToDecide(link) for link in LINKED]
    strategies += [cq.LearnToDecide("logistic", floor=0.1, named="floor"), cq.LearnToPredict()]
    world = tiny(cq.worlds.second_setting(), batch_size=64)
    on_a_device(world, strategies, fleets)
    (fleet,) = fleets["device"]
    assert len(fleet.crews) == 4
    assert names_on(fleets["cpu"]) == ["deterministic, iterative"]


def test_a_device_keeps_a_reservoir(fleets):
    sequence = cq.sequences.Aggregated(800)  # it grows once and then overflows
    strategy = OwnStart(
        lambda world, rng: world.initial_policy("semi_logistic"),
        cq.LearnToDecide(sequence=sequence, weighting=cq.weightings.SelfNormalised()),
    )
    world = tiny(cq.worlds.second_setting(), batch_size=50, n_iterations=5)
    on_a_device(world, strategy, fleets, fairness="predictive_parity", n_proposals=500)
    assert len(fleets["device"]) == 1
    assert not fleets["cpu"]


def test_a_device_sees_lending_through_its_feature_map(fleets):
    strategy = cq.LearnToDecide(
        "logistic", decisions="sampled", weighting=cq.weightings.Clipped(4.0)
    )
    world = tiny(cq.worlds.lending(), batch_size=64)
    on_a_device(world, strategy, fleets, fairness="equalised_odds")
    assert len(fleets["device"]) == 1
    assert not fleets["cpu"]


def test_a_device_repeats_thin_runs_on_the_cpu(fleets):
    world = tiny(cq.worlds.second_setting(), batch_size=50, n_iterations=5)
    strategy = OwnStart(
        # some seeds begin harshly, others mildly
        lambda world, rng: cq.Policy([rng.choice([-2.0, 5.0]), 0.1]),
        cq.LearnToDecide(normalisation="paper"),
    )
    seeds, n = range(4), 500
    runs = on_a_device(world, strategy, fleets, seeds=seeds, n_proposals=n, time_steps=3)
    assert len(fleets["device"]) == 1
    fewest = dict.fromkeys(seeds, n)
    for run in runs.runs:
        fewest[run.seed] = min(fewest[run.seed], n * run.metrics["acceptance"][:3].min())
    # a minibatch and two windows of a hundred, or three windows
    thin = [seed for seed in seeds if fewest[seed] < 300]
    assert 0 < len(thin) < len(seeds)
    assert all(abs(fewest[seed] - 300) > 50 for seed in seeds)  # luck does not decide
    assert sorted(seed for again in fleets["cpu"] for seed in again.seeds) == thin


def test_a_device_runs_a_strategy_without_a_notion_of_fairness(fleets):
    runs = simulated(WORLDS["second"](), Heedless(), penalties=[0.0], engine="jax", time_steps=1)
    assert len(fleets["device"]) == 1
    assert len(runs.runs) == 2


def test_a_world_without_a_crowd_stays_on_the_cpu(fleets):
    on_a_device(Districts(), cq.LearnToDecide(), fleets)
    assert not fleets["device"]
    assert names_on(fleets["cpu"]) == ["logistic, iterative"]
