"""What strategies gain while they learn, and where they end: see docs/beyond-the-paper.md.

    python benchmarks/exploring.py PART [SEEDS]

PART is `settings` (both settings, large and small steps), `bound` (demographic parity within .02),
`penalties` (both settings), `tables` (COMPAS and German credit, a split per seed) or `rich` (twelve
features with curves and products). SEEDS is 10 by default. Seconds are processor time per run.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

import consequential as cq

FIRST, SECOND = cq.worlds.first_setting(), cq.worlds.second_setting()
PENALTIES = [0.316, 1.0, 2.0, 5.0, 10.0, 100.0]
WAYS = ("sampling", "optimistic", "pseudo_labels")


class Rich(cq.worlds.World):
    """Twelve features, with curves and products of them."""

    cost = 0.5
    name = "rich"
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=1000)

    def __init__(self, seed: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.slopes, self.bends = 0.5 * rng.normal(size=12), 0.4 * rng.normal(size=12)
        self.products = np.triu(0.15 * rng.normal(size=(12, 12)), 1)

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        """Draw normal features; group 1 has more of the first."""
        group = rng.integers(2, size=n)
        features = rng.normal(size=(n, 12))
        features[:, 0] += 0.5 * group
        return features, group

    def label_probability(self, features: Any, sensitive: Any) -> Any:
        """Return labels that no line explains."""
        curves = (np.abs(features) - 0.8) @ self.bends
        products = ((features @ self.products) * features).sum(axis=1)
        return expit(features @ self.slopes + curves + products - 0.8)


@dataclass(frozen=True)
class Confident(cq.DecisionRule):
    """Accept where the posterior's mean and some of its deviations reach the cost."""

    posterior: cq.PosteriorPolicy
    deviations: float

    def propensity(self, features: Any, sensitive: Any = None) -> Any:
        """One where the upper bound reaches the cost."""
        policy = self.posterior
        phi = policy.model.inputs(features)
        spread = np.sqrt(((phi @ policy.covariance) * phi).sum(axis=1))
        return (phi @ policy.model.theta + self.deviations * spread > logit(policy.cost)) * 1.0


class UpperConfidence(cq.Strategy):
    """Accept by an upper confidence bound; with no deviations, greedily."""

    def __init__(self, deviations: float) -> None:
        self.deviations = deviations

    @property
    def name(self) -> str:
        """How confident."""
        return f"upper confidence {self.deviations:g}" if self.deviations else "greedy"

    def start(self, world: Any, rng: Any) -> cq.DecisionRule:
        """Return the world's initial policy."""
        return world.initial_policy("logistic", rng=rng)

    def learner(self, world: Any, fairness: Any, penalty: float) -> Any:
        """Return a fit of the posterior whose policy is replaced."""
        fit = cq.FitPosterior(world.cost, foresight=0.0)

        def learn(policy: Any, log: Any, *, rng: Any, time_step: int) -> cq.DecisionRule:
            return Confident(fit(policy, log, rng=rng, time_step=time_step), self.deviations)

        return learn


def report(
    world: Any, strategies: Any, seeds: Any, penalties: Any = (0.0,), **options: Any
) -> None:
    """Run strategies one by one and print a row for each penalty."""
    for strategy in strategies:
        start = time.process_time()
        runs = cq.simulate(
            world, strategy, seeds=seeds, penalties=penalties, progress=False, **options
        )
        seconds = (time.process_time() - start) / len(runs.runs)
        for penalty in penalties:
            effective, utility, gap = (
                runs.metric(name, strategy.name, penalty=penalty)
                for name in ("effective_utility", "utility", "benefit_gap")
            )
            row = [
                f"{effective[:, -1].mean():.4f} effective",
                f"{utility[:, :-1].mean():.4f} expected",
                f"{utility[:, -1].mean():.4f} at the end",
                f"gap {np.abs(gap[:, -101:-1]).mean():.4f}",
                f"{seconds:.1f} s",
            ]
            if penalty > 0.0:
                best = world.optimal(penalty=penalty)
                target = best.utility - penalty / 2.0 * best.benefit_gap**2
                short = target - (utility[:, -1] - penalty / 2.0 * gap[:, -1] ** 2)
                within = int((short <= 0.002).sum())
                row += [f"penalty {penalty:g}: {within} of {len(short)} within .002"]
                row += [f"worst {short.max():.4f}"]
            print(world.name, "|", strategy.name, "|", " | ".join(row), flush=True)


def ours(**options: Any) -> list[cq.Strategy]:
    """Return every way to explore, in both sequences."""
    return [
        cq.ExploreByPosterior(way, sequence, **options)
        for sequence in ("iterative", "aggregated")
        for way in WAYS
    ]


def main(part: str, n_seeds: int) -> None:
    """Print one part."""
    match part:
        case "settings":
            for world, n in ((SECOND, 128), (SECOND, None), (FIRST, 128), (FIRST, None)):
                print(f"N = {n or world.parameters.n_proposals}")
                report(world, [*ours(), *cq.paper_strategies()], n_seeds, n_proposals=n)
        case "bound":
            for world in (SECOND, FIRST):
                report(world, ours(max_gap=0.02), n_seeds)
        case "penalties":
            for world in (SECOND, FIRST):
                theirs = cq.paper_strategies()[2:]
                report(world, [*ours(), cq.RefitPolicy(), *theirs], n_seeds, PENALTIES)
        case "tables":
            for table in (cq.worlds.german, cq.worlds.compas):
                report(table(split_seed=None), [*ours()[:3], *cq.paper_strategies()], n_seeds)
        case "rich":
            baselines = [UpperConfidence(0.0), UpperConfidence(1.0)]
            plain = cq.ExploreByPosterior(foresight=0.0, named="Thompson sampling")
            report(Rich(), [*ours()[:3], plain, *baselines], n_seeds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
