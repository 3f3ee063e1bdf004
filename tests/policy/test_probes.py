"""Probes: made-up people in a policy's file, with the propensities it gave them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

import consequential as cq


def probes(rule) -> dict | None:
    return json.loads(cq.policy_to_json(rule))["probes"]


def grouped() -> cq.Policy:
    return cq.Policy([0.0, 1.0, 1.0, 2.0], groups=["f", "m"], feature_names=["income"])


RULES = {
    "names": lambda: cq.Policy([0.1, 2.0, 1.0], feature_names=["income", "debt"]),
    "no names": lambda: cq.Policy([0.1, 2.0, 1.0]),
    "a feature map": lambda: cq.Policy(
        np.linspace(-1.0, 1.0, 11), feature_map=SplineTransformer(3).fit(np.eye(9)[:, :2])
    ),
    "a posterior": lambda: cq.PosteriorPolicy(cq.Policy([0.1, 2.0, 1.0]), np.eye(3), 0.5),
    "a predictor": lambda: cq.ThresholdPolicy(cq.logistic_model([0.1, 1.0, 1.0]), 0.5),
    "rules in rules": lambda: cq.Mixture(
        [cq.Policy([0.1, 2.0, 1.0]).with_floor(0.1), cq.AcceptAll()], [0.5, 0.5]
    ),
}


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_a_file_has_twelve_people_and_what_the_rule_decides_about_them(make):
    rule, found = make(), probes(make())
    assert np.shape(found["people"]) == (12, 2)
    assert_allclose(rule.propensity(np.array(found["people"])), found["propensity"], atol=1e-12)


def test_the_probes_of_a_policy_by_group_are_of_all_groups():
    found = probes(grouped())
    assert sorted(set(found["group"])) == [0, 1]
    sensitive = [("f", "m")[code] for code in found["group"]]
    assert_allclose(grouped().propensity(found["people"], sensitive), found["propensity"])


def test_people_come_from_the_summary_where_there_is_one():
    summary = cq.FeatureSummary.of([[1e6], [2e6], [7e6]], ["income"])
    policy = cq.Policy([0.1, 1e-6], feature_names=["income"], summary=summary)
    for rule in (policy, cq.Mixture([policy, cq.AcceptAll()], [0.7, 0.3])):
        assert {person[0] for person in probes(rule)["people"]} == {1e6, 2e6, 7e6}


def test_rules_of_unknown_features_have_no_probes():
    words = pd.DataFrame({"purpose": ["car", "tv"] * 5})
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(words, [0, 1] * 5)
    rule = cq.ThresholdPolicy(model, 0.5)  # made-up people have numbers
    assert probes(rule) is None
    assert probes(cq.AcceptAll()) is None
    again = cq.policy_from_json(cq.policy_to_json(rule))
    assert again.propensity({"purpose": "tv"}) == [1.0]
