"""Worlds of known truth, from which `learners.py` draws logs.

They are designed to differ: well specified or not, interactions, a hidden subgroup, a small group,
heavy noise, many words, strong selection, several past policies, the columns of a lender.

The last five, from `heavy_tails` on, were written down before any learner ran on them. They are for
checks only: choose options of the learner on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

import consequential as cq

Floats = np.ndarray


@dataclass(frozen=True)
class People:
    """People with their true chance of label 1, and the past rule's propensity."""

    features: Floats
    group: Floats
    chance: Floats
    propensity: Floats


@dataclass(frozen=True)
class World:
    """Where a log comes from."""

    about: str
    people: Callable[[int, np.random.Generator], People]
    cost: float
    n_evaluated: int = 200_000

    def evaluated(self) -> People:
        """Return the people on whom every rule is evaluated: the same ones for all logs."""
        return self.people(self.n_evaluated, np.random.default_rng(2**20))


@dataclass(frozen=True)
class Log:
    """What a lender has: decisions, and labels of accepted people (0 where unknown)."""

    people: People
    decision: Floats
    label: Floats
    cost: float

    @classmethod
    def of(cls, world: World, n: int, seed: int) -> Log:
        rng = np.random.default_rng(seed)
        people = world.people(n, rng)
        decision = rng.random(n) < people.propensity
        label = (rng.random(n) < people.chance) & decision
        return cls(people, decision, label.astype(float), world.cost)

    @property
    def decisions(self) -> cq.DecisionLog:
        """The same as a log of ours."""
        return cq.DecisionLog.from_arrays(
            self.people.features,
            self.decision,
            self.people.propensity,
            np.where(self.decision, self.label, np.nan),
            self.people.group,
        )


def fixed(seed: int, k: int, scale: float) -> Floats:
    """Return coefficients that are the same for every log of a world."""
    return np.random.default_rng(seed).normal(0.0, scale, k)


def drawn_group(chance: Floats, rng: np.random.Generator) -> Floats:
    return (rng.random(len(chance)) < chance).astype(int)


def drawn_words(sizes: tuple[int, ...], evenness: float, n: int, rng: np.random.Generator):
    """Return a column of words (as codes) per size, some words more frequent than others."""
    shares = [np.random.default_rng(k).dirichlet(np.full(k, evenness)) for k in sizes]
    return [rng.choice(k, n, p=share) for k, share in zip(sizes, shares, strict=True)]


def one_hot(words: list[Floats], sizes: tuple[int, ...]) -> Floats:
    return np.column_stack([np.eye(k)[word] for k, word in zip(sizes, words, strict=True)])


def well_specified(n, rng):
    x = rng.normal(size=(n, 20))
    past = 1.5 * (0.8 * x[:, 0] + 0.5 * x[:, 1] - 0.5)
    group = drawn_group(expit(1.2 * x[:, 2] - 0.8 * x[:, 3]), rng)
    return People(x, group, expit(0.3 + x @ fixed(1, 20, 0.35)), 0.05 + 0.9 * expit(past))


def nonlinear(n, rng):
    x = rng.normal(size=(n, 12))
    group = np.digitize(x[:, 3] + 0.7 * rng.normal(size=n), [-0.6, 0.7])
    hidden = (x[:, 7] > 0.8) & (x[:, 8] < 0.0)
    eta = 0.4 + 0.9 * np.sin(1.5 * x[:, 0]) + 0.8 * x[:, 1] * x[:, 2] - 0.5 * np.abs(x[:, 3])
    eta += 0.4 * x[:, 4] + 0.3 * x[:, 5] - 1.6 * hidden
    return People(x, group, expit(eta), 0.05 + 0.9 * expit(1.2 * x[:, 0] + x[:, 4] - 0.3))


def interactions(n, rng):
    x = rng.normal(size=(n, 8))
    eta = 0.2 + x[:, 0] * x[:, 1] - 0.9 * x[:, 2] * x[:, 3] + 0.5 * x[:, 4] * x[:, 5]
    group = drawn_group(expit(x[:, 0] + 0.5 * x[:, 6]), rng)
    return People(x, group, expit(eta + 0.3 * x[:, 6]), 0.1 + 0.8 * expit(x[:, 6] + x[:, 0]))


def hidden_subgroup(n, rng):
    x = np.column_stack([rng.normal(size=(n, 6)), rng.integers(0, 2, size=(n, 3))])
    inside = (x[:, 6] == 1) & (x[:, 7] == 1) & (x[:, 0] > 0.0)
    eta = 0.5 + 0.8 * x[:, 0] + 0.5 * x[:, 1] - 0.4 * x[:, 2] - 2.5 * inside + 0.5 * x[:, 8]
    group = drawn_group(0.35 + 0.25 * x[:, 6], rng)
    return People(x, group, expit(eta), 0.05 + 0.9 * expit(1.5 * x[:, 0] + 0.5 * x[:, 1]))


def small_group(n, rng):
    group = drawn_group(np.full(n, 0.03), rng)
    x = rng.normal(size=(n, 8))
    x[:, :2] -= group[:, None] * [0.8, 0.4]
    eta = 0.3 + 0.7 * x[:, 0] + 0.5 * x[:, 1] - 0.4 * x[:, 2] ** 2 + 0.4 * x[:, 3]
    return People(x, group, expit(eta), 0.05 + 0.9 * expit(x[:, 0] + x[:, 1]))


def heavy_noise(n, rng):
    x = rng.normal(size=(n, 15))
    eta = 0.4 + 0.18 * x[:, 0] - 0.15 * x[:, 1] + 0.12 * x[:, 2] + 0.1 * np.maximum(x[:, 3], 0.0)
    return People(x, drawn_group(expit(x[:, 0]), rng), expit(eta), 0.2 + 0.6 * expit(x[:, 0]))


def many_words(n, rng):
    sizes = (40, 60, 100)
    words = drawn_words(sizes, 0.7, n, rng)
    numbers = rng.normal(size=(n, 3))
    effect = sum(fixed(k, k, 0.8)[word] for k, word in zip(sizes, words, strict=True))
    eta = 0.5 + 0.6 * effect + 0.6 * numbers[:, 2] - 0.3 * numbers[:, 1]
    past = 0.05 + 0.9 * expit(0.8 * effect + 0.5 * numbers[:, 2])
    group = drawn_group(expit(fixed(9, 40, 1.0)[words[0]]), rng)
    return People(np.column_stack([one_hot(words, sizes), numbers]), group, expit(eta), past)


def strong_selection(n, rng):
    x = rng.normal(size=(n, 6))
    eta = -0.2 + x[:, 0] - 1.6 * np.maximum(x[:, 0] - 1.0, 0.0) + 0.6 * np.cos(2.0 * x[:, 1])
    past = 0.02 + 0.97 * expit(4.0 * (x[:, 0] - 0.3))
    return People(x, drawn_group(expit(1.5 * x[:, 1]), rng), expit(eta + 0.4 * x[:, 2]), past)


def several_past_policies(n, rng):
    x = rng.normal(size=(n, 10))
    rules = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0], [-1.0, 0.5, 1.5]])
    past = (x[:, :3] * rules[np.arange(n) * 4 // n]).sum(axis=1)
    eta = 0.6 * x[:, 0] + 0.5 * x[:, 1] * (x[:, 2] > 0.0) - 0.4 * x[:, 3] + 0.3 * x[:, 4] ** 2
    group = drawn_group(expit(x[:, 1] - 0.3), rng)
    return People(x, group, expit(eta), 0.05 + 0.9 * expit(past))


def lender(n, rng):
    """Four skewed and eight other numbers, ten yes or no, three columns of words: 36 in all."""
    wealth = rng.normal(size=(n, 1))  # most columns share it
    numbers = 0.6 * wealth * np.sign(fixed(21, 12, 1.0)) + 0.8 * rng.normal(size=(n, 12))
    flags = (rng.random((n, 10)) < expit(0.5 * wealth * fixed(22, 10, 1.0) - 0.7)).astype(float)
    sizes = (4, 5, 5)
    words = one_hot(drawn_words(sizes, 3.0, n, rng), sizes)
    eta = 0.4 + numbers @ fixed(23, 12, 0.25) + flags @ fixed(24, 10, 0.3)
    eta += words @ fixed(25, 14, 0.3)
    past = 0.03 + 0.94 * expit(1.5 * eta + numbers[:, 0] - flags[:, 0] - 0.5)
    group = drawn_group(expit(0.7 * wealth[:, 0] - 0.5 * flags[:, 1]), rng)
    x = np.column_stack([np.exp(0.7 * numbers[:, :4]), numbers[:, 4:], flags, words])
    return People(x, group, expit(eta), past)


# --- held out: choose no option of the learner by these


def heavy_tails(n, rng):
    """Six long-tailed numbers, 15 % of them missing: the median in their place, and a flag."""
    raw = rng.standard_t(2.5, size=(n, 6))
    raw[:, 3:] = np.exp(0.8 * raw[:, 3:].clip(-6.0, 6.0))
    missing = rng.random((n, 6)) < 0.15
    x = np.where(missing, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], raw)
    size = np.sign(x[:, :3]) * np.log1p(np.abs(x[:, :3]))
    eta = 0.2 + 0.8 * size[:, 0] - 0.6 * size[:, 1] + 0.5 * np.log(x[:, 3]) - 0.9 * missing[:, 3]
    eta += 0.4 * np.log(x[:, 4]) * (x[:, 2] > 0.0) + 0.4 * missing[:, 0]
    past = 0.05 + 0.9 * expit(size[:, 0] + 0.7 * np.log(x[:, 3]) - 0.5 * missing[:, 1])
    group = drawn_group(expit(0.8 * size[:, 1] - 0.6 * missing[:, 3]), rng)
    return People(np.column_stack([x, missing]), group, expit(eta), past)


def steps(n, rng):
    """A tree is the truth, and 30 of 36 columns say nothing."""
    x = rng.uniform(-1.0, 1.0, size=(n, 36))
    low, high = x[:, 0] < -0.2, x[:, 1] > 0.3
    eta = np.where(low, np.where(x[:, 2] > 0.0, 0.6, -1.2), np.where(high, 1.4, -0.3))
    eta = eta + 0.8 * (x[:, 3] > 0.5) - 0.7 * (high & (x[:, 4] < -0.4))
    group = drawn_group(expit(2.0 * x[:, 1] + x[:, 5]), rng)
    return People(x, group, expit(eta), 0.08 + 0.84 * expit(2.0 * x[:, 0] + 1.5 * x[:, 3]))


def proxy(n, rng):
    """The group matters for the label, one column all but says it, and another depends on it."""
    group = drawn_group(np.full(n, 0.4), rng)
    x = rng.normal(size=(n, 9))
    x[:, 0] = 2.0 * group + 0.6 * x[:, 0]
    x[:, 1] += 0.8 * group
    eta = -0.9 + 1.3 * group + 0.7 * x[:, 1] + 0.6 * x[:, 2] - 0.4 * x[:, 3] * x[:, 4]
    past = 0.05 + 0.9 * expit(0.8 * x[:, 0] + 0.8 * x[:, 2] - 1.0)
    return People(x, group, expit(eta), past)


def curves(n, rng):
    """Additive curves, selection on a product, four groups."""
    x = rng.uniform(-2.0, 2.0, size=(n, 10))
    eta = 0.1 + np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - 0.8 + 0.9 * np.tanh(3.0 * x[:, 2])
    eta += 0.5 * np.cos(3.0 * x[:, 3]) - 0.3 * x[:, 4]
    group = np.digitize(x[:, 2] + x[:, 5] + 0.8 * rng.normal(size=n), [-1.5, 0.0, 1.5])
    past = 0.03 + 0.94 * expit(2.0 * x[:, 0] * x[:, 1] + x[:, 2])
    return People(x, group, expit(eta), past)


def high_cost(n, rng):
    """One applicant in six is worth accepting: the cost is far above the share of label 1."""
    x = rng.normal(size=(n, 12))
    eta = 0.1 + 0.9 * x[:, 0] + 0.7 * x[:, 1] - 0.5 * x[:, 2] + 0.5 * x[:, 3] * (x[:, 0] > 0.0)
    group = drawn_group(expit(0.9 * x[:, 1] - 0.5), rng)
    past = 0.04 + 0.9 * expit(1.5 * x[:, 0] + 0.5 * x[:, 4] - 1.0)
    return People(x, group, expit(eta), past)


WORLDS = {
    "well-specified": World("20 normal features, logistic labels", well_specified, 0.6),
    "nonlinear": World("curves, products, a hidden subgroup, three groups", nonlinear, 0.55),
    "interactions": World("products of features", interactions, 0.55),
    "hidden-subgroup": World("one kind of people is different", hidden_subgroup, 0.6),
    "small-group": World("a group of 3 %", small_group, 0.5, n_evaluated=1_000_000),
    "heavy-noise": World("labels all but random", heavy_noise, 0.6),
    "many-words": World("200 one-hot columns", many_words, 0.6),
    "strong-selection": World("few accepted where it matters", strong_selection, 0.5),
    "several-past-policies": World("four past policies", several_past_policies, 0.55),
    "lender": World("36 columns, logistic labels, some columns skewed", lender, 0.6),
    "heavy-tails": World("long tails and missing values", heavy_tails, 0.6),
    "steps": World("a tree with 30 columns of noise", steps, 0.55),
    "proxy": World("a column that all but says the group", proxy, 0.5),
    "curves": World("additive curves, selection on a product, four groups", curves, 0.6),
    "high-cost": World("one applicant in six is worth accepting", high_cost, 0.8),
}
