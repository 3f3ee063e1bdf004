"""What a run's log adds up to, and which of its rows are read: against counting them plainly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from consequential.learning.sequences import reservoir_moves
from consequential.simulation.functionals import count_tally
from consequential.simulation.reservoir import keep_people, keep_weights
from consequential.simulation.step import _find_accepted


def counted(weights, label, group, n_groups):
    """Weight with label 0 and 1, accepted rows and squared weight of each group, one by one."""
    tally = np.zeros((n_groups, 4))
    for weight, y, z in zip(weights, label, group, strict=True):
        tally[z] += [weight * (1 - y), weight * y, weight > 0, weight**2]
    return tally


@pytest.mark.parametrize("n_groups", [1, 2, 3])
def test_a_tally_is_what_counting_gives(n_groups):
    rng = np.random.default_rng(n_groups)
    weights = rng.exponential(size=500) * (rng.random(500) < 0.4)
    label, group = rng.integers(2, size=500).astype(float), rng.integers(n_groups, size=500)
    tally = np.full((n_groups, 4), np.nan)
    count_tally(weights, label, group.astype(np.int16), tally)
    assert_allclose(tally, counted(weights, label, group, n_groups), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heavy", [1.0, 1e8])
def test_a_tally_follows_a_reservoir_or_says_that_it_no_longer_holds(heavy):
    rng = np.random.default_rng(5)
    n, room, n_groups = 40, 100, 3
    kept_group, kept_label = np.zeros(room, np.int16), np.zeros(room)
    kept, tally = np.zeros(room), np.zeros((n_groups, 4))
    kinds, moved = np.zeros((2, n), np.int64), np.zeros((2, n))
    verdicts = []
    for step in range(40):
        group = rng.integers(n_groups, size=n).astype(np.int16)
        label = rng.integers(2, size=n).astype(float)
        weights = rng.exponential(size=n) * (rng.random(n) < 0.5)
        if step == 0:
            weights[0] = heavy  # it enters for sure, and leaves sooner or later
        moves = reservoir_moves(rng.random(n), n * step, room)
        keep_people(moves, len(moves), group, label, kept_group, kept_label, kinds)
        holds = keep_weights(moves, len(moves), kinds, weights, kept, tally, moved)
        n_kept = min(n * (step + 1), room)
        own = kept[:n_kept], kept_label[:n_kept], kept_group[:n_kept]
        verdicts.append(holds)
        if not holds:
            count_tally(*own, tally)
        assert_allclose(tally, counted(*own, n_groups), rtol=1e-9, atol=1e-9)
    assert kept.max() < 1e3
    # a weight whose square is far above all that is left must not be subtracted and trusted
    assert all(verdicts) == (heavy == 1.0)


@pytest.mark.parametrize("n_rows", [7, 1023, 1024, 5000])
@pytest.mark.parametrize("share", [0.05, 0.6, 1.0])
def test_accepted_rows_are_read_in_a_circle(n_rows, share):
    rng = np.random.default_rng(n_rows)
    weights = rng.exponential(size=n_rows) * (rng.random(n_rows) < share)
    weights[rng.integers(n_rows)] = 1.0
    accepted = np.flatnonzero(weights > 0)
    for start in {0, len(accepted) // 2, len(accepted) - 1}:
        for n in {1, (len(accepted) + 1) // 2, len(accepted)}:
            rows = np.empty(n + 1, np.uint64)
            _find_accepted(weights, start, n, rows)
            assert_array_equal(rows[:n], np.roll(accepted, -start)[:n])
