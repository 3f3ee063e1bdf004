"""What a loop promises, over simulated loops: few by default, as many as promised when slow.

`benchmarks/loop.py` simulates them, and prints the tables of docs/what-the-gate-proves.md.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from consequential.service.guardrails import chance

SIMULATED = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "loop.py"))
SLOW = pytest.mark.slow


@pytest.mark.parametrize("world", ["all labels", "missing", "overrides"])
@pytest.mark.parametrize(
    ("loops", "month", "most"), [(8, 300, 2), pytest.param(200, 2000, 10, marks=SLOW)]
)
def test_no_policy_is_promoted_where_none_is_better(world, loops, month, most):
    promoted = 0
    for seed in range(loops):
        rng = np.random.default_rng([seed, 60])
        log = SIMULATED["null_logs"](world, 0.6, 24 * month, rng)["frozen"]
        promoted += SIMULATED["false_promotions"](log, 0.6, 24)[0]
    assert promoted <= most  # 5 % of 200; of 8, chance promotes more than 2 once in 170 times


@pytest.mark.parametrize("loops", [4, pytest.param(100, marks=SLOW)])
def test_a_gain_is_proven_in_time_and_as_planned(loops):
    live, better = SIMULATED["harsh_and_better"]()
    found = [SIMULATED["decisions_to_promotion"](live, better, seed) for seed in range(loops)]
    proven, promoted = np.array(found).T
    assert (promoted <= 50_000).mean() >= 0.8
    ratio = SIMULATED["planned"](live, better, 0.5) / np.median(proven)
    tolerance = 1.5 if loops == 100 else 3.0  # one median of four is off by two often
    assert 1.0 / tolerance < ratio < tolerance


@pytest.mark.parametrize("loops", [12, pytest.param(200, marks=SLOW)])
def test_estimates_on_frozen_cohorts_are_right_and_the_tempting_ones_are_not(loops):
    live, better = SIMULATED["harsh_and_better"]()
    truth = SIMULATED["FIRST"].exact(better).utility
    found = [SIMULATED["estimates_of"](live, better, seed) for seed in range(loops)]
    errors = {way: np.array([each[way] for each in found]) - truth for way in found[0]}
    off = {way: each.mean() / (each.std() / loops**0.5) for way, each in errors.items()}
    assert abs(off.pop("as frozen")) < 3.0
    if loops == 200:
        assert min(map(abs, off.values())) > 3.0


@pytest.mark.slow
def test_sound_years_seldom_alarm():
    rng, p = np.random.default_rng(0), np.full(10, 0.1)
    years = (SIMULATED["days_of"](p, p, 167, 0, 365, rng) for _ in range(100))
    assert sum(SIMULATED["alarmed"](year, 0, chance) for year in years) <= 5
