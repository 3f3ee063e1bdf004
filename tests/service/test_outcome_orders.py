from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from lending_loop import START, applicants, decide, outcome, start

from consequential.service.outcomes import add_outcomes, outcomes_of, state_of

_examples = count()


@st.composite
def histories(draw):
    """Events of one decision: (label or None, day, which event it corrects)."""
    n = draw(st.integers(1, 6))
    return [
        (
            draw(st.sampled_from([0, 1, None])),
            draw(st.integers(0, 5)),
            None if k == 0 else draw(st.integers(0, k - 1)),
        )
        for k in range(n)
    ]


def expected(history) -> int | None:
    """The label of the event that none corrects, the latest where there are several."""
    corrected = {event[2] for event in history}
    heads = [(day, k, label) for k, (label, day, _) in enumerate(history) if k not in corrected]
    return max(heads, key=lambda head: head[:2])[2]


@pytest.fixture
def accepted(store, service) -> list[str]:
    """Decisions to report on."""
    start(store, service)
    bodies = decide(store, service, applicants(400))
    return [body["id"] for body in bodies if body["accepted"]]


# each example takes another decision, so that they share the database but nothing else
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(history=histories(), data=st.data())
def test_outcomes_in_any_order_and_repeated_give_one_state(store, accepted, history, data):
    number = next(_examples)
    decision = accepted[number % len(accepted)]
    names = [f"{number}-{k}" for k in range(len(history))]
    events = [
        outcome(
            names[k],
            decision,
            label,
            START + timedelta(day),
            None if corrects is None else names[corrects],
        )
        for k, (label, day, corrects) in enumerate(history)
    ]
    order = data.draw(st.permutations(range(len(events))))
    again = data.draw(st.lists(st.sampled_from(range(len(events))), max_size=4))
    with store.write() as connection:
        assume(not outcomes_of(connection, decision))  # else decisions are used up
        for k in (*order, *again):
            add_outcomes(connection, [events[k]], "shop", START)
        found = outcomes_of(connection, decision)
    assert len(found) == len(events)
    state = state_of(found)
    assert state is not None
    assert state["label"] == expected(history)
    assert state == state_of(sorted(found, key=lambda row: row["event_id"], reverse=True))
