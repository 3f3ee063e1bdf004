"""Predictors cut at the cost: each does what its textbook says."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.tradeoff.baseline import Predictor, Reduction, augmentation, inverse_propensity

PREDICTORS = {
    "accepted only": Predictor,
    "inverse propensity": partial(Predictor, weigh=inverse_propensity),
    "augmentation": partial(Predictor, weigh=augmentation),
}
each_predictor = pytest.mark.parametrize("make", PREDICTORS.values(), ids=PREDICTORS)


@cache
def first():
    return cq.worlds.first_setting()


@cache
def second():
    return cq.worlds.second_setting()


def logged(world, n=20_000, floor=0.05, seed=0):
    rule = world.initial_policy().with_floor(floor)
    return world.collect(rule, n, np.random.default_rng(seed))


def learned(make, log, cost, **options):
    return make(cost, **options).fit_log(log).policy_


def theta(name, log, cost):
    """The intercept and the coefficients of features as they are, not scaled."""
    rule = learned(PREDICTORS[name], log, cost)
    scaler, model = (step for _, step in rule.predictor.steps)
    slopes = model.coef_[0] / scaler.scale_
    return np.concatenate([model.intercept_ - slopes @ scaler.mean_, slopes])


def everybody_theta(world, n=200_000):
    """The regression that somebody who knew all labels would fit."""
    people = world.people(n, np.random.default_rng(99))
    model = LogisticRegression(C=1e4).fit(people.features, people.label)
    return np.concatenate([model.intercept_, model.coef_[0]])


@each_predictor
def test_money_beside_indicators_is_fitted_without_a_warning(make):
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
    accepted = learned(make, log, 0.5).propensity(log.features)
    assert accepted[chance > 0.75].mean() > 0.9
    assert accepted[chance < 0.25].mean() < 0.1


def test_accepted_only_is_the_regression_on_accepted_people():
    log = logged(first())
    model = LogisticRegression(C=1e4, tol=1e-10).fit(
        log.features[log.decision], log.label[log.decision]
    )
    expected = np.concatenate([model.intercept_, model.coef_[0]])
    assert theta("accepted only", log, first().cost) == pytest.approx(expected, rel=1e-3)


def test_weights_lead_towards_the_regression_on_everybody_where_accepted_people_mislead():
    log, everybody = logged(second(), n=200_000), everybody_theta(second())
    far, near, truth = (
        np.abs(theta(name, log, second().cost) - everybody).max()
        for name in ("accepted only", "augmentation", "inverse propensity")
    )
    assert truth < 0.02
    assert far > 0.05
    assert near < 0.5 * far


def test_augmentation_weighs_bands_by_applicants_per_accepted():
    # acceptance depends on two cells of one feature, so bands find the propensities themselves
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=20_000).astype(float)
    decision = rng.random(len(x)) < np.where(x == 1, 0.8, 0.1)
    label = np.where(decision, rng.random(len(x)) < 0.3 + 0.4 * x, np.nan)
    share = np.array([decision[x == k].mean() for k in (0, 1)])
    log = cq.DecisionLog.from_arrays(x, decision, share[x.astype(int)], label)
    expected = theta("inverse propensity", log, 0.5)
    assert theta("augmentation", log, 0.5) == pytest.approx(expected, rel=1e-6)


@each_predictor
def test_rules_share_a_feature_map_and_can_be_stored(make, tmp_path):
    log = logged(second(), n=4000)
    rule = learned(make, log, second().cost, feature_map=SplineTransformer(n_knots=6))
    cq.save_policy(rule, tmp_path / "rule.json")
    back = cq.load_policy(tmp_path / "rule.json")
    assert np.array_equal(back.propensity(log.features), rule.propensity(log.features))


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_log_where_everybody_was_accepted_is_fitted_alike(name):
    log = first().collect(cq.AcceptAll(), 4000, np.random.default_rng(0))
    expected = theta("accepted only", log, first().cost)
    assert theta(name, log, first().cost) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("make", [Predictor, Reduction])
def test_a_log_without_labels_of_both_kinds_is_refused(make):
    nobody = first().collect(cq.RejectAll(), 50, np.random.default_rng(0))
    with pytest.raises(cq.DecisionLogError, match="have no label: nobody was accepted"):
        learned(make, nobody, 0.5)
    alike = cq.DecisionLog.from_arrays([0.0, 1.0, 2.0], [1, 1, 0], [0.5] * 3, [1, 1, None])
    with pytest.raises(cq.DecisionLogError, match="accepted people have the same label"):
        learned(make, alike, 0.5)


@pytest.mark.parametrize("name", PREDICTORS)
def test_missing_labels_are_left_out_or_held_against_a_rule_as_the_log_says(name):
    log = logged(first(), n=4000)
    label = log.label.copy()
    gone = np.flatnonzero(log.decision)[:200]
    label[gone] = np.nan

    def fitted(label, **options):
        made = cq.DecisionLog.from_arrays(
            log.features, log.decision, log.propensity, label, log.sensitive, **options
        )
        return theta(name, made, first().cost)

    failures = label.copy()
    failures[gone] = 0.0
    assert fitted(label, missing="against") == pytest.approx(fitted(failures))
    # the first rows are like any others
    assert fitted(label, missing="at_random") == pytest.approx(fitted(log.label), abs=0.3)


# --- fairlearn's


def test_the_reduction_bounds_the_gap_where_it_sees_everybody():
    log = first().collect(cq.AcceptAll(), 6000, np.random.default_rng(0))
    found = first().exact(learned(Reduction, log, first().cost, max_gap=0.05))
    # the gap among 6000 accepted people has a standard error of .013
    assert abs(found.benefit_gap) <= 0.05 + 0.04
    loose = first().exact(learned(Reduction, log, first().cost, max_gap=0.9))
    assert loose.utility == pytest.approx(first().optimal().utility, abs=0.004)


@pytest.mark.parametrize("notion", ["equal_opportunity", "equalised_odds"])
def test_the_reduction_knows_other_notions(notion):
    log = first().collect(cq.AcceptAll(), 4000, np.random.default_rng(0))
    rule = learned(Reduction, log, first().cost, fairness=notion)
    free = learned(Predictor, log, first().cost)
    gap, widest = (first().exact(each, fairness=notion).benefit_gap for each in (rule, free))
    assert abs(gap) <= abs(widest) + 0.01


def test_the_reduction_says_what_it_cannot():
    log = first().collect(cq.AcceptAll(), 500, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"knows demographic_parity, .* not predictive"):
        learned(Reduction, log, 0.5, fairness="predictive_parity")
    values = cq.DecisionLog.from_arrays(
        log.features, log.decision, log.propensity, value=log.label / 2, sensitive=log.sensitive
    )
    with pytest.raises(cq.DecisionLogError, match="need labels of 0 and 1, not values"):
        learned(Reduction, values, 0.5)
