from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
from trial import FEATURES, LOOP, application, trial_policy

import consequential as cq
from consequential.service.client import Client
from consequential.service.problems import Problem
from consequential.service.records import now, stamp


@pytest.fixture
def client(http, trial):
    with Client(str(http.base_url), trial.keys["all"]) as client:
        yield client


@pytest.fixture
def name(client, http, trial, loop) -> str:
    return loop.rpartition("/")[2]


def test_a_client_decides_reports_and_exports(client, name):
    decision = client.decide(name, "A-1", FEATURES, subject_id="P-1")
    assert client.decide(name, "A-1", FEATURES, subject_id="P-1") == decision
    batch = client.decide_batch(name, [application(f"B-{k}") for k in range(40)])
    accepted = next(each for each in batch if each.accepted)
    refused = next(each for each in batch if not each.accepted)
    assert refused.reasons
    assert client.replay(accepted.id)["agrees"]
    told = {
        "event_id": f"{name}-1",
        "decision_id": accepted.id,
        "label": 1,
        "happened": stamp(now()),
    }
    assert client.report_outcomes([told]) == {"new": 1}
    assert client.report_outcomes([told]) == {"new": 0}
    why = {"decision_id": refused.id, "accepted": True, "why": "an error"}
    assert client.report_overrides([why]) == {"new": 1}
    group = {"subject_id": "P-1", "attribute": "sex", "value": f"f-{name}"}
    assert client.report_sensitive([group]) == {"new": 1}
    assert client.decision(accepted.id)["outcome"]["label"] == 1
    table = pq.read_table(io.BytesIO(client.export(name)))
    rows = {row["id"]: row for row in table.to_pylist()}
    assert (len(rows), rows[accepted.id]["label"]) == (41, 1.0)
    assert rows[decision.id]["sensitive"] == f"f-{name}"
    assert len(client.listed(name, "deployments")) == 1


def test_an_export_has_no_groups_unless_the_key_is_good_for_them(http, trial, client, name):
    client.decide(name, "A-1", FEATURES)
    with Client(str(http.base_url), trial.keys["read"]) as reader:
        table = pq.read_table(io.BytesIO(reader.export(name)))
    assert "sensitive" not in table.column_names
    none = pq.read_table(io.BytesIO(client.export(name, until="2020-01-01")))
    assert (none.num_rows, "sensitive" in none.column_names) == (0, True)


def test_a_client_runs_a_loop(http, trial, client, name):
    loop = f"{name}-2"
    assert client.put_loop(loop, LOOP) == {"version": 1}
    assert client.loop(loop)["settings"] == LOOP
    with Client(str(http.base_url), trial.keys["author"]) as author:
        digest = author.propose(loop, cq.policy_to_json(trial_policy()))
    with pytest.raises(Problem, match="deploy") as raised:
        client.decide(loop, "A-1", FEATURES)
    assert raised.value.status == 409
    assert client.deploy(loop, {digest: 1.0}, why="a trial") == 1
    assert client.decide(loop, "A-1", FEATURES).extra["policy"] == digest
    other = cq.policy_to_json(trial_policy(0.5))
    with pytest.raises(Problem, match="no frozen cohort"):
        client.propose(loop, other, parent=digest, cohorts=["2026-01"])
    child = client.propose(loop, other, parent=digest, cohorts=["none"])
    row = client.listed(loop, "policies")[0]
    assert (row["policy"], row["parent"], row["cohorts"]) == (child, digest, [])
