from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from lending_loop import LOOP, START, applicants, decide, policy, start
from sqlalchemy import select

from consequential.policy import policy_from_json
from consequential.service import schema
from consequential.service.chance import commitment_of, reveal_keys, uniform
from consequential.service.cohorts import all_cohorts
from consequential.service.database import open_store
from consequential.service.exports import export
from consequential.service.verify import verify

LATER = START + timedelta(60)
_PROGRAM = """
import json, sys
from pathlib import Path
from consequential.service.database import open_store
from consequential.service.settings import ServiceSettings
from consequential.service.verify import verify

directory, database, sensitive, secret = json.loads(sys.argv[1])
settings = ServiceSettings(Path(directory), database, sensitive, bytes.fromhex(secret))
store = open_store(settings)
print(sum(1 for _ in verify(store, settings.secret)))
"""


@pytest.mark.parametrize("n", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_decision_replays_after_a_restart_and_in_another_process(store, service, n):
    start(store, service)
    decide(store, service, applicants(n))
    store.close()
    again = open_store(service)
    assert list(verify(again, service.secret)) == []
    with again.read() as connection:
        assert len(schema.rows(connection, select(schema.decision.c.id))) == n
    again.close()
    told = [str(service.directory), service.database, service.sensitive, service.secret.hex()]
    command = [sys.executable, "-c", _PROGRAM, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("n", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_decision_replays_from_an_export_with_the_revealed_key_alone(store, service, n):
    start(store, service)
    bodies = decide(store, service, applicants(n))
    with store.write() as connection:
        reveal_keys(connection, LOOP, service.secret, LATER)
        epochs = schema.rows(connection, select(schema.epoch))
    revealed = {row["epoch"]: bytes.fromhex(row["key"]) for row in epochs if row["key"]}
    cohorts = all_cohorts(store, service.directory)[LOOP]
    found = export(store, LOOP, cohorts.settings, START - timedelta(1), LATER)
    table = pq.read_table(io.BytesIO(found.content))
    assert table.num_rows == n
    # from here on with the file, the keys, the policy and the library alone
    rule = policy_from_json(policy())
    propensities = rule.propensity(table.select(["income", "purpose"]))
    for row, propensity in zip(table.to_pylist(), propensities, strict=True):
        u = uniform(revealed[row["epoch"]], LOOP, row["subject"])
        assert u == row["u"]
        assert abs(propensity - row["propensity"]) <= 1e-12
        assert row["decision"] == (u < row["propensity"])
    assert {body["commitment"] for body in bodies} == {commitment_of(revealed["2026-01"])}
