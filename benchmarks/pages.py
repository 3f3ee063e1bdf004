"""Server time of every page of a loop with many decisions, beside /healthz.

    python benchmarks/pages.py [--decisions 1000000] [--days 400] [--database URL]

Rows are made up and inserted in bulk; days are closed and cohorts frozen as the worker does it.
"""

from __future__ import annotations

import argparse
import json
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
from measure import machine
from sqlalchemy import insert, text

import consequential as cq
from consequential.service import keys, loops, policies, schema
from consequential.service.app import make_app
from consequential.service.closing import close_day, days_due
from consequential.service.cohorts import all_cohorts
from consequential.service.database import migrate, open_store
from consequential.service.deciding import live_loops
from consequential.service.records import now
from consequential.service.settings import ServiceSettings

LOOP, SUBJECTS, PIECE = "lending", 200_000, 20_000
SETTINGS = {
    "cost": 0.6, "floor": 0.1, "horizon": 1, "sensitive": "sex",
    "features": {"score": {"low": 0, "high": 1, "phrase": "Score"}},
}  # fmt: skip
PAGES = ("", "/outcomes", "/people", "/candidates", "/decision?of=A-1", "/audit")


def made_rows(n: int, days: int, start: datetime):
    """Yield decisions and outcomes in pieces, in order of time."""
    rng = np.random.default_rng(0)
    for first in range(0, n, PIECE):
        decisions, outcomes = [], []
        for k in range(first, min(first + PIECE, n)):
            at, score, u = start + timedelta(days=days * k / n), rng.random(), rng.random()
            p = 1.0 if score > 0.6 else 0.1 + score
            values = {
                "application_id": f"A-{k}", "subject_id": f"P-{k % SUBJECTS}", "version": 1,
                "cohort": f"{at:%Y-%m}", "epoch": f"{at:%Y-%m}", "deployment": 1,
                "features": json.dumps({"score": score}), "salt": "s", "features_digest": "f",
                "amount": 1.0, "score": score, "propensity": p, "u": u, "accepted": bool(u < p),
            }  # fmt: skip
            row = schema.made_row(schema.decision, LOOP, at, values)
            decisions.append(row)
            later = at + timedelta(days=20)
            if row["accepted"] and later < start + timedelta(days=days):
                told = {"event_id": f"E-{k}", "decision": row["id"], "happened": row["time"]}
                told |= {"label": int(rng.random() < score), "corrects": None, "by": "anna"}
                outcomes.append(schema.made_row(schema.outcome, LOOP, later, told))
        yield decisions, outcomes


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
    told = {"attribute": "sex", "salt": "s", "value_digest": "v", "by": "anna"}
    with store.write_sensitive() as connection:
        people = (
            told | {"subject_id": f"P-{k}", "value": "female" if k % 2 else "male"}
            for k in range(SUBJECTS)
        )
        rows = [schema.made_row(schema.attribute, "", now(), person) for person in people]
        connection.execute(insert(schema.attribute), rows)
    for decisions, outcomes in made_rows(n, days, start):
        with store.write() as connection:
            connection.execute(insert(schema.decision), decisions)
            connection.execute(insert(schema.outcome), outcomes) if outcomes else None
    if not store.is_sqlite:
        with store.main.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("analyze"))
    for day in days_due(store, LOOP, now()):
        close_day(store, LOOP, day)
    cohorts = all_cohorts(store, settings.directory)[LOOP]
    for period in cohorts.due(now()):
        cohorts.freeze(period, now())
    store.close()
    return key


@contextmanager
def served(settings: ServiceSettings) -> Iterator[httpx.Client]:
    """Serve in a thread of this process, whose CPU time is then that of client and server."""
    server = uvicorn.Server(uvicorn.Config(make_app(settings), log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=60.0) as client:
            yield client
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
        what = f"{options.decisions} decisions in {options.days} days"
        print(f"{machine()}; {what}, made in {took:.0f} s")
        print("| page | first, ms | again, ms | again, CPU ms |\n| --- | --- | --- | --- |")
        with served(settings) as client:
            origin = {"Origin": str(client.base_url).rstrip("/")}
            client.post("/sign-in", data={"key": key}, headers=origin)
            for page in ("/healthz", *(f"/loops/{LOOP}{page}" for page in PAGES)):
                first, (wall, cpu) = timed(client, page, 1)[0], timed(client, page, 15)
                print(f"| {page} | {first:.0f} | {wall:.1f} | {cpu:.1f} |", flush=True)


if __name__ == "__main__":
    main()
