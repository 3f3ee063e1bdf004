"""Propositions: the paper's theorems on small worlds, enumerated. See docs/theorems.md.

Nothing here is drawn at random and nothing is fitted to a sample: every number is a sum over all
people, all paths or all data that can come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Metrics, Population
from consequential.fairness import DemographicParity
from consequential.kernels.logistic import fit_logistic
from consequential.paper.limits import ParetoFront
from consequential.policies import DecisionRule, ThresholdPolicy, logistic_model
from consequential.worlds import DensityWorld, ScoreWorld

Floats = NDArray[np.float64]

_PARITY = DemographicParity()


def accept_from(score: float) -> ThresholdPolicy:
    """Return the rule that accepts from this score on."""
    return ThresholdPolicy(logistic_model([-score, 1.0]), 0.5)


def value(truth: Metrics, penalty: float) -> float:
    """Return the paper's v, `u - lambda/2 (b0 - b1)^2`."""
    return truth.utility - penalty / 2 * truth.benefit_gap**2


def induced(population: Population, rule: DecisionRule) -> Population:
    """Return the distribution of the people a rule accepts."""
    mass = population.mass * population.propensity(rule)
    return Population(
        population.points, mass / mass.sum(), population.label_probability, population.groups
    )


@dataclass(frozen=True, slots=True)
class Limitation:
    """What a rule that rejects everybody unseen is worth to those who only see the accepted."""

    ceiling: float  # no rule at all is worth more among the accepted
    seen: float  # what the rule is worth among them
    true: float  # what it is worth to everybody
    best: float  # the best there is, for everybody

    @property
    def holds(self) -> bool:
        """Whether the rule is a maximum of what can be seen and yet not optimal."""
        return abs(self.seen - self.ceiling) < 1e-9 and self.true < self.best - 1e-3


def limitation(world: ScoreWorld, start: float, penalty: float) -> Limitation:
    """Proposition 1 [K20: limitation] for data collected by a threshold at `start`."""
    rule = accept_from(start)
    everybody = world.population_for(rule)
    seen = induced(everybody, rule)
    # no rule gains more than from all who are worth it, and no gap is smaller than none
    ceiling = (seen.mass * np.maximum(seen.label_probability - world.cost, 0.0)).sum()
    utility, gap = ParetoFront.of(world.cells(2**16), world.cost).penalised(penalty)
    return Limitation(
        float(ceiling),
        value(seen.metrics(rule, world.cost, _PARITY), penalty),
        value(world.exact(rule), penalty),
        utility - penalty / 2 * gap**2,
    )


def unlimited_data(world: ScoreWorld, start: float) -> float:
    """Return the utility of logistic regression on infinitely many labels above a threshold."""
    rule = accept_from(start)
    seen = induced(world.population_for(rule), rule)
    mass = seen.mass.sum(axis=1)
    repaid = (seen.mass * seen.label_probability).sum(axis=1)
    kept, score = mass > 0, seen.points[:, 0]
    centre, spread = float(score[kept].mean()), float(score[kept].std())
    phi = np.ones((2, 2 * int(kept.sum())))
    phi[1] = np.tile((score[kept] - centre) / spread, 2)
    label = np.repeat([1.0, 0.0], int(kept.sum()))
    weight = np.concatenate([repaid[kept], (mass - repaid)[kept]])
    theta, _ = fit_logistic(phi, label, weight, np.zeros(2), 1e-12, 200)
    model = logistic_model([theta[0] - theta[1] * centre / spread, theta[1] / spread])
    return world.exact(ThresholdPolicy(model, world.cost)).utility


@dataclass(frozen=True, slots=True)
class Impossibility:
    """How likely the optimum is reached, and the bound that the accidents give."""

    reached: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether `P(not reached) >= 1 - sum of deltas`."""
        return self.reached <= self.bound + 1e-12

    @property
    def holds_as_printed(self) -> bool:
        """Whether the inequality is strict, as the paper has it."""
        return self.reached < self.bound


def lucky(chances: Sequence[float]) -> Impossibility:
    """Proposition 2 [K20: impossibility] where an accident leads straight to the optimum."""
    return Impossibility(1.0 - float(np.prod(1.0 - np.array(chances))), float(sum(chances)))


def ladder(n_people: int, time_steps: int) -> Impossibility:
    """Proposition 2 for a learner that goes down a rung when nobody it accepted defaulted.

    Five rungs with equally many people, who repay the more often the higher; from rung 1 up
    they are worth accepting at a cost of one half. The start accepts from rung 2. The chain over
    rungs is enumerated.
    """
    repaid = np.array([0.1, 0.6, 0.8, 0.9, 0.95])
    best, start = 1, 2
    down = np.array([(1.0 - (1.0 - repaid[r:]).sum() / 5) ** n_people for r in range(5)])
    at = np.eye(5)[start]
    for _ in range(time_steps):
        falling = at * down
        falling[0] = 0.0  # there is no rung below
        at = at - falling + np.append(falling[1:], 0.0)
    return Impossibility(float(at[best]), time_steps * float(down[start]))


@dataclass(frozen=True, slots=True)
class ErrorBased:
    """A perceptron, whose every mistake moves it, on every datum it can ever see."""

    moved: int  # data, of all that can come, that move the rule without errors
    moved_with_errors: int  # the same for a rule that does err
    utility: float
    best: float
    faultless_yet_suboptimal: int  # rules right about everybody that are not optimal

    @property
    def holds(self) -> bool:
        """Whether nothing moves the faultless rule, which is not optimal."""
        return self.moved == 0 and self.utility < self.best - 1e-3


def error_based() -> ErrorBased:
    """The corollary [K20: error-based] in a world of ten scores.

    From score 8 on everybody repays, from 3 on four in five, below one in ten; the cost is one
    half. An update looks at one accepted person at a time: person by person, with every label
    that has a chance, all data are enumerated.
    """
    score = np.arange(10)
    repaid = np.select([score >= 8, score >= 3], [1.0, 0.8], 0.1)

    def moved_by(threshold: int) -> int:
        theta = np.array([-threshold + 0.5, 1.0])
        moves = 0
        for x, y in product(score[score >= threshold].tolist(), (0, 1)):
            possible = repaid[x] > 0 if y else repaid[x] < 1
            predicted = int(theta @ np.array([1.0, x]) > 0)
            step = (y - predicted) * np.array([1.0, x])
            moves += int(possible and bool(step.any()))
        return moves

    def worth(accepted: NDArray[np.bool_]) -> float:
        return float(np.where(accepted, repaid - 0.5, 0.0).mean())

    # as printed the rule is right about everybody: with certain labels, enumerate such rules
    worse = 0
    for label in product((0, 1), repeat=6):
        gain = np.array(label) - 0.5
        right = np.array(label)  # the only rule without an error
        worse += int(float(right @ gain) < float(gain.clip(min=0.0).sum()))
    return ErrorBased(moved_by(8), moved_by(3), worth(score >= 8), worth(repaid > 0.5), worse)


@dataclass(frozen=True, slots=True)
class Supremum:
    """Distance to the optimum of the proof's policies, and what an exploring log tells of them."""

    n: tuple[int, ...]
    distances: tuple[float, ...]
    identity: float  # largest error of the reweighted value, divided by all applicants
    as_printed: float  # the same, as an average over the accepted

    @property
    def holds(self) -> bool:
        """Whether distances fall to nothing at the rate 1/n."""
        scaled = np.array(self.n) * np.array(self.distances)
        falling = bool((np.diff(self.distances) < 0).all() and min(self.distances) >= 0)
        return falling and bool(scaled[-1] <= 1.05 * scaled[-2])


@cache
def supremum(world: DensityWorld, penalty: float) -> Supremum:
    """Proposition 3 [K20: supremum] for the paper's start as the exploring policy."""
    best = world.optimal(penalty=penalty)
    sizes = (10, 100, 1000)
    logging = world.initial_policy("logistic")
    people = world.regular_nodes
    chance = people.propensity(logging)
    seen, share = induced(people, logging), float((people.mass * chance).sum())
    net = people.label_probability - world.cost
    distances, errors, printed = [], [], []
    for n in sizes:
        rule = best.policy.with_floor(1.0 / n)
        truth = world.exact(rule)
        distances.append(value(world.exact(best.policy), penalty) - value(truth, penalty))
        # the expectation over accepted people, each weighted by one over their chance
        average = float((seen.mass * people.propensity(rule) / chance * net).sum())
        on_nodes = people.metrics(rule, world.cost, _PARITY).utility
        errors.append(abs(average * share - on_nodes))
        printed.append(abs(average - on_nodes))
    return Supremum(sizes, tuple(distances), max(errors), max(printed))
