"""A learner with monotone features: more income never counts against anybody."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from messy_tables import FEATURES, messy_table

MONOTONE = {0: 1, "x1": -1, "x2": 1, 3: -1}
DIRECTIONS = np.array([1.0, -1.0, 1.0, -1.0])
ROUNDING = 1e-9


def chance_of(features, group):
    """The chance of label 1, monotone in all features; the last is noise."""
    income, debt, savings, _ = features.T
    return expit(1.2 * income - 0.8 * np.maximum(debt, 0.0) + 0.5 * savings + 0.3 * group)


def people(n, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 4))
    return features, (features[:, 2] + rng.normal(size=n) > 0.0).astype(int), rng


def collected(n=1_000, seed=0):
    features, group, rng = people(n, seed)
    propensity = 0.2 + 0.6 * expit(features[:, 0])
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < chance_of(features, group), np.nan)
    return cq.DecisionLog.from_arrays(features, decision, propensity, label, group)


def worst_change(policy, directions=DIRECTIONS, n=2_000):
    """The smallest change of a propensity where single features change as they should."""
    features, group, rng = people(n, seed=9)
    sensitive = group if policy.uses_sensitive else None
    before = policy.propensity(1.5 * features, sensitive)
    changes = []
    for k, direction in enumerate(directions):
        more = 1.5 * features
        more[:, k] += direction * rng.exponential(size=n) * rng.choice([0.01, 0.3, 3.0], n)
        changes.append((policy.propensity(more, sensitive) - before).min())
    return min(changes)


def true_utility(policy, cost):
    features, group, _ = people(100_000, seed=5)
    sensitive = group if policy.uses_sensitive else None
    return float(
        ((chance_of(features, group) - cost) * policy.propensity(features, sensitive)).mean()
    )


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("model", {"max_gap": 0.05, "fairness": "equal_opportunity"}),
        ("scores", {"max_gap": 0.05, "uses_sensitive": True}),
        ("direct", {"max_gap": 0.05, "fairness": "equal_opportunity"}),
        ("auto", {"max_gap": 0.05, "floor": 0.02}),
        *(
            pytest.param(method, options, marks=pytest.mark.slow)
            for method, options in [
                ("model", {"max_acceptance": {0: 0.2}, "uses_sensitive": True}),
                ("scores", {}),
                ("scores", {"min_ratio": 0.9}),
                ("direct", {"uses_sensitive": True}),
                ("direct", {"penalty": 3.0, "link": "smooth_semi_logistic"}),
                ("auto", {}),
            ]
        ),
    ],
)
def test_nobody_is_accepted_less_often_for_more_of_what_counts_for_them(method, options):
    learner = cq.FairPolicyLearner(cost=0.5, method=method, monotone=MONOTONE, **options)
    learner.fit_log(collected(), folds=2)
    assert worst_change(learner.policy_) >= -ROUNDING
    assert learner.result_.violation <= 1e-3


@pytest.mark.parametrize("method", ["model", "direct"])
def test_what_few_rows_teach_against_it_is_not_learned(method):
    options = {"cost": 0.5, "method": method, "max_gap": 0.05}
    log = collected(500)
    free = cq.FairPolicyLearner(**options).fit_log(log, folds=2).policy_
    bound = cq.FairPolicyLearner(**options, monotone=MONOTONE).fit_log(log, folds=2).policy_
    assert worst_change(free) < -0.1
    assert worst_change(bound) >= -ROUNDING


@pytest.mark.parametrize("method", ["model", "scores", "direct"])
def test_where_the_truth_is_monotone_nothing_is_lost(method):
    log = collected(2_000, seed=1)
    free, monotone = (
        cq.FairPolicyLearner(cost=0.5, method=method, monotone=each).fit_log(log, folds=2).policy_
        for each in (None, MONOTONE)
    )
    assert true_utility(monotone, 0.5) > true_utility(free, 0.5) - 0.002


@pytest.mark.slow
def test_what_a_bound_costs_is_what_the_page_says():
    def utilities(**options):
        learner = cq.FairPolicyLearner(cost=0.5, max_gap=0.05, **options)
        fits = [learner.fit_log(collected(4_000, seed), folds=2).policy_ for seed in range(4)]
        return np.array([true_utility(policy, 0.5) for policy in fits])

    free, monotone = utilities(), utilities(monotone=MONOTONE)
    assert_allclose([free.min(), free.max()], [0.088, 0.091], atol=0.001)
    assert_allclose([monotone.min(), monotone.max()], [0.085, 0.090], atol=0.001)
    aware = utilities(uses_sensitive=True)
    assert_allclose(utilities(uses_sensitive=True, monotone=MONOTONE), aware, atol=0.001)


def test_the_method_is_chosen_by_what_it_is_worth_under_the_penalty():
    # a monotone rule over one score keeps a wide gap, and a search over the features does not
    learner = cq.FairPolicyLearner(cost=0.5, penalty=3.0, monotone=MONOTONE)
    candidates = learner.fit_log(collected(), folds=2).result_.candidates
    assert candidates.chosen.name == "direct"
    gap = {name: abs(candidates[name].value.benefit_gap.value) for name in ("model", "direct")}
    assert gap["model"] > gap["direct"] + 0.05
    assert abs(candidates["model"].difference.value) < 0.02  # their utilities hardly tell


def test_on_a_frontier_the_method_is_chosen_under_each_bound():
    learner = cq.FairPolicyLearner(cost=0.5, monotone=MONOTONE)
    found = cq.frontier(
        collected(4_000), cost=0.5, learner=learner, max_gaps=[0.05, None], folds=2, progress=False
    )
    tight, free = (point.utility.value for point in found.points)
    assert tight > 0.6 * free  # the best rule over one score has a fifth


def test_a_raw_column_is_monotone_among_those_who_have_a_value():
    table = messy_table().query("month < 10")
    learner = cq.FairPolicyLearner(
        cost=0.5,
        monotone={"income": 1, "debt": -1, "owner": 1, "opened": -1},
        max_gap=0.1,
        method="model",
    ).fit(
        table[FEATURES],
        table["repaid"],
        sensitive_features=table["region"],
        decisions=table["approved"],
        propensities=table["p"],
    )
    assert learner.policy_.preparation is not None
    assert table["income"].isna().any()
    before = learner.predict_proba(table[FEATURES])[:, 1]
    rng = np.random.default_rng(0)
    by = rng.exponential(size=len(table))
    richer, freer, owning, older = (table[FEATURES].copy() for _ in range(4))
    richer["income"] += by
    freer["debt"] = (freer["debt"].astype(float) - by).astype(str)
    owning["owner"] = owning["owner"].where(owning["owner"].isna(), True)
    older["opened"] = older["opened"].where(older["opened"].isna(), "2001-01-01")
    for more in (richer, freer, owning, older):
        assert (learner.predict_proba(more)[:, 1] >= before - ROUNDING).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"monotone": {"x9": 1}}, "names a column 'x9', but the columns are x0, x1"),
        ({"monotone": {4: 1}}, "names a column 4"),
        ({"monotone": {"x0": 0}}, "for 'x0' it says 0"),
        ({"monotone": {"x0": "+"}}, r"for 'x0' it says '\+'"),
        ({"feature_map": SplineTransformer()}, "leave out feature_map="),
        ({"outcome_model": LogisticRegression()}, "leave out outcome_model="),
    ],
)
def test_what_cannot_be_promised_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        cq.FairPolicyLearner(**{"monotone": MONOTONE} | options).fit_log(collected(100))


def test_words_have_no_direction():
    table = messy_table(200)
    with pytest.raises(ValueError, match="names 'purpose', a column of words"):
        cq.FairPolicyLearner(monotone={"purpose": 1}).fit(table[FEATURES], table["approved"])


def test_directions_are_a_parameter_as_scikit_learn_has_them():
    features, group, rng = people(300, seed=2)
    labels = (rng.random(300) < chance_of(features, group)).astype(int)
    learner = cq.FairPolicyLearner(method="direct", monotone={"x0": 1}, n_starts=2)
    assert clone(learner).monotone == {"x0": 1}
    search = GridSearchCV(learner, {"monotone": [None, {"x0": 1}, {"x0": -1}]}, cv=2)
    best = search.fit(features, labels).best_params_["monotone"]
    assert best != {"x0": -1}


def test_a_monotone_policy_comes_back_from_its_file(tmp_path):
    log = collected()
    learner = cq.FairPolicyLearner(cost=0.5, method="scores", monotone=MONOTONE)
    policy = learner.fit_log(log, folds=2).policy_
    cq.save_policy(policy, tmp_path / "policy.json")
    again = cq.load_policy(tmp_path / "policy.json")
    assert_array_equal(log.propensity_of(again), log.propensity_of(policy))
