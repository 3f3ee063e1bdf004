from __future__ import annotations

import json

import httpx
import pytest

from consequential.service.client import Client
from consequential.service.problems import MEDIA_TYPE, Problem

BODY = {"id": "0198", "accepted": True, "propensity": 0.9, "digest": "9c", "policy": "7f"}


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """How long the client waited, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr("consequential.service.client.time.sleep", waited.append)
    return waited


def client_of(*answers):
    """A client whose requests get these answers in turn, and the bodies that it sent."""
    left, sent = list(answers), []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content) if request.content else None)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Client("http://service", "key", transport=httpx.MockTransport(handle)), sent


def test_a_lost_connection_and_a_full_queue_are_tried_again_with_the_same_body(waits):
    client, sent = client_of(
        httpx.ReadError("gone"),
        httpx.Response(503, headers={"Retry-After": "2"}),
        httpx.Response(200, json=BODY),
    )
    decision = client.decide("lending", "A-1", {"income": 3.0}, subject_id="P-1")
    assert (decision.id, decision.accepted, decision.extra) == ("0198", True, {"policy": "7f"})
    assert sent[0] == sent[1] == sent[2]
    assert sent[0]["application_id"] == "A-1"
    assert waits == [0.2, 2.0]


def test_what_the_service_refuses_is_raised_as_it_was_answered_and_not_tried_again(waits):
    refused = Problem("out_of_bounds", 422, "income is -1", feature="income")
    client, sent = client_of(
        httpx.Response(422, json=refused.document(), headers={"Content-Type": MEDIA_TYPE})
    )
    with pytest.raises(Problem, match="income is -1") as raised:
        client.decide("lending", "A-1", {"income": -1.0})
    assert raised.value.document() == refused.document()
    assert (len(sent), waits) == (1, [])


def test_it_gives_up_after_as_many_attempts_as_it_was_given():
    client, sent = client_of(*[httpx.ConnectError("refused")] * 5)
    with pytest.raises(httpx.ConnectError):
        client.loop("lending")
    assert len(sent) == 5


def test_an_answer_of_another_server_is_a_problem_too():
    client, _ = client_of(httpx.Response(404, text="<html>"))
    with pytest.raises(Problem, match="404 Not Found"):
        client.decision("0198")


def test_a_batch_gives_a_decision_for_each_application():
    client, sent = client_of(httpx.Response(201, json={"decisions": [BODY, BODY]}))
    people = [{"application_id": "A", "features": {}}, {"application_id": "B", "features": {}}]
    assert [each.id for each in client.decide_batch("lending", people)] == ["0198", "0198"]
    assert sent == [{"applications": people}]
