"""What strategies gain while they learn, and where they end: see docs/beyond-the-paper.md.

    python benchmarks/exploring.py PART [SEEDS] [STEPS] [ROWS ...]

PART is one of
    settings        both settings, large and small steps
    bound           both settings, demographic parity within .02
    penalties       both settings, the strategy by default and the paper's
    penalties-ways  the same for the other ways to explore
    tables          COMPAS and German credit, a split per seed
    rich            twelve features with curves and products
    unseen          four worlds of ten to sixteen features that no choice was made on
SEEDS is 10 by default, STEPS what the world says. With ROWS, such as "second setting | posterior"
or "second setting | posterior, aggregated | penalty 1 |", only rows are made that begin with one of
them. Seconds are processor time per run.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from exploring_worlds import Heavy, Ledger, Rich, Subgroup, Waves
from scipy.special import logit
from scipy.stats import t as student

import consequential as cq

FIRST, SECOND = cq.worlds.first_setting(), cq.worlds.second_setting()
PENALTIES = [0.316, 1.0, 2.0, 5.0, 10.0, 100.0]
WAYS = ("sampling", "optimistic", "pseudo_labels")


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


class UpperConfidence(cq.lab.Strategy):
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
        fit = cq.lab.FitPosterior(world.cost, foresight=0.0)

        def learn(policy: Any, log: Any, *, rng: Any, time_step: int) -> cq.DecisionRule:
            return Confident(fit(policy, log, rng=rng, time_step=time_step), self.deviations)

        return learn


def report(
    world: Any,
    strategies: Any,
    seeds: Any,
    penalties: Any = (0.0,),
    rows: tuple[str, ...] = ("",),
    **options: Any,
) -> None:
    """Run strategies one by one and print a row for each penalty.

    From the second strategy on a row ends with what the first has gained more, over the same seeds.
    """
    first: dict[float, Any] = {}
    for strategy, penalty in product(strategies, penalties):
        name = f"{world.name} | {strategy.name} |"
        if penalty > 0.0:
            name += f" penalty {penalty:g} |"
        if not name.startswith(rows):
            continue
        start = time.process_time()
        runs = cq.simulate(
            world, strategy, seeds=seeds, penalties=[penalty], n_jobs=1, progress=False, **options
        )
        seconds = (time.process_time() - start) / len(runs.runs)
        effective, utility, gap = (
            runs.metric(name, strategy.name)
            for name in ("effective_utility", "utility", "benefit_gap")
        )
        gained, expected = effective[:, -1], utility[:, :-1].mean(axis=1)
        row = [
            f"{gained.mean():.4f} effective",
            f"{expected.mean():.4f} expected",
            f"{utility[:, -1].mean():.4f} at the end",
            f"gap {np.abs(gap[:, -101:-1]).mean():.4f}",
            f"{seconds:.1f} s",
        ]
        if penalty > 0.0:
            best = world.optimal(penalty=penalty)
            target = best.utility - penalty / 2.0 * best.benefit_gap**2
            short = target - (utility[:, -1] - penalty / 2.0 * gap[:, -1] ** 2)
            within = int((short <= 0.002).sum())
            row += [f"{within} of {len(short)} within .002"]
            row += [f"worst {short.max():.4f}"]
        if penalty in first:
            row += [f"effective {lead(first[penalty][0] - gained)}"]
            row += [f"expected {lead(first[penalty][1] - expected)}"]
        first.setdefault(penalty, (gained, expected))
        print(name, " | ".join(row), flush=True)


def lead(differences: Any) -> str:
    """Return the mean of differences and half the width of its 95 % interval."""
    n = len(differences)
    half = student.ppf(0.975, n - 1) * differences.std(ddof=1) / n**0.5 if n > 1 else np.inf
    return f"lead {differences.mean():+.4f} +- {half:.4f}"


def ours(**options: Any) -> list[cq.lab.Strategy]:
    """Return every way to explore, in both sequences."""
    return [
        cq.lab.ExploreByPosterior(way, sequence, **options)
        for sequence in ("iterative", "aggregated")
        for way in WAYS
    ]


def main(part: str, n_seeds: int, time_steps: int | None, rows: tuple[str, ...]) -> None:
    """Print one part."""
    options: Any = {"time_steps": time_steps, "rows": rows}
    match part:
        case "settings":
            for world, n in ((SECOND, 128), (SECOND, None), (FIRST, 128), (FIRST, None)):
                print(f"N = {n or world.parameters.n_proposals}")
                every = [*ours(), *cq.paper_strategies()]
                report(world, every, n_seeds, n_proposals=n, **options)
        case "bound":
            for world in (SECOND, FIRST):
                report(world, ours(max_gap=0.02), n_seeds, **options)
        case "penalties":
            for world in (SECOND, FIRST):
                both = [ours()[0], *cq.paper_strategies()[2:]]
                report(world, both, n_seeds, PENALTIES, **options)
        case "penalties-ways":
            for world in (SECOND, FIRST):
                report(world, ours()[1:], n_seeds, PENALTIES, **options)
        case "tables":
            for table in (cq.worlds.german, cq.worlds.compas):
                by_model = cq.lab.ExploreByPosterior(patterns=False, named="posterior, no patterns")
                every = [*ours()[:3], by_model, *cq.paper_strategies()]
                report(table(split_seed=None), every, n_seeds, **options)
        case "rich" | "unseen":
            plain = cq.lab.ExploreByPosterior(foresight=0.0, named="Thompson sampling")
            every = [*ours()[:3], plain, UpperConfidence(0.0), UpperConfidence(1.0)]
            for world in (Rich(),) if part == "rich" else (Ledger(), Waves(), Heavy(), Subgroup()):
                report(world, every, n_seeds, **options)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    part, seeds, steps = [*sys.argv[1:], "", "", ""][:3]
    main(part, int(seeds or 10), int(steps) if steps else None, tuple(sys.argv[4:]) or ("",))
