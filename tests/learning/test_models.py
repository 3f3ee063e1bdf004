"""Models of the label: sizes of tables, and what few people can teach."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from consequential.learning.models import Model, default_models
from consequential.policy.scores import log_odds


def test_large_tables_are_fitted_to_as_many_rows_as_there_is_room_for(rng):
    features = rng.normal(size=(1_000, 2))
    labels = rng.integers(0, 2, 1_000)
    model = Model(LogisticRegression, 2, max_rows=100)
    again = LogisticRegression().fit(
        features[np.linspace(0, 999, 100).astype(int)],
        labels[np.linspace(0, 999, 100).astype(int)],
    )
    np.testing.assert_allclose(model.fitted(features, labels).coef_, again.coef_)


@pytest.mark.parametrize("name", ["regression", "curves", "boosted trees"])
def test_a_handful_of_people_with_a_rare_word_does_not_decide_for_all_like_them(name, rng):
    n = 4_000
    features = np.column_stack([rng.normal(size=(n, 2)), rng.random((n, 2)) < [0.5, 0.3]])
    labels = (rng.random(n) < expit(1.5 * features[:, 0])).astype(int)
    rare = np.zeros((n, 1))
    rare[:5] = 1.0
    labels[:5] = 1  # all five of them repay
    inputs = np.column_stack([features, rare])
    model = default_models(inputs, n)[name].fitted(inputs, labels)
    poor = np.array([[-2.0, 0.0, 0.0, 0.0, 0.0], [-2.0, 0.0, 0.0, 0.0, 1.0]])
    usual, unusual = log_odds(model, poor)
    assert usual < -1.5
    assert unusual < usual + 2.0


def test_tables_of_indicators_alone_or_numbers_alone_can_be_modelled(rng):
    labels = rng.integers(0, 2, 600)
    for inputs in (rng.normal(size=(600, 2)), rng.integers(0, 2, (600, 3)).astype(float)):
        for model in default_models(inputs, 600).values():
            assert np.isfinite(log_odds(model.fitted(inputs, labels), inputs)).all()


def test_trees_find_a_combination_of_features_none_of_which_tells_anything_alone(rng):
    n, right = 3_000, []
    for _ in range(4):
        inputs, new = (rng.integers(0, 2, (n, 16)).astype(float) for _ in range(2))
        odd, new_odd = (each[:, :3].sum(axis=1) % 2 for each in (inputs, new))
        labels = (rng.random(n) < np.where(odd, 0.8, 0.2)).astype(int)
        model = default_models(inputs, n)["boosted trees"].fitted(inputs, labels)
        right.append(((log_odds(model, new) > 0) == new_odd).mean())
    assert np.mean(right) > 0.9


def test_trees_of_labels_that_are_all_but_chance_stop_early(rng):
    inputs = rng.normal(size=(2_000, 5))
    labels = rng.integers(0, 2, 2_000)
    model = default_models(inputs, 2_000)["boosted trees"].fitted(inputs, labels)
    assert np.abs(log_odds(model, rng.normal(size=(500, 5)))).mean() < 0.3


def test_a_regression_of_given_signs_is_the_most_likely_one_of_them(rng):
    n = 800
    inputs = np.column_stack([rng.normal(size=(n, 3)), rng.random((n, 2)) < 0.4]).astype(float)
    inputs[:, 1] += inputs[:, 0]
    labels = (rng.random(n) < expit(inputs @ [1.0, -0.8, 0.3, 0.5, -0.5])).astype(int)
    signs = np.array([1.0, 1.0, 0.0, -1.0])  # the last input is a group
    model = default_models(inputs, n, signs=signs)["regression"].fitted(inputs, labels)
    scale = np.append(inputs[:, :3].std(axis=0), [1.0, 1.0])
    scaled = (inputs - np.append(inputs[:, :3].mean(axis=0), [0.0, 0.0])) / scale

    def loss(beta):
        eta = beta[0] + scaled @ beta[1:]
        return (np.logaddexp(0.0, eta) - labels * eta).sum() + beta[1:] @ beta[1:] / 2.0

    free, up, down = (None, None), (0.0, None), (None, 0.0)
    bounds = [free, up, up, free, down, free]
    best = minimize(loss, np.zeros(6), method="SLSQP", bounds=bounds, options={"ftol": 1e-12}).x
    expected = best[0] + scaled @ best[1:]
    np.testing.assert_allclose(log_odds(model, inputs), expected, atol=1e-3)
    assert model[-1].coef_[0][1] == 0.0
    assert model[-1].coef_[0][3] == 0.0


def test_models_of_given_signs_are_monotone(rng):
    n = 1_500
    inputs = rng.normal(size=(n, 3))
    labels = (rng.random(n) < expit(np.sin(3.0 * inputs[:, 0]) - inputs[:, 1])).astype(int)
    models = default_models(inputs, n, signs=np.array([1.0, -1.0, 0.0]))
    assert set(models) == {"regression", "boosted trees"}
    more = inputs + np.abs(rng.normal(size=(n, 3))) * [1.0, -1.0, 0.0]
    for model in models.values():
        fitted = model.fitted(inputs, labels)
        assert (log_odds(fitted, more) >= log_odds(fitted, inputs) - 1e-9).all()
