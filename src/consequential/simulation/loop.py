"""One run at a time, in Python: any strategy, any world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consequential.evaluation import Metrics
from consequential.learning import UpdatePolicy, consequential_learning
from consequential.learning.algorithm import Learner
from consequential.log import DecisionLog
from consequential.objective import Fairness, InversePropensity, effective_sample_size
from consequential.policies import DecisionRule
from consequential.simulation.proposals import LEARNING, START, SharedProposals
from consequential.simulation.runs import Run, theta_of
from consequential.simulation.strategies import Strategy
from consequential.worlds import World
from consequential.worlds.world import world_at

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run for each seed."""

    world: World
    strategies: tuple[Strategy, ...]
    penalties: tuple[float, ...]
    time_steps: int
    n_proposals: int
    fairness: Fairness
    engine: Literal["compiled", "numpy", "jax"]
    last_only: bool = False  # measure the last policy alone: metrics of the others are NaN

    def start(self, strategy: Strategy, seed: int) -> DecisionRule:
        """Return the first rule a strategy deploys."""
        return strategy.start(self.world, np.random.default_rng([seed, START]))

    def learner(self, strategy: Strategy, penalty: float) -> Learner:
        """Return what turns data into the next rule, on the engine asked for."""
        learner = strategy.learner(self.world, self.fairness, penalty)
        if isinstance(learner, UpdatePolicy) and self.engine == "numpy":
            return replace(learner, engine="numpy")
        return learner

    def runs_of(self, seed: int) -> Iterator[Run]:
        """Run everything for one seed."""
        proposals = SharedProposals(self.world, seed)
        for strategy in self.strategies:
            for penalty in self.penalties:
                yield self.run(proposals, strategy, penalty)

    def run(self, proposals: SharedProposals, strategy: Strategy, penalty: float) -> Run:
        """Run one strategy under one penalty, measuring as it goes."""
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
        # matrices here are thin: threads of the linear algebra library would only wait on another
        with threadpool_limits(limits=1, user_api="blas"):
            for step in steps:
                record.add(step.policy, step.log, step.time_step, step.notes)
                policy = step.learned
            return record.finish(strategy.name, penalty, proposals.seed, policy)


class _Record:
    """Metrics of a run, a row a policy: the T that decided and the one learned last."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: list[dict[str, float]] = []
        self._thetas: list[Floats | None] = []
        self._gained = 0.0
        self._data_behind = float("nan")
        self._notes: list[str] = []

    def add(
        self, policy: DecisionRule, log: DecisionLog, time_step: int, notes: Iterable[str]
    ) -> None:
        realised = float((log.outcome - self._plan.world.cost)[log.decision].sum())
        self._gained += realised / len(log)
        self._measure(policy, time_step, self._gained / (time_step + 1))
        self._data_behind = effective_sample_size(InversePropensity().weights(log))
        self._notes += [f"step {time_step}: {note}" for note in notes]

    def _measure(self, policy: DecisionRule, time_step: int, effective_utility: float) -> None:
        plan = self._plan
        if plan.last_only and time_step < plan.time_steps:
            nothing = float("nan")
            truth = Metrics(nothing, nothing, nothing, dict.fromkeys(plan.world.groups, nothing))
        else:
            truth = world_at(plan.world, time_step).measure(policy, plan.fairness)
        row = {
            "utility": truth.utility,
            "effective_utility": effective_utility,
            "benefit_gap": truth.benefit_gap,
            "acceptance": truth.acceptance,
            "effective_sample_size": self._data_behind,
        }
        row |= {f"benefit {group}": value for group, value in truth.benefits.items()}
        self._rows.append(row)
        self._thetas.append(theta_of(policy))

    def finish(self, strategy: str, penalty: float, seed: int, policy: DecisionRule) -> Run:
        self._measure(policy, self._plan.time_steps, self._rows[-1]["effective_utility"])
        metrics = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}
        known = [theta for theta in self._thetas if theta is not None]
        whole = len(known) == len(self._thetas) and len({theta.shape for theta in known}) == 1
        thetas = np.stack(known) if whole else None
        return Run(strategy, penalty, seed, metrics, policy, tuple(self._notes), thetas)
