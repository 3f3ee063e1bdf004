"""Predictors cut at the cost: each does what its textbook says."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.baseline import (
    accepted_only,
    augmentation,
    fuzzy_augmentation,
    inverse_propensity,
    parcelling,
    reduction,
)

PREDICTORS = [accepted_only, inverse_propensity, augmentation, parcelling, fuzzy_augmentation]


@cache
def first():
    return cq.worlds.first_setting()


@cache
def second():
    return cq.worlds.second_setting()


def logged(world, n=20_000, floor=0.05, seed=0):
    rule = world.initial_policy().with_floor(floor)
    return world.collect(rule, n, np.random.default_rng(seed))


def theta(rule):
    """The intercept and the coefficients of features as they are, not scaled."""
    scaler, model = (step for _, step in rule.predictor.steps)
    slopes = model.coef_[0] / scaler.scale_
    return np.concatenate([model.intercept_ - slopes @ scaler.mean_, slopes])


def everybody_theta(world, n=200_000):
    """The regression that somebody who knew all labels would fit."""
    people = world.people(n, np.random.default_rng(99))
    model = LogisticRegression(C=1e4).fit(people.features, people.label)
    return np.concatenate([model.intercept_, model.coef_[0]])


@pytest.mark.parametrize("fit", PREDICTORS)
def test_money_beside_indicators_is_fitted_without_a_warning(fit):
    """Unscaled, the Hessian of such columns is singular; pytest takes warnings for errors."""
    rng = np.random.default_rng(3)
    job, income = rng.integers(4, size=2_000), np.exp(rng.normal(10.0, 0.6, 2_000))
    chance = 1.0 / (1.0 + np.exp(10.0 - np.log(income) - 0.5 * (job == 1)))
    propensity = 0.2 + 0.6 * chance
    decision, label = rng.random(2_000) < propensity, rng.random(2_000) < chance
    log = cq.DecisionLog.from_arrays(
        np.column_stack([np.eye(4)[job], income]),
        decision,
        propensity,
        np.where(decision, label, np.nan),
    )
    rule = fit(log, 0.5)
    accepted = rule.propensity(log.features)
    assert accepted[chance > 0.75].mean() > 0.9
    assert accepted[chance < 0.25].mean() < 0.1


def test_accepted_only_is_the_regression_on_accepted_people():
    log = logged(first())
    model = LogisticRegression(C=1e4, tol=1e-10).fit(
        log.features[log.decision], log.label[log.decision]
    )
    expected = np.concatenate([model.intercept_, model.coef_[0]])
    assert theta(accepted_only(log, first().cost)) == pytest.approx(expected, rel=1e-3)


def test_inverse_propensity_finds_the_regression_on_everybody():
    log = logged(second(), n=200_000)
    everybody = everybody_theta(second())
    assert theta(inverse_propensity(log, second().cost)) == pytest.approx(everybody, abs=0.02)
    # which the accepted alone do not
    assert np.abs(theta(accepted_only(log, second().cost)) - everybody).max() > 0.05


def test_augmentation_weighs_bands_by_applicants_per_accepted():
    # acceptance depends on two cells of one feature, so bands find the propensities themselves
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=20_000).astype(float)
    p = np.where(x == 1, 0.8, 0.1)
    decision = rng.random(len(x)) < p
    label = np.where(decision, rng.random(len(x)) < 0.3 + 0.4 * x, np.nan)
    share = np.array([decision[x == k].mean() for k in (0, 1)])
    log = cq.DecisionLog.from_arrays(x, decision, share[x.astype(int)], label)
    one, other = augmentation(log, 0.5), inverse_propensity(log, 0.5)
    assert theta(one) == pytest.approx(theta(other), rel=1e-6)


def test_augmentation_moves_towards_everybody_where_accepted_people_mislead():
    log = logged(second(), n=100_000)
    everybody = everybody_theta(second())
    far = np.abs(theta(accepted_only(log, second().cost)) - everybody).max()
    assert np.abs(theta(augmentation(log, second().cost)) - everybody).max() < 0.5 * far


def test_fuzzy_augmentation_of_a_regression_changes_nothing():
    log = logged(first())
    again = theta(fuzzy_augmentation(log, first().cost))
    assert again == pytest.approx(theta(accepted_only(log, first().cost)), rel=1e-3)


def test_prudent_parcelling_accepts_fewer():
    log = logged(first())
    rates = [
        first().exact(parcelling(log, first().cost, prudence=prudence)).acceptance
        for prudence in (0.9, 1.0, 1.1)
    ]
    assert rates[0] > rates[1] > rates[2]


def test_parcelling_is_drawn_from_its_seed():
    log = logged(first(), n=3000)
    one, again, other = (theta(parcelling(log, first().cost, seed=seed)) for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_parcelling_asks_the_model_where_nobody_was_accepted():
    rule = cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), 0.5)
    log = first().collect(rule, 20_000, np.random.default_rng(0))
    assert 0.0 < first().exact(parcelling(log, first().cost)).acceptance < 1.0


@pytest.mark.parametrize("fit", PREDICTORS, ids=lambda fit: fit.__name__)
def test_rules_share_a_feature_map_and_can_be_stored(fit, tmp_path):
    log = logged(second(), n=4000)
    rule = fit(log, second().cost, feature_map=SplineTransformer(n_knots=6))
    cq.save_policy(rule, tmp_path / "rule.json")
    back = cq.load_policy(tmp_path / "rule.json")
    assert np.array_equal(back.propensity(log.features), rule.propensity(log.features))


@pytest.mark.parametrize("fit", PREDICTORS, ids=lambda fit: fit.__name__)
def test_a_log_where_everybody_was_accepted_is_fitted_alike(fit):
    log = first().collect(cq.AcceptAll(), 4000, np.random.default_rng(0))
    expected = theta(accepted_only(log, first().cost))
    assert theta(fit(log, first().cost)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("fit", PREDICTORS, ids=lambda fit: fit.__name__)
def test_a_log_without_labels_of_both_kinds_is_refused(fit):
    nobody = first().collect(cq.RejectAll(), 50, np.random.default_rng(0))
    with pytest.raises(cq.DecisionLogError, match="nobody was accepted: there is no label to fit"):
        fit(nobody, 0.5)
    alike = cq.DecisionLog.from_arrays([0.0, 1.0, 2.0], [1, 1, 0], [0.5] * 3, [1, 1, None])
    with pytest.raises(cq.DecisionLogError, match="all accepted people have the same label"):
        fit(alike, 0.5)


@pytest.mark.parametrize("prudence", [0.0, -1.0, np.nan, np.inf])
def test_prudence_is_a_factor(prudence):
    with pytest.raises(ValueError, match="prudence multiplies the rate of label 0; it cannot be"):
        parcelling(logged(first(), n=500), 0.5, prudence=prudence)


# --- fairlearn's


def test_the_reduction_bounds_the_gap_where_it_sees_everybody():
    log = first().collect(cq.AcceptAll(), 6000, np.random.default_rng(0))
    found = first().exact(reduction(log, first().cost, max_gap=0.05))
    # the gap among 6000 accepted people has a standard error of .013
    assert abs(found.benefit_gap) <= 0.05 + 0.04
    loose = first().exact(reduction(log, first().cost, max_gap=0.9))
    assert loose.utility == pytest.approx(first().optimal().utility, abs=0.004)


@pytest.mark.parametrize("notion", ["equal_opportunity", "equalised_odds"])
def test_the_reduction_knows_other_notions(notion):
    log = first().collect(cq.AcceptAll(), 4000, np.random.default_rng(0))
    rule = reduction(log, first().cost, fairness=notion, max_gap=0.01)
    gap = first().exact(rule, fairness=notion).benefit_gap
    free = accepted_only(log, first().cost)
    assert abs(gap) <= abs(first().exact(free, fairness=notion).benefit_gap) + 0.01


def test_the_reduction_says_what_it_cannot():
    log = first().collect(cq.AcceptAll(), 500, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"know demographic_parity, .* not predictive"):
        reduction(log, 0.5, fairness="predictive_parity")
    alone = cq.DecisionLog.from_arrays(log.features, log.decision, log.propensity, log.label)
    with pytest.raises(cq.DecisionLogError, match="accepted people are of one group"):
        reduction(alone, 0.5)


def test_without_fairlearn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairlearn.reductions", None)
    with pytest.raises(ImportError, match=r"install consequential\[fairness\]"):
        reduction(logged(first(), n=500), 0.5)


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_missing_labels_are_left_out_or_held_against_a_rule_as_the_log_says(predictor):
    log = logged(first(), n=4000)
    label = log.label.copy()
    gone = np.flatnonzero(log.decision)[:200]
    label[gone] = np.nan

    def fitted(label, **options):
        made = cq.DecisionLog.from_arrays(
            log.features, log.decision, log.propensity, label, log.sensitive, **options
        )
        return theta(predictor(made, first().cost))

    failures = label.copy()
    failures[gone] = 0.0
    assert fitted(label, missing="against") == pytest.approx(fitted(failures))
    # the first rows are like any others
    assert fitted(label, missing="at_random") == pytest.approx(fitted(log.label), abs=0.3)
