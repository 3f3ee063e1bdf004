"""The learning loop over HTTP: lists, learning by hand, evidence, and roll back everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from learning_loop import LOOP, Rehearsal, rule
from trial import Served, Trial, make_trial, served_here

from consequential.service import alarms, schema
from consequential.service.client import Client
from consequential.service.cohorts import all_cohorts
from consequential.service.keys import create_key
from consequential.service.problems import Problem
from consequential.service.records import now

LOOP_AT = f"/v1/loops/{LOOP}"


@pytest.fixture
def people(rehearsed: Rehearsal) -> Iterator[dict[str, Client]]:
    """Clients of two people, and of one with a key for reading only."""
    scopes = {"risk": ["approve", "read"], "science": ["learn", "read"], "reader": ["read"]}
    with rehearsed.store.write() as connection:
        keys = {name: create_key(connection, name, each, now()) for name, each in scopes.items()}
    trial = Trial(rehearsed.service, keys | {"all": keys["reader"]}, rehearsed.harsh)
    with served_here(trial) as http, ExitStack() as stack:
        clients = {
            name: Client(str(http.base_url), key, timeout=30.0) for name, key in keys.items()
        }
        yield {name: stack.enter_context(each) for name, each in clients.items()}


def code_of(do: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Problem) as raised:
        do()
    return raised.value.status, raised.value.code


def test_a_loop_is_read_learned_approved_and_rolled_back_by_its_people(rehearsed, people):
    risk, science, reader = people["risk"], people["science"], people["reader"]
    found = reader.listed(LOOP, "candidates")
    assert [(each["number"], each["state"]) for each in found] == [
        (3, "waiting"), (2, "waiting"), (1, "waiting")
    ]  # fmt: skip
    looks = reader.listed(LOOP, "evaluations")
    assert [each["number"] for each in looks] == [5, 4, 3, 2, 1]
    assert looks[0]["checklist"][0]["name"] == "utility"
    assert {each["name"] for each in reader.listed(LOOP, "guardrails")} == {"chance", "acceptance"}
    counts = reader.listed(LOOP, "cohorts")[0]["counts"]
    # how many groups are unknown would tell how many people are in small groups
    assert counts.keys() == {"rows", "missing", "overridden", "repeated", "forgotten"}
    assert code_of(lambda: reader.export(LOOP, table="cohort")) == (403, "scope")

    request = science.learn(LOOP)
    rehearsed.work()
    told = reader.listed(LOOP, "learn")[0]
    assert (told["id"], told["by"], told["answer"]["request"]) == (request, "science", request)
    assert told["answer"]["policy"] == found[0]["policy"]  # the same files, the same policy
    own = science.propose(LOOP, rule(0.1), cohorts=["2026-01-04", "2026-01-03"])
    named = {each["policy"]: each["cohorts"] for each in reader.listed(LOOP, "policies")}
    assert named[own] == ["2026-01-03", "2026-01-04"]
    assert code_of(lambda: science.propose(LOOP, rule(0.2))) == (422, "cohorts")
    science.withdraw(LOOP, 4)
    assert reader.listed(LOOP, "candidates")[0]["state"] == "withdrawn"

    last = max((each for each in looks if each["candidate_number"] == 1), key=lambda e: e["number"])
    new = last["candidate"]
    assert code_of(lambda: risk.deploy(LOOP, {new: 1.0}, why="I want it")) == (403, "evidence")
    assert code_of(lambda: science.deploy(LOOP, {new: 1.0})) == (403, "scope")
    assert code_of(lambda: risk.deploy(LOOP, {own: 1.0}, evidence=1)) == (409, "evidence_changed")
    assert risk.deploy(LOOP, {new: 0.2, rehearsed.harsh: 0.8}, evidence=last["number"]) == 2
    assert risk.deploy(LOOP, {new: 1.0}, evidence=last["number"]) == 3
    assert code_of(lambda: risk.deploy(LOOP, {new: 1.0}, evidence=last["number"]))[0] == 409
    assert risk.deploy(LOOP, {rehearsed.harsh: 1.0}, why="to be sure") == 4
    deployments = reader.listed(LOOP, "deployments")
    assert deployments[0]["evidence"] == "roll back: to be sure"
    assert {each["state"] for each in reader.listed(LOOP, "candidates")} == {"ended", "withdrawn"}


def test_learning_without_a_frozen_cohort_is_refused_at_once(tmp_path):
    trial = make_trial(tmp_path)
    with served_here(trial) as http:
        answer = http.post("/v1/loops/trial/learn", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, "no_cohort")
        wrong = http.post("/v1/loops/trial/learn", json={"loop": "trial"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "unknown_member")
        assert http.post("/v1/loops/none/learn", json={}).status_code == 404


def test_a_roll_back_by_the_worker_is_in_force_in_two_processes_within_two_seconds(
    tmp_path, postgres_url, serve
):
    trial = make_trial(tmp_path, postgres_url, rehearsal=True)
    services: list[Served] = [serve(trial, worker=False) for _ in range(2)]
    header, address = trial.header(), "/v1/loops/trial"
    bold = rule(-2.0)
    with httpx.Client(base_url=services[0].url, headers=header, timeout=30.0) as http:
        settings = http.get(address).json()["settings"] | {"auto_rollback": True}
        settings["features"]["score"] = {"low": -9, "high": 9, "phrase": "Score"}
        assert http.put(address, json=settings).status_code == 200
        media = {"Content-Type": "application/json"}
        sent = http.post(
            f"{address}/policies", content=bold, headers=trial.header("author") | media
        )
        shares = {sent.json()["policy"]: 1.0}
        body = {"shares": shares, "why": "a trial"}
        assert http.post(f"{address}/deployments", json=body).status_code == 201
    store = trial.store()
    watch = alarms.Watch(all_cohorts(store, trial.settings.directory)["trial"])
    values = {"date": "2999-01-01", "value": 30.0, "limit": 20.0, "broken": True, "sentence": "No."}
    with store.write() as connection:
        schema.add(connection, schema.guardrail, "trial", now(), values | {"name": "acceptance"})
    assert watch.roll_back(now()) == 3
    began = time.monotonic()
    for service in services:
        with httpx.Client(base_url=service.url, headers=header, timeout=30.0) as http:
            body = {"application_id": service.url, "time": "2031-01-01T12:00:00Z",
                    "features": {"income": 1, "debt": 1, "purpose": "car", "score": 0}}  # fmt: skip
            while time.monotonic() - began < 2.0:
                time.sleep(0.05)
            assert http.post(f"{address}/decisions", json=body).json()["deployment"] == 3
    store.close()
