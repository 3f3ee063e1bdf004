"""Learners on logs whose truth is known: true utilities and gaps, side by side.

    python benchmarks/learners.py [LOG ...] [--rows 5000 20000 200000] [--seeds 5]
        [--bound none parity opportunity] [--only ours logistic-accepted] [--workers 2]
        [--peers PYTHON] [--again] [--report] [--store FILE]

Every rule is evaluated on 200 000 or more other people by their true chance of label 1, so the
figures have no noise of labels or decisions. Each result is a line of the store as soon as it is
there, and what is stored is not run again, unless `--again` says so: stop and go on at any time, or
run in parts. `--report` only prints what is stored. Logs are in `learner_worlds.py`, contestants in
`learner_contestants.py`. Contestants that know no fairness run once per log, without a bound, and
appear in the tables of every bound with the gap that they have.

econml and obp need an environment of their own, and are left out without `--peers`:

    python3.11 -m venv peers
    peers/bin/pip install -r benchmarks/peers.txt
    peers/bin/pip install --no-deps --ignore-requires-python obp==0.5.7 pyieoe==0.1.1
    python benchmarks/learners.py --peers peers/bin/python

obp's last release asks for Python below 3.11 and pins scikit-learn 1.1.3, NumPy 1.23.5 and torch
1.12; its IPWLearner works with those of peers.txt, hence the third line. torch is needed for the
import only. econml's `model_propensity` is given the log's propensities.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from learner_contestants import BOUNDS, PEERS, contestants
from learner_report import Result, report
from learner_worlds import WORLDS, Floats, Log, People

STORE = Path(__file__).parent / "results" / "learners.jsonl"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Task:
    """One contestant on one log under one bound."""

    world: str
    rows: int
    bound: str
    contestant: str
    seed: int
    peers: str | None

    @property
    def key(self) -> tuple[str, int, str, str, int]:
        return self.world, self.rows, self.bound, self.contestant, self.seed


@lru_cache(maxsize=1)
def evaluated(world: str) -> People:
    return WORLDS[world].evaluated()


def gap(propensity: Floats, people: People, weights: Floats) -> float:
    """Return the largest difference of two groups' weighted acceptance."""
    rows = [people.group == z for z in np.unique(people.group)]
    rates = [np.average(propensity[z], weights=weights[z]) for z in rows]
    return float(max(rates) - min(rates))


def result_of(task: Task) -> Result | str:
    """Return the true figures of what the contestant learned, or why it failed."""
    log = Log.of(WORLDS[task.world], task.rows, task.seed)
    people = evaluated(task.world)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a contestant's own business
            rule = contestants(task.peers)[task.contestant].learn(log, BOUNDS[task.bound])
            propensity = np.asarray(rule(people), dtype=np.float64)
    except subprocess.CalledProcessError as error:
        return f"{task.key}: {error.stderr.strip().splitlines()[-1]}"
    except Exception as error:  # one contestant's failure must not end the others' runs
        return f"{task.key}: {type(error).__name__}: {error}"
    return Result(
        *task.key,
        utility=float(((people.chance - log.cost) * propensity).mean()),
        parity=gap(propensity, people, np.ones(len(propensity))),
        opportunity=gap(propensity, people, people.chance),
        acceptance=float(propensity.mean()),
        seconds=time.perf_counter() - start,
    )


def stored(file: Path) -> dict[tuple, Result]:
    """Return what the store has; of two results with one key the later one."""
    lines = file.read_text().splitlines() if file.exists() else []
    found = (Result(**json.loads(line)) for line in lines)
    return {result.key: result for result in found}


def results_of(tasks: list[Task], workers: int) -> Iterator[Result | str]:
    """Yield results as they come, from processes of one thread each."""
    for name in ONE_THREAD:
        os.environ[name] = "1"  # libraries read it when they are loaded, hence new processes
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(result_of, tasks)


def tasks_of(arguments: argparse.Namespace, names: list[str]) -> list[Task]:
    """Return everything asked for, a log's contestants next to each other."""
    everybody = contestants()
    logs = product(arguments.logs or WORLDS, arguments.rows, range(arguments.seeds))
    return [
        Task(world, rows, bound, name, seed, arguments.peers)
        for world, rows, seed in logs
        for name in names
        for bound in everybody[name].bounds
        if bound in arguments.bound or everybody[name].bounds == ("none",)
    ]


def parsed() -> argparse.Namespace:
    everybody = list(contestants())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="*", metavar="LOG", help=f"of {', '.join(WORLDS)}")
    parser.add_argument("--rows", type=int, nargs="*", default=[5000, 20_000, 200_000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bound", nargs="*", choices=BOUNDS, default=list(BOUNDS))
    parser.add_argument("--only", nargs="*", choices=everybody, default=everybody)
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--peers", metavar="PYTHON", help="of the environment of econml and obp")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--report", action="store_true", help="only print what is stored")
    parser.add_argument("--store", type=Path, default=STORE)
    arguments = parser.parse_args()
    if unknown := set(arguments.logs) - set(WORLDS):
        parser.error(f"no log {sorted(unknown)}; there are {', '.join(WORLDS)}")
    return arguments


def main() -> None:
    arguments = parsed()
    known = stored(arguments.store)
    if not arguments.report:
        names = [name for name in arguments.only if arguments.peers or name not in PEERS]
        tasks = tasks_of(arguments, names)
        missing = [task for task in tasks if arguments.again or task.key not in known]
        arguments.store.parent.mkdir(exist_ok=True)
        with arguments.store.open("a") as store:
            for found in results_of(missing, arguments.workers):
                if isinstance(found, str):
                    print(f"failed: {found}", flush=True)
                    continue
                store.write(json.dumps(asdict(found)) + "\n")
                store.flush()
                known[found.key] = found
    asked = set(product(arguments.logs or WORLDS, arguments.rows))
    report(
        [result for result in known.values() if (result.world, result.rows) in asked],
        arguments.bound,
    )


if __name__ == "__main__":
    main()
