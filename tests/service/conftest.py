"""Databases to test the service on: SQLite in a folder, and PostgreSQL on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from postgres_server import PostgresServer

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
