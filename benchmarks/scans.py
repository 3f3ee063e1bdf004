"""A log larger than memory: passes linear in rows, flat memory; and a cluster of two workers.

    python benchmarks/scans.py FOLDER [--rows 1000000 10000000 100000000]

Parquet files are made in FOLDER where they are missing: 100 million rows take 11 GB there.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import machine

import consequential as cq
from consequential.learning.rows import ScannedRows, scanned_totals
from consequential.policy import link_numbers

FEATURES = [f"x{k}" for k in range(10)]
NAMES = {
    "features": FEATURES,
    "decision": "d",
    "propensity": "p",
    "label": "y",
    "sensitive": "z",
}
COST = 0.5
# what docs/beyond-one-machine.md says of Dask: workers keep their memory, and mind their business
SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.nanny.pre-spawn-environ": {
        "MALLOC_TRIM_THRESHOLD_": "536870912",
        "MALLOC_MMAP_THRESHOLD_": "536870912",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    },
}
A_FILE = 5_000_000
A_GROUP = 250_000


def make(folder, n):
    """Write files of decisions by an exploring policy; what is there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(1).normal(size=len(FEATURES)) * 0.4
    for k in range(0, n, A_FILE):
        path = folder / f"part-{k // A_FILE:03d}.parquet"
        if path.exists():
            continue
        rows = min(A_FILE, n - k)
        others = [("d", pa.int8()), ("p", pa.float64()), ("y", pa.float64()), ("z", pa.int8())]
        schema = pa.schema([*((name, pa.float64()) for name in FEATURES), *others])
        unfinished = path.with_suffix(".part")
        with pq.ParquetWriter(unfinished, schema, compression="none", use_dictionary=False) as out:
            for start in range(0, rows, A_GROUP):
                out.write_table(_some(min(A_GROUP, rows - start), [2, k, start], weights, schema))
        unfinished.rename(path)


def _some(n, seed, weights, schema):
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    x = rng.normal(size=(n, len(weights)))
    x[:, :3] += 0.3 * z[:, None]
    score = x @ weights
    p = 0.05 + 0.95 / (1.0 + np.exp(-2.0 * score))
    d = rng.random(n) < p
    y = np.where(d, rng.random(n) < 1.0 / (1.0 + np.exp(-score + 0.2)), np.nan)
    columns = [*x.T, d.astype(np.int8), p, y, z.astype(np.int8)]
    arrays = [pa.array(column, from_pandas=True) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def one_pass(scan):
    objective = cq.Objective(COST, "demographic_parity")
    policy = cq.Policy(np.linspace(-0.5, 0.5, len(FEATURES) + 1))
    rows = ScannedRows(scan, objective, policy, scanned_totals(scan, objective))
    started = time.perf_counter()
    rows.sums(policy.theta, link_numbers(policy))
    return time.perf_counter() - started


def two_workers(folder):
    """How many times one worker two are, on a log and on a sweep."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set(SETTINGS)
    with ExitStack() as open_:
        clients = []
        for n_workers in (1, 2):
            options = {"threads_per_worker": 1, "dashboard_address": ":0"}
            cluster = open_.enter_context(LocalCluster(n_workers=n_workers, **options))
            clients.append(open_.enter_context(Client(cluster, set_as_default=False)))
        logs = [
            partial(one_pass, cq.DecisionLog.scan(folder, **NAMES, client=client))
            for client in clients
        ]
        sweeps = [partial(_sweep_on, client) for client in clients]
        return tuple(_ratio(name, pair) for name, pair in (("log", logs), ("sweep", sweeps)))


def _ratio(name, pair, repeats=5):
    """Return the median ratio of one's seconds to the other's, measured alternately."""
    for each in pair:
        each()  # the workers have compiled
    seconds = np.array([[each() for each in pair] for _ in range(repeats)])
    one, two = np.median(seconds, axis=0)
    ratios = seconds[:, 0] / seconds[:, 1]
    print(
        f"a {name}: one worker {one:.2f} s, two {two:.2f} s; "
        f"ratios {ratios.min():.2f} to {ratios.max():.2f}"
    )
    return float(np.median(ratios))


def _sweep_on(client):
    with cq.cluster(client):
        return _sweep()


def _sweep():
    """The paper's: 30 seeds, 19 penalties, 200 steps."""
    started = time.perf_counter()
    cq.simulate(
        cq.worlds.first_setting(),
        cq.lab.LearnToDecide("logistic"),
        seeds=30,
        penalties=np.logspace(-0.5, 4, 19),
        progress=False,
    )
    return time.perf_counter() - started


class Peak:
    """The largest resident memory while something runs."""

    def __enter__(self):
        self.bytes, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self):
        while not self._over.wait(0.05):
            with open("/proc/self/statm") as file:
                pages = int(file.read().split()[1])
            self.bytes = max(self.bytes, pages * resource.getpagesize())

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--without-cluster", action="store_true")
    parser.add_argument("--without-fit", action="store_true")
    options = parser.parse_args()
    print(machine())
    seconds = []
    for n in options.rows:
        folder = options.folder / f"{n}"
        make(folder, n)
        scan = cq.DecisionLog.scan(folder, **NAMES)
        times = [one_pass(scan) for _ in range(3 if n <= 10**7 else 1)]
        seconds.append(min(times))
        print(f"{n:>11} rows: one pass {min(times):.2f} s, {n / min(times) / 1e6:.1f} M rows/s")
    if len(seconds) > 1:
        exponent = np.polyfit(np.log(options.rows), np.log(seconds), 1)[0]
        print(f"time of a pass grows with rows to the power {exponent:.3f}")
    if not options.without_fit:
        fit(options.folder / f"{options.rows[-1]}")
    if not options.without_cluster:
        some = options.rows[min(1, len(options.rows) - 1)]
        on_log, on_sweep = two_workers(options.folder / f"{some}")
        print(f"two workers: {on_log:.2f} times one on a log, {on_sweep:.2f} times on a sweep")


def fit(folder):
    with Peak() as peak:
        started = time.perf_counter()
        learner = cq.FairPolicyLearner(cost=COST, max_gap=0.02)
        scan = cq.DecisionLog.scan(folder, **NAMES)
        learner.fit_log(scan)
        took = time.perf_counter() - started
    result = learner.result_
    print(
        f"fitted to {len(scan)} rows with a parity constraint in {took:.0f} s, peak memory "
        f"{peak.bytes / 2**30:.2f} GiB: utility {result.utility:.5f}, "
        f"gap {result.benefit_gap:+.5f}, converged {result.converged}, {result.n_passes} passes "
        "over samples and log"
    )


if __name__ == "__main__":
    main()
