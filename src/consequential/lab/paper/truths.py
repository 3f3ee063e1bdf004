"""Truths: what the worlds of the studies know exactly, computed once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consequential.evaluation import Population
from consequential.lab.paper.limits import LogisticClass, ParetoFront, distinct
from consequential.lab.paper.studies import STUDIES
from consequential.lab.worlds import DensityWorld, Optimum, ScoreWorld, TableWorld, World
from consequential.policy import DecisionRule, Policy

if TYPE_CHECKING:
    from consequential.lab.simulation import Runs

Floats = NDArray[np.float64]

SETTINGS = {"first": "first setting", "second": "second setting"}
ORIENTATIONS = {"compas": "no re-arrest as y = 1", "compas-rearrest": "re-arrest as y = 1"}


Function = TypeVar("Function", bound=Callable[..., Any])


def _once(function: Function) -> Function:
    """Cache a function that uses one thread of linear algebra: its digits are always the same."""
    limited = threadpool_limits.wrap(limits=1, user_api="blas")(function)
    return cast(Function, cache(limited))


@_once
def world_of(name: str) -> World:
    """Return the world of studies whose names begin like this, `"first"` or `"lending"` say."""
    return STUDIES[name if name == "lending" else f"{name}-time"].world()


def where(name: str) -> str:
    """Return a world's name in a sentence."""
    return SETTINGS.get(name, world_of(name).name)


def score_world(name: str) -> ScoreWorld:
    """Return a world with one score: a setting, or the lending example."""
    world = world_of(name)
    assert isinstance(world, ScoreWorld)
    return world


def setting(name: str) -> DensityWorld:
    """Return a synthetic setting, `"first"` or `"second"`."""
    world = world_of(name)
    assert isinstance(world, DensityWorld)
    return world


def table(name: str) -> TableWorld:
    """Return a world made of a table, `"compas"` say."""
    world = world_of(name)
    assert isinstance(world, TableWorld)
    return world


@_once
def optimum(name: str, time_step: int = 0) -> Optimum:
    """Return the best policy of a world with one score, as the world is at a time step."""
    world = score_world(name).at(time_step)
    assert isinstance(world, ScoreWorld)
    return world.optimal()


@_once
def best_cut(name: str) -> Optimum:
    """Return the best single threshold of a world with one score."""
    return score_world(name).optimal(among="thresholds")


def best_threshold(name: str) -> float:
    """Return where the best single threshold lies."""
    threshold = best_cut(name).threshold
    assert threshold is not None  # the best of the thresholds has one
    return threshold


@_once
def members(name: str) -> LogisticClass:
    """Return the linear logistic policies of a setting, or of a table's people."""
    world = world_of(name)
    if isinstance(world, TableWorld):
        return LogisticClass(distinct(world.population("all")), world.cost)
    return LogisticClass(setting(name).cells(2**10), world.cost)


@_once
def best_logistic(name: str, max_gap: float = np.inf) -> Policy:
    """Return the best linear logistic policy found whose gap is at most this."""
    return members(name).within(max_gap)


@_once
def logistic_path(name: str, penalties: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return utility and gap of the best linear logistic policy found for each penalty."""
    found = [members(name).metrics(members(name).best(penalty)) for penalty in penalties]
    return [(truth.utility, truth.benefit_gap) for truth in found]


@_once
def pareto_front(name: str) -> ParetoFront:
    """Return the most utility at every gap: of a setting, or of a table's people."""
    world = world_of(name)
    if isinstance(world, TableWorld):
        return ParetoFront.of(members(name).population, world.cost)
    return ParetoFront.of(setting(name).cells(2**14), world.cost)


def start_cut(name: str) -> float:
    """Return where a setting's initial model cuts."""
    world = setting(name)
    return cut_of(world.initial_theta(np.random.default_rng(0))[None, :], world.cost).item()


def cut_of(thetas: Floats, cost: float) -> Floats:
    """Return the score at which each model, one per row, predicts the cost."""
    level = np.log(cost / (1.0 - cost))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((level - thetas[:, 0]) / thetas[:, 1])


def is_predicting(strategy: str) -> bool:
    """Whether a strategy learns to predict, and decides by a threshold."""
    return strategy.startswith("deterministic")


def boundaries(strategy: str, thetas: Floats, cost: float) -> Floats:
    """Return where each of a strategy's policies cuts: accepts from here on, or half of them."""
    return cut_of(thetas, cost if is_predicting(strategy) else 0.5)


def curves(strategy: str, thetas: Floats, score: Floats) -> Floats:
    """Return, one row per theta, the learned model's or policy's probability at each score."""
    kind = "logistic" if is_predicting(strategy) else strategy.rpartition(", ")[0]
    link = kind.replace("-", "_")
    return np.stack([Policy(theta, link).propensity(score[:, None]) for theta in thetas])


def held_out_deviations(runs: Runs, name: str, strategy: str, penalty: float) -> Floats:
    """Return the gap's standard deviation over draws of a table's held-out people, run by run.

    This is the deviation of the difference of two groups' mean propensities.
    """

    def deviation(policy: DecisionRule, seed: int) -> float:
        people = _held_out(name, seed)
        group, propensity = people.mass.argmax(axis=1), policy.propensity(people.points)
        parts = [propensity[group == z] for z in range(len(people.groups))]
        return float(np.sqrt(sum(part.var() / len(part) for part in parts)))

    found = runs.select(strategy, penalty)
    return np.array([deviation(run.policy, run.seed) for run in found if run.policy is not None])


@_once
def _held_out(name: str, seed: int) -> Population:
    """Return the people of a table that the runs of a seed never saw."""
    return table(name).for_seed(seed).held_out
