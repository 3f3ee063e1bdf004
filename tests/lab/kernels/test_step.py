"""What a run's log adds up to, and which of its rows are read: against counting them plainly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from consequential.lab.kernels.functionals import count_tally
from consequential.lab.kernels.step import accepted_rows


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


@pytest.mark.parametrize("n", [3, 20, 1000])
def test_a_tally_is_exactly_0_where_nobody_is_there(n):
    rng = np.random.default_rng(n)
    for _ in range(200):
        weights = 1.0 / rng.uniform(1e-6, 1.0, size=n)
        label, group = rng.integers(2, size=n).astype(float), rng.integers(3, size=n)
        z, y = rng.integers(3), rng.integers(2)  # nobody of this group with this label is accepted
        weights[(group == z) & (label == y)] = 0.0
        tally = np.full((3, 4), np.nan)
        count_tally(weights, label, group.astype(np.int16), tally)
        assert tally[z, y] == 0.0
        assert tally[z, 2] == ((weights > 0) & (group == z)).sum()


@pytest.mark.parametrize(
    ("n_rows", "share"), [(7, 0.6), (1023, 0.05), (1023, 1.0), (1024, 1.0), (5000, 0.05)]
)
def test_accepted_rows_are_read_cyclically(n_rows, share):
    rng = np.random.default_rng(n_rows)
    weights = rng.exponential(size=n_rows) * (rng.random(n_rows) < share)
    weights[rng.integers(n_rows)] = 1.0
    accepted = np.flatnonzero(weights > 0)
    for start in {0, len(accepted) // 2, len(accepted) - 1}:
        for n in {1, (len(accepted) + 1) // 2, len(accepted)}:
            assert_array_equal(accepted_rows(weights, start, n), np.roll(accepted, -start)[:n])
