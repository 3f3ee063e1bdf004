"""Results made by hand: files as `consequential reproduce` writes them, with numbers we choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import consequential as cq
from consequential.lab.paper import truths
from consequential.lab.paper.lending_example import SCORINGS, LendingTable
from consequential.lab.paper.results import Results
from consequential.lab.paper.studies import STUDIES
from consequential.lab.results_folder import ResultsFolder
from consequential.lab.simulation import Run, Runs

PREDICTING = ("deterministic, iterative", "deterministic, aggregated")
EXPLORING = (
    "logistic, iterative",
    "logistic, aggregated",
    "semi-logistic, iterative",
    "semi-logistic, aggregated",
)
STRATEGIES = (*PREDICTING, *EXPLORING)
SEEDS, STEPS = 8, 20
PENALTIES = (0.3, 1.0, 3.0, 10.0, 31.6, 100.0, 1e4)
FACTS = {"groups": (0, 1), "fairness": "demographic_parity"}

# what the paper's text says of each setting, as numbers: (utility, gap, theta) at the end
GOOD = {
    "first": {
        **dict.fromkeys(PREDICTING, (0.160, 0.172, (-3.6, 8.4))),
        **dict.fromkeys(EXPLORING, (0.177, 0.156, (9.0, 30.0))),
    },
    "second": {
        **dict.fromkeys(PREDICTING, (0.022, 0.118, (-4.4, 0.89))),
        **dict.fromkeys(EXPLORING, (0.064, 0.297, (3.4, 2.0))),
    },
    "compas": {
        **dict.fromkeys(PREDICTING, (0.030, -0.25, (0.0,) * 6)),
        **dict.fromkeys(EXPLORING, (0.050, -0.15, (0.0,) * 6)),
    },
}
STARTS = {"first": (-3.0, 5.0), "second": (-3.5, 0.6), "compas": (0.0,) * 6}


def spread(value: float, n: int = SEEDS, size: float = 1e-4) -> np.ndarray:
    """Values around one, as far apart as seeds are."""
    return value + size * np.linspace(-1.0, 1.0, n)


def time_runs(name: str, ends=None, steps: int = STEPS) -> Runs:
    """Runs that go straight from the start to these ends."""
    place = name.removesuffix("-rearrest")
    ends = ends or GOOD[place]
    way = np.linspace(0.0, 1.0, steps + 1)
    runs = []
    for strategy, (utility, gap, theta) in ends.items():
        start_utility = 0.02 if strategy in PREDICTING else 0.018
        last = spread(utility)
        for seed in range(SEEDS):
            metrics = {
                "utility": start_utility + way**0.2 * (last[seed] - start_utility),
                "effective_utility": start_utility + way**0.3 * (last[seed] - start_utility),
                "benefit_gap": np.full(steps + 1, gap + 1e-4 * seed),
                "acceptance": np.full(steps + 1, 0.5),
                "effective_sample_size": np.r_[np.nan, np.full(steps, 100.0)],
            }
            first = np.array(STARTS[place], dtype=float)
            thetas = first + way[:, None] * (np.array(theta) - first)
            runs.append(Run(strategy, 0.0, seed, metrics, cq.AcceptAll(), (), thetas))
    return Runs(tuple(runs), name, **FACTS)


def penalty_runs(name: str, change=lambda path: path) -> Runs:
    """Ends of runs at each penalty, the same for all strategies: the best linear policies'.

    `change` gets these as an array of utilities and gaps, one row per penalty, and returns others.
    """
    table = name.startswith("compas")
    theta = np.array([-3.0, 6.0, *[0.0] * (4 if table else 0)])
    path = change(np.array(truths.logistic_path(name, PENALTIES)))
    runs = []
    for strategy in EXPLORING:
        policy = cq.Policy(theta, strategy.rpartition(", ")[0].replace("-", "_"))
        for penalty, (middle, gap) in zip(PENALTIES, path, strict=True):
            for seed, utility in enumerate(spread(middle)):
                ends = {"utility": utility, "effective_utility": utility - 0.001}
                ends |= {"benefit_gap": gap, "acceptance": 0.5, "effective_sample_size": 100.0}
                if table:
                    ends |= {"table_utility": utility, "table_benefit_gap": gap}
                metrics = {metric: np.array([value]) for metric, value in ends.items()}
                runs.append(Run(strategy, penalty, seed, metrics, policy, (), theta[None, :]))
    return Runs(tuple(runs), name, **FACTS)


def lending_table(utility_of=None, gap_of=None) -> LendingTable:
    """The lending example as the paper tells it, unless told otherwise."""

    def useless_from_650(threshold):
        return 0.143 if threshold < 650 else 0.0

    def smaller_below_650(threshold):
        return -0.42 if threshold < 650 else 0.0

    rows = [
        (
            scoring,
            float(threshold),
            seed,
            -10.0,
            0.02,
            (utility_of or useless_from_650)(threshold),
            (gap_of or smaller_below_650)(threshold),
        )
        for scoring in SCORINGS
        for threshold in range(500, 801, 50)
        for seed in range(SEEDS)
    ]
    kinds = (object, float, np.int64, float, float, float, float)
    columns = zip(*rows, strict=True)
    return LendingTable(*(np.array(c, dtype=k) for c, k in zip(columns, kinds, strict=True)))


def results_in(folder: Path, studies: dict[str, object], columns=None) -> Results:
    """Write studies into a folder, the same for each of their columns, and read them back."""
    store = ResultsFolder.opened(folder, "reproduce", {"seeds": SEEDS})
    (folder / "results").mkdir(exist_ok=True)
    for study, found in studies.items():
        for column in columns or STUDIES[study].columns:
            found.save(store.result(f"{study}-{column}"))
    return Results(folder)


def all_good() -> dict[str, object]:
    """Every study of the paper, as the paper tells it."""
    worlds = ("first", "second", "compas", "compas-rearrest")
    return {
        "lending": lending_table(),
        **{f"{name}-time": time_runs(name) for name in worlds},
        **{f"{name}-penalty": penalty_runs(name) for name in worlds},
    }
