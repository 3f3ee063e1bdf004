"""Outcomes in any order, repeated, corrected and withdrawn: one state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as waited
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from trial import application, served_here

from consequential.service import schema
from consequential.service.bodies import OutcomeBody, Override
from consequential.service.database import connected
from consequential.service.outcomes import add_outcomes, add_overrides, outcomes_of, state_of
from consequential.service.problems import Problem
from consequential.service.records import moment, now, stamp

_numbers = count()


@pytest.fixture(scope="module")
def accepted(trial):
    """A store and the ids of many accepted people."""
    with served_here(trial) as http:
        for batch in range(3):
            items = [application(f"A-{batch}-{k}") for k in range(1000)]
            address = "/v1/loops/trial/decisions/batch"
            assert http.post(address, json={"applications": items}).status_code == 201
    store = connected(trial.settings)
    with store.read() as connection:
        rows = schema.rows(connection, select(schema.decision))
    yield store, iter([row for row in rows if row["accepted"]])
    store.close()


@st.composite
def histories(draw):
    """Events that correct one another (a tree), and an order with repeats to send them in."""
    n = draw(st.integers(1, 6))
    parents = [None, *(draw(st.integers(0, k - 1)) for k in range(1, n))]
    labels = [draw(st.sampled_from([0, 1, None])) for _ in range(n)]
    minutes = [draw(st.integers(0, 3)) for _ in range(n)]
    sent = draw(st.permutations(list(range(n)))) + draw(st.lists(st.integers(0, n - 1), max_size=4))
    return list(zip(parents, labels, minutes, strict=True)), sent


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_the_state_is_that_of_the_set_of_events(accepted, history):
    store, people = accepted
    events, order = history
    person, number = next(people), next(_numbers)
    start = moment(person["time"])
    made = [
        OutcomeBody(
            event_id=f"E-{number}-{k}",
            decision_id=person["id"],
            label=label,
            happened=stamp(start + timedelta(microseconds=minute)),
            corrects=None if parent is None else f"E-{number}-{parent}",
        )
        for k, (parent, label, minute) in enumerate(events)
    ]
    for k in order:  # each in a transaction of its own, as requests are
        with store.write() as connection:
            add_outcomes(connection, [made[k]], "test", now())
    with store.read() as connection:
        found = state_of(outcomes_of(connection, person["id"]))
    corrected = {parent for parent, _, _ in events}
    heads = [k for k in range(len(events)) if k not in corrected]
    expected = max(heads, key=lambda k: (events[k][2], f"E-{number}-{k}"))
    assert found is not None
    assert (found["event_id"], found["label"]) == (f"E-{number}-{expected}", events[expected][1])


def test_a_circle_of_corrections_is_refused(accepted):
    store, people = accepted
    person = next(people)
    told = {"decision_id": person["id"], "label": 1, "happened": person["time"]}
    with store.write() as connection:
        first = OutcomeBody(event_id="C-1", corrects="C-2", **told)
        second = OutcomeBody(event_id="C-2", corrects="C-1", **told)
        assert add_outcomes(connection, [first], "test", now()) == 1
        with pytest.raises(Problem) as refused:
            add_outcomes(connection, [second], "test", now())
    assert refused.value.code == "circular"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "correction first"])
def test_a_correction_is_about_the_same_decision_in_whatever_order(accepted, order):
    store, people = accepted
    both, number = [next(people), next(people)], next(_numbers)
    happened = max(person["time"] for person in both)
    told = {"label": 1, "happened": happened}
    names = f"O-{number}-first", f"O-{number}-second"
    events = [
        OutcomeBody(event_id=name, decision_id=person["id"], corrects=corrects, **told)
        for name, person, corrects in zip(names, both, (None, names[0]), strict=True)
    ]
    with store.write() as connection:
        assert add_outcomes(connection, [events[order[0]]], "test", now()) == 1
        with pytest.raises(Problem) as refused:
            add_outcomes(connection, [events[order[1]]], "test", now())
    assert refused.value.code == "corrects_other"


@pytest.mark.parametrize("kind", ["outcome", "override"])
def test_the_same_event_sent_at_once_is_stored_once(accepted, kind):
    store, people = accepted
    person, events = next(people), []
    if kind == "outcome":
        told = {"event_id": "closed-1", "label": 1, "happened": person["time"]}
        add, events = add_outcomes, [OutcomeBody(decision_id=person["id"], **told)]
    else:
        add, events = add_overrides, [Override(decision_id=person["id"], accepted=False, why="x")]

    def send() -> int:
        with store.write() as connection:
            return add(connection, events, "test", now())

    with ThreadPoolExecutor(1) as other:
        with store.write() as connection:
            assert add(connection, events, "test", now()) == 1
            twin = other.submit(send)
            waited([twin], timeout=0.3)  # it cannot end before this transaction
        assert twin.result() == 0
