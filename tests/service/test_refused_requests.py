"""What the service refuses: a clear answer with a stable code, and nothing stored."""

from __future__ import annotations

import json
import pickle

import pytest
from sqlalchemy import func, select
from trial import FEATURES, LOOP, add_loop, application, make_trial, propose, trial_policy

import consequential as cq
from consequential.service import schema
from consequential.service.database import connected
from consequential.service.records import now

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """What is refused does not depend on the database."""
    return make_trial(tmp_path_factory.mktemp("refused"))


@pytest.fixture(scope="module")
def loop(http, trial):
    """One loop for all tests that store nothing."""
    add_loop(http, trial, "/v1/loops/shared")
    return "/v1/loops/shared"


@pytest.fixture
def own_loop(http, trial, request):
    """A loop of its own for a test that stores something."""
    address = f"/v1/loops/loop-{len(request.node.name)}"
    add_loop(http, trial, address)
    return address


def rows(trial):
    """How many decisions, settings, policies and deployments are stored."""
    store = connected(trial.settings)
    with store.read() as connection:
        counts = [
            connection.execute(select(func.count()).select_from(table)).scalar()
            for table in (schema.decision, schema.loop, schema.policy, schema.deployment)
        ]
    store.close()
    return counts


def with_features(**changes):
    return application(features=FEATURES | changes)


def without(name):
    return application(features={key: FEATURES[key] for key in FEATURES if key != name})


def text(value):
    """JSON as Python writes it, NaN and all, or bytes as they are."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


APPLICATIONS = {
    "NaN": (with_features(income=float("nan")), 422, "non_finite"),
    "Infinity": (with_features(income=float("inf")), 422, "non_finite"),
    "1e400": (text(with_features(income=7)).replace(b"7", b"1e400"), 422, "non_finite"),
    "missing feature": (without("income"), 422, "missing_feature"),
    "unknown feature": (with_features(age=3), 422, "unknown_feature"),
    "sensitive feature": (with_features(sex="f"), 422, "sensitive_feature"),
    "below its low": (with_features(income=-1), 422, "out_of_bounds"),
    "above its high": (with_features(income=10_001), 422, "out_of_bounds"),
    "unknown word": (with_features(purpose="boat"), 422, "unknown_word"),
    "number as text": (with_features(income="0.1"), 422, "type"),
    "number as truth": (with_features(income=True), 422, "type"),
    "null for a number": (with_features(income=None), 422, "type"),
    "word as number": (with_features(purpose=3), 422, "type"),
    "list for a number": (with_features(income=[1]), 422, "type"),
    "features as list": (application(features=[1]), 422, "type"),
    "no features": ({"application_id": "A"}, 422, "missing_member"),
    "no id": ({"features": FEATURES}, 422, "missing_member"),
    "another member": (application(color="red"), 422, "unknown_member"),
    "time outside a rehearsal": (application(time="2026-01-01T00:00:00Z"), 422, "unknown_member"),
    "twice the same key": (b'{"application_id":"A","application_id":"B"}', 400, "duplicate_key"),
    "not UTF-8": (b'{"application_id":"\xff"}', 400, "not_utf8"),
    "not JSON": (b"{", 400, "not_json"),
    "empty": (b"", 400, "not_json"),
    "two values": (b"{} {}", 400, "not_json"),
    "too deep": (b'{"features":[[[[[1]]]]]}', 400, "too_deep"),
    **{f"{n} deep": (b"[" * n + b"]" * n, 400, "too_deep") for n in (500, 800, 2000)},
    "far too deep": (b"[" * 60_000, 400, "too_deep"),
    "too large": (application("A" * 70_000), 413, "too_large"),
    "a list": ([application()], 422, "type"),
    "a text": ("A-1", 422, "type"),
    "empty id": (application(""), 422, "id"),
    "long id": (application("A" * 201), 422, "id"),
    "NUL in id": (application("A\0"), 422, "id"),
    "lone surrogate": (b'{"application_id":"\\ud800","features":{}}', 422, "id"),
    "id as number": (application(17), 422, "type"),
    "empty subject": (application(subject_id=""), 422, "id"),
    "null subject": (application(subject_id=None), 422, "type"),
    "zero amount": (application(amount=0), 422, "amount"),
    "amount above the largest": (application(amount=10.5), 422, "amount"),
    "negative amount": (application(amount=-2.5), 422, "amount"),
    "huge amount": (b'{"application_id":"A","amount":1e999,"features":{}}', 422, "non_finite"),
    "-Infinity": (with_features(income=float("-inf")), 422, "non_finite"),
    "a whole number too large": (with_features(income=10**400), 422, "non_finite"),
    "a feature twice": (b'{"application_id":"A","features":{"income":1,"income":2}}', 400,
                        "duplicate_key"),
    "byte order mark": (b"\xef\xbb\xbf{}", 400, "not_json"),
    "trailing comma": (b'{"application_id":"A",}', 400, "not_json"),
    "single quotes": (b"{'application_id': 'A'}", 400, "not_json"),
    "control character": (b'{"application_id":"A\n"}', 400, "not_json"),
    "word in capitals": (with_features(purpose="CAR"), 422, "unknown_word"),
    "empty word": (with_features(purpose=""), 422, "unknown_word"),
    "amount as text": (application(amount="1"), 422, "type"),
    "amount as truth": (application(amount=True), 422, "type"),
    "NUL in subject": (application(subject_id="P\0"), 422, "id"),
    "null": (None, 422, "type"),
    "a number": (17, 422, "type"),
    "thousands of digits": (b'{"application_id":' + b"9" * 5000 + b"}", 422, "non_finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", APPLICATIONS)
def test_a_bad_application_is_refused(http, loop, trial, case):
    body, status, code = APPLICATIONS[case]
    before = rows(trial)
    answer = http.post(f"{loop}/decisions", content=text(body), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert rows(trial) == before


BATCHES = {
    "empty": ([], 422, "empty_list", None),
    "too long": ([application(f"A-{k}") for k in range(1001)], 422, "list_too_long", None),
    "one bad item": ([application("A"), with_features(income=-1)], 422, "out_of_bounds", 1),
    "one id, two people": (
        [application("A"), application("A", amount=2)], 409, "application_differs", 1,
    ),
    "no list": (application("A"), 422, "type", None),
    "a list in the list": ([[]], 422, "type", 0),
    "null in the list": ([application("A"), None], 422, "type", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", BATCHES)
def test_a_bad_batch_is_refused_as_a_whole(http, loop, trial, case):
    before = rows(trial)
    items, status, code, index = BATCHES[case]
    answer = http.post(f"{loop}/decisions/batch", json={"applications": items})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem.get("index")) == (status, code, index)
    assert rows(trial) == before


def test_other_media_types_and_unknown_places_are_refused(http, loop):
    plain = http.post(f"{loop}/decisions", content="{}", headers={"Content-Type": "text/plain"})
    assert (plain.status_code, plain.json()["code"]) == (415, "media_type")
    nowhere = http.post("/v1/loops/none/decisions", json=application())
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "unknown_loop")
    assert http.get("/v1/nothing").json()["code"] == "not_found"
    wrong = http.delete(f"{loop}/decisions")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method")
    large = http.post(f"{loop}/decisions/batch", content=b" " * (8 * 1024**2 + 1), headers=JSON)
    assert large.status_code == 413


def test_a_loop_without_a_deployment_does_not_decide(http, loop):
    http.put(f"{loop}-new", json=LOOP)
    answer = http.post(f"{loop}-new/decisions", json=application())
    assert (answer.status_code, answer.json()["code"]) == (409, "no_deployment")


def test_keys_must_be_known_and_good_for_the_route(http, loop, trial):
    for header, status, code in (
        ("", 401, "no_key"),
        ("Basic abc", 401, "no_key"),
        ("Bearer nobody", 401, "unknown_key"),
        (f"Bearer {trial.keys['read']}", 403, "scope"),
    ):
        answer = http.post(
            f"{loop}/decisions", json=application(), headers={"Authorization": header}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert ("www-authenticate" in answer.headers) == (status == 401)


# --- settings


def changed_feature(**changes):
    return {"features": LOOP["features"] | {"income": LOOP["features"]["income"] | changes}}


SETTINGS = {
    "cost of 1": {"cost": 1},
    "cost of 0": {"cost": 0},
    "cost in percent": {"cost": 60},
    "cost as text": {"cost": "0.6"},
    "no cost": {"cost": None},
    "floor of 0": {"floor": 0},
    "floor of 1": {"floor": 1},
    "negative horizon": {"horizon": -1},
    "half a horizon": {"horizon": 1.5},
    "horizon as truth": {"horizon": True},
    "unknown period": {"period": "year"},
    "unknown epoch": {"epoch": "hour"},
    "no features": {"features": {}},
    "features as list": {"features": []},
    "low above high": changed_feature(low=20_000),
    "infinite bound": changed_feature(high=1e999),
    "bound as text": changed_feature(low="0"),
    "unknown shape": changed_feature(shape="tree"),
    "no phrase": changed_feature(phrase=""),
    "unknown member of a feature": changed_feature(unit="EUR"),
    "one word": {"features": {"a": {"words": ["x"], "phrase": "A"}}},
    "a word twice": {"features": {"a": {"words": ["x", "x"], "phrase": "A"}}},
    "a name with =": {"features": {"a=b": {"low": 0, "high": 1, "phrase": "A"}}},
    "the sensitive attribute": {"sensitive": "income"},
    "no amount at all": {"largest_amount": 0},
    "no retention at all": {"retention": 0},
    "a retention of the horizon": {"horizon": 2, "retention": 2},
    "a retention of less than the weeks": {"period": "week", "horizon": 8, "retention": 2},
    "unknown notion": {"fairness": "parity"},
    "several notions": {"fairness": ["demographic_parity"]},
    "no gap at all": {"max_gap": 0},
    "a gap in percent": {"max_gap": 5},
    "a gap of nobody": {"max_gap": 0.1, "sensitive": ""},
    "acceptance as a number": {"acceptance": 0.5},
    "acceptance the wrong way round": {"acceptance": [0.8, 0.5]},
    "acceptance in words": {"acceptance": ["low", "high"]},
    "no gate": {"gate": None},
    "unknown member of the gate": {"gate": {"alpha": 0.05}},
    "confidence in percent": {"gate": {"confidence": 95}},
    "a negative margin": {"gate": {"margin": -0.1}},
    "an empty window": {"gate": {"window": 0}},
    "half a person": {"gate": {"effective": 10.5}},
    "rolling back maybe": {"auto_rollback": "maybe"},
    "unknown member": {"colour": "red"},
    "rehearsal as text": {"rehearsal": "no"},
    "a bound too large for a number": changed_feature(high=10**401),
    "a cost too large for a number": {"cost": 10**401},
    "lone surrogate in a phrase": changed_feature(phrase="\ud800"),
    "lone surrogate in a word": {"features": {"a": {"words": ["x", "\ud800"], "phrase": "A"}}},
    "lone surrogate in a name": {"features": {"\ud800": {"low": 0, "high": 1, "phrase": "A"}}},
    "lone surrogate in the sensitive attribute": {"sensitive": "\ud800"},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_bad_settings_are_refused(http, loop, trial, case):
    before = rows(trial)
    document = json.dumps(LOOP | SETTINGS[case])
    answer = http.put(loop, content=document, headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["code"] in ("settings", "non_finite")
    assert rows(trial) == before


def test_a_loop_with_an_odd_name_is_refused(http, trial):
    for name in ("UPPER", "a b", "-a", "a" * 64, "ä"):
        assert http.put(f"/v1/loops/{name}", json=LOOP).json()["code"] == "settings"


def test_the_horizon_cannot_change_while_cohorts_wait(http, own_loop):
    assert http.put(own_loop, json=LOOP | {"horizon": 3}).status_code == 200
    http.post(f"{own_loop}/decisions", json=application())
    answer = http.put(own_loop, json=LOOP | {"horizon": 4})
    assert (answer.status_code, answer.json()["code"]) == (422, "cohorts_wait")
    assert "make a new loop" in answer.json()["detail"]


def test_a_rehearsal_never_becomes_a_real_loop_once_it_decided(http, own_loop):
    rehearsal = LOOP.get("rehearsal", False)
    http.post(f"{own_loop}/decisions", json=application())
    answer = http.put(own_loop, json=LOOP | {"rehearsal": not rehearsal})
    assert (answer.status_code, answer.json()["code"]) == (422, "rehearsal")


def test_settings_that_the_live_policy_does_not_fit_are_refused(http, loop):
    features = {name: LOOP["features"][name] for name in ("income", "debt")}
    for change in ({"floor": 0.2}, {"features": features}):
        assert http.put(loop, json=LOOP | change).json()["code"] == "policy_deployed"


# --- policies and deployments


def changed_text(policy, change):
    document = json.loads(cq.policy_to_json(policy))
    change(document)
    return json.dumps(document)


POLICIES = {
    "not a policy": ("{}", "policy_unreadable"),
    "wrong digest": (
        changed_text(trial_policy(), lambda d: d.update(digest="0" * 64)), "policy_unreadable",
    ),
    "a changed number": (
        changed_text(trial_policy(), lambda d: d["policy"]["theta"].__setitem__(0, 9.0)),
        "policy_unreadable",
    ),
    "a type not listed": (
        changed_text(trial_policy(), lambda d: d["policy"].update(type="os.system")),
        "policy_unreadable",
    ),
    "another kind": (cq.policy_to_json(cq.AcceptAll()), "policy_kind"),
    "refuses by lot": (cq.policy_to_json(trial_policy(link="logistic")), "policy_link"),
    "low floor": (cq.policy_to_json(trial_policy(floor=0.05)), "policy_floor"),
    "no summary": (cq.policy_to_json(trial_policy(summary=None)), "policy_reference"),
    "a feature that the loop lacks": (
        cq.policy_to_json(
            trial_policy(feature_names=("income", "debt", "purpose=car", "age"), summary=None)
        ),
        "policy_feature",
    ),
    "no names": (cq.policy_to_json(trial_policy(feature_names=(), summary=None)), "policy_feature"),
}  # fmt: skip


@pytest.mark.parametrize("case", POLICIES)
def test_a_bad_policy_is_refused(http, loop, trial, case):
    document, code = POLICIES[case]
    answer = propose(http, trial, loop, document)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_policy_that_uses_the_sensitive_attribute_is_refused(http, loop, trial):
    two = cq.Policy(
        [0.0, 1.0, 0.0, -1.0], "smooth_semi_logistic", floor=0.1, groups=["f", "m"],
        feature_names=["income"],
    )  # fmt: skip
    answer = propose(http, trial, loop, cq.policy_to_json(two))
    assert (answer.status_code, answer.json()["code"]) == (422, "policy_sensitive")


def test_a_pickle_is_no_policy(http, loop):
    sent = {"content": pickle.dumps({}), "headers": {"Content-Type": "application/octet-stream"}}
    answer = http.post(f"{loop}/policies", **sent)
    assert (answer.status_code, answer.json()["code"]) == (415, "media_type")
    answer = http.post(f"{loop}/policies", content=pickle.dumps({}), headers=JSON)
    assert answer.status_code in (400, 422)


def test_bad_shares_are_refused(http, loop, trial):
    own = trial.policy
    for shares, code in (
        ({own: 0.5}, "shares"),
        ({own: 1.5}, "type"),
        ({own: -1.0}, "type"),
        ({own: 0.0}, "type"),
        ({}, "empty_list"),
        ({"f" * 64: 1.0}, "unknown_policy"),
        ({own: 0.6, "f" * 64: 0.4}, "unknown_policy"),
        ({own: True}, "type"),
        ({own: "1"}, "type"),
    ):
        answer = http.post(f"{loop}/deployments", json={"shares": shares, "why": "a trial"})
        assert (answer.status_code, answer.json()["code"]) == (422, code), shares


def test_a_policy_is_deployed_by_a_second_person(http, own_loop, trial):
    headers = {**JSON, **trial.header("all")}
    own = http.post(
        f"{own_loop}/policies", content=cq.policy_to_json(trial_policy(0.3)), headers=headers
    )
    shares = {"shares": {own.json()["policy"]: 1.0}, "why": "a trial"}
    answer = http.post(f"{own_loop}/deployments", json=shares)
    assert (answer.status_code, answer.json()["code"]) == (403, "own_policy")
    second = http.post(f"{own_loop}/deployments", json=shares, headers=trial.header("chief"))
    assert second.status_code == 201
    # an author may take their policy back, but not reinstate it, although a person approved it once
    back = http.post(f"{own_loop}/deployments", json={"shares": {trial.policy: 1.0}})
    assert back.status_code == 201
    assert http.post(f"{own_loop}/deployments", json=shares).json()["code"] == "own_policy"


def test_the_author_lowers_their_policys_share_and_never_raises_it(http, own_loop, trial):
    headers = {**JSON, **trial.header("all")}
    text = cq.policy_to_json(trial_policy(0.2))
    own = http.post(f"{own_loop}/policies", content=text, headers=headers).json()["policy"]

    def deploy(share, name="all"):
        shares = {own: share, trial.policy: 1.0 - share} if share < 1.0 else {own: share}
        body = {"shares": shares, "why": "a trial"}
        sent = http.post(f"{own_loop}/deployments", json=body, headers=trial.header(name))
        return sent.json().get("code", sent.status_code)

    assert deploy(0.01) == "own_policy"
    assert deploy(0.02, "chief") == 201
    assert deploy(0.01) == 201
    assert [deploy(0.03), deploy(1.0)] == ["own_policy", "own_policy"]
    assert deploy(1.0, "chief") == 201
    assert [deploy(0.02), deploy(1.0)] == [201, "own_policy"]


def test_text_that_no_database_can_store_is_refused(http, loop, trial):
    body = {"shares": {trial.policy: 1.0}, "why": "a\0"}
    assert http.post(f"{loop}/deployments", json=body).json()["code"] == "type"
    text, parent = cq.policy_to_json(trial_policy(0.25)), {"parent": "\0"}
    answer = http.post(f"{loop}/policies", content=text, headers=JSON, params=parent)
    assert answer.json()["code"] == "id"


# --- outcomes


def decide_all(http, loop, name, n=40):
    batch = {"applications": [application(f"{name}-{k}") for k in range(n)]}
    return http.post(f"{loop}/decisions/batch", json=batch).json()["decisions"]


@pytest.fixture
def decided(http, loop, request):
    """Ids of an accepted and of a refused person."""
    bodies = decide_all(http, loop, request.node.name)
    return [next(b["id"] for b in bodies if b["accepted"] == taken) for taken in (True, False)]


def outcome(decision, event, label=1, **more):
    return {"event_id": event, "decision_id": decision, "label": label} | more


def report(http, *items):
    answer = http.post("/v1/outcomes", json={"outcomes": list(items)})
    return answer.status_code, answer.json().get("code", answer.json().get("new"))


def test_bad_outcomes_are_refused(http, decided):
    accepted, refused = decided
    at = {"happened": now().isoformat()}
    assert report(http, outcome("none", "e", **at)) == (404, "unknown_decision")
    assert report(http, outcome(refused, "e", **at)) == (409, "refused")
    assert report(http, outcome(accepted, "e", happened="2020-01-01T00:00:00Z")) == (422, "time")
    assert report(http, outcome(accepted, "e", happened="2200-01-01T00:00:00Z")) == (422, "time")
    assert report(http, outcome(accepted, "e", happened="yesterday")) == (422, "time")
    assert report(http, outcome(accepted, "e", happened="2026-01-01T00:00:00")) == (422, "time")
    for label in (2, True, 1.0, "1", 0.5):
        assert report(http, outcome(accepted, "e", label=label, **at))[0] == 422, label
    assert report(http, outcome(accepted, "", **at)) == (422, "id")
    assert report(http, outcome(accepted, "e", colour="red", **at)) == (422, "unknown_member")
    assert report(http) == (422, "empty_list")
    assert report(http, outcome(accepted, "e", corrects="e", **at)) == (422, "circular")
    # the good one is stored only if all are
    assert report(http, outcome(accepted, "e", **at), outcome(refused, "f", **at))[0] == 409
    assert report(http, outcome(accepted, accepted, **at)) == (200, 1)
    assert report(http, outcome(accepted, accepted, **at)) == (200, 0)
    assert report(http, outcome(accepted, accepted, label=0, **at)) == (409, "event_differs")
    assert report(http, outcome(accepted, "e", label=0, **at)) == (409, "second_outcome")


def test_an_event_corrects_only_one_of_the_same_decision(http, loop):
    bodies = decide_all(http, loop, "corrects")
    first, second = [body["id"] for body in bodies if body["accepted"]][:2]
    at = {"happened": now().isoformat()}
    assert report(http, outcome(first, f"{first}-1", **at)) == (200, 1)
    other = outcome(second, f"{second}-1", corrects=f"{first}-1", **at)
    assert report(http, other) == (422, "corrects_other")


def test_overrides_need_a_reason_and_something_to_override(http, decided):
    accepted, refused = decided

    def override(decision, taken, why="a clerk knew more"):
        item = {"decision_id": decision, "accepted": taken, "why": why}
        answer = http.post("/v1/overrides", json={"overrides": [item]})
        return answer.status_code, answer.json().get("code", answer.json().get("new"))

    assert override(accepted, False, why="") == (422, "id")
    assert override("none", False) == (404, "unknown_decision")
    assert override(accepted, True) == (422, "no_override")
    assert override(refused, True) == (200, 1)
    assert override(refused, True) == (200, 0)
    assert override(refused, True, why="another") == (409, "second_override")
    assert override(accepted, "no") == (422, "type")


def test_bad_attributes_are_refused(http, trial):
    for item in ({"subject_id": "P"}, {"subject_id": "P", "attribute": "sex", "value": 1}):
        assert http.post("/v1/sensitive", json={"sensitive": [item]}).status_code == 422
    good = {"subject_id": "P", "attribute": "sex", "value": "f"}
    answer = http.post("/v1/sensitive", json={"sensitive": [good, good | {"attribute": "Sex"}]})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_attribute")
    assert answer.json()["index"] == 1
    for new in (1, 0):
        answer = http.post("/v1/sensitive", json={"sensitive": [good]})
        assert answer.json() == {"new": new}
