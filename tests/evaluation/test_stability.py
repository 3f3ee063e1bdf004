"""Stability: whether policies learned from other parts of a log decide alike."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from consequential.evaluation import CrossFitted, Stability
from exploring_logs import exploring_log


@pytest.fixture(scope="module")
def log():
    return exploring_log(200, 3)


def crossed(by_fold) -> CrossFitted:
    by_fold = np.asarray(by_fold)
    return CrossFitted(by_fold, np.arange(by_fold.shape[1]) % len(by_fold))


def test_the_spread_is_the_mean_difference_of_all_pairs(log):
    by_fold = np.random.default_rng(0).random((4, 200))
    found = Stability.of(crossed(by_fold), log)
    pairs = [np.abs(a - b).mean() for a, b in combinations(by_fold, 2)]
    assert found.spread == pytest.approx(np.mean(pairs))
    above = by_fold >= 0.5
    assert found.split == pytest.approx(np.mean([0 < row.sum() < 4 for row in above.T]))
    assert found.acceptance == pytest.approx(by_fold.mean(axis=1))
    for z in range(3):
        assert found.by_group[z] == pytest.approx(by_fold[:, log.group == z].mean(axis=1))


def test_policies_that_are_the_same_do_not_differ(log):
    found = Stability.of(crossed(np.tile(np.linspace(0.0, 1.0, 200), (5, 1))), log)
    assert found.spread == pytest.approx(0.0, abs=1e-12)
    assert found.split == 0.0
    assert "accept 50.0% to 50.0% of the same people" in found.sentence


def test_groups_without_people_are_left_out(log):
    some = log.take(log.group != 1)
    found = Stability.of(crossed(np.full((2, len(some)), 0.5)), some)
    assert set(found.by_group) == {0, 2}
