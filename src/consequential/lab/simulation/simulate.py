"""simulate: strategies x seeds x penalties in a world."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from typing import Any, Literal, cast

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from consequential.lab.simulation.compiled_runs import compiled_starts
from consequential.lab.simulation.compiled_sweep import sweep
from consequential.lab.simulation.replay import Experiment
from consequential.lab.simulation.runs import Run, Runs
from consequential.lab.simulation.strategies import Strategy
from consequential.lab.worlds import World
from consequential.lab.worlds.world import world_at
from consequential.objective.fairness import Fairness, fairness_named
from consequential.workers import on_cluster, spread


def simulate(
    world: World,
    strategies: Strategy | Sequence[Strategy],
    *,
    seeds: int | Iterable[int] = 10,
    penalties: Iterable[float] = (0.0,),
    time_steps: int | None = None,
    n_proposals: int | None = None,
    fairness: str | Fairness = "demographic_parity",
    feature_map: Any = None,
    engine: Literal["compiled", "numpy"] = "compiled",
    n_jobs: int | None = None,
    progress: bool = True,
) -> Runs:
    """Run every strategy in a world, for every seed and every penalty.

    All runs of a seed see the same people at each step; a run's result depends on its seed and
    its own strategy and penalty, on nothing else. Ctrl-C keeps the runs that are done.

    Parameters
    ----------
    world
        Where people come from. One that drifts is measured as it is at each step.
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
    feature_map
        A scikit-learn transformer for every strategy that can have one and has none of its own:
        `Curves()`, say, or splines. It does not change their names.
    engine
        `"compiled"` takes many runs through compiled code side by side; a link, a weighting, a
        fairness notion, a sequence or a learner of your own is run in Python all the same.
        `"numpy"` runs everything in Python: slow, and what defines the results.
    n_jobs
        Threads of compiled code, or processes where runs go through Python; -1 for one per core.
        By default as many threads as cores, and one process. Within `cluster(...)` seeds go to its
        workers instead.
    progress
        Whether to show a bar on standard error.

    Examples
    --------
    >>> import consequential as cq
    >>> runs = cq.simulate(cq.worlds.second_setting(), cq.lab.LearnToDecide("logistic"),
    ...                    seeds=2, time_steps=20, progress=False)
    >>> runs.metric("utility", "logistic, iterative").shape
    (2, 21)
    """
    experiment, numbers = checked_experiment(
        world,
        strategies,
        seeds=seeds,
        penalties=penalties,
        time_steps=time_steps,
        n_proposals=n_proposals,
        fairness=fairness,
        feature_map=feature_map,
        engine=engine,
    )
    total = len(numbers) * len(experiment.strategies) * len(experiment.penalties)
    done: list[Run] = []
    interrupted = False
    with tqdm(
        total=total * experiment.time_steps, unit="step", unit_scale=True, disable=not progress
    ) as bar:
        try:
            for n_steps, runs in stream(experiment, numbers, n_jobs):
                done += runs
                bar.update(n_steps)
        except KeyboardInterrupt:
            if not done:
                raise
            interrupted = True
    if interrupted:
        sys.stderr.write(f"interrupted: keeping the {len(done)} of {total} runs that are done\n")
    return replace(gathered(experiment, numbers, done), interrupted=interrupted)


def checked_experiment(
    world: World,
    strategies: Strategy | Sequence[Strategy],
    *,
    seeds: int | Iterable[int],
    penalties: Iterable[float],
    time_steps: int | None = None,
    n_proposals: int | None = None,
    fairness: str | Fairness = "demographic_parity",
    feature_map: Any = None,
    engine: Literal["compiled", "numpy"] = "compiled",
    last_only: bool = False,
) -> tuple[Experiment, list[int]]:
    """Check what `simulate` was asked for; return what to run, and the seeds."""
    chosen = [_with_map(each, feature_map) for each in _checked_strategies(strategies)]
    given = range(seeds) if isinstance(seeds, int | np.integer) else seeds
    numbers = _numbers("seed", (index(seed) for seed in given))
    wanted = _numbers("penalty", (float(penalty) for penalty in penalties))
    if not all(np.isfinite(penalty) and penalty >= 0 for penalty in wanted):
        raise ValueError(f"a penalty is finite and not negative: {wanted}")
    experiment = Experiment(
        world,
        tuple(chosen),
        tuple(wanted),
        world.parameters.time_steps if time_steps is None else time_steps,
        world.parameters.n_proposals if n_proposals is None else n_proposals,
        fairness_named(fairness),
        engine,
        last_only,
    )
    if engine not in ("compiled", "numpy"):
        raise ValueError(f"engine is 'compiled' or 'numpy', not {engine!r}")
    if experiment.time_steps < 1 or experiment.n_proposals < 1:
        raise ValueError("time_steps and n_proposals are at least 1")
    world_at(world, experiment.time_steps)  # a world that cannot go so far says so now
    return experiment, numbers


def _checked_strategies(given: Any) -> list[Strategy]:
    several = isinstance(given, Iterable) and not isinstance(given, str)
    strategies = list(given) if several else [given]
    for strategy in strategies:
        if isinstance(strategy, type) and issubclass(strategy, Strategy):
            raise TypeError(f"{strategy.__name__} is a class: make one, {strategy.__name__}()")
        if not isinstance(strategy, Strategy):
            raise TypeError(
                "a strategy is a Strategy, such as LearnToDecide('logistic'), LearnToPredict() or "
                f"one of your own, not {strategy!r}"
            )
        if not isinstance(strategy.name, str):
            raise TypeError(f"the name of {type(strategy).__name__} is not a str: {strategy.name}")
    names = [strategy.name for strategy in strategies]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"give strategies with names of their own, not {names}: named= gives one")
    return strategies


def _with_map(strategy: Any, feature_map: Any) -> Strategy:
    """Return a strategy with a feature map, where it can have one and has none."""
    if feature_map is None or getattr(strategy, "feature_map", feature_map) is not None:
        return cast("Strategy", strategy)
    return cast("Strategy", replace(strategy, feature_map=feature_map))


def gathered(experiment: Experiment, seeds: Sequence[int], runs: Iterable[Run]) -> Runs:
    """Put runs in order: by strategy and seed as given, penalties increasing."""
    names = [strategy.name for strategy in experiment.strategies]
    done = sorted(
        runs, key=lambda run: (names.index(run.strategy), run.penalty, seeds.index(run.seed))
    )
    name = experiment.world.name or type(experiment.world).__name__
    return Runs(tuple(done), name, experiment.world.groups, experiment.fairness.name)


def _numbers(what: str, given: Iterable[Any]) -> list[Any]:
    numbers = list(given)
    if not numbers:
        raise ValueError("give at least one seed and one penalty")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"the same {what} is given twice: {numbers}")
    return numbers


def stream(
    experiment: Experiment, seeds: list[int], n_jobs: int | None
) -> Iterator[tuple[float, list[Run]]]:
    """Yield how many steps were taken and which runs are done, as it goes.

    On a cluster each seed is a task: its people are drawn once, by the worker that uses them.
    """
    if not on_cluster():
        yield from _streamed_here(experiment, seeds, n_jobs)
        return
    for runs in spread(partial(_runs_of, experiment), seeds):
        yield experiment.time_steps * len(runs), runs


def is_compiled(experiment: Experiment, seeds: Sequence[int]) -> bool:
    """Whether all strategies run in compiled code: then seeds are done one after the other."""
    if experiment.engine == "numpy":
        return False
    return len(compiled_starts(experiment, list(seeds[:1]))) == len(experiment.strategies)


def _runs_of(experiment: Experiment, seed: int) -> list[Run]:
    return [run for _, runs in _streamed_here(experiment, [seed], 1) for run in runs]


def _streamed_here(
    experiment: Experiment, seeds: list[int], n_jobs: int | None
) -> Iterator[tuple[float, list[Run]]]:
    others = experiment.strategies
    if experiment.engine != "numpy":
        starts = compiled_starts(experiment, seeds)
        compiled = tuple(each for each in experiment.strategies if each.name in starts)
        others = tuple(each for each in experiment.strategies if each.name not in starts)
        if compiled:
            # one thread of linear algebra: the order of sums is then the same everywhere
            with threadpool_limits(limits=1, user_api="blas"):
                yield from sweep(replace(experiment, strategies=compiled), seeds, starts, n_jobs)
    if not others:
        return
    experiment = replace(experiment, strategies=others)
    if n_jobs in (None, 1):
        for seed in seeds:
            for run in experiment.replay(seed):
                yield experiment.time_steps, [run]
        return
    for runs in spread(partial(_in_python, experiment), seeds, n_jobs):
        yield experiment.time_steps * len(runs), runs


def _in_python(experiment: Experiment, seed: int) -> list[Run]:
    return list(experiment.replay(seed))
