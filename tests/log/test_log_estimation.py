"""Probabilities estimated after the fact: close to the truth, or refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import consequential as cq

N = 4000
LOGISTIC = LogisticRegression(C=1e4)


def people(seed=0, n=N):
    return np.random.default_rng(seed).normal(size=(n, 3))


def logged(features, chance, estimator, sensitive=None, seed=1):
    rng = np.random.default_rng(seed)
    decision = rng.random(len(features)) < chance
    label = np.where(decision, rng.random(len(features)) < 0.5, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, estimator, label, sensitive)


def sigma(eta):
    return 1 / (1 + np.exp(-eta))


# --- close to the truth


def test_a_logistic_officers_propensities_are_found():
    x = people()
    chance = sigma(x[:, 0] - 0.5 * x[:, 1])
    log = logged(x, chance, cq.EstimatedPropensity(LOGISTIC))
    assert np.abs(log.propensity - chance).mean() < 0.03
    weights = cq.weightings.InversePropensity().weights(log)
    assert weights.mean() == pytest.approx(1.0, abs=0.1)


def test_the_default_classifier_finds_them_too():
    x = people()
    chance = sigma(x[:, 0] - 0.5 * x[:, 1])
    log = logged(x, chance, cq.EstimatedPropensity())
    assert np.abs(log.propensity - chance).mean() < 0.07


def test_an_exploration_floor_is_found():
    x = people()
    chance = 0.05 + 0.95 * (x.sum(axis=1) > 0)
    log = logged(x, chance, cq.EstimatedPropensity(LOGISTIC))
    assert np.abs(log.propensity - chance).mean() < 0.03


def test_utility_from_estimates_is_near_the_truth():
    world = cq.worlds.first_setting()
    lost = world.collect(world.initial_policy(), 20_000, np.random.default_rng(0))
    log = cq.DecisionLog.from_arrays(
        lost.features, lost.decision, cq.EstimatedPropensity(LOGISTIC), lost.label, lost.sensitive
    )
    everybody = cq.Policy([40.0, 0.0])
    value = cq.Objective(world.cost).value(everybody, log)
    # three standard errors of the same estimate from true propensities
    assert value == pytest.approx(world.exact(cq.AcceptAll()).utility, abs=0.03)


def test_a_group_decided_on_by_its_own_rule_is_seen():
    x = people()
    z = np.random.default_rng(3).choice(["a", "b"], size=N)
    chance = np.where(z == "a", 0.7, 0.2)
    log = logged(x, chance, cq.EstimatedPropensity(LOGISTIC), z)
    for name, expected in (("a", 0.7), ("b", 0.2)):
        assert log.propensity[z == name].mean() == pytest.approx(expected, abs=0.03)


def test_estimates_fit_the_decisions_and_stay_above_the_floor():
    x = people()
    log = logged(x, sigma(3 * x[:, 0]), cq.EstimatedPropensity(LOGISTIC, floor=0.02))
    assert log.propensity.min() >= 0.02
    assert log.propensity.max() < 1.0


def test_equal_seeds_give_equal_estimates():
    x = people(n=600)
    first, again = (
        logged(x, sigma(x[:, 0]), cq.EstimatedPropensity(LOGISTIC, seed=3)) for _ in range(2)
    )
    assert first.fingerprint == again.fingerprint


# --- a rule that left nothing to chance


@pytest.mark.parametrize(
    ("classifier", "calibration"),
    [(None, "isotonic"), (LOGISTIC, "isotonic"), (LOGISTIC, "sigmoid")],
    ids=["trees", "logistic", "logistic, sigmoid"],
)
@pytest.mark.parametrize("cut", [0.0, 2.0], ids=["half accepted", "few accepted"])
def test_a_threshold_on_the_features_is_refused(classifier, calibration, cut):
    x = people(n=1500)
    chance = (x.sum(axis=1) > cut).astype(float)
    with pytest.raises(cq.DecisionLogError, match="left next to nothing to chance: of the"):
        logged(x, chance, cq.EstimatedPropensity(classifier, calibration=calibration))


def test_the_refusal_says_what_would_answer():
    x = people(n=1000)
    with pytest.raises(cq.DecisionLogError) as refusal:
        logged(x, (x[:, 0] > 0).astype(float), cq.EstimatedPropensity(LOGISTIC))
    assert "this log cannot say what accepting them would bring" in str(refusal.value)
    assert "with_floor(0.05)" in str(refusal.value)
    assert "consequential.plan" in str(refusal.value)


def test_one_group_that_nobody_explored_is_enough_for_a_refusal():
    x = people()
    z = np.where(np.random.default_rng(3).random(N) < 0.3, "b", "a")
    chance = np.where(z == "a", 0.5, x[:, 0] > 0)
    with pytest.raises(cq.DecisionLogError, match="people of group 'b' it was least likely"):
        logged(x, chance, cq.EstimatedPropensity(), z)


def test_a_group_too_small_to_tell_is_not_refused():
    x = people()
    z = np.where(np.arange(N) < 60, "b", "a")
    chance = np.where(z == "a", 0.5, x[:, 0] > 0)
    assert logged(x, chance, cq.EstimatedPropensity(LOGISTIC), z).estimated_propensity


# --- the log remembers


def test_the_log_says_that_propensities_are_estimates():
    x = people(n=600)
    log = logged(x, sigma(x[:, 0]), cq.EstimatedPropensity(LOGISTIC))
    assert log.estimated_propensity
    assert repr(log).endswith("propensities estimated)")
    parts = log.split(0.5, by="random", rng=np.random.default_rng(0))
    assert all(part.estimated_propensity for part in parts)
    known = logged(x, sigma(x[:, 0]), sigma(x[:, 0]))
    assert not known.estimated_propensity
    assert cq.DecisionLog.concatenate([known, log]).estimated_propensity


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_frames_and_files_take_an_estimator(tmp_path, suffix):
    x = people(n=600)
    made = logged(x, sigma(x[:, 0]), sigma(x[:, 0]))
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(d=made.decision * 1, y=made.label)
    columns = {"features": ["a", "b", "c"], "decision": "d", "label": "y"}
    estimator = cq.EstimatedPropensity(LOGISTIC)
    log = cq.DecisionLog.from_frame(frame, propensity=estimator, **columns)
    path = tmp_path / f"log.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    read = cq.DecisionLog.from_file(path, propensity=estimator, **columns)
    assert log.estimated_propensity
    assert np.allclose(read.propensity, log.propensity)


# --- wrong arguments

WRONG = {
    "a floor of nothing": ({"floor": 0.0}, "floor lies strictly between 0 and 1/2, not 0.0"),
    "a floor above": ({"floor": 0.5}, "floor lies strictly between 0 and 1/2, not 0.5"),
}
# scikit-learn refuses these when they are used
REFUSED = {
    "one fold": ({"folds": 1}, "n_splits=1"),
    "half a fold": ({"folds": 2.5}, "2.5 .* was passed"),
    "another calibration": ({"calibration": "platt"}, "'method' parameter .* Got 'platt'"),
    "no classifier": ({"classifier": "logistic"}, "Cannot clone object ''logistic''"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(cq.DecisionLogError, match=message):
        cq.EstimatedPropensity(**arguments)


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_scikit_learn_cannot_use_is_named(arguments, message):
    x, decision = np.linspace(0.0, 1.0, 60)[:, None], np.tile([0, 1], 30)
    label = np.where(decision == 1, 1.0, np.nan)
    with pytest.raises((ValueError, TypeError), match=message):
        cq.DecisionLog.from_arrays(x, decision, cq.EstimatedPropensity(**arguments), label)


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (np.zeros(50), "nobody was accepted: there is no propensity to estimate"),
        (np.ones(50), "everybody was accepted: nothing needs estimating, give propensity 1"),
        (np.arange(50) < 5, "needs 10 accepted and 10 rejected people at least; .* 5 and 45"),
    ],
    ids=["nobody", "everybody", "too few"],
)
def test_decisions_too_much_alike_are_refused(decision, message):
    label = np.where(decision, 1.0, np.nan)
    with pytest.raises(cq.DecisionLogError, match=message):
        cq.DecisionLog.from_arrays(people(n=50), decision, cq.EstimatedPropensity(), label)


def test_without_propensities_the_estimator_is_offered():
    with pytest.raises(cq.DecisionLogError, match=r"give propensity=EstimatedPropensity\(\)"):
        cq.DecisionLog.from_arrays([[0.0]], [1], None, [1])


# --- labels that are missing at random


def with_lost_labels(chance, seed=2, n=N, **options):
    """A log in which an accepted person's label is known with the given chance."""
    x = people(n=n)
    rng = np.random.default_rng(seed)
    decision = rng.random(n) < 0.6
    known = decision & (rng.random(n) < chance(x))
    label = np.where(known, rng.random(n) < 0.5, np.nan)
    propensity = np.full(n, 0.6)
    return cq.DecisionLog.from_arrays(x, decision, propensity, label, **options)


def often_on_the_right(x):
    return np.where(x[:, 0] > 0.0, 0.9, 0.5)


def test_the_probability_of_a_known_label_is_estimated_among_accepted_people():
    log = with_lost_labels(often_on_the_right, missing="at_random")
    truth = often_on_the_right(log.features)
    assert np.abs(log.observed - truth)[log.decision].mean() < 0.05
    assert (log.observed[~log.decision] == 1.0).all()
    np.testing.assert_allclose(log.label_propensity, 0.6 * log.observed)


def test_a_given_probability_is_used_for_accepted_people():
    chance = np.linspace(0.1, 1.0, N)
    log = with_lost_labels(often_on_the_right, missing="at_random", observed=chance)
    np.testing.assert_array_equal(log.observed, np.where(log.decision, chance, 1.0))


def test_where_all_labels_are_known_nothing_is_estimated():
    log = with_lost_labels(lambda x: 1.0, missing="at_random")
    assert (log.observed == 1.0).all()


def test_labels_younger_than_the_horizon_are_pending_and_not_missing():
    step = np.repeat([0, 1], N // 2)
    log = with_lost_labels(lambda x: step == 0, missing="at_random", horizon=1, time_step=step)
    assert (log.observed == 1.0).all()


UNOBSERVED = {
    "another word": ({"missing": "drop"}, "missing is 'refuse', 'against' or 'at_random', not"),
    "nothing is thinned": ({"observed": np.ones(40)}, 'observed= is for missing="at_random" only'),
    "too few": (
        {"missing": "at_random", "observed": [0.5]},
        "observed has 1 values but features has 40 rows",
    ),
    "no probabilities": (
        {"missing": "at_random", "observed": np.zeros(40)},
        r"rows have an observed probability outside \(0, 1\] although decision is 1 \(first: row 0",
    ),
    "no label at all": (
        {"missing": "at_random"},
        "label is observed cannot be estimated: no accepted person has a label. Give observed=",
    ),
}


@pytest.mark.parametrize(("options", "message"), UNOBSERVED.values(), ids=UNOBSERVED)
def test_what_cannot_be_made_of_missing_labels_is_said(options, message):
    with pytest.raises(cq.DecisionLogError, match=message):
        with_lost_labels(lambda x: 0.0, n=40, **options)
