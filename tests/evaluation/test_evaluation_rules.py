"""What evaluation refuses, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import consequential as cq
from consequential.evaluation.statistics import mean_sequence, sup_t_quantile
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])
NAN = float("nan")


@pytest.fixture
def log():
    return exploring_log(60)


class Learner:
    def fit_log(self, log):
        self.policy_ = POLICY
        return self


class WrongShape(cq.DecisionRule):
    def propensity(self, features, sensitive=None):
        return np.ones(3)


class TooSure(cq.DecisionRule):
    def propensity(self, features, sensitive=None):
        return np.full(len(features), 1.5)


@dataclass(frozen=True)
class Forgetful:
    """Has fit_log, but leaves no policy."""

    def fit_log(self, log):
        return self


def same(log):
    return log


# a rule, what becomes of the log, options, and the error
ANYWHERE = {
    "a frame": (
        POLICY,
        lambda _: {"x": [1.0]},
        {},
        TypeError,
        "evaluated on a DecisionLog, not on dict",
    ),
    "no rows": (POLICY, lambda log: log.take(slice(0, 0)), {}, ValueError, "no rows to evaluate"),
    "a classifier": (
        LogisticRegression(),
        same,
        {},
        TypeError,
        r"LogisticRegression predicts and does not decide: ThresholdPolicy\(model",
    ),
    "a class": (
        cq.AcceptAll,
        same,
        {},
        TypeError,
        r"AcceptAll is a class: make one, AcceptAll\(",
    ),
    "a number": (0.5, same, {}, TypeError, "a rule is a policy.*not float"),
    "unfitted": (Learner(), same, {}, TypeError, r"Learner is not fitted.*fit_log.*folds=5"),
    "too few propensities": (WrongShape(), same, {}, ValueError, r"shape \(60,\), not \(3,\)"),
    "no probabilities": (TooSure(), same, {}, ValueError, r"probabilities in \[0, 1\]"),
    "two features": (cq.Policy([0.0, 1.0]), same, {}, cq.PolicyError, "theta has 2 parameters"),
    "folds of a rule": (POLICY, same, {"folds": 5}, ValueError, "a fixed rule was given"),
    "one fold": (Learner(), same, {"folds": 1}, ValueError, "whole number of at least 2, not 1"),
    "true folds": (Learner(), same, {"folds": True}, ValueError, "at least 2, not True"),
    "many folds": (
        Learner(),
        same,
        {"folds": 61},
        ValueError,
        "60 settled decisions cannot be cut",
    ),
    "no policy": (Forgetful(), same, {"folds": 2}, TypeError, "Forgetful is not fitted"),
    "certain": (
        POLICY,
        same,
        {"confidence": 1.0},
        ValueError,
        "strictly between 0 and 1, not 1.0",
    ),
    "pending": (
        POLICY,
        lambda _: cq.DecisionLog.from_arrays(np.zeros((2, 2)), [1, 1], [0.5] * 2, [1, None]),
        {},
        cq.DecisionLogError,
        "1 accepted row has no label",
    ),
}
FUNCTIONS = {
    "evaluate": lambda rule, log, **options: cq.evaluate(rule, log, cost=0.4, **options),
    "compare": lambda rule, log, **options: cq.compare(
        rule, cq.AcceptAll(), log, cost=0.4, **options
    ),
    "compare with": lambda rule, log, **options: cq.compare(
        cq.AcceptAll(), rule, log, cost=0.4, **options
    ),
    "group_metrics": cq.group_metrics,
    "sensitivity": lambda rule, log, **options: cq.sensitivity(rule, log, cost=0.4, **options),
}


@pytest.mark.parametrize("wrong", list(ANYWHERE))
def test_what_cannot_be_evaluated_is_refused_everywhere_with_advice(wrong, log):
    rule, given, options, error, message = ANYWHERE[wrong]
    for function in FUNCTIONS.values():
        with pytest.raises(error, match=message):
            function(rule, given(log), **options)


QUESTIONS = {
    "no cost": ({"cost": None}, "give cost=: what accepting costs"),
    "a free cost": ({"cost": 0.0}, "cost lies strictly between 0 and 1"),
    "an unknown notion": (
        {"fairness": "parity"},
        "unknown fairness notion 'parity'; choose one of",
    ),
}


@pytest.mark.parametrize("question", list(QUESTIONS))
@pytest.mark.parametrize("function", [cq.evaluate, cq.sensitivity], ids=["evaluate", "sensitivity"])
def test_a_question_that_makes_no_sense_is_refused(function, question, log):
    options, message = QUESTIONS[question]
    with pytest.raises(ValueError, match=message):
        function(POLICY, log, **({"cost": 0.4} | options))


METHODS = {
    "unknown": (
        {"method": "exact"},
        "unknown method 'exact'; choose one of normal, any_time",
    ),
    "not a name": ({"method": None}, "unknown method None"),
    "a weighting by name": ({"weighting": "clipped"}, "weighting is a Weighting such as"),
    "a floor for nothing": ({"floor": 0.1}, 'floor= is for method="any_time"'),
    "a floor of 0": ({"method": "any_time", "floor": 0.0}, "floor is a propensity above 0"),
    "a floor too high": (
        {"method": "any_time", "floor": 0.5},
        r"the floor is 0.5 but the log has a propensity of 0\.1",
    ),
    "endless weights": (
        {"method": "any_time", "weighting": cq.weightings.SelfNormalised()},
        "largest weight of SelfNormalised.. is not known",
    ),
}


@pytest.mark.parametrize("wrong", list(METHODS))
def test_a_method_that_cannot_work_is_refused(wrong, log):
    options, message = METHODS[wrong]
    for call in (
        lambda: cq.evaluate(POLICY, log, cost=0.4, **options),
        lambda: cq.compare(POLICY, cq.Logged(), log, cost=0.4, **options),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_bounded_intervals_of_a_benefit_of_unknown_shape_are_refused(log):
    class Shared(cq.fairness.Fairness):
        name = "shared"

        def benefits(self, tally):
            return (tally.share(tally.people),)

    assert cq.evaluate(POLICY, log, cost=0.4, fairness=Shared()).benefit_gap.known
    with pytest.raises(ValueError, match="how a benefit weighs people"):
        cq.evaluate(POLICY, log, cost=0.4, fairness=Shared(), method="any_time")


@pytest.mark.parametrize("gammas", [[], [0.5], [NAN], [[1.0, 2.0]], 0.0])
def test_factors_below_one_are_refused(gammas, log):
    with pytest.raises(ValueError, match="factors of at least 1"):
        cq.sensitivity(POLICY, log, cost=0.4, gammas=gammas)


def test_a_weighting_by_name_is_refused_by_group_metrics(log):
    with pytest.raises(ValueError, match="weighting is a Weighting such as"):
        cq.group_metrics(POLICY, log, weighting="clipped")


def test_cross_fitting_needs_a_learner(log):
    with pytest.raises(TypeError, match="needs a learner with fit_log"):
        cq.statistics.cross_fitted_propensities(POLICY, log)
    with pytest.raises(TypeError, match="Learner has none"):
        cq.statistics.cross_fitted_propensities(Learner, log)


def test_a_fold_that_cannot_be_fitted_is_named(log):
    class Fussy:
        def fit_log(self, log):
            raise cq.DecisionLogError("nobody was accepted")

    with pytest.raises(cq.DecisionLogError, match="fold 1 of 3 cannot be fitted: nobody was"):
        cq.statistics.cross_fitted_propensities(Fussy(), log, folds=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 0.0, "high": 0.5}, "a value lies outside"),
        ({"low": 1.0, "high": 0.0}, "bounds must be in order"),
        ({"low": 0.0, "high": 1.0, "mean_low": 0.6, "mean_high": 0.4}, "bounds must be in order"),
        ({"low": 0.0, "high": 1.0, "tuned_for": 0}, "tuned_for counts rows"),
        ({"low": 0.0, "high": 1.0, "confidence": 0.0}, "confidence lies strictly"),
    ],
)
def test_a_sequence_of_impossible_bounds_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mean_sequence(np.array([0.2, 0.9]), **options)


def test_a_sequence_of_no_numbers_is_refused():
    with pytest.raises(ValueError, match="finite, one per row"):
        mean_sequence(np.array([0.2, NAN]), low=0.0, high=1.0)
    with pytest.raises(ValueError, match=r"one per row, not of shape \(1, 2\)"):
        mean_sequence(np.zeros((1, 2)), low=0.0, high=1.0)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [(np.zeros((2, 3)), "square matrix"), (np.full((2, 2), np.inf), "must be finite")],
)
def test_a_covariance_that_is_none_is_refused(covariance, message):
    with pytest.raises(ValueError, match=message):
        sup_t_quantile(covariance)


def test_the_clip_is_a_clip():
    with pytest.raises(ValueError, match="clipped at 1 or above"):
        cq.weightings.Clipped(0.5)
