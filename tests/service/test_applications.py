from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consequential.service.applications import (
    check_media_type,
    checked_time,
    read_application,
    read_batch,
    read_json,
)
from consequential.service.problems import Problem
from consequential.service.settings import loop_settings

LOOP = loop_settings(
    {
        "cost": 0.6,
        "floor": 0.1,
        "features": {
            "income": {"low": 0, "high": 9000, "phrase": "Income"},
            "purpose": {"words": ["car", "tv"], "phrase": "Purpose"},
        },
        "sensitive": "sex",
        "largest_amount": 2,
    }
)
GOOD: dict[str, Any] = {
    "application_id": "A-17",
    "subject_id": "P-4",
    "amount": 2,
    "features": {"purpose": "car", "income": 2100},
}


def problem_of(call, *arguments) -> Problem:
    with pytest.raises(Problem) as raised:
        call(*arguments)
    return raised.value


def refused(**changes: Any) -> tuple[int, str]:
    problem = problem_of(read_application, {**GOOD, **changes}, LOOP)
    return problem.status, problem.code


def refused_features(**changes: Any) -> tuple[int, str]:
    return refused(features={**GOOD["features"], **changes})


# --- applications


def test_an_application_becomes_checked_features_in_the_order_of_the_settings():
    application = read_application(GOOD, LOOP)
    assert application.features == {"income": 2100.0, "purpose": "car"}
    assert list(application.features) == ["income", "purpose"]
    assert (application.application_id, application.subject) == ("A-17", "P-4")
    assert application.amount == 2.0


def test_subject_and_amount_may_be_left_out():
    application = read_application({**_without("subject_id", "amount")}, LOOP)
    assert (application.subject_id, application.subject) == (None, "A-17")
    assert application.amount == 1.0


def test_minus_zero_is_zero():
    features = {"purpose": "car", "income": -0.0}
    stored = read_application({**GOOD, "features": features}, LOOP).features["income"]
    assert json.dumps(stored) == "0.0"


def _without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name not in names}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0.1", "type"), (True, "type"), (None, "type"), ([1], "type"), ({}, "type"),
        (float("inf"), "non_finite"), (float("nan"), "non_finite"), (10**400, "non_finite"),
        (-0.001, "out_of_bounds"), (9000.001, "out_of_bounds"), (-(10**300), "out_of_bounds"),
    ],
)  # fmt: skip
def test_what_is_no_number_within_bounds_is_refused(value, code):
    assert refused_features(income=value) == (422, code)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("boat", "unknown_word"), ("", "unknown_word"), ("Car", "unknown_word"),
        ("car ", "unknown_word"), (1, "type"), (None, "type"), (["car"], "type"), (False, "type"),
    ],
)  # fmt: skip
def test_what_is_no_known_word_is_refused(value, code):
    assert refused_features(purpose=value) == (422, code)


def test_features_are_exactly_those_of_the_loop():
    assert refused(features={"income": 1}) == (422, "missing_feature")
    assert refused(features={}) == (422, "missing_feature")
    assert refused_features(debt=3) == (422, "unknown_feature")
    assert refused(features={"income": 1, "debt": 3}) == (422, "unknown_feature")
    assert refused_features(sex="f") == (422, "sensitive_feature")
    assert refused(features=[]) == (422, "type")
    assert refused(features=None) == (422, "type")


@pytest.mark.parametrize("name", ["application_id", "subject_id"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", "id"), ("x" * 201, "id"), ("a\0b", "id"), ("a\ud800", "id"), ("\udfff", "id"),
        (17, "type"), (None, "type"), (True, "type"), (["A"], "type"),
    ],
)  # fmt: skip
def test_an_id_that_cannot_be_stored_is_refused(name, value, code):
    assert refused(**{name: value}) == (422, code)


def test_ids_may_have_any_other_characters():
    for good in ("x" * 200, "ä/ü?#%", "\U0001f600", " ", "'; drop table"):
        assert read_application({**GOOD, "application_id": good}, LOOP).application_id == good


@pytest.mark.parametrize("amount", [0, -1, -0.0, -1e-300])
def test_an_amount_is_above_zero(amount):
    assert refused(amount=amount) == (422, "amount")


def test_an_amount_is_no_larger_than_the_loop_allows():
    assert refused(amount=2.001) == (422, "amount")


def test_amounts_are_numbers():
    assert refused(amount="1") == (422, "type")
    assert refused(amount=None) == (422, "type")
    assert refused(amount=float("inf")) == (422, "non_finite")


def test_members_are_those_that_are_known():
    assert refused(note="hello") == (422, "unknown_member")
    assert refused(time="2026-01-01T00:00:00Z") == (422, "unknown_member")  # no rehearsal
    for name in ("application_id", "features"):
        assert problem_of(read_application, _without(name), LOOP).code == "missing_member"
    for value in ([], "text", None, 1.0):
        assert problem_of(read_application, value, LOOP).code == "type"


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "0001-01-01T00:00:00Z",
     "9999-12-31T23:59:59-23:00", "2026-13-01T00:00:00Z", ""],
)  # fmt: skip
def test_a_time_says_its_offset_and_is_of_these_centuries(text):
    assert problem_of(checked_time, text, "time").code == "time"
    assert problem_of(checked_time, 3, "time").code == "type"


def test_times_are_kept_in_utc():
    assert checked_time("2026-01-01T01:00:00+02:00", "time") == datetime(
        2025, 12, 31, 23, tzinfo=UTC
    )


def test_what_a_client_made_up_is_shown_shortened_and_escaped():
    problem = problem_of(read_application, {**GOOD, "x" * 999: 1}, LOOP)
    assert len(problem.detail) < 200
    problem = problem_of(read_application, {**GOOD, "\ud800": 1}, LOOP)
    json.dumps(problem.document()).encode("utf-8")


# --- batches


def test_one_bad_item_refuses_a_batch_and_is_named():
    bad = {**GOOD, "application_id": "B", "amount": 0}
    problem = problem_of(read_batch, {"applications": [GOOD, bad]}, LOOP)
    assert (problem.code, problem.extra["index"]) == ("amount", 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"applications": []}, "empty_list"),
        ({"applications": [GOOD] * 1001}, "list_too_long"),
        ({"applications": {}}, "type"),
        ({"applications": None}, "type"),
        ({}, "missing_member"),
        ({"applications": [GOOD], "more": 1}, "unknown_member"),
        ([GOOD], "type"),
    ],
)
def test_a_batch_is_an_object_with_one_list(body, code):
    problem = problem_of(read_batch, body, LOOP)
    assert (problem.status, problem.code) == (422, code)


# --- strict JSON


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"a": NaN}', 422, "non_finite"),
        (b'{"a": Infinity}', 422, "non_finite"),
        (b'{"a": -Infinity}', 422, "non_finite"),
        (b'{"a": 1' + b"0" * 5000 + b"}", 422, "non_finite"),
        (b'{"a": 1, "a": 1}', 400, "duplicate_key"),
        (b'{"a": {"b": 1, "\\u0062": 2}}', 400, "duplicate_key"),
        (b'{"a": "\xff"}', 400, "not_utf8"),
        ('{"a": 1}'.encode("utf-16"), 400, "not_utf8"),
        (b"\xef\xbb\xbf{}", 400, "not_json"),
        (b"", 400, "not_json"),
        (b"{", 400, "not_json"),
        (b"{} {}", 400, "not_json"),
        (b"{'a': 1}", 400, "not_json"),
        (b'{"a": 01}', 400, "not_json"),
        (b'{"a": 1,}', 400, "not_json"),
        (b'{"a": "\x01"}', 400, "not_json"),
        (b'{"a": .5}', 400, "not_json"),
        (b"[[[[[]]]]]", 400, "too_deep"),
        (b"[[[[{}]]]]", 400, "too_deep"),
        (b"[" * 60_000, 400, "too_deep"),
        (b'{"a":' * 10_000, 400, "too_deep"),
        (b" " * (64 * 1024 + 1), 413, "too_large"),
    ],
)  # fmt: skip
def test_json_that_is_not_strict_is_refused(body, status, code):
    problem = problem_of(read_json, body)
    assert (problem.status, problem.code) == (status, code)


def test_numbers_that_overflow_are_found_where_they_are_used():
    body = b'{"application_id": "A", "features": {"income": 1e400, "purpose": "car"}}'
    assert problem_of(read_application, read_json(body), LOOP).code == "non_finite"


def test_four_levels_and_64_kib_are_read():
    assert read_json(b"[[[[1, 2]]], {}, {}, {}]") == [[[[1, 2]]], {}, {}, {}]
    assert read_json(b" " * (64 * 1024 - 2) + b"{}") == {}
    body = json.dumps({"applications": [GOOD] * 1000}).encode()
    assert len(read_batch(read_json(body, limit=8 << 20), LOOP)) == 1000


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_problem(body):
    answer = read_or_problem(lambda: read_application(read_json(body), LOOP))
    assert not isinstance(answer, Problem) or answer.status in (400, 422)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["application_id", "subject_id", "amount", "features", "income", "purpose"]),
)
def test_any_value_in_any_place_gives_an_application_or_a_problem(value, place):
    features = {**GOOD["features"]}
    changed = {**GOOD, "features": features}
    (features if place in features else changed)[place] = value
    answer = read_or_problem(lambda: read_application(changed, LOOP))
    if isinstance(answer, Problem):
        assert answer.status == 422
        json.dumps(answer.document()).encode()
    else:
        json.dumps([answer.features, answer.amount], allow_nan=False)


def read_or_problem(read):
    try:
        return read()
    except Problem as problem:
        return problem


def test_bodies_say_that_they_are_json():
    check_media_type("application/json")
    check_media_type("Application/JSON; charset=utf-8")
    for header in (None, "", "text/plain", "application/octet-stream", "application/jsonx"):
        problem = problem_of(check_media_type, header)
        assert (problem.status, problem.code) == (415, "media_type")
