"""The service's benchmarks: ratios to bare servers, in turns and in one run.

Machines are shared, so CPU seconds a request stand beside rates. `--quick` takes less than two
minutes and SQLite only; PostgreSQL is measured where `--postgresql URL` names an empty database.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from measure import SOURCE, machine
from run import RESULTS, Report
from service_load import WORDS, features
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.service import database, keys, loops, policies
from consequential.service.deciding import live_loops
from consequential.service.records import now
from consequential.service.settings import ServiceSettings

HERE = Path(__file__).parent
CONNECTIONS = 32
NUMBERS = [f"number{k}" for k in range(8)]
LOOP = {
    "cost": 0.6,
    "floor": 0.05,
    "features": {
        **{name: {"low": 0, "high": 100, "phrase": name} for name in NUMBERS},
        **{f"word{k}": {"words": WORDS, "phrase": f"word {k}"} for k in range(2)},
    },
}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"}


def policy(spline: bool) -> cq.Policy:
    """A policy of ten columns; with splines each of them becomes fourteen inputs."""
    names = [*NUMBERS, "word0=b", "word1=b"]
    people = np.array(
        [
            [*(person[name] for name in NUMBERS), *(person[f"word{k}"] == "b" for k in range(2))]
            for person in map(features, range(500))
        ],
        dtype=np.float64,
    )
    made = SplineTransformer(n_knots=12).fit(people) if spline else None
    n = people.shape[1] if made is None else made.transform(people[:1]).shape[1]
    theta = np.random.default_rng(0).normal(size=n + 1) / (1.0 if spline else 50.0)
    summary = cq.FeatureSummary.of(people, names)
    told = {"floor": 0.05, "feature_names": names, "summary": summary}
    return cq.Policy(theta, "smooth_semi_logistic", made, **told)


def made_service(directory: Path, url: str) -> str:
    """Make loops `linear` and `spline`, and return a key."""
    directory.mkdir(exist_ok=True)
    (directory / "service.json").write_text(json.dumps({"database": url}))
    (directory / "secret").write_text("5" * 64)
    (directory / "secret").chmod(0o600)
    settings = ServiceSettings.load(directory)
    database.migrate(settings)
    store = database.open_store(settings)
    with store.write() as connection:
        key = keys.create_key(connection, "load", ["decide", "read"], now())
        for name in ("linear", "spline"):
            loops.put_loop(connection, name, LOOP, settings.secret, "benchmark", now())
            live = live_loops(connection, {})[name]
            text = cq.policy_to_json(policy(name == "spline"))
            digest = policies.propose(connection, live, text, "author", now())
            policies.deploy(connection, live, {digest: 1.0}, "second", now())
    store.close()
    return key


class Server:
    """One of the servers, as a process of its own."""

    def __init__(self, kind: str, directory: Path, key: str, port: int) -> None:
        self.key, self.port, self.rounds = key, port, 0
        command = [sys.executable, HERE / "service_servers.py", kind, directory, str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz")
                return
            except httpx.TransportError:
                time.sleep(0.1)
        raise RuntimeError(f"{kind} did not start")

    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def load(self, loop: str, seconds: float, rows: int = 1) -> Measured:
        self.rounds += 1
        path = f"/v1/loops/{loop}/decisions" + ("/batch" if rows > 1 else "")
        connections = 2 if rows > 1 else CONNECTIONS
        before = self.cpu()
        arguments = [self.port, path, self.key, connections, seconds, rows,
                     f"{self.port}-{self.rounds}"]  # fmt: skip
        done = subprocess.run(
            [sys.executable, HERE / "service_load.py", *map(str, arguments)],
            capture_output=True, text=True, check=True, env=ENVIRONMENT,
        )  # fmt: skip
        told = json.loads(done.stdout)
        decisions = told["requests"] * rows
        return Measured(told["rate"], told["p99"], (self.cpu() - before) / decisions)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@dataclass(frozen=True)
class Measured:
    """Decisions a second, the 99th percentile of latency, and CPU seconds a decision."""

    rate: float
    p99: float
    cpu: float


def medians(rounds: list[Measured]) -> Measured:
    return Measured(
        *(
            statistics.median(getattr(each, name) for each in rounds)
            for name in ("rate", "p99", "cpu")
        )
    )


def compared(
    report: Report, name: str, folder: Path, url: str, rounds: int, seconds: float
) -> None:
    key = made_service(folder, url)
    twin = folder.with_name(f"{folder.name}-bare")
    made_service(twin, f"{url}_bare" if url else "")
    with ExitStack() as stack:
        servers = {
            kind: Server(kind, directory, key, 8700 + place)
            for place, (kind, directory) in enumerate(
                (("service", folder), ("bare", twin), ("single", twin))
            )
        }
        for server in servers.values():
            stack.callback(server.stop)
        tasks = {
            "service": (servers["service"], "linear", 1),
            "bare": (servers["bare"], "linear", 1),
            "single": (servers["single"], "linear", 1),
            "spline": (servers["service"], "spline", 1),
            "batch": (servers["service"], "linear", 1000),
        }
        found: dict[str, list[Measured]] = {task: [] for task in tasks}
        for turn in range(rounds + 1):
            for task, (server, loop, rows) in tasks.items():
                measured = server.load(loop, seconds, rows)
                if turn:  # the first one warms up
                    found[task].append(measured)
    middle = {task: medians(each) for task, each in found.items()}
    report.say(f"\n{name}: {rounds} rounds of {seconds:g} s, {CONNECTIONS} connections")
    for task, each in middle.items():
        report.say(
            f"  {task:8} {each.rate:8.0f} decisions/s, p99 {each.p99 * 1e3:6.1f} ms, "
            f"{each.cpu * 1e6:6.0f} us CPU each"
        )
    rate = {task: each.rate for task, each in middle.items()}
    cpu = {task: each.cpu for task, each in middle.items()}
    report.promise(f"{name}: rate to bare", rate["service"] / rate["bare"], at_least=0.75)
    report.promise(f"{name}: CPU to bare", cpu["bare"] / cpu["service"], at_least=0.75)
    slower = middle["service"].p99 / middle["bare"].p99
    report.promise(f"{name}: p99 to bare", slower, at_most=2.0)
    least = 1.7 if url else 3.0
    report.promise(f"{name}: group commit", rate["bare"] / rate["single"], at_least=least)
    report.promise(f"{name}: batch to single", rate["batch"] / rate["service"], at_least=4.0)
    report.promise(f"{name}: spline to linear", rate["spline"] / rate["service"], at_least=0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--postgresql", metavar="URL", help="an empty database; URL_bare as well")
    options = parser.parse_args()
    report = Report()
    report.say(f"service, {time.strftime('%Y-%m-%d')}, {machine()}")
    rounds, seconds = (3, 1.5) if options.quick else (5, 5.0)
    with tempfile.TemporaryDirectory() as folder:
        compared(report, "SQLite", Path(folder) / "sqlite", "", rounds, seconds)
        if options.postgresql:
            place = Path(folder) / "postgresql"
            compared(report, "PostgreSQL", place, options.postgresql, rounds, seconds)
    (RESULTS / "service.md").write_text("\n".join(report.lines) + "\n")
    sys.exit(1 if report.broken else 0)


if __name__ == "__main__":
    main()
