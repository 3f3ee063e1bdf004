from __future__ import annotations

import pytest
from postgres_server import PostgresServer
from sqlalchemy import create_engine, text


@pytest.fixture
def own_server():
    server = PostgresServer()
    yield server
    server.stop()


def test_what_was_committed_is_there_after_a_kill(own_server):
    own_server.execute("create table kept (n int)")
    own_server.execute("insert into kept values (7)")
    own_server.kill()
    own_server.start()
    engine = create_engine(own_server.url("postgres"))
    with engine.connect() as connection:
        assert connection.execute(text("select n from kept")).scalar_one() == 7
        assert connection.execute(text("show fsync")).scalar_one() == "on"
    engine.dispose()
