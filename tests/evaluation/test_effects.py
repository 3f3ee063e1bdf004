"""Effects: how much each feature by itself moves a rule's propensities."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

import consequential as cq
from consequential.evaluation.effects import feature_effects


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(size=300), rng.integers(2, size=300), np.ones(300)])
    names = ("income", "student", "constant")
    ones = np.ones(300)
    return cq.DecisionLog.from_arrays(features, ones, ones, ones, feature_names=names)


def test_an_effect_is_the_mean_propensity_with_everybody_at_a_value(log):
    theta = np.array([0.3, 1.0, -0.2, 0.0])
    income, student = feature_effects(cq.Policy(theta), log)
    assert (income.feature, student.feature) == ("income", "student")
    assert (student.low, student.high) == (0.0, 1.0)
    rest = theta[0] + theta[1] * log.features[:, 0]
    assert student.at_low == pytest.approx(expit(rest).mean())
    assert student.difference == pytest.approx((expit(rest - 0.2) - expit(rest)).mean())
    low, high = np.quantile(log.features[:, 0], [0.1, 0.9])
    assert (income.low, income.high) == pytest.approx((low, high))
    others = theta[0] + theta[2] * log.features[:, 1]
    expected = (expit(others + high) - expit(others + low)).mean()
    assert income.difference == pytest.approx(expected)


def test_what_moves_nothing_is_left_out_and_no_more_than_asked_are_returned(log):
    assert feature_effects(cq.AcceptAll(), log) == []
    assert len(feature_effects(cq.Policy([0.3, 1.0, -0.2, 0.0]), log, most=1)) == 1


def test_a_long_log_is_asked_about_in_part(log):
    many = cq.DecisionLog.concatenate([log] * 20)
    policy = cq.Policy([0.3, 1.0, -0.2, 0.0])
    few, more = feature_effects(policy, log)[0], feature_effects(policy, many)[0]
    assert more.difference == pytest.approx(few.difference, abs=0.05)


def test_a_raw_column_is_moved_as_a_whole():
    """Nobody has two jobs, and nobody whose income is missing has one."""
    table = {"job": ["clerk", "none", "cook"] * 40, "income": [1.0, None, 3.0, 5.0] * 30}
    ones = dict.fromkeys(("decision", "propensity", "label"), [1.0] * 120)
    log = cq.DecisionLog.from_frame(
        pa.table(table | ones), features=["job", "income"], **{name: name for name in ones}
    )
    assert log.feature_names == ("job=clerk", "job=cook", "job=none", "income", "income missing")
    policy = cq.Policy([0.0, 1.0, 2.0, -1.0, 0.5, 4.0], feature_names=log.feature_names)
    job, income = sorted(feature_effects(policy, log), key=lambda each: each.feature == "income")
    assert (job.feature, job.low, job.high) == ("job", "none", "cook")
    rest = log.features[:, 3:] @ [0.5, 4.0]
    assert job.at_low == pytest.approx(expit(rest - 1.0).mean())
    assert job.at_high == pytest.approx(expit(rest + 2.0).mean())
    assert (income.feature, income.low, income.high) == ("income", 1.0, 5.0)
    jobs = log.features[:, :3] @ [1.0, 2.0, -1.0]
    assert income.at_low == pytest.approx(expit(jobs + 0.5).mean())  # not missing
