"""Server time of every page of a loop with many decisions, beside /healthz.

    python benchmarks/pages.py [--decisions 1000000] [--days 400] [--database URL]

Rows are inserted in bulk; the worker closes the days, freezes cohorts, learns and looks. `/empty`
is a Jinja page without content in the same app. The table goes to benchmarks/results/pages.md.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import httpx
import numpy as np
import uvicorn
from jinja2 import Template
from loop_data import evenly, fill, report_groups
from measure import machine
from run import RESULTS
from starlette.responses import HTMLResponse
from starlette.routing import Route

import consequential as cq
from consequential.service import keys, loops, policies
from consequential.service.app import make_app
from consequential.service.database import migrate, open_store
from consequential.service.deciding import live_loops
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
from consequential.service.worker import work

LOOP, SUBJECTS = "lending", 200_000
SETTINGS = {
    "cost": 0.6, "floor": 0.1, "horizon": 1, "sensitive": "sex",
    "features": {"score": {"low": 0, "high": 1, "phrase": "Score"}},
}  # fmt: skip
PAGES = ("", "/outcomes", "/people", "/candidates", "/decision?of=A-1", "/audit")


def make_service(settings: ServiceSettings, n: int, days: int) -> str:
    """Fill the databases and return a key."""
    start = datetime.combine(now().date() - timedelta(days=days), datetime.min.time(), UTC)
    migrate(settings)
    store = open_store(settings)
    summary = cq.FeatureSummary.of([[0.2], [0.5], [0.9]], ["score"])
    rule = cq.Policy([-6.0, 10.0], "semi_logistic", floor=0.1, feature_names=["score"],
                     summary=summary)  # fmt: skip
    with store.write() as connection:
        key = keys.create_key(connection, "risk", ["read", "approve"], now())
        loops.put_loop(connection, LOOP, SETTINGS, settings.secret, "anna", start)
        live = live_loops(connection, {})[LOOP]
        digest = policies.propose(connection, live, cq.policy_to_json(rule), "anna", start)
        policies.deploy(connection, live, {digest: 1.0}, "ben", start)
    scores = np.random.default_rng(1).random(n)
    times, until = evenly(n, start, days), start + timedelta(days=days)
    report_groups(store, start, SUBJECTS)
    fill(store, settings, LOOP, times, lambda k: {"score": float(scores[k])}, until, SUBJECTS)
    work(store, settings, now())
    store.close()
    return key


@contextmanager
def served(settings: ServiceSettings) -> Iterator[httpx.Client]:
    """Serve in a thread of this process, whose CPU time is then that of client and server."""
    app, empty = make_app(settings), Template("<!doctype html><title>{{ title }}</title>")
    route = Route("/empty", lambda _: HTMLResponse(empty.render(title="Empty")))
    app.router.routes.insert(0, route)  # before what answers unknown addresses
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            with httpx.Client(base_url=url, timeout=60.0) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def timed(client: httpx.Client, address: str, times: int) -> tuple[float, float]:
    """Return the median milliseconds of wall-clock time and of CPU of a request."""
    found = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        assert client.get(address).status_code == 200, address
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return tuple(1000.0 * np.median(found, axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [f"sqlite:///{folder}/{name}.db" for name in ("service", "sensitive")]
        urls = [options.database] * 2 if options.database else files
        settings = ServiceSettings(Path(folder), *urls, b"s" * 32)
        began = time.perf_counter()
        key = make_service(settings, options.decisions, options.days)
        took = time.perf_counter() - began
        kind = "PostgreSQL" if options.database else "SQLite"
        what = f"{options.decisions:,} decisions in {options.days} days, {kind}"
        said = [f"pages, {time.strftime('%Y-%m-%d')}, {machine()}", f"{what}, made in {took:.0f} s"]
        said += [
            "",
            "| page | first, ms | again, ms | again, CPU ms |",
            "| --- | --- | --- | --- |",
        ]
        with served(settings) as client:
            origin = {"Origin": str(client.base_url).rstrip("/")}
            client.post("/sign-in", data={"key": key}, headers=origin)
            for page in ("/healthz", "/empty", *(f"/loops/{LOOP}{page}" for page in PAGES)):
                first, (wall, cpu) = timed(client, page, 1)[0], timed(client, page, 15)
                said.append(f"| {page} | {first:.0f} | {wall:.1f} | {cpu:.1f} |")
        (RESULTS / "pages.md").write_text("\n".join(said) + "\n")
        print(*said, sep="\n")


if __name__ == "__main__":
    main()
