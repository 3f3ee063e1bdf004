"""A small service to try things on: two numbers and a word, a policy, and a key per scope."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import uvicorn
from sqlalchemy import select

import consequential as cq
from consequential.service import database, keys, loops, policies, schema
from consequential.service.app import make_app
from consequential.service.database import Store
from consequential.service.deciding import live_loops
from consequential.service.records import now
from consequential.service.settings import ServiceSettings

LOOP: dict[str, Any] = {
    "cost": 0.6,
    "floor": 0.1,
    "period": "month",
    "horizon": 2,
    "sensitive": "sex",
    "largest_amount": 10,
    "features": {
        "income": {"low": 0, "high": 10_000, "phrase": "Income"},
        "debt": {"low": 0, "high": 10_000, "phrase": "Debt"},
        "purpose": {"words": ["car", "home", "other"], "phrase": "Purpose"},
    },
}
FEATURES = {"income": 2100, "debt": 500.5, "purpose": "car"}
NAMES = ("income", "debt", "purpose=car", "purpose=home")


def application(identifier: str = "A-1", **changes: Any) -> dict[str, Any]:
    """An application, as it is posted."""
    return {"application_id": identifier, "features": FEATURES} | changes


def trial_policy(intercept: float = -1.0, floor: float = 0.1, **changes: Any) -> cq.Policy:
    people = [[1000.0, 0.0, 1, 0], [2500.0, 400.0, 0, 1], [4000.0, 900.0, 0, 1]]
    summary = cq.FeatureSummary.of(people, NAMES)
    told = {"link": "smooth_semi_logistic", "feature_names": NAMES, "summary": summary}
    return cq.Policy([intercept, 4e-4, -8e-4, -0.5, 0.3], floor=floor, **(told | changes))


@dataclass(frozen=True)
class Trial:
    """A service's settings, the keys of its accounts, and the digest of its policy."""

    settings: ServiceSettings
    keys: dict[str, str]
    policy: str

    def header(self, name: str = "all") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}"}

    def store(self) -> Store:
        return database.open_store(self.settings)

    def deployments(self, loop: str = "lending") -> list[dict[str, Any]]:
        store, table = self.store(), schema.deployment
        with store.read() as connection:
            found = schema.rows(connection, select(table).where(table.c.loop == loop))
        store.close()
        return found


def make_trial(directory: Path, url: str = "", **changes: Any) -> Trial:
    """Make a loop `trial` with a policy deployed, in SQLite or in a PostgreSQL."""
    (directory / "service.json").write_text(json.dumps({"database": url}))
    (directory / "secret").write_text(os.urandom(32).hex())
    (directory / "secret").chmod(0o600)
    settings = ServiceSettings.load(directory)
    database.migrate(settings)
    store = database.open_store(settings)
    with store.write() as connection:
        made = {
            name: keys.create_key(connection, name, scopes, now())
            for name, scopes in {
                "all": keys.SCOPES,
                "author": ["learn"],
                "second": ["approve"],
                "chief": ["approve", "admin"],
                **{scope: [scope] for scope in keys.SCOPES},
            }.items()
        }
        loops.put_loop(connection, "trial", LOOP | changes, settings.secret, "test", now())
        live = live_loops(connection, {})["trial"]
        text = cq.policy_to_json(trial_policy())
        digest = policies.propose(connection, live, text, "author", now())
        policies.deploy(connection, live, {digest: 1.0}, "second", now())
    store.close()
    return Trial(settings, made, digest)


@contextmanager
def served_here(trial: Trial) -> Iterator[httpx.Client]:
    """Serve in a thread of this process, and ask with a key for everything."""
    config = uvicorn.Config(make_app(trial.settings), log_config=None, access_log=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with httpx.Client(base_url=url, headers=trial.header(), timeout=30.0) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def add_loop(http: httpx.Client, trial: Trial, address: str, **changes: Any) -> None:
    """Make a loop with the policy of trials deployed, as a client does."""
    assert http.put(address, json=LOOP | changes).status_code == 200
    propose(http, trial, address, cq.policy_to_json(trial_policy()))
    deployed = http.post(
        f"{address}/deployments", json={"shares": {trial.policy: 1.0}, "why": "a trial"}
    )
    assert deployed.status_code == 201


def propose(http: httpx.Client, trial: Trial, address: str, text: str) -> httpx.Response:
    """Propose a policy by its author."""
    headers = trial.header("author") | {"Content-Type": "application/json"}
    return http.post(f"{address}/policies", content=text, headers=headers)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class Served:
    """A service that runs as a process of its own."""

    def __init__(self, trial: Trial, port: int, *more: str, worker: bool = True) -> None:
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "consequential", "serve", str(trial.settings.directory)]
        command += [] if worker else ["--no-worker"]
        self.log = trial.settings.directory / f"served-{port}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*more, *command, "--port", str(port)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + 60.0
        with httpx.Client() as client:  # one for all attempts: to make one reads certificates
            while time.monotonic() < end and self.process.poll() is None:
                try:
                    if client.get(f"{self.url}/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    time.sleep(0.05)
        self.kill()
        raise RuntimeError(self.log.read_text())

    def kill(self) -> None:
        """End it at once, with whatever it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; return its exit status."""
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(30)
