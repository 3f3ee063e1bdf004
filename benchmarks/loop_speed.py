"""How fast the loop is: freezing, learning and looking, closing; ratios, each in one run.

    python benchmarks/loop_speed.py freezing --postgresql URL
    python benchmarks/loop_speed.py learning
    python benchmarks/loop_speed.py closing [--postgresql URL]

URL names an empty database; without it there is SQLite. The loop has ten features. Results go to
benchmarks/results/loop-*.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from distributed import Client
from loop_data import evenly, fill, processor_seconds, report_groups
from measure import SOURCE, alternately, machine
from run import RESULTS, Report
from service_load import features

import consequential as cq
from consequential.service import gate
from consequential.service.cohorts import all_cohorts, log_of, rows_of
from consequential.service.database import open_store
from consequential.service.exports import _OWN, Export, as_log
from consequential.service.learning import _AIM, _learned, learned_policy
from consequential.service.looks import _judged
from consequential.service.records import first_id, now
from consequential.service.settings import ServiceSettings, period_after, period_of, period_start
from consequential.workers import begun
from service import HERE, Server, made_service, policy

LENDING, COHORTS, ROUNDS = "linear", 24, 5
MORE = {"sensitive": "sex", "max_gap": 0.15, "horizon": 1}
# freezes periods or closes days, when it is told to begin, and says how long that took
_CHILD = """
import gc, json, resource, sys, time
from pathlib import Path
from loop_data import processor_seconds
from consequential.service.closing import close_day
from consequential.service.cohorts import all_cohorts
from consequential.service.database import open_store
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
directory, what, loop, *names = sys.argv[1:]
settings = ServiceSettings.load(Path(directory))
store = open_store(settings)
cohorts = all_cohorts(store, settings.directory)[loop]
gc.freeze()  # as the worker does
print("ready", flush=True)
sys.stdin.readline()
seconds, cpu = time.perf_counter(), processor_seconds(store)
for name in names:
    assert cohorts.freeze(name, now()) if what == "freeze" else close_day(store, loop, name)
found = {"seconds": time.perf_counter() - seconds, "cpu": processor_seconds(store) - cpu}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps(found | {"GiB": peak}))
"""


class Child:
    """A process of its own that freezes or closes."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-c", _CHILD, directory, *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{HERE}"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes, text=True, env=environment)
        assert self.process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, float]:
        return json.loads(self.process.communicate()[0])


def freezing(report: Report, folder: Path, n: int) -> None:
    """A cohort with outcomes, against `copy` of the same rows to CSV."""
    settings = ServiceSettings.load(folder)
    store = open_store(settings)
    period = period_of("month", now() - timedelta(days=70))
    start, end = period_start(period), period_start(period_after(period))
    times = evenly(n, start, (end - start).days)
    report_groups(store, start, n)
    fill(store, settings, LENDING, times, features, now(), n)
    rows = (
        "select d.*, o.label, a.value from decision d "
        "left join outcome o on o.decision = d.id and o.corrects is null "
        "left join sensitive.attribute a on a.subject_id = d.subject_id and a.attribute = 'sex' "
        f"where d.loop = '{LENDING}' and d.id >= '{first_id(start)}' and d.id < '{first_id(end)}' "
        "order by d.id"
    )

    def copy() -> dict[str, float]:
        seconds, cpu = time.perf_counter(), processor_seconds(store)
        with store.read() as connection, open(os.devnull, "wb") as out:
            cursor = connection.connection.driver_connection.cursor()
            with cursor.copy(f"copy ({rows}) to stdout with (format csv)") as copied:
                for block in copied:
                    out.write(block)
        taken = time.perf_counter() - seconds
        return {"seconds": taken, "cpu": processor_seconds(store) - cpu}

    def freeze() -> dict[str, float]:
        child = Child(folder, "freeze", LENDING, period)
        child.begin()
        return child.end()

    found = [(copy(), freeze()) for _ in range(3)]
    store.close()
    copied, frozen = (
        {name: float(np.median([each[name] for each in kind])) for name in kind[0]}
        for kind in zip(*found, strict=True)
    )
    report.say(f"\nfreezing a cohort of {n:,} decisions with outcomes, PostgreSQL")
    for name, each in (("freezing", frozen), ("copy to CSV", copied)):
        report.say(f"  {name}: {each['seconds']:.1f} s, {each['cpu']:.1f} CPU s with the server's")
    report.say(f"| freezing: rate, to copy's | {copied['seconds'] / frozen['seconds']:.3g} | | |")
    ratio = copied["cpu"] / frozen["cpu"]
    report.promise("freezing: rows per CPU second, to copy's", ratio, at_least=1.0 / 3.0)
    report.promise("freezing: GiB at most", frozen["GiB"], at_most=1.0)


def learning(report: Report, folder: Path, n: int) -> None:
    """Learn from frozen cohorts and look at the candidate, against the same rows in memory."""
    store = open_store(ServiceSettings.load(folder))
    cohorts = all_cohorts(store, folder)[LENDING]
    first = period_of("month", now() - timedelta(days=31 * (COHORTS + 1)))
    for k in range(COHORTS):
        cohorts._keep(period_after(first, k), _cohort(n, period_after(first, k), k), now(), "bulk")
    frozen, loop = cohorts.frozen(), cohorts.settings
    live = policy(False)
    candidate = learned_policy(rows_of(folder, frozen, loop), loop)
    limits = gate.Limits.of([loop])
    learner = cq.FairPolicyLearner(
        cost=loop.cost,
        fairness=loop.fairness,
        max_gap=_AIM * loop.max_gap,
        link="smooth_semi_logistic",
        method="direct",
        floor=loop.floor,
        unsupported="trust_model",
        random_state=0,
    )
    rows = rows_of(folder, frozen, loop)
    held = as_log(rows, loop, missing="against")
    accepted = rows.filter(pc.field("=decision") == 1)
    share = 1.0 - accepted["=label"].null_count / len(accepted)
    thinned = rows.append_column("=observed", pa.array(np.full(len(rows), share)))
    labels = as_log(thinned, loop, missing="at_random", observed="=observed")

    def look() -> None:
        log = log_of(folder, frozen, loop)
        gate.look(candidate, live, log, loop, 1, limits)

    def compare() -> None:
        told = {"cost": loop.cost, "fairness": loop.fairness, "method": "any_time"}
        cq.compare(candidate, live, held, **told, floor=loop.floor)

    tasks: dict[str, Callable[[], object]] = {
        "learn": lambda: learned_policy(rows_of(folder, frozen, loop), loop),
        "fit_log": lambda: learner.fit_log(labels),
        "look": look,
        "compare": compare,
    }
    judge = partial(gate.look, candidate, live, settings=loop, number=1, limits=limits)
    work = [partial(_learned, folder, frozen[:k], loop) for k in (1, 2, 4, 8, 16)]
    work += [partial(_judged, judge, folder, frozen[k:], loop) for k in (1, 2, 4, 8, 16)]

    def clustered(client: Client) -> None:
        for end in [begun(each, client) for each in work]:
            end()

    seconds = alternately(tasks, 3, clock=time.process_time)
    store.close()
    report.say(f"\nlearning from {COHORTS} frozen cohorts of {n:,}, and looking at the candidate")
    report.say("  " + ", ".join(f"{name} {value:.1f} CPU s" for name, value in seconds.items()))
    both = (seconds["fit_log"] + seconds["compare"]) / (seconds["learn"] + seconds["look"])
    report.promise("fit_log and compare in memory, to learn and look", both, at_least=0.7)
    with ExitStack() as stack:
        clients = {
            n: stack.enter_context(
                Client(n_workers=n, threads_per_worker=1, dashboard_address=":0")
            )
            for n in (1, 2)
        }
        spread = alternately({n: partial(clustered, clients[n]) for n in clients}, 3)
    report.say("\ncandidates of 1, 2, 4, 8 and 16 of these cohorts, each looked at on the others")
    report.say(f"  one Dask worker {spread[1]:.1f} s, two {spread[2]:.1f} s")
    report.promise("two Dask workers, to one", spread[1] / spread[2], at_least=1.6)


def _cohort(n: int, period: str, seed: int) -> Export:
    """Return a cohort's file, one in fifty labels missing."""
    rng = np.random.default_rng(seed)
    people = [features(int(k)) for k in rng.integers(10**6, size=n)]
    columns = {name: np.array([person[name] for person in people]) for name in people[0]}
    rule = policy(False)
    inputs = [columns[name] for name in columns if name.startswith("number")]
    words = [(columns[f"word{k}"] == "b").astype(float) for k in range(2)]
    matrix = np.column_stack([*inputs, *words])
    p = rule.propensity(matrix)
    decision = rng.random(n) < p
    chance = 1.0 / (1.0 + np.exp(-(matrix @ rule.theta[1:] + rule.theta[0])))
    label = np.where(decision & (rng.random(n) > 0.02), rng.random(n) < chance, np.nan)
    start = int(period_start(period).timestamp() * 1e6)
    own = {
        "id": [f"{seed}-{k}" for k in range(n)],
        "subject": [f"{seed}-{k}" for k in range(n)],
        "time": pa.array(start + np.arange(n), pa.timestamp("us", "UTC")),
        "epoch": [period] * n,
        "deployment": np.ones(n, np.int64),
        "u": rng.random(n),
        "propensity": p,
        "decision": decision.astype(np.int8),
        "label": pa.array(label, from_pandas=True),
        "amount": np.ones(n),
        "sensitive": rng.choice(["female", "male"], n),
    }
    assert own.keys() == _OWN.keys()
    buffer = io.BytesIO()
    pq.write_table(pa.table(own | columns), buffer)
    return Export(buffer.getvalue(), {"rows": n})


def closing(report: Report, name: str, folder: Path, key: str, n: int) -> None:
    """Close days of n decisions: one alone, and others while people are decided on."""
    settings, days = ServiceSettings.load(folder), 2 * ROUNDS + 1
    store = open_store(settings)
    start = datetime.combine(now().date() - timedelta(days=days + 1), datetime.min.time(), UTC)
    names = [str((start + timedelta(days=k)).date()) for k in range(days)]
    times = evenly(days * n, start, days)
    fill(store, settings, "spline", times, features, now(), len(times))
    store.close()
    alone = Child(folder, "close", "spline", names.pop())
    alone.begin()
    seconds = alone.end()["seconds"]
    server = Server("service", folder, key, 8730)
    length = max(1.5 * seconds, 1.0)

    def p99() -> float:
        return 1e3 * server.load(LENDING, length).p99

    found = []
    try:
        server.load(LENDING, 4.0)  # the first seconds of a service are slower
        for first in range(0, 2 * ROUNDS, 2):
            before = p99()
            busy = Child(folder, "close", "spline", *names[first : first + 2])
            busy.begin()
            meanwhile = p99()
            busy.end()
            after = p99()
            # what another process takes away by computing, without any lock
            neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            beside = p99()
            neighbour.kill()
            neighbour.wait()
            found.append((before, meanwhile, after, beside))
    finally:
        server.stop()
    before, meanwhile, after, beside = np.median(found, axis=0)
    report.say(
        f"\n{name}: closing days of {n:,} decisions, {seconds:.1f} s alone; p99 of decisions"
    )
    report.say(f"  {meanwhile:.0f} ms while two are closed, {before:.0f} ms before, {after:.0f} ms")
    report.say(f"  after, {beside:.0f} ms beside a process that only computes; {ROUNDS} rounds")
    report.promise(f"{name}: seconds to close a day", seconds, at_most=20.0)
    ratio = 2.0 * meanwhile / (before + after)
    report.promise(f"{name}: p99 meanwhile, to before and after", ratio, at_most=2.0)
    report.say(f"| {name}: p99 meanwhile, to beside that process | {meanwhile / beside:.3g} | | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("section", choices=["freezing", "learning", "closing"])
    parser.add_argument("--postgresql", metavar="URL", help="an empty database")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    options = parser.parse_args()
    report = Report()
    report.say(f"{options.section}, {time.strftime('%Y-%m-%d')}, {machine()}")
    cohort, month, day = (int(n * options.scale) for n in (1_000_000, 50_000, 100_000))
    with tempfile.TemporaryDirectory() as place:
        folder, url = Path(place) / "service", options.postgresql or ""
        key = made_service(folder, url, **MORE)
        if options.section == "freezing":
            freezing(report, folder, cohort)
        elif options.section == "learning":
            learning(report, folder, month)
        else:
            closing(report, "PostgreSQL" if url else "SQLite", folder, key, day)
    database = "-postgresql" if url and options.section == "closing" else ""
    file = RESULTS / f"loop-{options.section}{database}.md"
    file.write_text("\n".join(report.lines) + "\n")
    sys.exit(1 if report.broken else 0)


if __name__ == "__main__":
    main()
