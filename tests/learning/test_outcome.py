"""Outcome models: fitted on accepted people, cross-fitted for everybody."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import consequential as cq
from consequential.learning.models import Model, default_models, regression
from consequential.learning.outcome import counted_by, outcome_of

N = 4_000


def logged(features, chance, rng, group=None):
    propensity = 0.1 + 0.8 * expit(features[:, 0])
    decision = rng.random(len(features)) < propensity
    label = np.where(decision, rng.random(len(features)) < chance, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, propensity, label, group)


def modelled(log, **options):
    models = default_models(log.features, int(log.labelled.sum()))
    return outcome_of(log, models, log.features, folds=3, **options)


def test_where_labels_are_logistic_the_plain_regression_stands_alone(rng):
    features = rng.normal(size=(N, 4))
    chance = expit(features @ [0.8, -0.5, 0.3, 0.0])
    outcome = modelled(logged(features, chance, rng))
    np.testing.assert_array_equal(outcome.scores.weights, [1.0, 0.0, 0.0])
    assert np.abs(outcome.predicted - chance).mean() < 0.05


def test_where_they_are_not_other_models_are_added(rng):
    features = rng.normal(size=(N, 4))
    chance = expit(2.0 * features[:, 0] * features[:, 1] - np.abs(features[:, 2]))
    outcome = modelled(logged(features, chance, rng))
    assert outcome.scores.weights[1:].sum() > 0.5
    plain = np.abs(outcome.regression - chance).mean()
    assert np.abs(outcome.predicted - chance).mean() < 0.5 * plain


def test_nobody_is_predicted_by_a_model_that_saw_them(rng):
    # labels without any pattern: a model that saw a person would lean towards that person's label
    features = rng.normal(size=(400, 30))
    log = logged(features, np.full(400, 0.5), rng)
    models = {"regression": Model(lambda: LogisticRegression(C=1e3, max_iter=1_000), 30)}
    outcome = outcome_of(log, models, log.features, folds=4)
    seen = log.labelled
    leaning = np.corrcoef(outcome.predicted[seen], log.label[seen])[0, 1]
    assert abs(leaning) < 0.2
    inside = outcome.scores.transform(log.features)[seen, 0]
    assert np.corrcoef(inside, log.label[seen])[0, 1] > 0.3


def test_nobody_is_predicted_by_a_model_that_saw_copies_of_them(rng):
    features = rng.normal(size=(200, 30))
    log = logged(features, np.full(200, 0.5), rng)
    log = log.take(rng.permutation(np.repeat(np.arange(200), 4)))
    models = {"regression": Model(lambda: LogisticRegression(C=1e3, max_iter=1_000), 30)}
    outcome = outcome_of(log, models, log.features, folds=4)
    seen = log.labelled
    leaning = np.corrcoef(outcome.predicted[seen], log.label[seen])[0, 1]
    assert leaning < 0.2
    rows, first = np.unique(log.features[:, 0], return_inverse=True)
    assert len(set(zip(first, outcome.fold, strict=True))) == len(rows)
    assert (np.bincount(outcome.fold) == len(log) / 4).all()


def test_different_people_with_equal_features_are_in_different_folds(rng):
    features = rng.integers(0, 2, (N, 3)).astype(float)
    outcome = modelled(logged(features, expit(features[:, 1]), rng))
    _, kind = np.unique(features, axis=0, return_inverse=True)
    assert len(set(zip(kind, outcome.fold, strict=True))) == 8 * 3


def test_groups_are_predicted_among_those_whom_a_notion_counts(rng):
    features = rng.normal(size=(N, 2))
    group = (rng.random(N) < expit(features[:, 1])).astype(int)
    chance = expit(features[:, 0] + group)
    outcome = modelled(logged(features, chance, rng, group), whom=("people", "positives"))
    truth = expit(features[:, 1])
    by_label = expit(features[:, 0] + 1.0) * truth
    assert np.abs(outcome.columns[:, 1] - truth).mean() < 0.04
    assert np.abs(outcome.columns[:, 2] - by_label).mean() < 0.05


def of_groups(log, whom):
    label = {"regression": regression(log.features)}
    return outcome_of(log, label, log.features, folds=2, whom=whom).scores.group_models


def test_groups_are_modelled_from_all_rows_unless_the_label_depends_on_the_group(rng):
    features = rng.normal(size=(1_500, 15))
    truth = expit(1.5 * features[:, 1])
    group = (rng.random(1_500) < truth).astype(int)
    whom = ("people", "positives")
    for effect, shared in ((0.0, True), (3.0, False)):
        chance = expit(features[:, 0] + effect * (group - 0.5))
        models = of_groups(logged(features, chance, rng, group), whom)
        assert (models["positives"] is models["people"]) is shared


def test_groups_have_curves_only_where_curves_predict_them_better(rng):
    features = rng.normal(size=(1_500, 6))
    for score, curved in ((features[:, 1], False), (2.0 * np.abs(features[:, 1]) - 1.5, True)):
        group = (rng.random(1_500) < expit(1.5 * score)).astype(int)
        log = logged(features, expit(features[:, 0]), rng, group)
        model = of_groups(log, ("people",))["people"]
        assert (model[-1].n_features_in_ > 6) is curved


@pytest.mark.parametrize(
    ("notion", "whom"),
    [
        ("demographic_parity", ("people",)),
        ("equal_opportunity", ("positives",)),
        ("equalised_odds", ("positives", "negatives")),
        ("predictive_parity", ("positives", "negatives")),
    ],
)
def test_a_notion_says_whom_it_counts(notion, whom):
    assert counted_by(cq.fairness.fairness_named(notion)) == whom


def test_a_log_with_one_kind_of_label_is_predicted_to_have_no_other(rng):
    features = rng.normal(size=(100, 2))
    outcome = modelled(logged(features, np.ones(100), rng))
    assert (outcome.predicted > 0.99).all()


def test_what_scikit_learn_warns_of_becomes_a_note(rng):
    features = rng.normal(size=(500, 3))
    log = logged(features, expit(features[:, 0]), rng)
    hasty = Model(lambda: LogisticRegression(C=1e6, max_iter=1, solver="lbfgs"), 3)
    notes = outcome_of(log, {"hasty": hasty}, log.features, folds=2).notes
    assert notes[0] == "model of the label: hasty"
    assert len(notes) == 2
    assert "failed to converge" in notes[1]


def test_the_models_that_decide_can_be_asked_about_everybody(rng):
    features = rng.normal(size=(N, 2))
    group = (rng.random(N) < expit(features[:, 1])).astype(int)
    log = logged(features, expit(features[:, 0]), rng, group)
    outcome = modelled(log, whom=("people",), deciding=True)
    assert outcome.rule_columns.shape == (4, N, 2)
    decided = outcome.rule_scores.transform(log.features)
    np.testing.assert_array_equal(outcome.deciding, decided)
    for k in range(3):
        held_out = outcome.fold == k
        of_fold = outcome.of_fold(k).take(held_out)
        np.testing.assert_allclose(of_fold.deciding, outcome.columns[held_out, :2], rtol=1e-12)
