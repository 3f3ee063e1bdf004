"""Alarms: guardrails at every closing, what they raise, and what the worker takes back."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import date, timedelta
from typing import Any

import pytest
from learning_loop import LOOP, Rehearsal, rule

from consequential.service import alarms, guardrails, schema, writer
from consequential.service.alarms import raised_alarms, unwatched
from consequential.service.candidates import deployed
from consequential.service.deciding import live_loops
from consequential.service.guardrails import GuardrailFinding
from consequential.service.records import now
from consequential.service.verify import verify


def events(loop: Rehearsal, *kinds: str) -> list[tuple[str, str]]:
    rows = sorted(loop.rows(schema.event), key=lambda row: row["id"])
    return [
        (row["what"], json.loads(row["about"])["guardrail"]) for row in rows if row["what"] in kinds
    ]


def alarms_of(loop: Rehearsal) -> list[dict[str, Any]]:
    with loop.store.read() as connection:
        return raised_alarms(connection, LOOP)


def broken(loop: Rehearsal) -> dict[str, str]:
    return {row["name"]: row["since"] for row in alarms_of(loop)}


def now_deployed(loop: Rehearsal):
    with loop.store.read() as connection:
        return deployed(connection, LOOP)


def test_every_closed_day_has_its_guardrails_once(rehearsed):
    rows = rehearsed.rows(schema.guardrail)
    days = {f"2026-01-0{k}" for k in range(1, 6)}
    assert {(row["date"], row["name"]) for row in rows} == {
        (day, name) for day in days for name in ("chance", "acceptance")
    }
    assert not any(row["broken"] for row in rows)
    assert all("drift" not in row["name"] for row in rows)  # the rule was not learned from anybody
    rehearsed.work()
    assert len(rehearsed.rows(schema.guardrail)) == len(rows)


def test_a_shifted_population_raises_an_alarm_at_the_next_closing_and_it_ends(rehearsed):
    """No roll back follows: another policy has the same people."""
    loop = rehearsed
    loop.put(auto_rollback=True)
    new = next(row["policy"] for row in loop.rows(schema.candidate) if row["number"] == 1)
    loop.approve({new: 1.0}, why="a trial")
    loop.days(2, n=300)
    assert not broken(loop)
    loop.decide(300, shift=2.0)
    loop.days(1, n=300)
    assert broken(loop) == {"drift:score": "2026-01-09"}
    loop.days(1, n=300)
    assert not broken(loop)
    told = events(loop, "alarm raised", "alarm ended")
    assert told == [("alarm raised", "drift:score"), ("alarm ended", "drift:score")]
    assert now_deployed(loop).number == 2
    utility = [row for row in loop.rows(schema.guardrail) if row["name"] == "utility"]
    assert utility  # on cohorts after the promotion
    assert list(verify(loop.store, loop.service.secret)) == []


def unwatched_of(loop: Rehearsal) -> list[str]:
    with loop.store.read() as connection:
        live = live_loops(connection, {})[LOOP]
        return [each.partition(" ")[0] for each in unwatched(connection, live)]


def test_guardrails_that_can_raise_no_alarm_are_named_until_they_can(rehearsed):
    loop = rehearsed
    assert unwatched_of(loop) == ["acceptance", "drift", "utility"]
    loop.put(acceptance=[0.05, 0.95])
    new = next(row["policy"] for row in loop.rows(schema.candidate) if row["number"] == 1)
    loop.approve({new: 1.0}, why="a trial")
    assert unwatched_of(loop) == ["utility"]
    loop.days(5, n=60)
    assert unwatched_of(loop) == []


def test_acceptance_out_of_its_range_is_an_alarm_and_rolled_back_once(store, service):
    loop = Rehearsal.of(store, service, acceptance=[0.05, 0.5], auto_rollback=True)
    bold = loop.propose(rule(-2.0))
    loop.days(2, n=60)
    loop.approve({bold: 1.0}, why="a trial")
    loop.days(2, n=60)
    assert broken(loop) == {"acceptance": "2026-01-03"}
    found = now_deployed(loop)
    assert (found.number, found.by, found.live) == (3, "worker", loop.harsh)
    said = next(row for row in loop.rows(schema.deployment) if row["number"] == 3)["evidence"]
    assert said.startswith("roll back: Since 2026-01-03 ")
    loop.days(2, n=60)  # what is rolled back to is left to people
    assert now_deployed(loop).number == 3
    assert list(verify(store, service.secret)) == []


def test_without_the_setting_nothing_is_rolled_back(sqlite_loop):
    loop = sqlite_loop
    loop.put(acceptance=[0.05, 0.5])
    bold = loop.propose(rule(-2.0))
    loop.approve({bold: 1.0}, why="a trial")
    loop.days(3, n=60)
    assert set(broken(loop)) == {"acceptance"}
    assert now_deployed(loop).number == 2


def test_an_alarm_from_before_a_deployment_takes_nothing_back(sqlite_loop):
    """Somebody has answered it: the worker leaves the answer alone."""
    loop = sqlite_loop
    loop.put(acceptance=[0.05, 0.5])
    bold, milder = loop.propose(rule(-2.0)), loop.propose(rule(-1.5))
    loop.approve({bold: 1.0}, why="a trial")
    loop.days(3, n=60)
    loop.approve({milder: 1.0}, why="an answer")
    loop.put(acceptance=[0.05, 0.5], auto_rollback=True)
    loop.days(3, n=60)
    assert broken(loop) == {"acceptance": "2026-01-02"}
    assert now_deployed(loop).live == milder


def test_what_a_person_has_rolled_back_to_is_not_taken_back(sqlite_loop):
    """The day of the roll back was mostly decided by what it has ended."""
    loop = sqlite_loop
    loop.put(acceptance=[0.05, 0.5], auto_rollback=True)
    bold = loop.propose(rule(-2.0))
    loop.days(1, n=60)
    loop.approve({bold: 1.0}, why="a trial")
    loop.decide(60)
    loop.approve({loop.harsh: 1.0})
    loop.days(3, n=60)
    assert not broken(loop)
    values = {"date": "2026-01-31", "name": "acceptance", "value": 30.0, "limit": 20.0}
    with loop.store.write() as connection:
        row = values | {"broken": True, "sentence": "No."}
        schema.add(connection, schema.guardrail, LOOP, now(), row)
    loop.work()
    found = now_deployed(loop)
    assert (found.number, found.live) == (3, loop.harsh)


def test_days_before_a_deployment_or_a_new_range_take_nothing_back(sqlite_loop):
    loop = sqlite_loop
    bold, mild = loop.propose(rule(-2.0)), loop.propose(rule(0.9))
    loop.approve({bold: 1.0}, why="a trial")
    loop.days(3, n=60)  # nearly everybody is accepted, as was agreed
    loop.approve({mild: 1.0}, why="fewer")
    loop.put(acceptance=[0.05, 0.5], auto_rollback=True)
    loop.days(3, n=60)
    assert not broken(loop)
    assert now_deployed(loop).live == mild


def test_broken_chance_is_found(sqlite_loop, monkeypatch):
    """Propensities that were logged a fifth too high, after a deployment or before one."""
    loop = sqlite_loop
    loop.put(auto_rollback=True)
    lottery = loop.propose(rule(9.0, floor=0.5))
    loop.approve({lottery: 1.0}, why="a trial")
    loop.days(1, n=60)
    drawn = random.Random(0)
    monkeypatch.setattr(writer, "uniform", lambda *_: 1.2 * drawn.random())
    loop.days(2, n=1000)
    (alarm,) = (row for row in alarms_of(loop) if row["name"] == "chance")
    assert now_deployed(loop).live == loop.harsh
    with loop.store.read() as connection:
        assert alarms._chance_broke(connection, alarm, "2026-01-01")
        assert not alarms._chance_broke(connection, alarm, "2026-01-02")


def test_one_guardrail_that_cannot_be_computed_stops_no_other_and_ends_no_alarm(
    rehearsed, monkeypatch
):
    def fails(*_: Any) -> GuardrailFinding:
        raise OSError("a disk")

    alarm = GuardrailFinding("chance", 30.0, 20.0, True, "No.")
    monkeypatch.setattr(guardrails, "chance", lambda _: alarm)
    rehearsed.decide(60)
    rehearsed.work()
    monkeypatch.setattr(guardrails, "chance", fails)
    rehearsed.decide(60)
    with pytest.raises(OSError, match="disk"):
        rehearsed.work()
    rows = [row["name"] for row in rehearsed.rows(schema.guardrail) if row["date"] == "2026-01-07"]
    assert rows == ["acceptance"]
    assert broken(rehearsed) == {"chance": "2026-01-06"}
    told = [row for row in rehearsed.rows(schema.event) if row["what"] == "work failed"]
    assert [json.loads(row["about"])["error"] for row in told] == ["OSError"]
    monkeypatch.undo()
    rehearsed.work()  # the day was looked at


def test_the_groups_of_a_day_are_counted_a_few_times_in_a_year_of_looks(rehearsed, monkeypatch):
    cohorts, counted = rehearsed.cohorts(), Counter()
    monkeypatch.setattr(alarms, "_count_groups", lambda _, day: counted.update([day]) or {})
    days = [str(date(2025, 1, 1) + timedelta(k)) for k in range(365)]
    for k, until in enumerate(days):
        for day in days[: k + 1]:
            alarms._groups(cohorts, day, until)
    assert max(counted.values()) <= 9  # at ages of 0, 1, 3, 7, ... days
    assert counted[days[0]] == 9


def test_a_group_that_is_reported_later_is_counted_at_a_later_look(sqlite_loop):
    loop = sqlite_loop
    loop.decide(20, groups="f")
    cohorts, day = loop.cohorts(), "2026-01-01"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alarms, "reported_groups", lambda *_: {})
        assert alarms._groups(cohorts, day, day).keys() == {"unknown"}
    assert alarms._groups(cohorts, day, day).keys() == {"unknown"}
    assert alarms._groups(cohorts, day, "2026-01-02")["f"][0] == 20


def test_alarms_are_in_the_metrics(rehearsed):
    from prometheus_client import generate_latest

    values = {"date": "2026-01-31", "value": None, "limit": 1.0, "sentence": "No."}
    with rehearsed.store.write() as connection:
        for name, is_broken in (("chance", True), ("acceptance", False)):
            row = values | {"name": name, "broken": is_broken}
            schema.add(connection, schema.guardrail, LOOP, now(), row)
    alarms.measure(rehearsed.store)
    text = generate_latest().decode()
    assert 'consequential_alarm{guardrail="chance",loop="lending"} 1.0' in text
    assert 'consequential_alarm{guardrail="acceptance",loop="lending"} 0.0' in text
