"""Databases to test the service on: SQLite in a folder, and PostgreSQL on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest
from learning_loop import Rehearsal
from lending_loop import settings_in
from page_data import make_loop
from postgres_server import PostgresServer
from trial import Served, Trial, add_loop, free_port, make_trial, served_here

from consequential.service.database import Store, migrate, open_store
from consequential.service.settings import ServiceSettings

_numbers = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of this session."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database of that server."""
    name = f"test_{next(_numbers)}"
    postgres.execute(f"create database {name}")
    yield postgres.url(name)
    postgres.execute(f"drop database {name} with (force)")


@pytest.fixture(params=["sqlite", "postgresql"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> ServiceSettings:
    """Where an empty service keeps things: once in SQLite, once in PostgreSQL."""
    is_sqlite = request.param == "sqlite"
    settings = settings_in(tmp_path, "" if is_sqlite else request.getfixturevalue("postgres_url"))
    migrate(settings)
    return settings


@pytest.fixture
def store(service: ServiceSettings) -> Iterator[Store]:
    """The databases of an empty service."""
    store = open_store(service)
    yield store
    store.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A service with a loop and a policy, on either database."""
    url = ""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        name = f"trial_{next(_numbers)}"
        server.execute(f"create database {name}")
        url = server.url(name)
    return make_trial(tmp_path_factory.mktemp("trial"), url)


@pytest.fixture(scope="module")
def http(trial: Trial) -> Iterator[httpx.Client]:
    """Requests to that service, served by a thread, with a key for everything."""
    with served_here(trial) as client:
        yield client


@pytest.fixture
def loop(http: httpx.Client, trial: Trial) -> str:
    """The address of a loop of its own for each test, which decides with the policy of trials."""
    name = f"/v1/loops/loop-{next(_numbers)}"
    add_loop(http, trial, name)
    return name


@pytest.fixture
def sqlite_trial(tmp_path: Path) -> Trial:
    """A service of its own on SQLite."""
    return make_trial(tmp_path)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start services as processes of their own, which end with the test."""
    started: list[Served] = []

    def start(trial: Trial, *more: str, worker: bool = True) -> Served:
        started.append(Served(trial, free_port(), *more, worker=worker))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def sqlite_loop(tmp_path: Path) -> Iterator[Rehearsal]:
    """A loop in rehearsal on SQLite, decided by a harsh rule."""
    with _opened(tmp_path) as (store, settings):
        yield Rehearsal.of(store, settings)


@pytest.fixture(scope="session")
def _six_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("rehearsal")
    with _opened(folder) as (store, settings):
        loop = Rehearsal.of(store, settings)
        loop.days(6)
    return folder, loop.harsh


@pytest.fixture
def rehearsed(_six_days: tuple[Path, str], tmp_path: Path) -> Iterator[Rehearsal]:
    """Such a loop after six days, with four cohorts and three candidates that wait."""
    folder, harsh = _six_days
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    with _opened(tmp_path) as (store, settings):
        yield Rehearsal(store, settings, harsh, day="2026-01-07")


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[Store, ServiceSettings]]:
    settings = settings_in(folder)
    store = open_store(settings)
    yield store, settings
    store.close()


@pytest.fixture(scope="session")
def page_trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A service on SQLite whose loop has weeks of closed books behind it."""
    return make_loop(tmp_path_factory.mktemp("pages"))
