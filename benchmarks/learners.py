"""Learners on logs whose truth is known: true utilities and gaps, side by side.

    python benchmarks/learners.py [--rows 5000 20000] [--seeds 5] [--max-gap .02] [LOG ...]

The logs are designed to differ: well specified or not, interactions, a hidden subgroup, a small
group, heavy noise, many words, strong selection, several past policies. Every rule is evaluated on
200 000 other people by their true chance of label 1, so the figures have no noise of labels or
decisions.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import consequential as cq

Floats = np.ndarray
RESULTS = Path(__file__).parent / "results"
N_EVALUATED = 200_000


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


@dataclass(frozen=True)
class Log:
    """What a lender has: decisions, and labels of accepted people (0 where unknown)."""

    people: People
    decision: Floats
    label: Floats
    cost: float
    max_gap: float | None

    @classmethod
    def of(cls, world: World, n: int, max_gap: float | None, rng: np.random.Generator) -> Log:
        people = world.people(n, rng)
        decision = rng.random(n) < people.propensity
        label = (rng.random(n) < people.chance) & decision
        return cls(people, decision, label.astype(float), world.cost, max_gap)


# --- worlds


def fixed(seed: int, k: int, scale: float) -> Floats:
    """Return coefficients that are the same for every log of a world."""
    return np.random.default_rng(seed).normal(0.0, scale, k)


def drawn_group(chance: Floats, rng: np.random.Generator) -> Floats:
    return (rng.random(len(chance)) < chance).astype(int)


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
    words = [rng.choice(k, n, p=np.random.default_rng(k).dirichlet(np.full(k, 0.7))) for k in sizes]
    numbers = rng.normal(size=(n, 3))
    x = np.column_stack([*(np.eye(k)[word] for k, word in zip(sizes, words, strict=True)), numbers])
    effect = sum(fixed(k, k, 0.8)[word] for k, word in zip(sizes, words, strict=True))
    eta = 0.5 + 0.6 * effect + 0.6 * numbers[:, 2] - 0.3 * numbers[:, 1]
    past = 0.05 + 0.9 * expit(0.8 * effect + 0.5 * numbers[:, 2])
    return People(x, drawn_group(expit(fixed(9, 40, 1.0)[words[0]]), rng), expit(eta), past)


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


WORLDS = {
    "well-specified": World("20 normal features, logistic labels", well_specified, 0.6),
    "nonlinear": World("curves, products, a hidden subgroup, three groups", nonlinear, 0.55),
    "interactions": World("products of features", interactions, 0.55),
    "hidden-subgroup": World("one kind of people is different", hidden_subgroup, 0.6),
    "small-group": World("a group of 3 %", small_group, 0.5),
    "heavy-noise": World("labels all but random", heavy_noise, 0.6),
    "many-words": World("200 one-hot columns", many_words, 0.6),
    "strong-selection": World("few accepted where it matters", strong_selection, 0.5),
    "several-past-policies": World("four past policies", several_past_policies, 0.55),
}

# --- contestants: from a log to a function that gives propensities of other people

Rule = Callable[[People], Floats]


def ours(**options: Any) -> Callable[[Log], Rule]:
    def learn(log: Log) -> Rule:
        data = cq.DecisionLog.from_arrays(
            log.people.features,
            log.decision,
            log.people.propensity,
            np.where(log.decision, log.label, np.nan),
            log.people.group,
        )
        learner = cq.FairPolicyLearner(cost=log.cost, max_gap=log.max_gap, **options).fit_log(data)
        return lambda people: learner.policy_.propensity(people.features)

    return learn


def thresholded(model: Callable[[], Any], *, weighted: bool) -> Callable[[Log], Rule]:
    """Fit a classifier to accepted people and accept whoever is predicted to be worth the cost."""

    def learn(log: Log) -> Rule:
        rows = log.decision
        weights = 1.0 / log.people.propensity[rows] if weighted else np.ones(rows.sum())
        fitted = model()
        last = f"{fitted.steps[-1][0]}__sample_weight"
        fitted.fit(log.people.features[rows], log.label[rows], **{last: weights})
        return lambda people: fitted.predict_proba(people.features)[:, 1] >= log.cost

    return learn


def regression() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def boosting() -> Any:
    return make_pipeline(HistGradientBoostingClassifier(random_state=0))


def contestants() -> dict[str, Callable[[Log], Rule]]:
    return {
        "ours, by default": ours(),
        "ours, doubly robust": ours(weighting=cq.weightings.DoublyRobust()),
        "regression, accepted only": thresholded(regression, weighted=False),
        "regression, weighted": thresholded(regression, weighted=True),
        "boosting, accepted only": thresholded(boosting, weighted=False),
        "boosting, weighted": thresholded(boosting, weighted=True),
        "past rule": lambda log: lambda people: people.propensity,
        "accept all": lambda log: lambda people: np.ones(len(people.chance)),
        "reject all": lambda log: lambda people: np.zeros(len(people.chance)),
    }


def measured(propensity: Floats, people: People, cost: float) -> tuple[float, float]:
    """Return the true utility, and the largest difference of two groups' acceptance."""
    rates = [propensity[people.group == z].mean() for z in np.unique(people.group)]
    return float(((people.chance - cost) * propensity).mean()), float(max(rates) - min(rates))


def compared(name: str, n: int, seeds: int, max_gap: float | None) -> dict[str, Any]:
    """Print and return medians over logs of one world and size."""
    world = WORLDS[name]
    others = world.people(N_EVALUATED, np.random.default_rng(2**20))
    best = float(np.maximum(others.chance - world.cost, 0.0).mean())
    bound = "no bound" if max_gap is None else f"parity gap at most {max_gap:g}"
    print(f"\n## {name}: {world.about}; {n} rows, {bound}, median of {seeds} logs")
    print(
        f"\nbest possible without a bound: {best:.4f}\n\n| | utility | gap |\n| --- | --- | --- |"
    )
    rows = {}
    for contestant, learn in contestants().items():
        found = []
        for seed in range(seeds):
            log = Log.of(world, n, max_gap, np.random.default_rng(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a contestant's own business
                found.append(measured(learn(log)(others).astype(float), others, world.cost))
        utility, gap = np.median(found, axis=0)
        rows[contestant] = {"utility": utility, "gap": gap}
        print(f"| {contestant} | {utility:.4f} | {gap:.3f} |", flush=True)
    return {"world": name, "rows": n, "max_gap": max_gap, "best": best, "contestants": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="*", metavar="LOG", help=f"of {', '.join(WORLDS)}")
    parser.add_argument("--rows", type=int, nargs="*", default=[5000, 20_000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-gap", type=float, help="a bound on the parity gap")
    arguments = parser.parse_args()
    if unknown := set(arguments.logs) - set(WORLDS):
        parser.error(f"no log {sorted(unknown)}; there are {', '.join(WORLDS)}")
    found = [
        compared(name, n, arguments.seeds, arguments.max_gap)
        for name in arguments.logs or WORLDS
        for n in arguments.rows
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "learners.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
