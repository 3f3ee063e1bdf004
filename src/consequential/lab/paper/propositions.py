"""Propositions: the paper's theorems on small worlds, enumerated. See docs/theorems.md.

Nothing here is drawn at random and nothing is fitted to a sample: every number is a sum over all
people, all paths or all data that can come.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Metrics, Population
from consequential.lab.kernels.matrices import fit_logistic
from consequential.lab.paper.truths import ParetoFront
from consequential.lab.worlds import DensityWorld, ScoreWorld
from consequential.objective.fairness import DemographicParity
from consequential.policy import DecisionRule, Policy, ThresholdPolicy, logistic_model

Floats = NDArray[np.float64]

_PARITY = DemographicParity()
_H = 1e-4  # of finite differences


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


class Limitation(NamedTuple):
    """What a rule that rejects everybody unseen is worth to those who only see the accepted."""

    ceiling: float  # no rule at all is worth more among the accepted
    seen: float  # what the rule is worth among them
    true: float  # what it is worth to everybody
    best: float  # the best there is, for everybody


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


def unseen_types(penalty: float = 1.0) -> tuple[float, float]:
    """Return what two maxima of the seen value miss of the best, in a world of four types.

    Half of either group always repays and is all that the start accepts. The others of group 0
    repay six times in ten, which is worth it at a cost of one half; the others of group 1 never
    do. Rules are all unions of types. The first maximum accepts the former, the second, which
    the proof of Proposition 1 constructs, nobody unseen: under a penalty that one is the best.
    """
    mass = np.array([[0.25, 0.0], [0.0, 0.25], [0.25, 0.0], [0.0, 0.25]])
    gain, share = np.array([0.5, 0.5, 0.1, -0.5]) * mass.sum(axis=1), mass / mass.sum(axis=0)

    def worth(accepted: tuple[int, ...]) -> float:
        chosen = np.array(accepted, dtype=float)
        benefit = chosen @ share
        return float(chosen @ gain - penalty / 2 * (benefit[0] - benefit[1]) ** 2)

    best = max(worth(rule) for rule in product((0, 1), repeat=4))
    return best - worth((1, 1, 1, 0)), best - worth((1, 1, 0, 0))


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


def ladder(n_people: int, time_steps: int, explores: float = 0.0) -> tuple[float, float]:
    """Return how likely Proposition 2's optimum is reached, and its bound [K20: impossibility].

    The learner goes down a rung when nobody it accepted defaulted, an accident, and with chance
    `explores` on purpose, which the bound does not know of. Five rungs have equally many people,
    who repay the more often the higher; from rung 1 up they are worth accepting at a cost of one
    half. The start accepts from rung 2. The chain over rungs is enumerated.
    """
    repaid = np.array([0.1, 0.6, 0.8, 0.9, 0.95])
    best, start = 1, 2
    accident = np.array([(1.0 - (1.0 - repaid[r:]).sum() / 5) ** n_people for r in range(5)])
    down = explores + (1.0 - explores) * accident
    at = np.eye(5)[start]
    for _ in range(time_steps):
        falling = at * down
        falling[0] = 0.0  # there is no rung below
        at = at - falling + np.append(falling[1:], 0.0)
    return float(at[best]), time_steps * float(accident[start])


def error_based(threshold: int = 8) -> tuple[int, float, float]:
    """Return how many data move a perceptron that accepts from here on, its worth and the best.

    The corollary [K20: error-based] in a world of ten scores: from score 8 on everybody repays,
    from 3 on four in five, below one in ten; the cost is one half. An update looks at one accepted
    person at a time: person by person, with every label that has a chance, all data are enumerated.
    """
    score = np.arange(10)
    repaid = np.select([score >= 8, score >= 3], [1.0, 0.8], 0.1)
    theta = np.array([-threshold + 0.5, 1.0])
    moves = 0
    for x, y in product(score[score >= threshold].tolist(), (0, 1)):
        possible = repaid[x] > 0 if y else repaid[x] < 1
        predicted = int(theta @ np.array([1.0, x]) > 0)
        step = (y - predicted) * np.array([1.0, x])
        moves += int(possible and bool(step.any()))

    def worth(accepted: NDArray[np.bool_]) -> float:
        return float(np.where(accepted, repaid - 0.5, 0.0).mean())

    return moves, worth(score >= threshold), worth(repaid > 0.5)


def supremum(world: DensityWorld, penalty: float, rule: DecisionRule | None = None) -> Floats:
    """Return how far Proposition 3's policies are from the optimum at n = 10, 100 and 1000.

    [K20: supremum] The n-th accepts those whom the rule, the optimal one, accepts, and one in n of
    the others.
    """
    best = world.optimal(penalty=penalty)
    policies = [(rule or best.policy).with_floor(1.0 / n) for n in (10, 100, 1000)]
    most = value(world.exact(best.policy), penalty)
    return most - np.array([value(world.exact(each), penalty) for each in policies])


Errors = dict[str, tuple[float, float]]  # divided by all applicants, and as printed


def reweighted(world: DensityWorld, logging: DecisionRule | None = None) -> Errors:
    """Return how far reweighted expectations are from utility and benefits [K20: ips-utility].

    A log of the paper's start, unless another rule is given, tells of the optimal policy with a
    floor of .01.
    """
    logging = logging or world.initial_policy("logistic")
    rule = world.optimal().policy.with_floor(0.01)
    people = world.population_for(logging)
    chance = people.propensity(logging)
    ratio = np.divide(people.propensity(rule), chance, np.zeros_like(chance), where=chance > 0)
    seen, net = people.mass * chance, people.label_probability - world.cost
    truth = people.metrics(rule, world.cost, _PARITY)
    total = float((seen * ratio * net).sum())
    benefit, sizes = (seen * ratio).sum(axis=0), people.mass.sum(axis=0)
    true_benefit = np.array(list(truth.benefits.values()))
    return {
        "utility": (abs(total - truth.utility), abs(total / float(seen.sum()) - truth.utility)),
        "benefits": (
            float(np.abs(benefit / sizes - true_benefit).max()),
            float(np.abs(benefit / seen.sum(axis=0) - true_benefit).max()),
        ),
    }


def gradient_errors(world: DensityWorld, link: str) -> Errors:
    """Return how far the expected gradient is from the derivative, relative to it.

    [K20: gradient] Of utility and of the gap at the paper's start, with the start as the logging
    policy too. Derivatives are finite differences of exact values, which see the jump of a
    semi-logistic policy; its printed score function does not.
    """
    policy = world.initial_policy(link)
    people = world.population_for(policy)
    chance = people.propensity(policy)
    inputs = np.column_stack([np.ones(len(people.points)), people.points])
    # propensity times score function: s (1 - s) below the jump, and above it 1 (1 - 1)
    slope = people.mass * chance * (1.0 - chance)
    accepted = people.mass * chance
    net, sizes = people.label_probability - world.cost, people.mass.sum(axis=0)
    by_group = inputs.T @ slope
    expected = {
        "utility": (
            inputs.T @ (slope * net).sum(axis=1),
            inputs.T @ (slope * net).sum(axis=1) / float(accepted.sum()),
        ),
        "gap": tuple(
            by_group[:, 0] / size[0] - by_group[:, 1] / size[1]
            for size in (sizes, accepted.sum(axis=0))
        ),
    }

    def derivative(metric: str) -> Floats:
        ends = [
            [getattr(world.exact(policy.at(policy.theta + h * unit)), metric) for h in (-_H, _H)]
            for unit in np.eye(2)
        ]
        return np.diff(np.array(ends), axis=1)[:, 0] / (2 * _H)

    true = {"utility": derivative("utility"), "gap": derivative("benefit_gap")}
    errors: Errors = {}
    for what, (by_applicants, printed) in expected.items():
        size = np.linalg.norm(true[what])
        errors[what] = (
            float(np.linalg.norm(by_applicants - true[what]) / size),
            float(np.linalg.norm(printed - true[what]) / size),
        )
    return errors


class CoinFlip(NamedTuple):
    """What data of a policy look like that accepts everybody with chance one half."""

    distance: float  # between the distribution it sees and the true one, in total variation
    utility: float
    initial: float  # the utility of the paper's start


def coin_flip(world: DensityWorld, rule: DecisionRule | None = None) -> CoinFlip:
    """Test the remark that a fully randomised start sees the truth, or say so of another rule."""
    rule, start = rule or Policy([0.0, 0.0]), world.initial_policy("logistic")
    people = world.regular_nodes
    distance = np.abs(induced(people, rule).mass - people.mass / people.mass.sum()).sum() / 2
    return CoinFlip(float(distance), world.exact(rule).utility, world.exact(start).utility)
