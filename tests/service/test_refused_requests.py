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


# what is said, and the applications that it is said of
STATUS = {"not_json": 400, "not_utf8": 400, "duplicate_key": 400, "too_deep": 400, "too_large": 413}
NO_IDS = ("", "A" * 201, "A\0", "\ud800", "a\udfff")
APPLICATIONS = {
    "non_finite": [
        *[with_features(income=each) for each in (float("nan"), float("inf"), -float("inf"))],
        with_features(income=10**400),
        text(with_features(income=7)).replace(b"7", b"1e400"),
        text(application(amount=7)).replace(b"7", b"1e999"),
        b'{"application_id":' + b"9" * 5000 + b"}",
    ],
    "missing_feature": [without("income"), application(features={})],
    "unknown_feature": [with_features(age=3)],
    "sensitive_feature": [with_features(sex="f")],
    "out_of_bounds": [with_features(income=each) for each in (-0.001, 10_000.001, -(10**300))],
    "unknown_word": [with_features(purpose=each) for each in ("boat", "", "CAR", "car ")],
    "type": [
        *[with_features(income=each) for each in ("0.1", True, None, [1], {})],
        *[with_features(purpose=each) for each in (3, None, ["car"], False)],
        *[application(features=each) for each in ([1], None)],
        *[application(amount=each) for each in ("1", True, None)],
        *[application(each) for each in (17, None, True, ["A"])],
        *[application(subject_id=each) for each in (17, None, True, ["A"])],
        *([application()], "A-1", None, 17),
    ],
    "missing_member": [{"application_id": "A"}, {"features": FEATURES}],
    "unknown_member": [application(color="red"), application(time="2026-01-01T00:00:00Z")],
    "id": [*map(application, NO_IDS), *[application(subject_id=each) for each in NO_IDS]],
    "amount": [application(amount=each) for each in (0, -0.0, -1e-300, -2.5, 10.001)],
    "duplicate_key": [
        b'{"application_id":"A","application_id":"B"}',
        b'{"application_id":"A","features":{"income":1,"incom\\u0065":2}}',
    ],
    "not_utf8": [b'{"application_id":"\xff"}', '{"a": 1}'.encode("utf-16")],
    "not_json": [
        *(b"", b"{", b"{} {}", b"\xef\xbb\xbf{}", b'{"a": 01}', b'{"a": .5}', b'{"a": 1,}'),
        *(b"{'application_id': 'A'}", b'{"application_id":"A\n"}'),
    ],
    "too_deep": [b"[[[[{}]]]]", *[b"[" * n + b"]" * n for n in (500, 800, 2000, 20_000)],
                 b"[" * 60_000, b'{"a":' * 10_000],
    "too_large": [application("A" * 70_000), b" " * (64 * 1024 + 1)],
}  # fmt: skip


@pytest.mark.parametrize("code", APPLICATIONS)
def test_a_bad_application_is_refused(http, loop, trial, code):
    before = rows(trial)
    for body in APPLICATIONS[code]:
        answer = http.post(f"{loop}/decisions", content=text(body), headers=JSON)
        said = answer.status_code, answer.json()["code"]
        assert said == (STATUS.get(code, 422), code), text(body)[:200]
        assert answer.headers["content-type"] == "application/problem+json"
    assert rows(trial) == before


def test_a_bad_batch_is_refused_as_a_whole(http, loop, trial):
    before, one = rows(trial), application("A")
    for body, status, code, index in (
        ([], 422, "empty_list", None),
        ([one] * 1001, 422, "list_too_long", None),
        ([one, with_features(income=-1)], 422, "out_of_bounds", 1),
        ([one, application("A", amount=2)], 409, "application_differs", 1),
        (one, 422, "type", None),
        (None, 422, "type", None),
        ([[]], 422, "type", 0),
        ([one, None], 422, "type", 1),
    ):
        answer = http.post(f"{loop}/decisions/batch", json={"applications": body})
        problem = answer.json()
        said = answer.status_code, problem["code"], problem.get("index")
        assert said == (status, code, index), body
    for document, code in (
        ({}, "missing_member"),
        ({"applications": [one], "more": 1}, "unknown_member"),
        ([one], "type"),
    ):
        answer = http.post(f"{loop}/decisions/batch", json=document)
        assert (answer.status_code, answer.json()["code"]) == (422, code), document
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


# --- settings


INCOME = LOOP["features"]["income"]
NUMBER = {"low": 0, "high": 1, "phrase": "A"}
SETTINGS = {  # members, and values that they cannot have
    "cost": (0, 1, 60, "0.6", None, 10**401),
    "floor": (0, 1),
    "horizon": (-1, 1.5, True),
    "period": ("year",),
    "epoch": ("hour",),
    "features": (
        {}, [],
        *[{"income": INCOME | each} for each in (
            {"low": 20_000}, {"low": "0"}, {"high": 1e999}, {"high": 10**401}, {"shape": "tree"},
            {"phrase": ""}, {"phrase": "\ud800"}, {"unit": "EUR"},
        )],
        *[{"a": {"words": each, "phrase": "A"}} for each in (["x"], ["x", "x"], ["x", "\ud800"])],
        {"a=b": NUMBER}, {"\ud800": NUMBER},
    ),
    "sensitive": ("income", "\ud800"),
    "largest_amount": (0,),
    "retention": (0, 2),  # not above the horizon
    "fairness": ("parity", ["demographic_parity"]),
    "max_gap": (0, 5),
    "acceptance": (0.5, [0.8, 0.5], ["low", "high"]),
    "gate": (None, {"alpha": 0.05}, {"confidence": 95}, {"margin": -0.1}, {"window": 0},
             {"effective": 10.5}),
    "auto_rollback": ("maybe",),
    "rehearsal": ("no",),
    "colour": ("red",),
}  # fmt: skip


@pytest.mark.parametrize("member", SETTINGS)
def test_bad_settings_are_refused(http, loop, trial, member):
    before, changes = rows(trial), [{member: value} for value in SETTINGS[member]]
    if member == "retention":  # shorter than the weeks of the horizon
        changes.append({"period": "week", "horizon": 8, "retention": 2})
    if member == "max_gap":  # of nobody
        changes.append({"max_gap": 0.1, "sensitive": ""})
    for change in changes:
        answer = http.put(loop, content=json.dumps(LOOP | change), headers=JSON)
        assert answer.status_code == 422, change
        assert answer.json()["code"] in ("settings", "non_finite"), change
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


def changed_text(change):
    document = json.loads(cq.policy_to_json(trial_policy()))
    change(document)
    return json.dumps(document)


def test_a_bad_policy_is_refused(http, loop, trial):
    names = ("income", "debt", "purpose=car", "age")
    two_groups = cq.Policy(
        [0.0, 1.0, 0.0, -1.0], "smooth_semi_logistic", floor=0.1, groups=["f", "m"],
        feature_names=["income"],
    )  # fmt: skip
    for policy, code in (
        ("{}", "policy_unreadable"),
        (changed_text(lambda d: d.update(digest="0" * 64)), "policy_unreadable"),
        (changed_text(lambda d: d["policy"]["theta"].__setitem__(0, 9.0)), "policy_unreadable"),
        (changed_text(lambda d: d["policy"].update(type="os.system")), "policy_unreadable"),
        (cq.AcceptAll(), "policy_kind"),
        (trial_policy(link="logistic"), "policy_link"),  # refuses by lot
        (trial_policy(floor=0.05), "policy_floor"),
        (trial_policy(summary=None), "policy_reference"),
        (trial_policy(feature_names=names, summary=None), "policy_feature"),
        (trial_policy(feature_names=(), summary=None), "policy_feature"),
        (two_groups, "policy_sensitive"),
    ):
        sent = policy if isinstance(policy, str) else cq.policy_to_json(policy)
        answer = propose(http, trial, loop, sent)
        assert (answer.status_code, answer.json()["code"]) == (422, code), sent


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


def test_a_second_person_raises_a_policys_share_and_its_author_only_lowers_it(
    http, own_loop, trial
):
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
    # nor is it reinstated, although a person approved it once
    back = http.post(f"{own_loop}/deployments", json={"shares": {trial.policy: 1.0}})
    assert [back.status_code, deploy(0.02)] == [201, "own_policy"]


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
