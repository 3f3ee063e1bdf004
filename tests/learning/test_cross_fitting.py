"""Cross-fitted values of learned policies cover what those policies are worth."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq

WORLDS = {"first": cq.worlds.first_setting, "second": cq.worlds.second_setting}


class Remembering(cq.FairPolicyLearner):
    """Keeps every policy it fitted, so that their true values can be asked for."""

    fitted: list = []  # noqa: RUF012  # clones share it

    def fit_log(self, log, *, folds=None):
        super().fit_log(log, folds=folds)
        type(self).fitted.append(self.policy_)
        return self


def covered(world, seed, n=5000, folds=5):
    """Whether the interval holds the mean of the folds' policies' exact utilities."""
    start = world.initial_policy().with_floor(0.05)
    log = world.collect(start, n, np.random.default_rng(seed))
    Remembering.fitted.clear()
    learner = Remembering(cost=world.cost, method="direct", l2=1e-4, n_starts=1)
    found = cq.evaluate(learner, log, cost=world.cost, folds=folds)
    assert len(Remembering.fitted) == folds
    # folds are of equal size, so the value is that of the policies' mean
    return np.mean([world.exact(each).utility for each in Remembering.fitted]) in found.utility


@pytest.mark.parametrize("name", WORLDS)
def test_most_intervals_cover(name):
    # of 15, fewer than 11 would come by less than one chance in a thousand if 95 % covered
    world = WORLDS[name]()
    assert sum(covered(world, seed, n=2_500) for seed in range(15)) >= 11


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_at_least_92_percent_of_intervals_cover(name):
    world = WORLDS[name]()
    share = np.mean([covered(world, seed) for seed in range(2000)])
    print(f"{name}: {share:.3f}")
    assert share >= 0.92
