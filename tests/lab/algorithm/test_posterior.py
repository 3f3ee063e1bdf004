"""The posterior of a logistic model against integration over its coefficients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit, ndtr

import consequential as cq
from consequential.lab.algorithm.posterior import Posterior


def rows(n, theta, rng):
    phi = np.column_stack([np.ones(n), rng.normal(size=(n, len(theta) - 1))])
    return phi, (rng.random(n) < expit(phi @ theta)).astype(float)


def with_prior(n_columns, precision) -> Posterior:
    """Return a posterior before any row, whose slopes have this prior precision."""
    blank = Posterior.before(None, np.ones((1, n_columns)))
    return replace(blank, scale=np.ones(n_columns), prior=np.full(3, precision))


def after(known, phi, labels) -> Posterior:
    """Return the posterior after rows with one label each, its prior as it was."""
    return replace(known.updated(phi, labels), prior=known.prior)


def integrated(phi, labels, precision):
    """Return mean and covariance of two coefficients by a sum over a fine grid."""
    axis = np.linspace(-3.0, 3.0, 201)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    eta = theta @ phi.T
    log_density = eta @ labels - np.logaddexp(0.0, eta).sum(axis=1)
    log_density -= (theta**2 * [0.01, precision]).sum(axis=1) / 2.0
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    mean = mass @ theta
    return mean, (theta * mass[:, None]).T @ theta - np.outer(mean, mean)


@pytest.mark.parametrize(("n", "tolerance"), [(60, 0.35), (400, 0.12)])
def test_it_agrees_with_integration_up_to_the_posteriors_skewness(n, tolerance, rng):
    phi, labels = rows(n, np.array([-0.5, 1.0]), rng)
    mean, covariance = integrated(phi, labels, 1.0)
    found = after(with_prior(2, 1.0), phi, labels)
    deviation = np.sqrt(np.diag(covariance))
    assert (np.abs(found.mean - mean) / deviation < tolerance).all()
    assert_allclose(found.covariance, covariance, rtol=tolerance, atol=0.1 * deviation.min() ** 2)


def test_the_mode_has_no_slope(rng):
    phi, labels = rows(300, np.array([-0.5, 1.0, 0.3]), rng)
    found = after(with_prior(3, 2.0), phi, labels)
    slope = (labels - expit(phi @ found.mean)) @ phi - np.array([0.01, 2.0, 2.0]) * found.mean
    assert np.abs(slope).max() < 0.05  # rows add up to some 60


def test_rows_that_come_in_parts_say_nearly_the_same_as_all_at_once(rng):
    phi, labels = rows(4000, np.array([-0.5, 1.0, 0.3]), rng)
    whole = after(with_prior(3, 1.0), phi, labels)
    parts = with_prior(3, 1.0)
    for part in np.split(np.arange(4000), 8):
        parts = after(parts, phi[part], labels[part])
    deviation = np.sqrt(np.diag(whole.covariance))
    assert (np.abs(parts.mean - whole.mean) / deviation < 0.25).all()
    assert_allclose(np.diag(parts.covariance), np.diag(whole.covariance), rtol=0.1)


def test_effects_are_coefficients_of_indicators_with_their_own_prior(rng):
    phi, _ = rows(30, np.array([0.2, 0.8]), rng)
    n_labels = rng.integers(0, 40, size=30).astype(float)
    n_positive = rng.binomial(n_labels.astype(int), expit(phi[:, 1] + rng.normal(size=30)))
    known, variance = with_prior(2, 1.0), 0.7
    found, effects = known.with_effects(phi, n_positive, n_labels, np.zeros(30), variance)
    found = replace(found, prior=known.prior)
    wide, precision = (
        np.hstack([phi, np.eye(30)]),
        np.append([0.01, 1.0], np.full(30, 1 / variance)),
    )

    def loss(theta):
        eta = wide @ theta
        value = n_labels @ np.logaddexp(0.0, eta) - n_positive @ eta + precision @ theta**2 / 2.0
        return value, (n_labels * expit(eta) - n_positive) @ wide + precision * theta

    theta = minimize(loss, np.zeros(32), jac=True, options={"gtol": 1e-8}).x
    q = expit(wide @ theta)
    hessian = (wide * (n_labels * q * (1.0 - q))[:, None]).T @ wide + np.diag(precision)
    assert_allclose(np.append(found.mean, effects), theta, atol=0.01)
    assert_allclose(found.covariance, np.linalg.inv(hessian)[:2, :2], rtol=0.02, atol=1e-4)


def test_separable_labels_leave_finite_coefficients():
    x = np.linspace(-1.0, 1.0, 50)
    phi = np.column_stack([np.ones(50), x])
    found = Posterior.before(None, phi).updated(phi, (x > 0.0).astype(float))
    assert np.isfinite(found.mean).all()
    assert found.mean[1] > 1.0


def test_the_prior_grows_tight_where_nothing_bends_and_loose_where_much_does(rng):
    x = rng.uniform(-1.0, 1.0, 20_000)
    curves = cq.Curves().fit(x)
    phi = np.column_stack([np.ones(len(x)), curves.transform(x)])
    variances = []
    for eta in (x, 4.0 * np.sin(4.0 * x)):
        labels = (rng.random(len(x)) < expit(eta)).astype(float)
        found = Posterior.before(curves, phi)
        for _ in range(5):
            found = found.forgotten().updated(phi, labels)
        variances.append(1.0 / found.prior[1])
    assert variances[0] < 4.0 < variances[1]


def test_posterior_probabilities_are_calibrated():
    """Of pairs of a world drawn from the prior and a person, a share p have q above the cost."""
    rng = np.random.default_rng(0)
    stated, true = [], []
    for _ in range(300):
        theta = rng.normal(size=3) * [1.0, 1.0, 1.0]
        phi, labels = rows(40, theta, rng)
        found = after(with_prior(3, 1.0), phi, labels)
        people, _ = rows(20, theta, rng)
        deviation = np.sqrt(((people @ found.covariance) * people).sum(axis=1))
        stated.append(ndtr(people @ found.mean / deviation))
        true.append(people @ theta > 0.0)
    stated, true = np.concatenate(stated), np.concatenate(true)
    for low, high in ((0.0, 0.1), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.9, 1.0)):
        inside = (stated >= low) & (stated <= high)
        assert true[inside].mean() == pytest.approx(stated[inside].mean(), abs=0.06)
