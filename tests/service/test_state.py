"""What a running service knows: it goes on where something cannot be read, but not without keys."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
import trial
from sqlalchemy.exc import TimeoutError
from trial import LOOP, Trial, application, served_here

import consequential as cq
from consequential.service import api, chance, deciding, keys, policies, schema, state
from consequential.service.app import make_app
from consequential.service.records import canonical, now


def add_version(where: Trial, loop: str, version: int, **changes) -> None:
    """Store settings as a later version of the program might."""
    values = {"version": version, "settings": canonical(LOOP | changes), "by": "test"}
    store = where.store()
    with store.write() as connection:
        schema.add(connection, schema.loop, loop, now(), values)
    store.close()


def test_a_loop_that_cannot_be_read_leaves_the_others_and_the_keys_alone(sqlite_trial, caplog):
    store = sqlite_trial.store()
    service = state.Service(sqlite_trial.settings, store)
    before = service.live("trial")
    add_version(sqlite_trial, "trial", 2, colour="red")
    add_version(sqlite_trial, "another", 1)
    with store.write() as connection:
        keys.revoke_keys(connection, "all", now())
    with caplog.at_level(logging.ERROR):
        service.refresh()
    assert service.live("trial") is before
    assert service.live("another").version == 1
    assert all(each.revoked for each in service._accounts.values() if each.name == "all")
    assert "trial" in caplog.text
    store.close()


def test_reading_goes_on_after_any_error(sqlite_trial, monkeypatch):
    monkeypatch.setattr(state, "_INTERVAL", 0.01)
    read, failures = state.accounts, [RuntimeError, MemoryError]

    def fails_at_first(connection):
        if failures:
            raise failures.pop()
        return read(connection)

    with served_here(sqlite_trial) as http:
        monkeypatch.setattr(state, "accounts", fails_at_first)
        store = sqlite_trial.store()
        with store.write() as connection:
            keys.revoke_keys(connection, "all", now())
        store.close()
        for _ in range(1000):
            answer = http.get("/v1/loops/trial")
            if answer.status_code == 401:
                break
        assert answer.json()["code"] == "revoked_key"
    assert not failures


def test_a_service_does_not_start_with_another_secret(sqlite_trial):
    with pytest.raises(chance.ChanceError, match="it had before"):
        make_app(replace(sqlite_trial.settings, secret=b"another secret" * 3))


def test_the_commitment_that_is_told_is_the_one_that_was_stored(sqlite_trial):
    with served_here(sqlite_trial) as http:
        first = http.post("/v1/loops/trial/decisions", json=application()).json()
        stored = {row["epoch"]: row for row in http.get("/v1/loops/trial/epochs").json()["epochs"]}
        assert first["commitment"] == stored[first["epoch"]]["commitment"]
        assert http.post("/v1/loops/trial/decisions", json=application()).json() == first
        assert http.get(f"/v1/decisions/{first['id']}").json()["commitment"] == first["commitment"]


def test_decisions_do_not_wait_for_connections_of_other_requests(sqlite_trial, monkeypatch):
    app = make_app(sqlite_trial.settings)
    engine = app.state.service.store.main
    monkeypatch.setattr(trial, "make_app", lambda _: app)
    with served_here(sqlite_trial) as http:
        engine.pool._timeout = 0.01
        with ExitStack() as held:
            with suppress(TimeoutError):
                while True:
                    held.enter_context(engine.connect())
            decided = http.post("/v1/loops/trial/decisions", json=application())
            assert decided.status_code == 201
            late = http.get("/v1/loops/trial/epochs")
            assert (late.status_code, late.json()["code"]) == (503, "storage")


def test_only_a_few_exports_are_made_at_a_time(sqlite_trial):
    with served_here(sqlite_trial) as http, api._exports, api._exports:
        answer = http.get("/v1/loops/trial/export")
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")


def test_a_policy_is_loaded_before_anybody_deploys_it(sqlite_trial):
    """The first with splines takes seconds, and a deployment is to be in force within two."""
    store = sqlite_trial.store()
    service = state.Service(sqlite_trial.settings, store)
    text = cq.policy_to_json(trial.trial_policy(-0.123))
    with service.changing("trial") as (connection, live, at):
        digest = policies.propose(connection, live, text, "author", at)
    service.prepare()
    loaded = deciding._policy.cache_info().misses
    service.prepare()
    with service.changing("trial") as (connection, live, at):
        number = policies.deploy(connection, live, {digest: 1.0}, "second", at)
    service.refresh()
    assert service.live("trial").number == number
    assert deciding._policy.cache_info().misses == loaded
    store.close()
