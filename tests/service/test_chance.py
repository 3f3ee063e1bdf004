from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from lending_loop import START, applicants, decide, policy, start
from scipy.stats import kstest
from sqlalchemy import select

from consequential.service import schema
from consequential.service.chance import commitment_of, epoch_key, uniform
from consequential.service.deciding import live_loops
from consequential.service.policies import deploy, propose

KEY = epoch_key(b"s" * 32, "lending", "2026-01")
N = 100_000


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    """Numbers of ids in sequence."""
    return np.array([uniform(KEY, "lending", f"P-{k}") for k in range(N)])


def test_numbers_are_uniform(draws):
    assert kstest(draws, "uniform").pvalue > 1e-3
    assert 0.0 <= draws.min() < 1e-4
    assert 1.0 - 1e-4 < draws.max() < 1.0


@pytest.mark.parametrize("lag", [1, 2, 10, 100, 1000])
def test_ids_in_sequence_do_not_correlate(draws, lag):
    correlation = np.corrcoef(draws[:-lag], draws[lag:])[0, 1]
    assert abs(correlation) < 4.0 / sqrt(N)


def test_neither_loops_nor_epochs_nor_secrets_correlate(draws):
    for secret, loop, epoch in ((b"s", "lending", "2026-02"), (b"t", "lending", "2026-01")):
        key = epoch_key(secret * 32, loop, epoch)
        other = np.array([uniform(key, loop, f"P-{k}") for k in range(20_000)])
        assert abs(np.corrcoef(draws[:20_000], other)[0, 1]) < 4.0 / sqrt(20_000)
    other = np.array([uniform(KEY, "hiring", f"P-{k}") for k in range(20_000)])
    assert abs(np.corrcoef(draws[:20_000], other)[0, 1]) < 4.0 / sqrt(20_000)


def test_a_key_fits_its_commitment_and_no_other():
    assert commitment_of(KEY) != commitment_of(epoch_key(b"s" * 32, "lending", "2026-02"))
    assert commitment_of(KEY) == commitment_of(bytes.fromhex(KEY.hex()))


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
