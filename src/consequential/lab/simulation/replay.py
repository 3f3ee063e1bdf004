"""Replay: one run at a time in Python, of any strategy in any world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consequential.evaluation import Metrics
from consequential.lab.algorithm.algorithm import Learner, consequential_learning
from consequential.lab.algorithm.update import UpdatePolicy
from consequential.lab.kernels.alias_table import DECISIONS, LEARNING, PEOPLE, START, draw_proposals
from consequential.lab.kernels.random import UniformStream, fill_uniforms, stream_key
from consequential.lab.kernels.step import StepPeople
from consequential.lab.simulation.runs import Run, theta_of
from consequential.lab.simulation.strategies import Strategy
from consequential.lab.worlds import People, World
from consequential.lab.worlds.world import world_at
from consequential.log import DecisionLog
from consequential.objective.fairness import Fairness
from consequential.objective.weightings import InversePropensity, effective_sample_size
from consequential.policy import DecisionRule

Floats = NDArray[np.float64]

# So many numbers of a seed's people are cached; later people are drawn again for each run.
_CACHED = 2**24


@dataclass(frozen=True, slots=True)
class Experiment:
    """What to run for each seed."""

    world: World
    strategies: tuple[Strategy, ...]
    penalties: tuple[float, ...]
    time_steps: int
    n_proposals: int
    fairness: Fairness
    engine: Literal["compiled", "numpy"]
    last_only: bool = False  # measure only the last policy: metrics of the others are NaN

    def for_seed(self, seed: int) -> Experiment:
        """Return the experiment in the world of a seed."""
        world = self.world.for_seed(seed)
        return self if world is self.world else replace(self, world=world)

    def start(self, strategy: Strategy, seed: int) -> DecisionRule:
        """Return the first rule that a strategy deploys."""
        return strategy.start(self.world.for_seed(seed), np.random.default_rng([seed, START]))

    def learner(self, strategy: Strategy, penalty: float) -> Learner | None:
        """Return what turns data into the next rule, for the engine asked for."""
        learner = strategy.learner(self.world, self.fairness, penalty)
        if isinstance(learner, UpdatePolicy) and self.engine == "numpy":
            return replace(learner, engine="numpy")
        return learner

    def replay(self, seed: int) -> Iterator[Run]:
        """Run everything for one seed."""
        here = self.for_seed(seed)
        proposals = Proposals(here.world, seed)
        for strategy in self.strategies:
            for penalty in self.penalties:
                yield here._run(proposals, strategy, penalty)

    def _run(self, proposals: Proposals, strategy: Strategy, penalty: float) -> Run:
        steps = consequential_learning(
            proposals,
            self.start(strategy, proposals.seed),
            self.learner(strategy, penalty),
            sequence=strategy.sequence,
            time_steps=self.time_steps,
            n_proposals=self.n_proposals,
            rng=np.random.default_rng([proposals.seed, LEARNING]),
        )
        record = _Record(self)
        # matrices are small here: threads of the linear algebra library would only wait
        with threadpool_limits(limits=1, user_api="blas"):
            for step in steps:
                record.add(step.policy, step.log, step.time_step, step.notes)
                policy = step.learned
            return record.finish(strategy.name, penalty, proposals.seed, policy)


class _Record:
    """Metrics of a run, one row per policy: the T that decided and the one learned last."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._rows: list[dict[str, float]] = []
        self._thetas: list[Floats | None] = []
        self._gained = 0.0
        self._effective_before = float("nan")
        self._notes: list[str] = []

    def add(
        self, policy: DecisionRule, log: DecisionLog, time_step: int, notes: Iterable[str]
    ) -> None:
        realised = float((log.outcome - self._experiment.world.cost)[log.decision].sum())
        self._gained += realised / len(log)
        self._measure(policy, time_step, self._gained / (time_step + 1))
        self._effective_before = effective_sample_size(InversePropensity().weights(log))
        self._notes += [f"step {time_step}: {note}" for note in notes]

    def _measure(self, policy: DecisionRule, time_step: int, effective_utility: float) -> None:
        experiment = self._experiment
        if experiment.last_only and time_step < experiment.time_steps:
            nan = float("nan")
            truth = Metrics(nan, nan, nan, dict.fromkeys(experiment.world.groups, nan))
        else:
            truth = world_at(experiment.world, time_step).measure(policy, experiment.fairness)
        row = {
            "utility": truth.utility,
            "effective_utility": effective_utility,
            "benefit_gap": truth.benefit_gap,
            "acceptance": truth.acceptance,
            "effective_sample_size": self._effective_before,
        }
        row |= {f"benefit {group}": value for group, value in truth.benefits.items()}
        self._rows.append(row)
        self._thetas.append(theta_of(policy))

    def finish(self, strategy: str, penalty: float, seed: int, policy: DecisionRule) -> Run:
        self._measure(policy, self._experiment.time_steps, self._rows[-1]["effective_utility"])
        metrics = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}
        known = [theta for theta in self._thetas if theta is not None]
        complete = len(known) == len(self._thetas) and len({theta.shape for theta in known}) == 1
        thetas = np.stack(known) if complete else None
        return Run(strategy, penalty, seed, metrics, policy, tuple(self._notes), thetas)


class Proposals:
    """A seed's people, drawn once and shown to every strategy."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self._people: dict[tuple[int, int], People] = {}
        self._n_cached = 0

    def collect(
        self, rule: DecisionRule, n: int, rng: np.random.Generator, *, time_step: int
    ) -> DecisionLog:
        """Decide on this step's people; randomness comes from the seed, not from `rng`."""
        people = self._people.get((time_step, n))
        if people is None:
            people = self._drawn(n, time_step)
            self._n_cached += people.features.size
            if self._n_cached < _CACHED:
                self._people[time_step, n] = people
        decisions: np.random.Generator = np.random.default_rng([self.seed, DECISIONS, time_step])
        if type(rule).decide is DecisionRule.decide:  # one uniform number per person
            decisions = UniformStream(int(key_of(self.seed, DECISIONS, time_step)))  # type: ignore[assignment]
        return self.world.decided(people, rule, decisions, time_step)

    def _drawn(self, n: int, time_step: int) -> People:
        world = world_at(self.world, time_step)
        table = world.alias_table
        if table is None:
            return world.people(n, np.random.default_rng([self.seed, PEOPLE, time_step]))
        features = np.empty((table.n_features, n))
        group, label = np.empty(n, dtype=np.int16), np.empty(n)
        drawn = StepPeople(features, group, label, np.empty(0))
        fill_proposals(world, self.seed, time_step, drawn)
        return People(np.ascontiguousarray(features.T), group.astype(np.intp), label)


def fill_proposals(world: World, seed: int, time_step: int, people: StepPeople) -> None:
    """Fill in the people a seed has at a time step, and the random numbers that decide on them.

    `world` is the world as it is at that step; inputs are the features, one row per feature.
    """
    table, (features, group, label, uniforms) = world.alias_table, people
    if table is not None:
        draw_proposals(table, _folded(seed), time_step, features, group, label, uniforms)
        return
    drawn = world.people(len(label), np.random.default_rng([seed, PEOPLE, time_step]))
    features[:], group[:], label[:] = drawn.features.T, drawn.group, drawn.label
    fill_uniforms(key_of(seed, DECISIONS, time_step), 0, uniforms)


def key_of(seed: int, purpose: int, time_step: int) -> np.uint64:
    """Return the key of a seed's stream; seeds may be of any size."""
    return np.uint64(stream_key(_folded(seed), purpose, time_step))


def _folded(seed: int) -> np.uint64:
    return np.uint64(seed % 2**64)


def learning_rng(seed: int, time_step: int) -> np.random.Generator:
    """Return what `consequential_learning` gives a learner at a time step.

    It spawns two generators per step from that of the run; this is the second.
    """
    child = np.random.SeedSequence([seed, LEARNING], spawn_key=(2 * time_step + 1,))
    return np.random.Generator(np.random.PCG64(child))
