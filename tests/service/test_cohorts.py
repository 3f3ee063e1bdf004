from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest
from lending_loop import LOOP, START, applicants, attribute, decide, outcome, start
from sqlalchemy import event

import consequential as cq
from consequential.service.bodies import Override
from consequential.service.chance import epoch_key, uniform
from consequential.service.closing import close_day
from consequential.service.cohorts import Cohorts, all_cohorts
from consequential.service.exports import Export, export, log_columns
from consequential.service.outcomes import add_attributes, add_outcomes, add_overrides
from consequential.service.settings import loop_settings
from consequential.service.verify import verify

MONTH = datetime(2026, 1, 1, tzinfo=START.tzinfo), datetime(2026, 2, 1, tzinfo=START.tzinfo)


@pytest.fixture
def cohorts(store, service) -> Cohorts:
    start(store, service)
    return all_cohorts(store, service.directory)[LOOP]


def report(cohorts: Cohorts, *outcomes: Any, overrides: Any = ()) -> None:
    with cohorts.store.write() as connection:
        add_outcomes(connection, outcomes, "shop", START)
        add_overrides(connection, overrides, "anna", START)


def exported(cohorts: Cohorts, since: datetime, until: datetime, **more: Any) -> Export:
    return export(cohorts.store, LOOP, cohorts.settings, since, until, **more)


def rows_of(found: Export, tmp_path) -> dict[str, dict[str, Any]]:
    (tmp_path / "rows.parquet").write_bytes(found.content)
    return {row["id"]: row for row in pq.read_table(tmp_path / "rows.parquet").to_pylist()}


def log_of(cohorts: Cohorts, path, **more: Any) -> cq.DecisionLog:
    return cq.DecisionLog.from_file(path, **log_columns(cohorts.settings), **more)


def test_an_export_is_read_as_a_log_as_it_is(cohorts, service, tmp_path):
    people = applicants(300)
    bodies = decide(cohorts.store, service, people)
    accepted = [body["id"] for body in bodies if body["accepted"]]
    labels = {id: k % 3 > 0 for k, id in enumerate(accepted)}
    report(cohorts, *(outcome(id, id, int(label), START) for id, label in labels.items()))
    with cohorts.store.write_sensitive() as connection:
        groups = [attribute(person.subject, "fm"[k % 2]) for k, person in enumerate(people)]
        add_attributes(connection, groups, "anna", START)
    found = exported(cohorts, *MONTH)
    (tmp_path / "log.parquet").write_bytes(found.content)
    log = log_of(cohorts, tmp_path / "log.parquet")
    assert found.counts == {
        "rows": 300, "missing": 0, "overridden": 0, "repeated": 0, "forgotten": 0, "unknown": 0
    }  # fmt: skip
    assert (len(log), log.n_accepted, log.n_pending) == (300, len(accepted), 0)
    assert log.groups == ("f", "m")
    assert log.label[log.decision].mean() == sum(labels.values()) / len(labels)
    by_id = {body["id"]: body["propensity"] for body in bodies}
    assert sorted(log.propensity) == sorted(by_id.values())
    scan = cq.DecisionLog.scan(tmp_path / "log.parquet", **log_columns(cohorts.settings))
    assert len(scan) == 300


def test_a_log_without_the_sensitive_attribute_has_one_group(cohorts, service, tmp_path):
    decide(cohorts.store, service, applicants(50))
    found = exported(cohorts, *MONTH, sensitive=False)
    (tmp_path / "log.parquet").write_bytes(found.content)
    log = cq.DecisionLog.from_file(
        tmp_path / "log.parquet",
        **log_columns(cohorts.settings, sensitive=False),
        missing="against",
    )
    assert len(log.groups) == 1
    whole = exported(cohorts, *MONTH)
    assert {row["sensitive"] for row in rows_of(whole, tmp_path).values()} == {"unknown"}
    assert (found.counts["unknown"], whole.counts["unknown"]) == (0, 50)


def test_what_was_drawn_counts_and_an_override_leaves_no_label(cohorts, service, tmp_path):
    bodies = decide(cohorts.store, service, applicants(60))
    accepted = [body["id"] for body in bodies if body["accepted"]]
    refused = [body["id"] for body in bodies if not body["accepted"]]
    report(
        cohorts,
        outcome("E-1", accepted[0], 1, START),
        outcome("E-2", accepted[1], 1, START),
        outcome("E-3", accepted[1], 0, START, corrects="E-2"),
        outcome("E-4", accepted[2], 1, START),
        outcome("E-5", accepted[2], None, START, corrects="E-4"),
        outcome("E-6", accepted[3], 1, START),
        overrides=[
            Override(decision_id=accepted[3], accepted=False, why="moved away"),
            Override(decision_id=refused[0], accepted=True, why="an error"),
        ],
    )
    report(cohorts, outcome("E-7", refused[0], 1, START))
    found = exported(cohorts, *MONTH)
    rows = rows_of(found, tmp_path)
    kept = [(rows[id]["decision"], rows[id]["label"]) for id in (*accepted[:5], refused[0])]
    assert kept == [(1, 1.0), (1, 0.0), (1, None), (1, None), (1, None), (0, None)]
    assert found.counts["overridden"] == 2
    assert found.counts["missing"] == len(accepted) - 2


def test_only_the_first_application_of_a_subject_in_an_epoch_is_learned_from(
    cohorts, service, tmp_path
):
    first, other = applicants(2)
    again = first._replace(application_id="again", time=START + timedelta(hours=1))
    next_epoch = first._replace(application_id="later", time=START + timedelta(30))
    bodies = decide(cohorts.store, service, [first, other])
    bodies += decide(cohorts.store, service, [again]) + decide(cohorts.store, service, [next_epoch])
    found = exported(cohorts, MONTH[0], START + timedelta(60))
    kept = {bodies[0]["id"], bodies[1]["id"], bodies[3]["id"]}
    assert rows_of(found, tmp_path).keys() == kept
    assert found.counts["repeated"] == 1
    half = exported(cohorts, START + timedelta(minutes=1), START + timedelta(1))
    none = {"rows": 0, "missing": 0, "unknown": 0}  # also where the first is not
    assert half.counts == found.counts | none


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)  # PostgreSQL plans by statistics
def test_repeats_are_found_by_an_index_however_often_a_subject_applies(cohorts):
    asked = []

    @event.listens_for(cohorts.store.main, "before_cursor_execute")
    def keep(connection, cursor, statement, parameters, context, many):
        asked.append((statement, parameters))

    exported(cohorts, *MONTH)
    statement, parameters = next(each for each in asked if "EXISTS" in each[0])
    with cohorts.store.read() as connection:
        plan = connection.exec_driver_sql(f"explain query plan {statement}", parameters).all()
    wanted = "decision_subject (subject_id=? AND loop=? AND epoch=? AND id<?)"
    assert any(wanted in step[-1] for step in plan), plan


def test_draws_can_be_checked_from_an_export_and_a_key_alone(cohorts, service, tmp_path):
    decide(cohorts.store, service, applicants(100))
    key = epoch_key(service.secret, LOOP, "2026-01")  # as it is revealed later
    for row in rows_of(exported(cohorts, *MONTH), tmp_path).values():
        assert row["u"] == uniform(key, LOOP, row["subject"])
        assert row["decision"] == (row["u"] < row["propensity"])


def test_a_cohort_is_frozen_when_all_of_it_is_old_enough(cohorts, service):
    decide(cohorts.store, service, applicants(20))
    decide(cohorts.store, service, applicants(5, START + timedelta(31), name="B"))
    march = datetime(2026, 3, 1, tzinfo=START.tzinfo)
    close_day(cohorts.store, LOOP, "2026-02-28")
    assert cohorts.due(march - timedelta(seconds=1)) == []
    assert cohorts.due(march) == ["2026-01"]
    row = cohorts.freeze("2026-01", march)
    assert cohorts.due(march) == []
    assert cohorts.due(march + timedelta(31)) == ["2026-02"]
    assert (row["rows"], json.loads(row["counts"])["rows"]) == (20, 20)
    path = service.directory / row["file"]
    assert len(log_of(cohorts, path, missing="against")) == 20
    assert cohorts.damaged() == []
    path.write_bytes(path.read_bytes() + b" ")
    assert cohorts.damaged() == [row["file"]]


def test_a_cohort_is_not_frozen_as_long_as_a_day_of_it_is_open(store, service):
    start(store, service, horizon=0, period="day")
    cohorts = all_cohorts(store, service.directory)[LOOP]
    decide(store, service, applicants(2))
    midnight = datetime(2026, 1, 11, tzinfo=START.tzinfo)
    assert cohorts.due(midnight) == []  # a decision of the day before may be on its way
    close_day(store, LOOP, "2026-01-10")
    assert cohorts.due(midnight) == ["2026-01-10"]


def test_freezing_again_is_a_new_version_with_later_outcomes(cohorts, service):
    bodies = decide(cohorts.store, service, applicants(20))
    first = cohorts.freeze("2026-01", START)
    accepted = next(body["id"] for body in bodies if body["accepted"])
    report(cohorts, outcome("E-1", accepted, 1, START))
    second = cohorts.freeze("2026-01", START, by="anna")
    assert (first["version"], second["version"]) == (1, 2)
    counts = [json.loads(row["counts"])["missing"] for row in (first, second)]
    assert counts[0] - counts[1] == 1
    assert all((service.directory / row["file"]).exists() for row in (first, second))
    assert list(verify(cohorts.store, service.secret)) == []


def test_features_with_the_names_of_columns_are_kept_apart():
    features = {
        name: {"low": 0, "high": 1, "phrase": "x"} for name in ("label", "label_", "time", "income")
    }
    settings = loop_settings({"cost": 0.5, "floor": 0.1, "features": features})
    columns = log_columns(settings)
    assert columns["features"] == ["label__", "label_", "time_", "income"]
    assert columns["label"] == "label"
