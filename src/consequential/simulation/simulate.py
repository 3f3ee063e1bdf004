"""simulate: strategies x seeds x penalties in a world."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consequential.learning import consequential_learning
from consequential.log import DecisionLog
from consequential.objective import (
    Fairness,
    InversePropensity,
    effective_sample_size,
    fairness_named,
)
from consequential.policies import DecisionRule
from consequential.simulation.runs import Run, Runs
from consequential.simulation.strategies import Strategy
from consequential.worlds import People, World

Floats = NDArray[np.float64]


def simulate(
    world: World,
    strategies: Strategy | Sequence[Strategy],
    *,
    seeds: int | Iterable[int] = 10,
    penalties: Iterable[float] = (0.0,),
    time_steps: int | None = None,
    n_proposals: int | None = None,
    fairness: str | Fairness = "demographic_parity",
    n_jobs: int = 1,
    progress: bool = True,
) -> Runs:
    """Run every strategy in a world, for every seed and every penalty.

    All runs of a seed see the same people at each step; a run's result depends on its seed and
    its own strategy and penalty, on nothing else. Ctrl-C keeps the runs that are done (with several
    processes: the seeds that are done).

    Parameters
    ----------
    world
        Where people come from.
    strategies
        One or several, for example `paper_strategies()`.
    seeds
        How many runs, or the seeds themselves.
    penalties
        The values of lambda.
    time_steps, n_proposals
        T and N; by default the world's.
    fairness
        The notion that is punished and measured.
    n_jobs
        Processes, each with seeds of its own; -1 for one a core.
    progress
        Whether to show a bar on standard error.

    Examples
    --------
    >>> import consequential as cq
    >>> runs = cq.simulate(cq.worlds.second_setting(), cq.LearnToDecide("logistic"),
    ...                    seeds=2, time_steps=20, progress=False)
    >>> runs.metric("utility", "logistic, iterative").shape
    (2, 21)
    """
    chosen = [strategies] if isinstance(strategies, Strategy) else list(strategies)
    names = [strategy.name for strategy in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ValueError(f"give strategies with names of their own, not {names}")
    numbers = _numbers("seed", range(seeds) if isinstance(seeds, int | np.integer) else seeds)
    wanted = _numbers("penalty", (float(penalty) for penalty in penalties))
    if not all(np.isfinite(penalty) and penalty >= 0 for penalty in wanted):
        raise ValueError(f"a penalty is finite and not negative: {wanted}")
    plan = Plan(
        world,
        tuple(chosen),
        tuple(wanted),
        world.parameters.time_steps if time_steps is None else time_steps,
        world.parameters.n_proposals if n_proposals is None else n_proposals,
        fairness_named(fairness),
    )
    total = len(numbers) * len(chosen) * len(plan.penalties)
    done: list[Run] = []
    interrupted = False
    try:
        for run in _with_progress(_all_runs(plan, numbers, n_jobs), total, progress):
            done.append(run)  # noqa: PERF402 - one by one, so that Ctrl-C keeps them
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
        sys.stderr.write(f"interrupted: keeping the {len(done)} of {total} runs that are done\n")
    done.sort(key=lambda run: (names.index(run.strategy), run.penalty, numbers.index(run.seed)))
    name = world.name or type(world).__name__
    return Runs(tuple(done), name, world.groups, plan.fairness.name, interrupted)


def _numbers(what: str, given: Iterable[Any]) -> list[Any]:
    numbers = list(given)
    if not numbers:
        raise ValueError("give at least one seed and one penalty")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"the same {what} is given twice: {numbers}")
    return numbers


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run for each seed."""

    world: World
    strategies: tuple[Strategy, ...]
    penalties: tuple[float, ...]
    time_steps: int
    n_proposals: int
    fairness: Fairness

    def runs_of(self, seed: int) -> Iterator[Run]:
        """Run everything for one seed."""
        proposals = SharedProposals(self.world, seed)
        for strategy in self.strategies:
            for penalty in self.penalties:
                yield self.run(proposals, strategy, penalty)

    def run(self, proposals: SharedProposals, strategy: Strategy, penalty: float) -> Run:
        """Run one strategy under one penalty, measuring as it goes."""
        seed = proposals.seed
        steps = consequential_learning(
            proposals,
            strategy.start(self.world, np.random.default_rng([seed, 3])),
            strategy.learner(self.world, self.fairness, penalty),
            sequence=strategy.sequence,
            time_steps=self.time_steps,
            n_proposals=self.n_proposals,
            rng=np.random.default_rng([seed, 2]),
        )
        record = _Record(self)
        # matrices here are thin: threads of the linear algebra library would only wait on another
        with threadpool_limits(limits=1, user_api="blas"):
            for step in steps:
                record.add(step.policy, step.log, step.time_step, step.notes)
                policy = step.learned
        return record.finish(strategy.name, penalty, seed, policy)


class SharedProposals:
    """A seed's people, drawn once and shown to every strategy."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self._people: dict[tuple[int, int], People] = {}

    def collect(
        self, rule: DecisionRule, n: int, rng: np.random.Generator, *, time_step: int
    ) -> DecisionLog:
        """Decide on this step's people; randomness comes from the seed, not from `rng`."""
        key = (time_step, n)
        if key not in self._people:
            drawn = np.random.default_rng([self.seed, 0, time_step])
            self._people[key] = self.world.people(n, drawn)
        decisions = np.random.default_rng([self.seed, 1, time_step])
        return self.world.decided(self._people[key], rule, decisions, time_step)


class _Record:
    """Metrics of a run, a row a policy: the T that decided and the one learned last."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: list[dict[str, float]] = []
        self._gained = 0.0
        self._data_behind = float("nan")
        self._notes: list[str] = []

    def add(
        self, policy: DecisionRule, log: DecisionLog, time_step: int, notes: Iterable[str]
    ) -> None:
        realised = float((log.outcome - self._plan.world.cost)[log.decision].sum())
        self._gained += realised / len(log)
        self._measure(policy, self._gained / (time_step + 1))
        self._data_behind = effective_sample_size(InversePropensity().weights(log))
        self._notes += [f"step {time_step}: {note}" for note in notes]

    def _measure(self, policy: DecisionRule, effective_utility: float) -> None:
        truth = self._plan.world.measure(policy, self._plan.fairness)
        row = {
            "utility": truth.utility,
            "effective_utility": effective_utility,
            "benefit_gap": truth.benefit_gap,
            "acceptance": truth.acceptance,
            "effective_sample_size": self._data_behind,
        }
        row |= {f"benefit {group}": value for group, value in truth.benefits.items()}
        self._rows.append(row)

    def finish(self, strategy: str, penalty: float, seed: int, policy: DecisionRule) -> Run:
        self._measure(policy, self._rows[-1]["effective_utility"])
        metrics = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}
        return Run(strategy, penalty, seed, metrics, policy, tuple(self._notes))


def _all_runs(plan: Plan, seeds: list[int], n_jobs: int) -> Iterator[Run]:
    if n_jobs == 1:
        for seed in seeds:
            yield from plan.runs_of(seed)
        return
    from joblib import Parallel, delayed

    # one seed a task: its people are drawn once, in the process that uses them
    tasks = (delayed(_runs_of)(plan, seed) for seed in seeds)
    for runs in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks):
        yield from runs


def _runs_of(plan: Plan, seed: int) -> list[Run]:
    return list(plan.runs_of(seed))


def _with_progress(runs: Iterator[Run], total: int, show: bool) -> Iterator[Run]:
    from tqdm.auto import tqdm

    with tqdm(runs, total=total, unit="run", disable=not show) as bar:
        yield from bar
