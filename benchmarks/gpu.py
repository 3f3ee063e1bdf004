"""The paper's sweeps on a GPU, by hand where there is one: PYTHONPATH=src python benchmarks/gpu.py

Each sweep runs twice: the first time compiles, the second is what is reported. Compiled programs
are shared by links, so later strategies of a setting compile less.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import consequential as cq
from consequential.objective import fairness_named
from consequential.simulation.compiled_runs import compiled_starts
from consequential.simulation.compiled_sweep import runs_of
from consequential.simulation.device_sweep import DeviceSweep
from consequential.simulation.replay import Experiment

PENALTIES = tuple(float(penalty) for penalty in np.logspace(-0.5, 4, 19))


def seconds(world, strategies, n_seeds: int, time_steps: int) -> float:
    """Return how long a sweep of strategies that fit into one program takes, host work included."""
    experiment = Experiment(
        world,
        tuple(strategies),
        PENALTIES,
        time_steps,
        world.parameters.n_proposals,
        fairness_named("demographic_parity"),
        "jax",
    )
    seeds = list(range(n_seeds))
    all_runs = runs_of(experiment, seeds, compiled_starts(experiment, seeds), PENALTIES)
    start = time.perf_counter()
    for _ in DeviceSweep(experiment, all_runs).advance():
        pass
    assert all(np.isfinite(runs.path).all() for runs in all_runs)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--time-steps", type=int, default=200)
    parser.add_argument("--worlds", nargs="*", default=["first", "second", "compas"])
    parser.add_argument("--out", help="also write the figures here, as JSON")
    arguments = parser.parse_args()
    import jax

    worlds = {
        "first": cq.worlds.first_setting,
        "second": cq.worlds.second_setting,
        "compas": cq.worlds.compas,
    }
    both = ("logistic", "semi_logistic")
    sweeps = [
        ["logistic", "iterative"],  # one strategy by itself: 30 seeds x 19 penalties
        [both, "iterative"],
        [both, "aggregated"],
    ]
    found, total = [], 0.0
    print(f"{jax.devices()[0]}, jax {jax.__version__}, {arguments.seeds} seeds x 19 penalties")
    for name in arguments.worlds:
        world = worlds[name]()
        for links, sequence in sweeps:
            links = [links] if isinstance(links, str) else links
            strategies = [cq.LearnToDecide(link, sequence) for link in links]
            sizes = (arguments.seeds, arguments.time_steps)
            first = seconds(world, strategies, *sizes)
            again = seconds(world, strategies, *sizes)
            total += again if len(links) > 1 else 0.0
            label = f"{' and '.join(links)}, {sequence}"
            print(f"{name:7} {label:40} {again:7.2f} s (first time {first:6.2f} s)", flush=True)
            found.append({"world": name, "strategies": label, "seconds": again})
    print(f"{'all four strategies of each':48} {total:7.2f} s", flush=True)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"sweeps": found, "seconds": total}, file, indent=1)


if __name__ == "__main__":
    main()
