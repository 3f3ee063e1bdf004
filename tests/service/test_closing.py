from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as waited
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from consequential.service import schema
from consequential.service.bodies import Attribute
from consequential.service.closing import GRACE, close_day, day_of, days_due, open_books
from consequential.service.database import says_closed
from consequential.service.loops import clock, settings_in_force
from consequential.service.outcomes import add_attributes
from consequential.service.problems import Problem
from consequential.service.records import canonical, new_id, stamp

START = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
SETTINGS = {
    "cost": 0.6,
    "floor": 0.1,
    "features": {"income": {"low": 0, "high": 9, "phrase": "Income"}},
}


def add_loop(store, time=START, **changes: Any) -> None:
    with store.write() as connection:
        values = {"version": 1, "settings": canonical(SETTINGS | changes), "by": "anna"}
        schema.add(connection, schema.loop, "lending", time, values)


def decision(number: int, time: datetime, propensity: float = 0.25) -> dict[str, Any]:
    values = {
        "application_id": f"A-{number}", "subject_id": None, "version": 1, "cohort": "2026-03",
        "epoch": "2026-03", "deployment": 1, "features": "{}", "salt": "s",
        "features_digest": "f", "amount": 1.0, "score": 0.0, "propensity": propensity,
        "u": 0.1, "accepted": number % 2 == 0,
    }  # fmt: skip
    return schema.made_row(schema.decision, "lending", time, values)


def add_decisions(store, *rows: dict[str, Any]) -> None:
    with store.write() as connection:
        connection.execute(insert(schema.decision), list(rows))


def days(store) -> dict[tuple[str, str], dict[str, Any]]:
    with store.read() as connection:
        rows = connection.execute(select(schema.day)).mappings()
        return {(row["date"], row["table"]): dict(row) for row in rows}


def test_days_are_due_from_the_first_row_until_yesterday(store):
    assert days_due(store, "lending", START) == []
    add_loop(store)
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    assert days_due(store, "lending", midnight) == []  # commits may be on their way
    assert days_due(store, "lending", midnight + GRACE) == ["2026-03-01"]
    three = ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert days_due(store, "lending", midnight + timedelta(2.5)) == three
    close_day(store, "lending", "2026-03-01")
    assert days_due(store, "lending", midnight + timedelta(2.5)) == three[1:]


def test_of_many_days_one_round_closes_some(store):
    add_loop(store)
    found = days_due(store, "lending", START + timedelta(300_000))
    assert (len(found), found[0]) == (1000, "2026-03-01")


def test_a_closed_day_has_a_seal_of_every_table_and_a_summary(store, caplog):
    add_loop(store)
    rows = [decision(n, START + timedelta(seconds=n)) for n in range(5)]
    add_decisions(store, *rows, decision(9, START + timedelta(hours=1)))
    with caplog.at_level(logging.INFO):
        seals = close_day(store, "lending", "2026-03-01")
    assert seals.keys() == {table.name for table in schema.SEALED}
    closed = days(store)["2026-03-01", "decision"]
    assert (closed["rows"], closed["seal"]) == (5, seals["decision"])
    summary = json.loads(closed["summary"])
    assert (summary["accepted"], summary["propensity"]) == (3, 1.25)
    assert summary["variance"] == pytest.approx(5 * 0.25 * 0.75)
    assert summary["first_skew"] == pytest.approx(5 * 0.25 * 0.75 * 0.5)
    assert (summary["from_20"], summary["from_30"]) == (5, 0)
    logged = {each.about["table"]: each.about["seal"] for each in caplog.records}
    assert logged == seals  # a copy lies outside the database


def test_a_day_counts_the_first_outcomes_of_accepted_people_by_their_cohort(store):
    add_loop(store)
    rows = [decision(n, START + timedelta(seconds=n)) for n in range(5)]  # even ones are accepted
    earlier = decision(6, START - timedelta(40)) | {"cohort": "2026-01"}
    add_decisions(store, *rows, earlier)
    told = {"label": 1, "happened": stamp(START), "by": "anna"}
    about = [("a", rows[0], None), ("b", rows[2], None), ("c", rows[2], "b"), ("d", rows[1], None)]
    with store.write() as connection:
        for event, row, corrects in [*about, ("e", earlier, None)]:
            content = {"event_id": event, "decision": row["id"], "corrects": corrects} | told
            schema.add(connection, schema.outcome, "lending", START, content)
    close_day(store, "lending", "2026-03-01")
    summary = json.loads(days(store)["2026-03-01", "outcome"]["summary"])
    assert summary["cohorts"] == {"2026-01": 1, "2026-03": 2}
    assert summary["labels_1"] == 5


def test_a_seal_depends_on_each_row_and_on_the_seal_before(store):
    add_loop(store)
    add_decisions(store, decision(1, START), decision(2, START + timedelta(1)))
    first = close_day(store, "lending", "2026-03-01")
    second = close_day(store, "lending", "2026-03-02")
    assert len({*first.values(), *second.values()}) == 2 * len(schema.SEALED)
    unguarded(store, "day")
    with store.write() as connection:
        connection.execute(delete(schema.day))
    again = close_day(store, "lending", "2026-03-02")  # now without one before
    assert set(again.values()).isdisjoint(second.values())


def unguarded(store, table: str) -> None:
    """Remove the triggers that refuse changes."""
    with store.write() as connection:
        if store.is_sqlite:
            found = connection.exec_driver_sql(
                f"select name from sqlite_master where type = 'trigger' and tbl_name = '{table}'"
            )
            for (name,) in found.all():
                connection.exec_driver_sql(f"drop trigger {name}")
        else:
            connection.exec_driver_sql(f"alter table {table} disable trigger user")


def test_no_row_can_be_added_to_a_closed_day(store):
    add_loop(store)
    add_decisions(store, decision(1, START))
    close_day(store, "lending", "2026-03-01")
    for time in (START, START - timedelta(5)):  # nor to days before it
        with pytest.raises(DBAPIError, match="the day is closed"):
            add_decisions(store, decision(2, time))
    add_decisions(store, decision(2, START + timedelta(hours=1)))


def test_attributes_keep_their_day_open_until_they_are_stored(store):
    person = Attribute(subject_id="P-1", attribute="sex", value="f")
    with (
        ThreadPoolExecutor(1) as other,
        open_books(store, "", START),
        store.write_sensitive() as connection,
    ):
        add_attributes(connection, [person], "anna", START)
        closed = other.submit(close_day, store, "", "2026-03-01")
        waited([closed], timeout=0.3)  # it cannot end before
    if not closed.result():  # it had counted before: the next round closes the day
        close_day(store, "", "2026-03-01")
    assert days(store)["2026-03-01", "attribute"]["rows"] == 1
    with pytest.raises(Problem, match="closed"), open_books(store, "", START):
        pass


def test_a_closed_day_is_told_from_any_other_conflict(store):
    add_loop(store)
    named = decision(1, START) | {"application_id": "A: the day is closed"}
    add_decisions(store, named)
    with pytest.raises(IntegrityError) as twice:
        add_decisions(store, named | {"id": new_id(START)})
    close_day(store, "lending", "2026-03-01")
    with pytest.raises(IntegrityError) as late:
        add_decisions(store, decision(2, START))
    assert (says_closed(twice.value), says_closed(late.value)) == (False, True)


def test_a_day_is_closed_once(store):
    add_loop(store)
    close_day(store, "lending", "2026-03-01")
    with pytest.raises(DBAPIError):
        close_day(store, "lending", "2026-03-01")


def test_a_row_that_comes_while_a_day_is_closed_is_part_of_it_later(store, monkeypatch):
    from consequential.service import closing

    add_loop(store)
    summed = closing.hashed_rows

    def late(store, table, loop, day):
        found = summed(store, table, loop, day)
        if table is schema.decision:
            add_decisions(store, decision(1, START))
        return found

    monkeypatch.setattr(closing, "hashed_rows", late)
    assert close_day(store, "lending", "2026-03-01") == {}
    monkeypatch.setattr(closing, "hashed_rows", summed)
    assert close_day(store, "lending", "2026-03-01")
    assert days(store)["2026-03-01", "decision"]["rows"] == 1


def test_in_a_rehearsal_it_is_as_late_as_the_last_decision(store):
    add_loop(store, rehearsal=True)
    add_decisions(store, decision(1, START + timedelta(900)))
    with store.read() as connection:
        settings = settings_in_force(connection)["lending"]
        assert clock(connection, "lending", settings, START) == START + timedelta(900)


def test_settings_in_force_are_those_of_the_last_version(store):
    add_loop(store)
    with store.write() as connection:
        values = {"version": 2, "settings": canonical(SETTINGS | {"cost": 0.7}), "by": "anna"}
        schema.add(connection, schema.loop, "lending", START, values)
        assert settings_in_force(connection)["lending"].cost == 0.7


def test_the_day_of_a_row_is_in_its_identifier():
    for time in (START, START + timedelta(seconds=59, microseconds=999_999), START + timedelta(1)):
        assert day_of(new_id(time)) == stamp(time)[:10]
