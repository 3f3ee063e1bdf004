"""Evaluation on logs larger than memory: the same answers as in memory."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from exploring_logs import exploring_log
from scanned_logs import NAMES, written

NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]

two_and_three_groups = pytest.mark.parametrize("log", [2, 3], indirect=True)


@pytest.fixture
def log(request):
    """A log of two groups, or of as many as a test is parametrised with."""
    return exploring_log(n=1000, n_groups=getattr(request, "param", 2))


@pytest.fixture
def scan(log, tmp_path):
    return cq.DecisionLog.scan(written(log, tmp_path), **NAMES)


def assert_same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        for mine, its in zip(one, other, strict=True):
            assert_same(mine, its)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-8, abs=1e-8)
    else:
        assert one == other


@pytest.mark.parametrize(
    ("notion", "log"), list(zip(NOTIONS, [2, 3, 2, 3], strict=True)), indirect=["log"]
)
def test_evaluations_are_those_in_memory(log, scan, notion):
    policy = cq.Policy([0.2, 0.7, -0.4])
    options = {"cost": 0.4, "fairness": notion}
    assert_same(
        cq.evaluate(policy, scan, **options).to_dict(),
        cq.evaluate(policy, log, **options).to_dict(),
    )


@two_and_three_groups
def test_what_clipping_leaves_out_is_bounded_on_a_scan_too(log, scan):
    policy = cq.Policy([0.2, 0.7, -0.4])
    options = {"cost": 0.4, "weighting": cq.weightings.Clipped(3.0)}
    found, there = cq.evaluate(policy, scan, **options), cq.evaluate(policy, log, **options)
    assert found.unsupported > 0.0
    assert_same(found.to_dict() | {"notes": []}, there.to_dict() | {"notes": []})
    labelled = cq.evaluate(policy, scan, fairness="equal_opportunity", **options)
    assert not labelled.benefit_gap.known
    assert any("not bounded on a scan" in note for note in labelled.notes)


@two_and_three_groups
def test_people_never_accepted_are_bounded_on_a_scan_as_in_memory(log, tmp_path):
    never = log.features[:, 0] > 1.0
    some = cq.DecisionLog.from_arrays(
        log.features,
        log.decision & ~never,
        np.where(never, 0.0, log.propensity),
        np.where(never, np.nan, log.label),
        log.sensitive,
        log.time_step,
        feature_names=log.feature_names,
        horizon=log.horizon,
    )
    scan = cq.DecisionLog.scan(written(some, tmp_path), **NAMES)
    policy = cq.Policy([0.2, 0.7, -0.4])
    for ask in (
        lambda rows: cq.evaluate(policy, rows, cost=0.4),
        lambda rows: cq.compare(policy, cq.Logged(), rows, cost=0.4),
    ):
        found, there = ask(scan), ask(some)
        assert_same(found.to_dict(), there.to_dict())
        assert found.utility.unsupported > 0.0


@pytest.mark.parametrize(
    ("notion", "log"), list(zip(NOTIONS, [3, 2, 3, 2], strict=True)), indirect=["log"]
)
def test_comparisons_are_those_in_memory(log, scan, notion):
    policy = cq.Policy([0.2, 0.7, -0.4])
    options = {"cost": 0.4, "fairness": notion}
    assert_same(
        cq.compare(policy, cq.Logged(), scan, **options).to_dict(),
        cq.compare(policy, cq.Logged(), log, **options).to_dict(),
    )


@pytest.mark.parametrize("n", [1000, 999])
def test_overlap_is_that_in_memory(log, tmp_path, n):
    part = log.take(slice(0, n))
    found = cq.overlap(cq.DecisionLog.scan(written(part, tmp_path), **NAMES)).to_dict()
    assert_same(found, cq.overlap(part).to_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "any_time"}, "needs all rows at once"),
        ({"folds": 5}, "folds= needs a log in memory"),
        ({"weighting": cq.weightings.SelfNormalised()}, "a matter of the whole log"),
        ({"weighting": cq.weightings.DoublyRobust()}, "a matter of the whole log"),
    ],
)
def test_what_sums_cannot_tell(scan, options, message):
    rule = cq.FairPolicyLearner(method="direct") if "folds" in options else cq.AcceptAll()
    with pytest.raises(ValueError, match=message):
        cq.evaluate(rule, scan, cost=0.4, **options)


def test_what_needs_a_log_in_memory_says_how_to_get_one(scan):
    with pytest.raises(TypeError, match=r"scan\.sample"):
        cq.group_metrics(cq.AcceptAll(), scan)
