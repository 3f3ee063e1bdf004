"""Nothing that was acknowledged is lost: processes are killed under load, on both databases."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from postgres_server import PostgresServer
from sqlalchemy import select, text
from trial import Served, Trial, application, make_trial

from consequential.service import schema
from consequential.service.chance import epoch_key
from consequential.service.deciding import live_at, replayed
from consequential.service.records import row_digest
from consequential.service.verify import verify

Serve = Callable[..., Served]
LOAD = Path(__file__).with_name("load.py")
WRITERS = 16


class Load:
    """Writers in a process of their own."""

    def __init__(self, trial: Trial, url: str, prefix: str) -> None:
        self.file = trial.settings.directory / f"answers-{prefix}"
        self.file.touch()
        self.process = subprocess.Popen(
            [sys.executable, LOAD, f"{url}/v1/loops/trial/decisions", trial.keys["decide"],
             self.file, str(WRITERS), prefix]
        )  # fmt: skip

    def wait(self, acknowledged: int) -> None:
        """Return when so many decisions were acknowledged."""
        while self.file.read_text().count("\t201\t") < acknowledged:
            assert self.process.poll() is None, "too few decisions in two minutes"
            time.sleep(0.05)

    def answers(self) -> dict[str, tuple[int, str]]:
        """Stop, and return status and body by application."""
        self.process.terminate()
        assert self.process.wait(60) == 0
        lines = self.file.read_text().splitlines()
        return {each[0]: (int(each[1]), each[2]) for each in (line.split("\t") for line in lines)}


def stored(trial: Trial) -> dict[str, dict]:
    store = trial.store()
    with store.read() as connection:
        rows = schema.rows(connection, select(schema.decision))
    store.close()
    return {row["application_id"]: row for row in rows}


def check(trial: Trial, url: str, answers: dict[str, tuple[int, str]]) -> int:
    """All that was acknowledged is stored as it was told; the rest can be asked for again."""
    rows = stored(trial)
    acknowledged = {name: told for name, (status, told) in answers.items() if status == 201}
    assert acknowledged.keys() <= rows.keys()
    for name, told in acknowledged.items():
        assert rows[name]["digest"] in told
        assert row_digest(rows[name], schema.decision.info["may_change"]) == rows[name]["digest"]
    check_replay(trial, list(rows.values()))
    with httpx.Client(headers=trial.header()) as client:
        others = [name for name, (status, _) in answers.items() if status != 201]
        for name in others[:50]:
            again = client.post(f"{url}/v1/loops/trial/decisions", json=application(name))
            assert again.status_code in (200, 201)
        name, told = next(iter(acknowledged.items()))
        again = client.post(f"{url}/v1/loops/trial/decisions", json=application(name))
        assert (again.status_code, again.text) == (200, told)
    return len(acknowledged)


def check_replay(trial: Trial, rows: list[dict]) -> None:
    """This process, which did not decide, computes the same."""
    store = trial.store()
    with store.read() as connection:
        live = live_at(connection, "trial", rows[0]["version"], rows[0]["deployment"])
    store.close()
    key = epoch_key(trial.settings.secret, "trial", rows[0]["epoch"])
    again = replayed(live, rows, key)
    assert all(each.agrees for each in again)
    assert [each.propensity for each in again] == [row["propensity"] for row in rows]


def kill_rounds(trial: Trial, serve: Serve, rounds: int, acknowledged: int) -> None:
    """Kill the service in each round, once so many decisions were acknowledged."""
    served = serve(trial)
    for number in range(rounds):
        load = Load(trial, served.url, f"round{number}")
        load.wait(acknowledged)
        served.kill()
        served = serve(trial)
        assert check(trial, served.url, load.answers()) >= acknowledged
    assert served.stop() == 0
    store = trial.store()
    assert list(verify(store, trial.settings.secret)) == []
    store.close()
    if trial.settings.is_sqlite:
        connection = sqlite3.connect(trial.settings.directory / "service.db")
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        connection.close()


def test_a_killed_service_loses_no_acknowledged_decision(trial, serve):
    kill_rounds(trial, serve, rounds=1, acknowledged=200)


@pytest.mark.slow
def test_a_killed_service_loses_none_of_thousands_in_five_rounds(trial, serve):
    kill_rounds(trial, serve, rounds=5, acknowledged=1000)


def postgres_rounds(folder: Path, serve: Serve, rounds: int, acknowledged: int) -> None:
    """Kill PostgreSQL in each round; the service stays, and answers 503 meanwhile."""
    server = PostgresServer()
    try:
        server.execute("create database killed")
        trial = make_trial(folder, server.url("killed"))
        served = serve(trial)
        for number in range(rounds):
            load = Load(trial, served.url, f"round{number}")
            load.wait(acknowledged // 2)
            server.kill()
            while "\t503\t" not in load.file.read_text():
                time.sleep(0.05)
            server.start()
            load.wait(acknowledged)
            assert check(trial, served.url, load.answers()) >= acknowledged
        assert served.stop() == 0
        store = trial.store()
        assert list(verify(store, trial.settings.secret)) == []
        store.close()
    finally:
        server.stop()


def test_a_killed_postgresql_loses_no_acknowledged_decision(tmp_path, serve):
    postgres_rounds(tmp_path, serve, rounds=1, acknowledged=200)


@pytest.mark.slow
def test_a_killed_postgresql_loses_none_of_thousands_in_five_rounds(tmp_path, serve):
    postgres_rounds(tmp_path, serve, rounds=5, acknowledged=1000)


def test_a_service_that_is_stopped_finishes_what_it_took(trial, serve):
    served = serve(trial)
    load = Load(trial, served.url, "stopped")
    load.wait(100)
    assert served.stop() == 0
    answers = load.answers()
    acknowledged = {name for name, (status, _) in answers.items() if status == 201}
    decided = {name for name in stored(trial) if name.startswith("stopped")}
    assert acknowledged
    # whatever was decided was also answered: nobody was cut off
    assert decided == acknowledged
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert {"time", "level", "message"} <= lines[-1].keys()
    assert "stopped-" not in served.log.read_text()
    assert "income" not in served.log.read_text()


def test_many_clients_with_one_id_get_one_decision(trial, serve):
    served = [serve(trial, worker=False)]
    if not trial.settings.is_sqlite:  # a second process, which SQLite does not allow
        served.append(serve(trial, worker=False))

    def post(k: int) -> tuple[int, str]:
        url = served[k % len(served)].url
        answer = client.post(f"{url}/v1/loops/trial/decisions", json=application("one"))
        return answer.status_code, answer.text

    # each thread has a connection of its own
    with (
        httpx.Client(headers=trial.header(), timeout=30.0) as client,
        ThreadPoolExecutor(32) as threads,
    ):
        answers = list(threads.map(post, range(32)))
    assert len({text for _, text in answers}) == 1
    assert [status for status, _ in answers].count(201) == 1
    assert "one" in stored(trial)
    for each in served:
        assert each.stop() == 0


def test_a_second_service_on_one_sqlite_is_refused(sqlite_trial, serve):
    served = serve(sqlite_trial, worker=False)
    with pytest.raises(RuntimeError, match="another process serves"):
        serve(sqlite_trial, worker=False)
    assert served.stop() == 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the syncs")
def test_sqlite_syncs_at_least_once_a_decision(sqlite_trial, serve):
    trace = sqlite_trial.settings.directory / "trace"
    follow = ["strace", "-f", "--seccomp-bpf", "-e", "trace=fdatasync,fsync", "-o", str(trace)]
    served = serve(sqlite_trial, *follow, worker=False)  # which would sync too
    before = len(re.findall(r"sync\(", trace.read_text()))
    with httpx.Client(headers=sqlite_trial.header()) as client:
        for k in range(20):
            client.post(f"{served.url}/v1/loops/trial/decisions", json=application(f"A-{k}"))
    after = len(re.findall(r"sync\(", trace.read_text()))
    served.stop()
    assert after - before >= 20


def test_postgresql_syncs_at_least_once_a_decision(postgres, tmp_path, serve):
    postgres.execute("create database synced")
    trial = make_trial(tmp_path, postgres.url("synced"))
    served = serve(trial, worker=False)  # which would sync too

    def syncs() -> int:
        store = trial.store()
        with store.read() as connection:
            time.sleep(1.0)  # statistics are sent at most once a second
            found = connection.execute(text("select wal_sync from pg_stat_wal")).scalar_one()
        store.close()
        return int(found)

    before = syncs()
    with httpx.Client(headers=trial.header()) as client:
        for k in range(20):
            client.post(f"{served.url}/v1/loops/trial/decisions", json=application(f"A-{k}"))
    assert served.stop() == 0  # a connection that ends sends the rest of its statistics
    assert syncs() - before >= 20
