"""Databases to test the service on: SQLite in a folder, and PostgreSQL on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from postgres_server import PostgresServer

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
    if request.param == "sqlite":
        files = [f"sqlite:///{tmp_path / name}.db" for name in ("service", "sensitive")]
    else:
        files = [request.getfixturevalue("postgres_url")] * 2
    settings = ServiceSettings(tmp_path, files[0], files[1], b"s" * 32)
    migrate(settings)
    return settings


@pytest.fixture
def store(service: ServiceSettings) -> Iterator[Store]:
    """The databases of an empty service."""
    store = open_store(service)
    yield store
    store.close()
