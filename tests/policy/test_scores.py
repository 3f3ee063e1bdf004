"""Scores: the columns that fitted models give a policy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

import consequential as cq
from consequential.policy.scores import Scores, group_chances, log_odds, score_columns


@pytest.fixture
def people(rng):
    features = rng.normal(size=(400, 3))
    return features, (rng.random(400) < expit(features[:, 0])).astype(int)


MODELS = {
    "regression": LogisticRegression(),
    "splines": make_pipeline(SplineTransformer(), StandardScaler(), LogisticRegression()),
    "trees": HistGradientBoostingClassifier(max_iter=20),
}


@pytest.mark.parametrize("name", MODELS)
def test_log_odds_are_those_of_the_predicted_probabilities(name, people):
    model = MODELS[name].fit(*people)
    expected = logit(model.predict_proba(people[0])[:, 1])
    np.testing.assert_allclose(log_odds(model, people[0]), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_one_person_has_the_same_bits_alone_and_among_others(name, people):
    model = MODELS[name].fit(*people)
    policy = cq.Policy([-1.0, 2.0], feature_map=Scores([model], 0.1, [0.8]))
    together = policy.mapped(people[0])
    alone = np.concatenate([policy.mapped(person[None]) for person in people[0][:50]])
    np.testing.assert_array_equal(alone, together[:50])


@pytest.mark.parametrize("n_groups", [2, 3])
def test_groups_have_the_models_chances_and_the_same_bits_alone(n_groups, people, rng):
    group = rng.integers(0, n_groups, 400)
    model = MODELS["splines"].fit(people[0], group)
    found = group_chances(model, people[0], n_groups)
    np.testing.assert_allclose(found, model.predict_proba(people[0]), rtol=1e-9)
    alone = [group_chances(model, person[None], n_groups)[0] for person in people[0][:50]]
    np.testing.assert_array_equal(alone, found[:50])


def test_a_model_that_saw_one_label_only_is_all_but_sure_of_it(people):
    features, _ = people
    for label, sign in ((0, -1.0), (1, 1.0)):
        model = DummyClassifier(strategy="prior").fit(features, np.full(len(features), label))
        assert (sign * log_odds(model, features) > 10.0).all()


def test_the_columns_are_the_prediction_and_then_the_groups(rng):
    members = rng.normal(size=(5, 2))
    chances = rng.dirichlet(np.ones(3), size=5)
    columns = score_columns(members, 0.5, np.array([1.0, 2.0]), {"positives": chances})
    probability = expit(0.5 + members @ [1.0, 2.0])
    np.testing.assert_allclose(columns[:, 0], probability)
    np.testing.assert_allclose(columns[:, 1:], probability[:, None] * chances[:, 1:])


def test_a_rule_for_the_model_needs_no_models_of_no_weight(people):
    models = [model.fit(*people) for model in MODELS.values()]
    scores = Scores(models, 0.1, [0.7, 0.0, 0.4], members=True)
    columns, rule = scores.transform(people[0]), scores.for_rule()
    assert [len(scores.models), len(rule.models)] == [3, 2]
    np.testing.assert_array_equal(rule.transform(people[0]), columns[:, :1])
    np.testing.assert_array_equal(columns[:, 2], log_odds(models[1], people[0]))


def test_models_that_see_the_group_get_it_from_the_policy(people):
    features, labels = people
    group = (features[:, 1] > 0.0).astype(int)
    model = LogisticRegression().fit(np.column_stack([features, group]), labels)
    scores = Scores([model], 0.0, [1.0], n_groups=2, sees_group=True)
    policy = cq.Policy(np.tile([0.0, 1.0], 2), feature_map=scores, groups=["a", "b"])
    sensitive = np.array(["a", "b"])[group]
    expected = model.predict_proba(np.column_stack([features, group]))[:, 1]
    np.testing.assert_allclose(policy.propensity(features, sensitive), expit(expected))
