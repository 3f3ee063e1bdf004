from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, create_engine, select

from consequential.service import schema
from consequential.service.keys import SCOPES, accounts, authenticated, create_key, revoke_keys
from consequential.service.problems import Problem
from consequential.service.records import stamp

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        schema.metadata.create_all(connection, [schema.account, schema.event])
        yield connection
    engine.dispose()


def refused(connection: Connection, header: str | None, scope: str) -> tuple[int, str]:
    with pytest.raises(Problem) as raised:
        authenticated(accounts(connection), header, scope)
    return raised.value.status, raised.value.code


def test_a_key_is_good_for_its_scopes_and_no_others(connection):
    key = create_key(connection, "shop", ["decide", "report"], NOW)
    known = accounts(connection)
    for scope in ("decide", "report"):
        assert authenticated(known, f"Bearer {key}", scope).name == "shop"
    for scope in set(SCOPES) - {"decide", "report"}:
        assert refused(connection, f"Bearer {key}", scope) == (403, "scope")


def test_only_the_hash_of_a_key_is_stored(connection):
    key = create_key(connection, "shop", ["decide"], NOW)
    assert len(key) == 43  # 256 bits in base64
    stored = str(connection.execute(select(schema.account)).all())
    assert key not in stored


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic abc", "abc"])
def test_a_request_without_a_key_is_refused(connection, header):
    assert refused(connection, header, "decide") == (401, "no_key")


def test_unknown_and_revoked_keys_are_refused(connection):
    old = create_key(connection, "shop", ["decide"], NOW)
    other = create_key(connection, "bank", ["decide"], NOW)
    assert refused(connection, "Bearer ÿ", "decide") == (401, "unknown_key")
    assert revoke_keys(connection, "shop", NOW + timedelta(1)) == 1
    assert revoke_keys(connection, "shop", NOW + timedelta(2)) == 0
    new = create_key(connection, "shop", ["decide"], NOW + timedelta(2))
    assert refused(connection, f"Bearer {old}", "decide") == (401, "revoked_key")
    for key in (other, new):
        assert authenticated(accounts(connection), f"Bearer {key}", "decide")


def test_events_say_who_made_and_revoked_keys(connection):
    create_key(connection, "shop", ["decide"], NOW, by="anna")
    revoke_keys(connection, "shop", NOW + timedelta(1), by="ben")
    (made,) = connection.execute(select(schema.account)).mappings()
    events = connection.execute(select(schema.event).order_by(schema.event.c.id)).mappings().all()
    assert [(e["by"], e["what"], e["about"]) for e in events] == [
        ("anna", "key created", made["id"]),
        ("ben", "key revoked", made["id"]),
    ]
    assert made["revoked"] == events[1]["time"] == stamp(NOW + timedelta(1))


@pytest.mark.parametrize(
    ("name", "scopes"), [("", ["read"]), ("a\nb", ["read"]), ("a" * 101, ["read"]),
                         ("anna", []), ("anna", ["write"])],
)  # fmt: skip
def test_keys_without_a_name_or_with_unknown_scopes_are_not_made(connection, name, scopes):
    with pytest.raises(ValueError, match=r"name|scopes"):
        create_key(connection, name, scopes, NOW)
    assert not accounts(connection)
