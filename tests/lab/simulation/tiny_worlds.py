"""Small worlds, spies and strategies that the simulation's tests share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.testing import assert_allclose

import consequential as cq
from consequential.lab.algorithm import PredictionUpdate
from consequential.lab.simulation import Run, Runs, Strategy
from consequential.lab.worlds import Parameters, People

TINY = Parameters(
    time_steps=3,
    n_proposals=150,
    n_iterations=3,
    batch_size=32,
    learning_rate=0.7,
    decay=0.9,
    decay_every=2,
)


class TwoMethods(cq.worlds.World):
    """Three groups with names; both the score and the district say who repays."""

    cost = 0.5
    name = "districts"
    n_held_out = 400
    parameters = TINY

    def propose(self, n, rng):
        district = rng.choice(["west", "north", "south"], size=n)
        centre = 0.8 * (district == "south") - 0.8 * (district == "north")
        return np.column_stack([rng.normal(size=n) + centre, rng.normal(size=n)]), district

    def label_probability(self, features, sensitive):
        eta = 2.0 * features[:, 0] - features[:, 1] + 0.5 * (sensitive == "west")
        return 1.0 / (1.0 + np.exp(-eta))


class Districts(TwoMethods):
    """The same, with an initial model that need not be fitted."""

    def initial_theta(self, rng):
        return np.array([-0.3, 1.0, -0.2]) + 0.1 * rng.normal(size=3)


def tiny(world: cq.worlds.World, **changes: Any) -> cq.worlds.World:
    """The same world with parameters that take no time."""
    world.parameters = Parameters(
        **{name: getattr(TINY, name) for name in TINY.__slots__} | changes
    )
    return world


def small_table(n: int = 90) -> cq.worlds.TableWorld:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(n, 2))
    label = rng.random(n) < 1 / (1 + np.exp(-2 * features[:, 0]))
    sensitive = np.where(features[:, 1] + rng.normal(size=n) > 0, "young", "old")
    return cq.worlds.TableWorld(
        features, sensitive, label, cost=0.4, name="small table", parameters=TINY
    )


class FewOfAKind(cq.worlds.TableWorld):
    """Three groups: one is rare, and one has few people with label 1."""

    def __init__(self) -> None:
        rng, n = np.random.default_rng(7), 400
        group = rng.choice(["common", "failing", "rare"], size=n, p=[0.7, 0.22, 0.08])
        features = rng.normal(size=(n, 2))
        chance = np.where(group == "failing", 0.3, 1 / (1 + np.exp(-2 * features[:, 0])))
        parameters = Parameters(
            **{name: getattr(TINY, name) for name in TINY.__slots__}
            | {"n_iterations": 4, "batch_size": 8, "learning_rate": 0.1}
        )
        label = rng.random(n) < chance
        super().__init__(features, group, label, cost=0.4, parameters=parameters)

    def initial_theta(self, rng):
        return np.array([-0.4, 1.0, -0.3])


@dataclass(frozen=True)
class Seen:
    """One time step of one run, as the world saw it."""

    time_step: int
    people: People
    rule: cq.DecisionRule
    log: cq.DecisionLog


def watched(world: cq.worlds.World) -> list[Seen]:
    """Record every decision taken in a world, run after run."""
    seen: list[Seen] = []
    decide = world.decided

    def decided(people, rule, rng, time_step=0):
        log = decide(people, rule, rng, time_step)
        seen.append(Seen(time_step, people, rule, log))
        return log

    world.decided = decided
    return seen


@dataclass
class Stay(Strategy):
    """Never learns."""

    name: str = ""
    rule: cq.DecisionRule = field(default_factory=cq.AcceptAll)
    sequence: Any = "iterative"

    def start(self, world, rng):
        return self.rule

    def learner(self, world, fairness, penalty):
        return None


@dataclass
class Watched(Strategy):
    """Another strategy, with a record of the logs its learner was given."""

    inner: Strategy
    logs: list[cq.DecisionLog] = field(default_factory=list)

    @property
    def name(self):
        return self.inner.name

    @property
    def sequence(self):
        return self.inner.sequence

    def start(self, world, rng):
        return self.inner.start(world, rng)

    def learner(self, world, fairness, penalty):
        learn = self.inner.learner(world, fairness, penalty)

        def watching(policy, log, *, rng, time_step):
            self.logs.append(log)
            return learn(policy, log, rng=rng, time_step=time_step)

        return watching


@dataclass
class Interrupting(Strategy):
    """Presses Ctrl-C at the start of a run, or at a time step in it; counts runs from 1."""

    run: int
    at_step: int | None = None
    name: str = "interrupting"
    sequence: Any = "iterative"
    started: int = 0

    def start(self, world, rng):
        self.started += 1
        if self.started == self.run and self.at_step is None:
            raise KeyboardInterrupt
        return cq.AcceptAll()

    def learner(self, world, fairness, penalty):
        def learn(policy, log, *, rng, time_step):
            if self.started == self.run and time_step == self.at_step:
                raise KeyboardInterrupt
            return PredictionUpdate(policy)

        return learn


@dataclass(frozen=True, slots=True)
class OwnStart(Strategy):
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


@dataclass(frozen=True, slots=True)
class Unpunished(Strategy):
    """Has no notion of fairness, and so no penalty."""

    sequence: Any = "iterative"
    name = "unpunished"

    def start(self, world, rng):
        return world.initial_policy("logistic", rng=rng)

    def learner(self, world, fairness, penalty):
        objective = cq.Objective(world.cost, decisions="sampled")
        return cq.UpdatePolicy(objective, 8, 32, cq.lab.steps.GradientStep(0.3), shuffle=False)


def handmade_run(
    strategy: str = "logistic, iterative",
    penalty: float = 0.0,
    seed: int = 0,
    n_rows: int = 4,
    policy: cq.DecisionRule | None = None,
    notes: tuple[str, ...] = (),
) -> Run:
    """A run with numbers of no meaning, a different set for every strategy, penalty and seed."""
    rng = np.random.default_rng([*strategy.encode(), int(100 * penalty), seed])
    names = ("utility", "effective_utility", "benefit_gap", "acceptance", "effective_sample_size")
    metrics = {name: rng.normal(size=n_rows) for name in (*names, "benefit a", "benefit b")}
    metrics["effective_sample_size"][0] = np.nan
    return Run(strategy, penalty, seed, metrics, policy or cq.Policy(rng.normal(size=3)), notes)


def handmade_runs(
    strategies=("logistic, iterative", "deterministic, aggregated"),
    penalties=(0.0, 0.5),
    seeds=(0, 1, 2),
    **about: Any,
) -> Runs:
    runs = tuple(handmade_run(s, p, k) for s in strategies for p in penalties for k in seeds)
    facts = {"world": "handmade", "groups": ("a", "b"), "fairness": "demographic_parity"}
    return Runs(runs, **facts | about)


def assert_alike(runs: Runs, others: Runs, tolerance: float = 1e-8) -> None:
    """Equal notes, and metrics and parameters that differ by rounding only."""
    assert len(runs.runs) == len(others.runs) > 0
    close = {"rtol": tolerance, "atol": tolerance}
    for run, other in zip(runs.runs, others.runs, strict=True):
        about = (run.strategy, run.penalty, run.seed)
        assert about == (other.strategy, other.penalty, other.seed)
        assert run.notes == other.notes, about
        assert list(run.metrics) == list(other.metrics)
        for name, values in run.metrics.items():
            assert_allclose(values, other.metrics[name], **close, err_msg=f"{about} {name}")
        assert type(run.policy) is type(other.policy)
        if isinstance(run.policy, cq.Policy):
            assert_allclose(run.thetas, other.thetas, rtol=10 * tolerance, atol=10 * tolerance)
            assert run.policy.link is other.policy.link
            assert run.policy.floor == other.policy.floor


def assert_same_runs(runs: Runs, others: Runs) -> None:
    assert len(runs.runs) == len(others.runs) > 0
    for run, other in zip(runs.runs, others.runs, strict=True):
        assert_same_run(run, other)


def assert_same_run(run: Run, other: Run) -> None:
    """Equal to the last bit, policies and notes included."""
    assert (run.strategy, run.penalty, run.seed) == (other.strategy, other.penalty, other.seed)
    assert run.notes == other.notes
    assert list(run.metrics) == list(other.metrics)
    for name, values in run.metrics.items():
        assert values.dtype == other.metrics[name].dtype
        assert values.tobytes() == other.metrics[name].tobytes(), name
    assert_same_rule(run.policy, other.policy)
    assert (run.thetas is None) == (other.thetas is None)
    if run.thetas is not None:
        assert run.thetas.shape == other.thetas.shape
        assert run.thetas.tobytes() == other.thetas.tobytes()


def assert_same_rule(rule: Any, other: Any) -> None:
    assert type(rule) is type(other)
    if isinstance(rule, cq.Policy):
        assert rule.theta.tobytes() == other.theta.tobytes()
        assert rule.link.name == other.link.name
        assert (rule.floor, rule.groups) == (other.floor, other.groups)
    elif isinstance(rule, cq.ThresholdPolicy) and hasattr(rule.predictor, "coef_"):
        assert rule.threshold == other.threshold
        assert rule.predictor.coef_.tobytes() == other.predictor.coef_.tobytes()
        assert rule.predictor.intercept_.tobytes() == other.predictor.intercept_.tobytes()
