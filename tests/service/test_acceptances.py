from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from lending_loop import START, applicants, decide, policy, start
from sqlalchemy import select

from consequential.service import schema
from consequential.service.deciding import live_loops
from consequential.service.policies import deploy, propose


@pytest.mark.parametrize("n", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_as_many_are_accepted_as_propensities_say_also_in_a_canary(store, service, n, share):
    digest = start(store, service)
    if share < 1.0:
        with store.write() as connection:
            live = live_loops(connection, {})["lending"]
            other = propose(connection, live, policy((1.0, -0.4, 0.0, 0.3)), "anna", START)
            deploy(connection, live, {digest: share, other: 1.0 - share}, "ben", START)
    decide(store, service, applicants(n))
    with store.read() as connection:
        rows = connection.execute(select(schema.decision.c.accepted, schema.decision.c.propensity))
        accepted, propensity = np.array(rows.all(), dtype=np.float64).T
    error = sqrt((propensity * (1.0 - propensity)).sum()) / n
    assert len(accepted) == n
    assert abs((accepted - propensity).mean()) < 4.0 * error
