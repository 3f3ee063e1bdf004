"""The service's benchmarks: ratios to bare servers, in turns and in one run.

Machines are shared, so CPU seconds a request stand beside rates. `--quick` takes less than two
minutes and SQLite only; PostgreSQL is measured where `--postgresql URL` names an empty database.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
from measure import SOURCE, exponent, machine
from run import RESULTS, Report
from service_load import WORDS, application, features
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.service import database, keys, loops, policies
from consequential.service.applications import read_application
from consequential.service.deciding import live_loops
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
from consequential.service.verify import verify
from consequential.service.worker import work
from consequential.service.writer import Writer

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
    """A policy of ten columns that refuses half of the people; splines make 140 inputs of them."""
    names = [*NUMBERS, "word0=b", "word1=b"]
    people = np.array(
        [
            [*(person[name] for name in NUMBERS), *(person[f"word{k}"] == "b" for k in range(2))]
            for person in map(features, range(500))
        ],
        dtype=np.float64,
    )
    made = SplineTransformer(n_knots=12).fit(people) if spline else None
    inputs = people if made is None else made.transform(people)
    slopes = np.random.default_rng(0).normal(size=inputs.shape[1]) / (1.0 if spline else 50.0)
    theta = [-np.median(inputs @ slopes), *slopes]
    summary = cq.FeatureSummary.of(people, names)
    told = {"floor": 0.05, "feature_names": names, "summary": summary}
    return cq.Policy(theta, "smooth_semi_logistic", made, **told)


def made_service(directory: Path, url: str, **changes: object) -> str:
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
            loops.put_loop(connection, name, LOOP | changes, settings.secret, "benchmark", now())
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

    def ratio(of: str, over: str, to: str) -> float:
        """Return the median over rounds: what ran side by side had the same neighbours."""
        pairs = zip(found[over], found[to], strict=True)
        return statistics.median(getattr(x, of) / getattr(y, of) for x, y in pairs)

    report.promise(f"{name}: to bare, rate", ratio("rate", "service", "bare"), at_least=0.75)
    report.promise(f"{name}: to bare, CPU", ratio("cpu", "bare", "service"), at_least=0.75)
    report.promise(f"{name}: to bare, p99", ratio("p99", "service", "bare"), at_most=2.0)
    # rates of what waits for the disk say more of the machine's other work than of the code
    for what, one, other, least in (
        ("group commit", "bare", "single", 1.7 if url else 3.0),
        ("batch to single", "batch", "service", 4.0),
        ("spline to linear", "spline", "service", 0.6),
    ):
        report.say(f"| {name}: {what}, rate | {ratio('rate', one, other):.3g} | | |")
        report.promise(f"{name}: {what}, CPU", ratio("cpu", other, one), at_least=least)


def two_processes(report: Report, folder: Path, url: str, rounds: int, seconds: float) -> None:
    """Twice the processes, twice the connections; the database is the same."""
    key = made_service(folder, url)
    with ExitStack() as stack:
        servers = [Server("service", folder, key, 8710 + k) for k in range(2)]
        for server in servers:
            stack.callback(server.stop)
        ratios = []
        for turn in range(rounds + 1):
            alone = servers[0].load("linear", seconds).rate
            with ThreadPoolExecutor(2) as threads:
                both = threads.map(lambda server: server.load("linear", seconds).rate, servers)
                together = sum(both)
            if turn:
                ratios.append(together / alone)
    cores = os.cpu_count() or 1
    report.say(f"\ntwo processes beside PostgreSQL and two loads on {cores} cores")
    least = 1.5 if cores >= 6 else 0.0  # five processes cannot run at once on fewer
    report.promise("PostgreSQL: two processes to one", statistics.median(ratios), at_least=least)


def soak(report: Report, folder: Path, minutes: float) -> None:
    """One server for minutes: neither its memory nor its latency grows."""
    key = made_service(folder, "")
    server = Server("service", folder, key, 8720)
    try:
        server.load("linear", 10.0)
        found, memory = [], []
        for _ in range(5):
            found.append(server.load("linear", minutes * 12.0))
            memory.append(server.memory())
    finally:
        server.stop()
    report.say(f"\nSQLite, {minutes:g} minutes in five parts: " + ", ".join(
        f"{each.p99 * 1e3:.0f} ms and {size / 2**20:.0f} MiB"
        for each, size in zip(found, memory, strict=True)
    ))  # fmt: skip
    report.promise("soak: memory to the first part", memory[-1] / memory[0], at_most=1.05)
    report.promise("soak: p99 to the first part", found[-1].p99 / found[0].p99, at_most=1.5)


def verified(report: Report, folder: Path, sizes: list[int]) -> None:
    """Seals of closed days, checked row by row."""
    seconds = []
    for size in sizes:
        place = folder / str(size)
        made_service(place, "", rehearsal=True)
        settings = ServiceSettings.load(place)
        store = database.open_store(settings)
        asyncio.run(fill(store, settings, size))
        work(store, settings, now())
        started = time.process_time()
        findings = list(verify(store, settings.secret))
        seconds.append(time.process_time() - started)
        store.close()
        if findings:
            raise RuntimeError(f"verify found {findings[:3]}")
    rates = [size / each for size, each in zip(sizes, seconds, strict=True)]
    report.say("\nverify: " + ", ".join(
        f"{size:,} rows at {rate:,.0f} rows/s" for size, rate in zip(sizes, rates, strict=True)
    ))  # fmt: skip
    report.promise("verify: rows a CPU second", min(rates), at_least=2e4)
    if len(sizes) > 1:
        report.promise("verify: exponent", exponent(sizes, seconds), at_least=0.95, at_most=1.05)


async def fill(store: database.Store, settings: ServiceSettings, size: int) -> None:
    """Decide on people of eleven days; the last of them stays open."""
    writer = Writer(store, settings.secret)
    with store.read() as connection:
        live = live_loops(connection, {})["linear"]
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for first in range(0, size, 1000):
        day = (start + timedelta(days=10 * first // size)).isoformat()
        batch = [application(f"V-{k}", k) | {"time": day} for k in range(first, first + 1000)]
        await writer.decide(live, [read_application(each, live.settings) for each in batch])
    late = application("last", 0) | {"time": (start + timedelta(days=11)).isoformat()}
    await writer.decide(live, [read_application(late, live.settings)])
    await writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--postgresql", metavar="URL", help="an empty database; URL_bare as well")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--verify", type=int, nargs="*", default=[], metavar="ROWS")
    options = parser.parse_args()
    report = Report()
    report.say(f"service, {time.strftime('%Y-%m-%d')}, {machine()}")
    rounds, seconds = (9, 0.7) if options.quick else (15, 2.0)
    with tempfile.TemporaryDirectory() as folder:
        compared(report, "SQLite", Path(folder) / "sqlite", "", rounds, seconds)
        if options.postgresql:
            place = Path(folder) / "postgresql"
            compared(report, "PostgreSQL", place, options.postgresql, rounds, seconds)
            two_processes(report, place, options.postgresql, rounds, seconds)
        if options.soak:
            soak(report, Path(folder) / "soak", options.soak)
        if options.verify:
            verified(report, Path(folder), options.verify)
    (RESULTS / "service.md").write_text("\n".join(report.lines) + "\n")
    sys.exit(1 if report.broken else 0)


if __name__ == "__main__":
    main()
