"""Classifiers fitted to labels between 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import consequential as cq
from consequential.objective.weightings.fractional import fit_classifier

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(300, 2))
TENTHS = RNG.integers(0, 11, 300) / 10.0


def test_a_fraction_is_as_many_copies_of_either_label():
    model = LogisticRegression(tol=1e-10, max_iter=1000)
    rows = np.repeat(np.arange(300), 10)
    ones = np.tile(np.arange(10), 300) < np.repeat(np.round(10 * TENTHS), 10)
    copies = LogisticRegression(C=0.1, tol=1e-10, max_iter=1000).fit(INPUTS[rows], ones)
    found = fit_classifier(model, INPUTS, TENTHS)
    assert_allclose(found.coef_, copies.coef_, rtol=1e-5)
    assert_allclose(found.intercept_, copies.intercept_, rtol=1e-5)


def test_weights_multiply_fractions():
    def pipeline():
        return make_pipeline(LogisticRegression(tol=1e-10))

    weights = RNG.integers(1, 4, 300)
    rows = np.repeat(np.arange(300), weights)
    found = fit_classifier(pipeline(), INPUTS, TENTHS, weights.astype(float))
    copied = fit_classifier(pipeline(), INPUTS[rows], TENTHS[rows])
    assert_allclose(found[-1].coef_, copied[-1].coef_, rtol=1e-5)


def test_whole_labels_are_fitted_as_they_are():
    labels = TENTHS > 0.5
    found = fit_classifier(LogisticRegression(), INPUTS, labels.astype(float))
    assert_allclose(found.coef_, LogisticRegression().fit(INPUTS, labels).coef_, rtol=0)


def test_boosted_trees_stop_by_people_they_were_not_fitted_to():
    x = RNG.uniform(-1, 1, (4000, 1))
    labels = np.clip(0.5 + 0.3 * np.sin(4 * x[:, 0]) + RNG.normal(0, 0.15, 4000), 0, 1)
    model = HistGradientBoostingClassifier(early_stopping=True, random_state=0)
    fitted = fit_classifier(model, x, labels)
    grid = np.linspace(-0.9, 0.9, 50)[:, None]
    truth = 0.5 + 0.3 * np.sin(4 * grid[:, 0])
    assert fitted.n_iter_ < 100
    assert np.abs(fitted.predict_proba(grid)[:, 1] - truth).mean() < 0.03


@pytest.mark.parametrize(
    "wrap", [lambda model: model, lambda m: make_pipeline(StandardScaler(), m)]
)
def test_a_classifier_without_weights_is_refused_by_name(wrap):
    with pytest.raises(cq.DecisionLogError, match="KNeighborsClassifier takes no sample_weight"):
        fit_classifier(wrap(KNeighborsClassifier()), INPUTS, TENTHS)
