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


# --- applications


def test_an_application_becomes_checked_features_in_the_order_of_the_settings():
    application = read_application(GOOD, LOOP)
    assert application.features == {"income": 2100.0, "purpose": "car"}
    assert list(application.features) == ["income", "purpose"]
    assert (application.application_id, application.subject) == ("A-17", "P-4")
    assert application.amount == 2.0


def test_subject_and_amount_may_be_left_out():
    application = read_application(
        {name: GOOD[name] for name in ("application_id", "features")}, LOOP
    )
    assert (application.subject_id, application.subject) == (None, "A-17")
    assert application.amount == 1.0


def test_minus_zero_is_zero():
    features = {"purpose": "car", "income": -0.0}
    stored = read_application({**GOOD, "features": features}, LOOP).features["income"]
    assert json.dumps(stored) == "0.0"


def test_ids_may_have_any_other_characters():
    for good in ("x" * 200, "ä/ü?#%", "\U0001f600", " ", "'; drop table"):
        assert read_application({**GOOD, "application_id": good}, LOOP).application_id == good


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


def test_a_problem_has_the_members_of_the_standard_and_its_own():
    problem = Problem("unknown_word", 422, "purpose must be one of car, tv", index=3)
    assert problem.document() == {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "code": "unknown_word",
        "detail": "purpose must be one of car, tv",
        "index": 3,
    }
    assert str(problem) == problem.detail
    assert Problem("unknown_loop", 404, "").document()["title"] == "Not Found"
    assert Problem("too_large", 413, "").document()["title"] == "Content Too Large"
