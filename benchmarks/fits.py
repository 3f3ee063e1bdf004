"""Fits to a million decisions on 20 features: seconds, peak memory, and the speed of predictions.

    python benchmarks/fits.py [--rows 1000000] [--only default bound direct predictions]

Every fit runs in a process of its own, after a small one that compiles and imports. Memory is the
peak above the process that holds the log, in multiples of the log's feature matrix. Predictions of
as many people are timed in turns with `predict_proba` of the models that the policy stands on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from learner_worlds import WORLDS, Log
from measure import alternately, machine
from run import RESULTS, Report

import consequential as cq

FITS = {
    "default": {},
    "bound": {"max_gap": 0.02},
    "direct": {"method": "direct", "max_gap": 0.02},
}
# of default fits; processor time is promised, which other work on the machine does not change
PROMISED = {"processor seconds": 120.0, "memory": 3.0}
PREDICTED = ("well-specified", "nonlinear")
LEARNED_FROM = 20_000  # rows, for predictions
CHUNK = 50_000  # rows that a model predicts at a time: its matrix may have hundreds of columns


def memory(which: str) -> int:
    """Return the bytes of this process that are in memory (VmRSS), or that were at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status[which].split()[0]) * 1024


def fitted(world: str, rows: int, options: dict) -> cq.FairPolicyLearner:
    log = Log.of(WORLDS[world], rows, 0).decisions
    return cq.FairPolicyLearner(cost=WORLDS[world].cost, **options).fit_log(log)


def fit_measured(rows: int, options: dict) -> dict[str, float]:
    """Return the seconds of a fit, and its memory in multiples of the matrix."""
    fitted("well-specified", 3_000, options)
    world = WORLDS["well-specified"]
    log = Log.of(world, rows, 0).decisions
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    idle, start, worked = memory("VmRSS"), time.perf_counter(), time.process_time()
    cq.FairPolicyLearner(cost=world.cost, **options).fit_log(log)
    return {
        "seconds": time.perf_counter() - start,
        "processor seconds": time.process_time() - worked,
        "memory": (memory("VmHWM") - idle) / log.features.nbytes,
    }


def prediction_ratio(rows: int, world: str) -> float:
    """Return how long predictions take, relative to those of the models."""
    learner = fitted(world, LEARNED_FROM, {})
    people = WORLDS[world].people(rows, np.random.default_rng(1)).features
    models = learner.policy_.feature_map.models

    def of_models() -> None:
        for start in range(0, rows, CHUNK):
            for model in models:
                model.predict_proba(people[start : start + CHUNK])

    took = alternately({"ours": lambda: learner.predict_proba(people), "models": of_models}, 3)
    return took["ours"] / took["models"]


def store(figures: dict[str, float]) -> None:
    """Add figures to those of earlier runs, so that sections can be run one by one."""
    file = RESULTS / "fits.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | figures, indent=1) + "\n")


def main() -> None:
    sections = [*FITS, "predictions"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=sections, default=sections)
    options = parser.parse_args()
    report = Report()
    report.say(f"# {options.rows} decisions, {datetime.date.today()}: {machine()}\n")
    report.say("| | measured | promised | kept |\n| --- | --- | --- | --- |")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in (each for each in FITS if each in options.only):
            found = pool.apply(fit_measured, (options.rows, FITS[name]))
            for what, value in found.items():
                if what in PROMISED and "method" not in FITS[name]:
                    report.promise(f"{name}: {what}", value, at_most=PROMISED[what])
                else:
                    report.figures[f"{name}: {what}"] = value
                    report.say(f"| {name}: {what} | {value:.3g} | | |")
            store(report.figures)
        if "predictions" in options.only:
            measure = partial(prediction_ratio, options.rows)
            for world, ratio in zip(PREDICTED, pool.map(measure, PREDICTED, 1), strict=True):
                report.promise(f"prediction against its models, {world}", ratio, at_most=3.0)
            store(report.figures)
    if report.broken:
        sys.exit("not kept: " + "; ".join(report.broken))


if __name__ == "__main__":
    main()
