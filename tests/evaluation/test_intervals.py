"""Intervals: each kind against its formula, its theory or plain simulation."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import consequential as cq
from consequential.evaluation.any_time import lower_bounds
from consequential.evaluation.contrasts import normal_quantile, skewness_corrected
from consequential.evaluation.ratios import Ratios
from consequential.evaluation.statistics import sup_t_quantile
from covering import covering
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])
METHODS = ["normal", "any_time"]


# Quantiles


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_the_normal_quantile_leaves_half_of_the_rest_on_either_side(confidence):
    assert normal_quantile(confidence) == pytest.approx(stats.norm.ppf((1 + confidence) / 2))


def test_without_skewness_there_is_nothing_to_correct():
    assert_allclose(skewness_corrected(0.0, 100, 0.95), [1.96, 1.96], atol=1e-3)
    alike = Ratios.mean(np.ones(9))
    assert alike.skewness == 0.0


def test_the_skewness_correction_inverts_halls_cubic():
    values = np.random.default_rng(0).exponential(size=60)
    below, above = skewness_corrected(float(stats.skew(values)), len(values), 0.9)
    g, n = stats.skew(values), len(values)
    z = stats.norm.ppf(0.95)

    def cubic(t):
        return t + g * t**2 / (3 * sqrt(n)) + g**2 * t**3 / (27 * n) + g / (6 * sqrt(n))

    assert cubic(below) == pytest.approx(z, abs=1e-9)
    assert cubic(-above) == pytest.approx(-z, abs=1e-9)


def test_the_skewness_correction_covers_better_where_means_are_skewed():
    """Means of 40 exponentials, 8000 times: both tails nearer to their 2.5 percent."""
    rng = np.random.default_rng(1)
    missed = np.zeros((2, 2))
    values = rng.exponential(size=(8000, 40))
    errors = (values.mean(axis=1) - 1.0) / (values.std(axis=1, ddof=1) / sqrt(40))
    for error, skewness in zip(errors, stats.skew(values, axis=1), strict=True):
        hall = skewness_corrected(float(skewness), 40, 0.95)
        for k, (below, above) in enumerate(((1.96, 1.96), hall)):
            missed[k] += [error > below, -error > above]
    plain, corrected = missed / 8000
    assert corrected.sum() < plain.sum() - 0.004
    assert (np.abs(corrected - 0.025) < np.abs(plain - 0.025)).all()


@pytest.mark.parametrize("k", [2, 5, 10])
def test_the_simultaneous_quantile_of_independent_estimates_is_known(k):
    exact = stats.norm.ppf((1 + 0.95 ** (1 / k)) / 2)
    assert sup_t_quantile(np.diag(np.arange(1.0, k + 1))) == pytest.approx(exact, abs=0.03)


def test_the_simultaneous_quantile_of_all_pairs_is_that_of_the_studentised_range():
    """Five equally uncertain groups: the range of five normals over its deviation, by Tukey."""
    contrast = np.array([np.eye(5)[i] - np.eye(5)[j] for i in range(5) for j in range(i)])
    exact = stats.studentized_range.ppf(0.95, 5, np.inf) / sqrt(2)
    assert sup_t_quantile(contrast @ contrast.T) == pytest.approx(exact, abs=0.03)
    assert sup_t_quantile(np.eye(len(contrast.T)), contrasts=contrast) == pytest.approx(
        exact, abs=0.03
    )


def test_perfectly_correlated_or_certain_estimates_ask_for_no_more_than_one():
    assert sup_t_quantile(np.ones((4, 4))) == pytest.approx(1.96, abs=0.03)
    assert sup_t_quantile(np.diag([2.0, 0.0, 0.0])) == normal_quantile(0.95)
    assert sup_t_quantile(np.zeros((0, 0))) == normal_quantile(0.95)


def test_the_simultaneous_quantile_depends_on_its_seed_alone():
    assert sup_t_quantile(np.eye(3), seed=4) == sup_t_quantile(np.eye(3), seed=4)
    assert sup_t_quantile(np.eye(3), seed=4) != sup_t_quantile(np.eye(3), seed=5)


# Intervals by formula


def test_a_normal_interval_is_the_mean_of_rows_and_its_error():
    log = exploring_log(300, 2)
    pi = log.propensity_of(POLICY)
    gained = np.where(log.decision, pi / log.propensity * (log.outcome - 0.4), 0.0)
    found = cq.evaluate(POLICY, log, cost=0.4, confidence=0.9).utility
    assert found.value == pytest.approx(gained.mean())
    assert found.standard_error == pytest.approx(gained.std(ddof=1) / sqrt(300))
    half = stats.norm.ppf(0.95) * found.standard_error
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))


def test_an_acceptance_rate_by_group_has_the_error_of_a_mean_of_its_rows():
    log = exploring_log(300, 2)
    pi = log.propensity_of(POLICY)
    found = cq.evaluate(POLICY, log, cost=0.4)
    for code, group in enumerate(log.groups):
        here = pi[log.group == code]
        assert found.benefits[group].value == pytest.approx(here.mean())
        assert found.benefits[group].standard_error == pytest.approx(
            here.std(ddof=1) / sqrt(len(here))
        )
    errors = [each.standard_error for each in found.benefits.values()]
    assert found.benefit_gap.standard_error == pytest.approx(np.hypot(*errors))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("least", [-1.6, 1.6], ids=["nearly everybody", "nearly nobody"])
def test_the_interval_of_a_rate_stays_between_0_and_1(method, least):
    log_ = exploring_log(40, 2)
    rule = cq.ThresholdPolicy(cq.logistic_model([-least, 1.0, 0.0]), 0.5)
    found = cq.evaluate(rule, log_, cost=0.4, method=method)
    metrics = cq.group_metrics(rule, log_)
    rates = [found.acceptance, *found.benefits.values(), *metrics.overall.values()]
    for by_group in metrics.by_group.values():
        rates += by_group.values()
    assert all(0.0 <= each.low <= each.value <= each.high <= 1.0 for each in rates)


@pytest.mark.parametrize("notion", ["equal_opportunity", "predictive_parity"])
def test_a_bounded_interval_of_a_ratio_ends_where_its_excess_turns_certain(notion):
    """At its ends the mean of `num - b den` is just known not to be zero."""
    log_ = exploring_log(6000, 2, seed=4)
    pi, floor = log_.propensity_of(POLICY), 0.1
    found = cq.evaluate(
        POLICY, log_, cost=0.4, fairness=notion, method="any_time", floor=floor
    ).benefits[0]
    here = log_.group == 0
    w = np.where(log_.decision, 1 / log_.propensity, 0.0)[here]
    y, a = log_.outcome[here], pi[here]

    def excess(end):
        return w * y * (a - end) if notion == "equal_opportunity" else w * a * (y - end)

    low, high = found.low, found.high
    above = lower_bounds(excess(low), -low / floor, 1 - low, 0.95)[-1]
    below = lower_bounds(-excess(high), -(1 - high) / floor, high, 0.95)[-1]
    assert (above, below) == pytest.approx((0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize(
    ("notion", "method", "n_groups"),
    covering(
        ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"],
        METHODS,
        [2, 3],
    ),
)
def test_every_interval_surrounds_its_value(notion, method, n_groups):
    log_ = exploring_log(600, n_groups, seed=2)
    found = cq.evaluate(POLICY, log_, cost=0.4, fairness=notion, method=method)
    for each in (found.utility, found.acceptance, found.benefit_gap, *found.benefits.values()):
        assert each.low <= each.value <= each.high
        assert each.high - each.low > 0.01
        assert each.standard_error > 0
        assert each.method == method
    if n_groups == 3 or notion == "equalised_odds":
        assert found.benefit_gap.low >= 0.0


def test_looking_at_any_time_costs_width():
    world = cq.worlds.first_setting()
    start = world.initial_policy().with_floor(0.05)
    log_ = world.collect(start, 5000, np.random.default_rng(4))
    width = {
        method: (lambda e: e.high - e.low)(
            cq.evaluate(cq.Policy([1.5, 5.0]), log_, cost=world.cost, method=method).utility
        )
        for method in METHODS
    }
    assert width["normal"] < width["any_time"] < 4 * width["normal"]


def test_the_largest_gap_of_many_groups_is_bounded_pair_by_pair():
    """The formula, written out over pairs."""
    log_ = exploring_log(900, 4, seed=11)
    found = cq.evaluate(POLICY, log_, cost=0.4, fairness="demographic_parity")
    pairs = [(i, j) for i in range(4) for j in range(i)]
    values = np.array([found.benefits[z].value for z in range(4)])
    errors = np.array([found.benefits[z].standard_error for z in range(4)])
    apart = np.array([abs(values[i] - values[j]) for i, j in pairs])
    error = np.array([np.hypot(errors[i], errors[j]) for i, j in pairs])
    contrast = np.array([np.eye(4)[i] - np.eye(4)[j] for i, j in pairs])
    q = sup_t_quantile(contrast @ np.diag(errors**2) @ contrast.T)
    gap = found.benefit_gap
    assert gap.value == pytest.approx(apart.max())
    assert gap.low == pytest.approx(max(0.0, (apart - q * error).max()), abs=0.01)
    assert gap.high == pytest.approx((apart + q * error).max(), abs=0.01)
