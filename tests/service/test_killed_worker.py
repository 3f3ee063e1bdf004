"""A worker process that is killed with -9 at random moments: the next one repeats nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from learning_loop import LOOP, Rehearsal
from sqlalchemy import text

from consequential.service import schema
from consequential.service.database import migrate, open_store
from consequential.service.learning import ask
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
from consequential.service.verify import verify

COMMAND = Path(sys.executable).with_name("consequential")
APART = ("id", "time", "digest", "seal")  # of rows that were written at another moment


def stored(folder: Path, url: str = "") -> ServiceSettings:
    """Return the settings of a service, as files that the command reads."""
    folder.mkdir(exist_ok=True)
    (folder / "service.json").write_text(json.dumps({"database": url}))
    (folder / "secret").write_text((b"s" * 32).hex())
    (folder / "secret").chmod(0o600)
    return ServiceSettings.load(folder)


def with_much_due(loop: Rehearsal) -> None:
    """Let a candidate decide, times change, and somebody ask for a new one; the worker sleeps."""
    loop.days(4, n=300)
    loop.put(acceptance=[0.05, 0.6], auto_rollback=True)
    candidate = loop.rows(schema.candidate)[0]["policy"]
    loop.approve({candidate: 1.0}, why="a trial")
    for shift in (0.0, 2.0, 2.0, 0.0):
        loop.decide(300, shift=shift)
    with loop.store.write() as connection:
        ask(connection, LOOP, "anna", loop.cohorts().clock(now()))
    loop.store.close()


class Copies:
    """Copies of a service, each with a database of its own."""

    def __init__(self, service: ServiceSettings, places: Path, postgres: Any) -> None:
        self.service, self.places, self.postgres = service, places, postgres
        self.count = 0

    def next(self) -> Copy:
        self.count += 1
        folder, name, url = self.places / str(self.count), f"killed_{self.count}", ""
        shutil.copytree(self.service.directory, folder)
        if self.postgres is not None:
            source = self.service.database.rpartition("/")[2]
            self.postgres.execute(f"create database {name} template {source}")
            url = self.postgres.url(name)
        return Copy(stored(folder, url))


class Copy:
    """A service whose worker has much to do."""

    def __init__(self, service: ServiceSettings) -> None:
        self.service, self.store = service, open_store(service)
        self.loop = Rehearsal(self.store, service)

    def finish(self) -> float:
        """Do all that is due, and return how long it took."""
        begin = time.perf_counter()
        self.loop.work()
        self.loop.work()  # after a roll back the next round learns
        return time.perf_counter() - begin

    def killed(self, after: float) -> float | None:
        """Kill a worker process some seconds after it began to work.

        Return the seconds it took if it was ready before that.
        """
        (self.service.directory / "worker.lock").unlink(missing_ok=True)
        command = [COMMAND, "work", self.service.directory, "--once"]
        with subprocess.Popen(command, start_new_session=True) as process:
            while process.poll() is None and not self._is_worked_on():
                time.sleep(0.01)
            begin = time.perf_counter()
            try:
                assert process.wait(after) == 0
                return time.perf_counter() - begin
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL
                return None

    def _is_worked_on(self) -> bool:
        if self.store.is_sqlite:
            return (self.service.directory / "worker.lock").exists()
        lock = "select count(*) from pg_locks where locktype = 'advisory' and objid = 20117"
        with self.store.read() as connection:
            return bool(connection.execute(text(lock)).scalar_one())

    def tables(self) -> dict[str, list[str]]:
        """Return all rows without their timestamps, and the names of all files of cohorts."""
        found = {
            table.name: sorted(
                repr({name: value for name, value in row.items() if name not in APART})
                for row in self.loop.rows(table)
            )
            for table in (*schema.SEALED, schema.day)
            if table.schema is None
        }
        assert list(verify(self.store, self.service.secret)) == []
        self.store.close()
        files = (self.service.directory / "cohorts").rglob("*")
        return found | {"files": sorted(path.name for path in files)}


@pytest.mark.parametrize(
    ("database", "kills"),
    [
        ("sqlite", 3),
        pytest.param("sqlite", 20, marks=pytest.mark.slow),
        pytest.param("postgresql", 20, marks=pytest.mark.slow),
    ],
)
def test_a_worker_killed_at_random_moments_ends_with_the_same_tables(
    request, tmp_path, database, kills
):
    """Days are closed, cohorts frozen, candidates learned and looked at, and one is rolled back."""
    url = request.getfixturevalue("postgres_url") if database == "postgresql" else ""
    service = stored(tmp_path / "service", url)
    migrate(service)
    with_much_due(Rehearsal.of(open_store(service), service))
    copies = Copies(service, tmp_path, request.getfixturevalue("postgres") if url else None)
    whole = copies.next()
    busy, expected = whole.finish(), whole.tables()
    assert {len(expected["deployment"]), len(expected["candidate"])} == {3, 6}
    rng, count = random.Random(kills), 0
    while count < kills:
        again, before, took = copies.next(), count, None
        while count < kills and took is None:
            took = again.killed(rng.uniform(0.0, busy))
            count += took is None
        if count == before:  # the machine has become faster
            busy = took
        again.finish()
        assert again.tables() == expected
