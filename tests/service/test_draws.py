"""Draws: uniform, independent of ids in sequence, and fair to the propensities."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from lending_loop import START, applicants, decide, policy, start
from scipy import stats
from sqlalchemy import select
from trial import FEATURES, LOOP, Trial, trial_policy

from consequential.service import chance, schema
from consequential.service.deciding import Live, Share, live_loops
from consequential.service.policies import deploy, propose
from consequential.service.settings import loop_settings

KEY = chance.epoch_key(b"secret", "trial", "2026-11")


@pytest.fixture(scope="module")
def draws():
    return np.array([chance.uniform(KEY, "trial", f"P-{k}") for k in range(100_000)])


def test_draws_of_ids_in_sequence_are_uniform_and_do_not_correlate(draws):
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    counts = np.histogram(draws, 1000, (0.0, 1.0))[0]
    assert stats.chisquare(counts).pvalue > 1e-3
    for lag in (1, 2, 10, 1000):
        correlation = np.corrcoef(draws[:-lag], draws[lag:])[0, 1]
        assert abs(correlation) < 4.0 / np.sqrt(len(draws) - lag)


def test_loops_and_epochs_draw_independently(draws):
    n = 20_000
    other = chance.epoch_key(b"secret", "trial", "2026-12")
    for key, loop in ((other, "trial"), (KEY, "second")):
        again = np.array([chance.uniform(key, loop, f"P-{k}") for k in range(n)])
        assert abs(np.corrcoef(draws[:n], again)[0, 1]) < 4.0 / np.sqrt(n)


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
    error = np.sqrt((propensity * (1.0 - propensity)).sum()) / n
    assert len(accepted) == n
    assert abs((accepted - propensity).mean()) < 4.0 * error


def test_one_person_alone_has_the_bits_of_the_batch():
    live = Live("trial", 1, loop_settings(LOOP), 1, (Share("", 1.0, trial_policy()),))
    people = [FEATURES | {"income": 10.0 * k} for k in range(100)]
    together = live.scored(people)
    for k in (0, 17, 99):
        alone = live.scored([people[k]])
        assert alone.propensity[0] == together.propensity[k]
        assert alone.found.score[0] == together.found.score[k]
        assert live.reasons(alone, 0) == live.reasons(together, k)


def test_who_is_accepted_by_all_policies_is_never_refused():
    policies = [trial_policy(50.0), trial_policy(60.0), trial_policy(70.0)]
    live = Live(
        "trial", 1, loop_settings(LOOP), 1,
        tuple(Share(str(k), 1 / 3, policy) for k, policy in enumerate(policies)),
    )  # fmt: skip
    assert live.propensity([FEATURES]) == 1.0


def epochs(trial: Trial) -> dict[str, dict]:
    store = trial.store()
    with store.read() as connection:
        rows = schema.rows(connection, select(schema.epoch))
    store.close()
    return {row["epoch"]: row for row in rows}


def test_a_key_is_shown_a_day_after_its_epoch_and_fits_the_commitment(sqlite_trial):
    store, secret = sqlite_trial.store(), sqlite_trial.settings.secret
    names = sorted(epochs(sqlite_trial))
    end = epochs(sqlite_trial)[names[0]]["end"]
    moment = datetime.fromisoformat(end)
    with store.write() as connection:
        assert chance.reveal_keys(connection, "trial", secret, moment) == []
        later = moment + chance.REVEALED_AFTER
        assert chance.reveal_keys(connection, "trial", secret, later) == [names[0]]
        assert chance.reveal_keys(connection, "trial", secret, later) == []
    store.close()
    rows = epochs(sqlite_trial)
    key = bytes.fromhex(rows[names[0]]["key"])
    assert chance.commitment_of(key) == rows[names[0]]["commitment"]
    assert rows[names[1]]["key"] is None


def test_another_secret_is_noticed_before_anybody_is_drawn(sqlite_trial):
    store = sqlite_trial.store()
    with store.write() as connection, pytest.raises(chance.ChanceError, match="secret"):
        chance.open_epochs(connection, "trial", loop_settings(LOOP), b"another", datetime.now(UTC))
    later = datetime.now(UTC) + timedelta(days=99)
    with store.write() as connection, pytest.raises(chance.ChanceError, match="secret"):
        chance.reveal_keys(connection, "trial", b"another", later)
    store.close()
