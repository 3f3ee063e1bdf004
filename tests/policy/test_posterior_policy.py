"""The posterior policy: propensities against draws of the coefficients, files, floors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, ndtr

import consequential as cq

RNG = np.random.default_rng(0)
PEOPLE = RNG.normal(size=(40, 2))
FACTOR = RNG.normal(size=(3, 3)) / 2.0
MEAN, COVARIANCE = np.array([-0.3, 0.8, -0.5]), FACTOR @ FACTOR.T
N_DRAWS = 40_000


def plain(**options) -> cq.PosteriorPolicy:
    return cq.PosteriorPolicy(cq.Policy(MEAN), COVARIANCE, cost=0.4, **options)


def fair(counted) -> cq.PosteriorPolicy:
    chances = [[0.2, 1.0, -1.0], [-0.5, 0.3, 0.8]][: len(counted)]
    prices = [0.02, -0.05, 0.15, -0.3][: 2 + len(counted)]
    return plain(prices=prices, chances=chances, counted=counted)


def drawn_chances() -> np.ndarray:
    """Return the probability of label 1, one row per draw of the coefficients."""
    theta = np.random.default_rng(1).multivariate_normal(MEAN, COVARIANCE, size=N_DRAWS)
    return expit(theta @ np.column_stack([np.ones(len(PEOPLE)), PEOPLE]).T)


def test_the_propensity_is_the_posterior_probability_of_a_gain():
    share = (drawn_chances() > 0.4).mean(axis=0)
    assert_allclose(plain().propensity(PEOPLE), share, atol=4 * 0.5 / N_DRAWS**0.5)


@pytest.mark.parametrize("counted", [("people",), ("positives",), ("negatives", "positives")])
def test_with_prices_it_is_the_probability_of_a_gain_after_them(counted):
    policy, q = fair(counted), drawn_chances()
    inputs = np.column_stack([np.ones(len(PEOPLE)), PEOPLE])
    worth = q - 0.4 - policy.prices[0] - policy.prices[1] * q
    among = {"people": np.ones_like(q), "positives": q, "negatives": 1.0 - q}
    for price, theta, whom in zip(policy.prices[2:], policy.chances, counted, strict=True):
        worth -= price * among[whom] * expit(inputs @ theta)
    share = (worth > 0.0).mean(axis=0)
    assert_allclose(policy.propensity(PEOPLE), share, atol=4 * 0.5 / N_DRAWS**0.5)


def test_the_optimistic_form_refuses_nobody_with_even_chances_and_doubles_the_others():
    chance = plain().propensity(PEOPLE)
    optimistic = replace(plain(), optimistic=True).propensity(PEOPLE)
    assert_allclose(optimistic, np.where(chance >= 0.5, 1.0, 2.0 * chance))


def test_without_uncertainty_it_is_the_threshold_policy():
    sure = replace(plain(), covariance=np.zeros((3, 3)))
    threshold = cq.ThresholdPolicy(cq.logistic_model(MEAN), 0.4)
    assert_array_equal(sure.propensity(PEOPLE), threshold.propensity(PEOPLE))


def test_prices_beyond_every_worth_accept_all_or_nobody():
    for price, expected in ((-2.0, 1.0), (2.0, 0.0)):
        assert_array_equal(plain(prices=[price, 0.0]).propensity(PEOPLE), np.full(40, expected))


def test_the_floor_is_kept_and_can_be_replaced():
    policy = plain().with_floor(0.1)
    assert_allclose(policy.propensity(PEOPLE), 0.1 + 0.9 * plain().propensity(PEOPLE))
    assert policy.with_floor(0.02).propensity(PEOPLE).min() >= 0.02


def test_people_of_a_known_pattern_are_judged_by_what_is_known_of_it(tmp_path):
    patterns = np.column_stack([PEOPLE[:2], [0.5, -0.5], [0.1, 0.0]])
    policy = plain(patterns=patterns)
    found = policy.propensity(PEOPLE)
    cut = np.log(0.4 / 0.6)
    assert_allclose(found[:2], [ndtr((0.5 - cut) / 0.1), 0.0], atol=1e-12)
    assert_array_equal(found[2:], plain().propensity(PEOPLE[2:]))
    cq.save_policy(policy, tmp_path / "policy.json")
    assert_array_equal(cq.load_policy(tmp_path / "policy.json").propensity(PEOPLE), found)


def test_many_people_are_decided_on_as_each_alone():
    people = np.random.default_rng(2).normal(size=(30_000, 2))  # more than one chunk
    some = np.array([0, 21_844, 21_845, 29_999])
    assert_allclose(plain().propensity(people)[some], plain().propensity(people[some]), atol=1e-12)


@pytest.mark.parametrize("feature_map", [None, cq.Curves(n_knots=6).fit(PEOPLE)])
def test_it_is_saved_like_any_policy(feature_map, tmp_path):
    n = 3 if feature_map is None else feature_map.transform(PEOPLE).shape[1] + 1
    model = cq.Policy(np.linspace(-1.0, 1.0, n), feature_map=feature_map)
    policy = cq.PosteriorPolicy(
        model, np.eye(n), 0.4, True, 0.05, [0.0, 0.1, 0.2], np.ones((1, n)), ("people",)
    )
    cq.save_policy(policy, tmp_path / "policy.json")
    again = cq.load_policy(tmp_path / "policy.json")
    assert_array_equal(again.propensity(PEOPLE), policy.propensity(PEOPLE))
    assert cq.policy_digest(again) == cq.policy_digest(policy)
    assert cq.policy_digest(policy.with_floor(0.0)) != cq.policy_digest(policy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"covariance": np.eye(2)},
        {"covariance": -np.eye(3)},
        {"prices": [0.1]},
        {"counted": ("people",)},
        {"counted": ("neighbours",), "chances": np.ones((1, 3)), "prices": np.zeros(3)},
        {"model": cq.Policy(MEAN, "semi_logistic")},
        {"floor": 1.0},
        {"patterns": [[0.0, 0.0, 0.5, -0.1]]},
        {"patterns": [0.0, 0.0, 0.5, 0.1]},
        {"model": cq.Policy(MEAN, feature_names=["a", "b"]), "patterns": np.zeros((2, 3))},
    ],
)
def test_parts_that_do_not_fit_are_refused(wrong):
    with pytest.raises(cq.PolicyError):
        replace(plain(), **wrong)


def test_columns_of_a_frame_are_found_by_name():
    pd = pytest.importorskip("pandas")
    names = ["income", "debt"]
    policy = cq.PosteriorPolicy(cq.Policy(MEAN, feature_names=names), COVARIANCE, 0.4)
    frame = pd.DataFrame(PEOPLE, columns=names)[names[::-1]]
    assert_allclose(policy.propensity(frame), plain().propensity(PEOPLE))
