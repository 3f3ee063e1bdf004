"""Decisions over HTTP, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from trial import FEATURES, LOOP, add_loop, application, propose, trial_policy

import consequential as cq


def test_a_decision_says_its_probability_and_a_refusal_its_reasons(http, loop):
    answers = [http.post(f"{loop}/decisions", json=application(f"A-{k}")) for k in range(20)]
    assert {answer.status_code for answer in answers} == {201}
    bodies = [answer.json() for answer in answers]
    expected = trial_policy().propensity({name: FEATURES[name] for name in FEATURES})[0]
    assert {body["propensity"] for body in bodies} == {expected}
    for body in bodies:
        assert (body["reasons"] == []) == body["accepted"]
    refused = next(body for body in bodies if not body["accepted"])
    assert [reason["feature"] for reason in refused["reasons"]] == ["purpose", "income", "debt"]
    assert refused["reasons"][1] == {"feature": "income", "phrase": "Income", "lost": 0.16}


def test_the_same_application_gets_the_same_answer_and_another_one_is_refused(http, loop):
    first = http.post(f"{loop}/decisions", json=application(subject_id="P-1"))
    again = http.post(f"{loop}/decisions", json=application(subject_id="P-1"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
    for change in ({"subject_id": "P-2"}, {"amount": 2}, {"features": FEATURES | {"debt": 1}}):
        other = http.post(f"{loop}/decisions", json=application(subject_id="P-1") | change)
        assert (other.status_code, other.json()["code"]) == (409, "application_differs")


def test_a_batch_is_decided_as_its_members_would_be(http, loop):
    single = [http.post(f"{loop}/decisions", json=application(f"A-{k}")).json() for k in range(3)]
    batch = {"applications": [application(f"A-{k}") for k in range(5)] + [application("A-4")]}
    answer = http.post(f"{loop}/decisions/batch", json=batch)
    assert answer.status_code == 201
    bodies = answer.json()["decisions"]
    assert bodies[:3] == single
    assert bodies[4] == bodies[5]
    assert http.post(f"{loop}/decisions/batch", json=batch).status_code == 200


def test_a_batch_with_one_contradiction_stores_nothing(http, loop):
    http.post(f"{loop}/decisions", json=application("A-2", amount=5.0))
    batch = {"applications": [application(f"A-{k}") for k in range(3)]}
    answer = http.post(f"{loop}/decisions/batch", json=batch)
    assert (answer.status_code, answer.json()["index"]) == (409, 2)
    assert http.post(f"{loop}/decisions", json=application("A-0")).status_code == 201


def test_who_applies_again_keeps_the_draw(http, loop):
    first, second = (
        http.post(f"{loop}/decisions", json=application(f"A-{k}", subject_id="P-1")).json()
        for k in range(2)
    )
    other = http.post(f"{loop}/decisions", json=application("A-3", subject_id="P-2")).json()
    draws = [http.get(f"/v1/decisions/{body['id']}").json()["u"] for body in (first, second, other)]
    assert draws[0] == draws[1] != draws[2]


def test_a_decision_can_be_looked_up_and_replayed(http, loop):
    body = http.post(f"{loop}/decisions", json=application()).json()
    row = http.get(f"/v1/decisions/{body['id']}").json()
    assert row["features"] == FEATURES
    assert {name: row[name] for name in body} == body
    assert http.get(f"/v1/decisions/{body['id']}/replay").json()["agrees"]
    assert http.get("/v1/decisions/none").status_code == 404


def test_a_canary_draws_once_with_the_mixture(http, trial, loop):
    bold = cq.policy_to_json(trial_policy(intercept=1.5))
    digest = propose(http, trial, loop, bold).json()["policy"]
    shares = {trial.policy: 0.9, digest: 0.1}
    deployed = http.post(f"{loop}/deployments", json={"shares": shares, "why": "a trial"})
    assert deployed.json() == {"number": 2}
    body = http.post(f"{loop}/decisions", json=application()).json()
    each = [policy.propensity(FEATURES)[0] for policy in (trial_policy(), trial_policy(1.5))]
    assert body["propensity"] == pytest.approx(0.9 * each[0] + 0.1 * each[1], abs=1e-15)
    assert (body["policy"], body["deployment"]) == (trial.policy, 2)
    assert http.get(f"/v1/decisions/{body['id']}/replay").json()["agrees"]


def test_answers_stay_the_same_when_settings_and_policies_change(http, trial, loop):
    first = http.post(f"{loop}/decisions", json=application()).content
    settings = http.get(loop).json()["settings"]
    settings["features"]["income"]["phrase"] = "Earnings"
    assert http.put(loop, json=settings).json() == {"version": 2}
    assert http.put(loop, json=settings).json() == {"version": 2}
    digest = propose(http, trial, loop, cq.policy_to_json(trial_policy(0.4))).json()["policy"]
    http.post(f"{loop}/deployments", json={"shares": {digest: 1}, "why": "a trial"})
    assert http.post(f"{loop}/decisions", json=application()).content == first
    assert http.post(f"{loop}/decisions", json=application("A-2")).json()["deployment"] == 2


def test_the_commitment_is_there_before_the_first_decision(http, loop):
    epochs = http.get(f"{loop}/epochs").json()["epochs"]
    body = http.post(f"{loop}/decisions", json=application()).json()
    assert len(epochs) == 2
    assert body["commitment"] in {each["commitment"] for each in epochs if not each["key"]}


def test_lists_say_who_did_what(http, trial, loop):
    policies = http.get(f"{loop}/policies").json()["policies"]
    assert [(each["policy"], each["by"]) for each in policies] == [(trial.policy, "author")]
    deployments = http.get(f"{loop}/deployments").json()["deployments"]
    assert [(each["shares"], each["by"]) for each in deployments] == [({trial.policy: 1.0}, "all")]
    assert http.get(f"{loop}/days").json() == {"days": []}


def test_in_a_rehearsal_time_comes_with_the_requests(http, trial, loop):
    address = f"{loop}-rehearsal"
    add_loop(http, trial, address, rehearsal=True)
    first = http.post(f"{address}/decisions", json=application(time="2031-01-15T12:00:00Z")).json()
    assert (first["epoch"], first["due"]) == ("2031-01", "2031-03")
    people = [application(f"B-{k}", time="2031-06-15T12:00:00Z") for k in range(40)]
    batch = http.post(f"{address}/decisions/batch", json={"applications": people}).json()
    taken = next(each["id"] for each in batch["decisions"] if each["accepted"])
    told = {"event_id": f"{loop}-E", "decision_id": taken, "label": 1}
    early = {"outcomes": [told | {"happened": "2031-06-01T00:00:00Z"}]}
    assert http.post("/v1/outcomes", json=early).json()["code"] == "time"
    later = {"outcomes": [told | {"happened": "2031-09-01T00:00:00Z"}]}
    assert http.post("/v1/outcomes", json=later).json() == {"new": 1}
    events = http.get(f"/v1/decisions/{taken}").json()["events"]
    assert [each["time"][:10] for each in events] == ["2031-09-01"]
    override = {"decision_id": taken, "accepted": False, "why": "a rehearsal"}
    assert http.post("/v1/overrides", json={"overrides": [override]}).json() == {"new": 1}
    told = http.get(f"/v1/decisions/{taken}").json()["override"]
    assert told["time"].startswith("2031-06-15")


def test_of_changes_at_the_same_moment_some_conflict_and_none_fails(http, trial, loop):
    bold = propose(http, trial, loop, cq.policy_to_json(trial_policy(1.5))).json()["policy"]

    def deploy(_: int) -> int:
        body = {"shares": {bold: 1.0}, "why": "a trial"}
        return http.post(f"{loop}/deployments", json=body).status_code

    def change(k: int) -> int:
        return http.put(loop, json=LOOP | {"cost": (k + 1) / 20}).status_code

    def make(k: int) -> int:
        return http.put(f"{loop}-new", json=LOOP | {"cost": (k + 1) / 20}).status_code

    with ThreadPoolExecutor(8) as pool:
        for do, done in ((deploy, 201), (change, 200), (make, 200)):
            statuses = set(pool.map(do, range(16)))
            assert done in statuses
            assert statuses <= {done, 409}


def test_what_was_decided_by_settings_before_gets_its_answer_again(http, loop):
    one = http.post(f"{loop}/decisions", json=application("one")).json()
    batch = {"applications": [application(f"B-{k}") for k in range(3)]}
    some = http.post(f"{loop}/decisions/batch", json=batch).json()
    age = {"low": 0, "high": 120, "phrase": "Age"}
    changed = LOOP | {"features": LOOP["features"] | {"age": age}}
    assert http.put(loop, json=changed).status_code == 200
    again = http.post(f"{loop}/decisions", json=application("one"))
    assert (again.status_code, again.json()) == (200, one)
    again = http.post(f"{loop}/decisions/batch", json=batch)
    assert (again.status_code, again.json()) == (200, some)
    other = application("one", features=FEATURES | {"income": 1})
    assert http.post(f"{loop}/decisions", json=other).json()["code"] == "application_differs"
    # new people need the new feature, alone or in a batch with others
    new = http.post(f"{loop}/decisions", json=application("new"))
    assert (new.status_code, new.json()["code"]) == (422, "missing_feature")
    mixed = {"applications": [application("one"), application("new")]}
    assert http.post(f"{loop}/decisions/batch", json=mixed).json()["code"] == "missing_feature"
