"""Truths: what the worlds of the studies know exactly, and the best that any rule can do there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from consequential.evaluation import Metrics, Population
from consequential.lab.paper.studies import STUDIES
from consequential.lab.worlds import DensityWorld, Optimum, ScoreWorld, TableWorld, World
from consequential.objective.fairness import DemographicParity
from consequential.policy import DecisionRule, Policy

if TYPE_CHECKING:
    from consequential.lab.simulation import Runs


Floats = NDArray[np.float64]

SETTINGS = {"first": "first setting", "second": "second setting"}
ORIENTATIONS = {"compas": "no re-arrest as y = 1", "compas-rearrest": "re-arrest as y = 1"}


Function = TypeVar("Function", bound=Callable[..., Any])
SMALL_GAP = 0.01  # one accepted person in a hundred: no table here can tell it from none
_STEEPEST = 60.0  # a logistic policy this steep is a threshold for nearly everybody
_PENALTIES = (0.0, *10.0 ** np.arange(-1.0, 4.1, 0.5))  # from no matter to nothing but the gap
_STARTS = 64  # random ones per penalty; with 16 the best found differs from seed to seed
_KEPT = 3  # places from which a search goes on


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


def distinct(population: Population) -> Population:
    """Return the same people with equal feature vectors in one row."""
    points, row = np.unique(population.points, axis=0, return_inverse=True)
    mass = np.zeros((len(points), len(population.groups)))
    positives = np.zeros_like(mass)
    np.add.at(mass, row.ravel(), population.mass)
    np.add.at(positives, row.ravel(), population.mass * population.label_probability)
    share = np.divide(positives, mass, out=np.zeros_like(mass), where=mass > 0)
    return Population(points, mass, share, population.groups)


def worth_and_gap(population: Population, cost: float) -> tuple[Floats, Floats]:
    """Return what accepting each point adds to utility and to the gap between two groups."""
    if len(population.groups) != 2:
        raise ValueError(f"a gap is between two groups; there are {len(population.groups)}")
    gain = (population.mass * (population.label_probability - cost)).sum(axis=1)
    share = population.mass / population.mass.sum(axis=0)
    return gain, share[:, 0] - share[:, 1]


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The most utility at every gap in acceptance, over all functions of the features.

    Both are linear in the propensities, so the most utility is concave in the gap. Its corners
    are the policies that accept where `worth - price * gap` is positive, for every price.
    """

    gaps: Floats  # increasing
    utilities: Floats

    @classmethod
    def of(cls, population: Population, cost: float) -> ParetoFront:
        """Return the frontier of an enumerated population."""
        gain, gap = worth_and_gap(population, cost)
        matters = np.abs(gap) > 1e-15
        always = gain[~matters].clip(min=0.0).sum()
        gain, gap = gain[matters], gap[matters]
        # at a price of minus infinity all who widen the gap are in; as it rises each of them
        # leaves at its own price, and each of the others enters
        order = np.argsort(gain / gap, kind="stable")
        start_gap, start = gap[gap > 0].sum(), always + gain[gap > 0].sum()
        gaps = start_gap - np.concatenate([[0.0], np.cumsum(np.abs(gap[order]))])
        steps = np.cumsum((np.sign(gap) * gain)[order])
        return cls(gaps[::-1], (start - np.concatenate([[0.0], steps]))[::-1])

    def within(self, max_gap: float) -> tuple[float, float]:
        """Return utility and gap of the best policy whose gap is at most this."""
        best = float(self.gaps[np.argmax(self.utilities)])
        gap = float(np.clip(best, -max_gap, max_gap))
        return float(np.interp(gap, self.gaps, self.utilities)), gap

    def penalised(self, penalty: float) -> tuple[float, float]:
        """Return utility and gap of the policy that is best for `u - lambda/2 gap^2`."""
        if penalty == 0:
            return self.within(np.inf)
        width = np.diff(self.gaps)
        flat = width <= 0
        slope = np.diff(self.utilities) / np.where(flat, 1.0, width)
        inside = np.clip(slope / penalty, self.gaps[:-1], self.gaps[1:])
        candidates = np.where(flat, self.gaps[:-1], inside)
        values = np.interp(candidates, self.gaps, self.utilities)
        best = int(np.argmax(values - penalty / 2 * candidates**2))
        return float(values[best]), float(candidates[best])


@dataclass(frozen=True)
class LogisticClass:
    """The linear logistic policies on an enumerated population, improved numerically.

    The objective is not convex, so what a search finds is a lower bound on the best of the class.
    Searches under penalties of all sizes share what they find: a place where one of them ends is
    where another may do better than from its own starts. Without that the best found depends on
    rounding, and can get worse as the penalty falls.
    """

    population: Population
    cost: float

    def metrics(self, rule: DecisionRule) -> Metrics:
        """Return a rule's metrics in the population."""
        return self.population.metrics(rule, self.cost, DemographicParity())

    def best(self, penalty: float = 0.0) -> Policy:
        """Return the best policy found for `u - lambda/2 gap^2`."""
        found = [self._search(penalty, theta) for theta in self._promising(penalty, self._ends)]
        return Policy(self._promising(penalty, np.array(found))[0])

    def within(self, max_gap: float) -> Policy:
        """Return the best policy found whose gap is at most this."""
        if np.isinf(max_gap):
            return self.best()
        from scipy.optimize import NonlinearConstraint, minimize

        inputs, gain, gap = self._linear

        def total(weights: Floats, theta: Floats) -> float:
            return float(weights @ expit(inputs @ theta))

        def slope(weights: Floats, theta: Floats) -> Floats:
            propensity = expit(inputs @ theta)
            return np.asarray(inputs.T @ (propensity * (1.0 - propensity) * weights))

        small = NonlinearConstraint(partial(total, gap), -max_gap, max_gap, jac=partial(slope, gap))
        policies = [Policy(np.zeros(inputs.shape[1]))]  # all alike: no gap
        # penalties of all sizes end in many places; from each the constraint is met exactly
        for start in np.concatenate([self._promising(size, self._ends) for size in _PENALTIES]):
            search = minimize(
                partial(total, -gain),
                start,
                jac=partial(slope, -gain),
                method="SLSQP",
                constraints=[small],
                bounds=[(-_STEEPEST, _STEEPEST)] * len(start),
                options={"maxiter": 100, "ftol": 1e-10},
            )
            policies.append(Policy(search.x))
        feasible = [p for p in policies if abs(self.metrics(p).benefit_gap) <= max_gap + 1e-6]
        return max(feasible, key=lambda policy: self.metrics(policy).utility)

    @cached_property
    def _linear(self) -> tuple[Floats, Floats, Floats]:
        """The policies' inputs, and what accepting each point adds to utility and gap."""
        points = self.population.points
        gain, gap = worth_and_gap(self.population, self.cost)
        return np.column_stack([np.ones(len(points)), points]), gain, gap

    @cached_property
    def _ends(self) -> Floats:
        """Where searches under penalties of all sizes ended, one theta per row."""
        n = self._linear[0].shape[1]
        everybody = 3.0 * np.eye(n)[0]
        chance = 3.0 * np.random.default_rng(0).normal(size=(_STARTS, n))
        starts = [np.zeros(n), everybody, -everybody, *chance]
        ends = np.array([self._search(size, start) for size in _PENALTIES for start in starts])
        for size in (*_PENALTIES, *reversed(_PENALTIES)):
            further = [self._search(size, theta) for theta in self._promising(size, ends)]
            ends = np.concatenate([ends, further])
        return ends

    def _promising(self, penalty: float, thetas: Floats) -> Floats:
        """Return the few of these thetas that are best under a penalty, the best first."""
        inputs, gain, gap = self._linear
        propensity = expit(inputs @ thetas.T)
        value = gain @ propensity - penalty / 2 * (gap @ propensity) ** 2
        return np.asarray(thetas[np.argsort(-value, kind="stable")[:_KEPT]])

    def _search(self, penalty: float, start: Floats) -> Floats:
        """Return where a search for the best policy under a penalty ends."""
        from scipy.optimize import minimize

        inputs, gain, gap = self._linear

        def loss(theta: Floats) -> tuple[float, Floats]:
            propensity = expit(inputs @ theta)
            unfair = float(gap @ propensity)
            slope = propensity * (1.0 - propensity) * (gain - penalty * unfair * gap)
            value = float(gain @ propensity) - penalty / 2 * unfair**2
            scale = 1.0 + penalty  # keeps the search's tolerances meaningful for large penalties
            return -value / scale, -(inputs.T @ slope) / scale

        search = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-_STEEPEST, _STEEPEST)] * len(start),
            options={"maxiter": 300, "ftol": 1e-12, "gtol": 1e-9},
        )
        return np.asarray(search.x)
