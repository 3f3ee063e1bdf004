"""A log's columns are matched to a rule's by name in everything that is asked of a log."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

import consequential as cq

NAMED = {"decision": "d", "propensity": "p", "label": "y", "sensitive": "z"}


def table(n=600, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    income, debt, age = rng.normal(size=(3, n))
    p = 0.1 + 0.8 / (1.0 + np.exp(-income))
    d = rng.random(n) < p
    y = np.where(d, rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * (income - debt))), np.nan)
    z = rng.choice(["a", "b"], n)
    return pd.DataFrame(
        {"income": income, "debt": debt, "age": age, "d": d.astype(int), "p": p, "y": y, "z": z}
    )


POLICY = cq.Policy([0.0, 2.0, -2.0], feature_names=["income", "debt"])


@cache
def threshold() -> cq.ThresholdPolicy:
    people = table()
    people = people[people["d"] == 1]
    model = LogisticRegression().fit(people[["income", "debt"]], people["y"].astype(int))
    return cq.ThresholdPolicy(model, 0.5)


RULES = {
    "policy": lambda: POLICY,
    "floor": lambda: POLICY.with_floor(0.05),
    "mixture": lambda: cq.Mixture([POLICY, cq.AcceptAll()], [0.7, 0.3]),
    "threshold": threshold,
}


@pytest.fixture(params=RULES)
def rule(request):
    return RULES[request.param]()


@cache
def log_of(*features) -> cq.DecisionLog:
    return cq.DecisionLog.from_frame(table(), features=list(features), **NAMED)


@pytest.fixture
def right() -> cq.DecisionLog:
    return log_of("income", "debt")


ORDERS = {"turned round": ["debt", "income"], "one more column": ["age", "debt", "income"]}


@pytest.fixture(params=ORDERS)
def log(request) -> cq.DecisionLog:
    return log_of(*ORDERS[request.param])


def test_evaluations_do_not_depend_on_the_order_of_columns(rule, log, right):
    assert_allclose(log.propensity_of(rule), right.propensity_of(rule), rtol=1e-12)
    found, truth = (cq.evaluate(rule, each, cost=0.5).utility for each in (log, right))
    assert_allclose([found.value, found.low], [truth.value, truth.low], rtol=1e-9)
    found, truth = (cq.compare(rule, cq.Logged(), each, cost=0.5) for each in (log, right))
    assert found.verdict == truth.verdict
    assert_allclose(found.utility.value, truth.utility.value, rtol=1e-9)


def test_rates_and_sensitivity_do_not_depend_on_the_order_of_columns(log, right):
    rule = RULES["mixture"]()
    found, truth = (cq.group_metrics(rule, each).overall for each in (log, right))
    assert found.keys() == truth.keys()
    for name, rate in found.items():
        assert_allclose(rate.value, truth[name].value, rtol=1e-9)
    found, truth = (
        cq.sensitivity(rule, each, cost=0.5, gammas=[1, 2]).utility for each in (log, right)
    )
    assert_allclose([each.low for each in found], [each.low for each in truth], rtol=1e-9)


def test_a_scan_matches_columns_by_name_as_a_log_does(rule, right, tmp_path):
    people = table()
    for k, part in enumerate(np.array_split(np.arange(len(people)), 3)):
        pq.write_table(pa.Table.from_pandas(people.iloc[part]), tmp_path / f"{k}.parquet")
    scan = cq.DecisionLog.scan(tmp_path, features=["age", "debt", "income"], **NAMED)
    found = cq.evaluate(rule, scan, cost=0.5).utility.value
    assert_allclose(found, cq.evaluate(rule, right, cost=0.5).utility.value, rtol=1e-9)
    unfit = cq.DecisionLog.scan(tmp_path, features=["age", "debt"], **NAMED)
    with pytest.raises(cq.DecisionLogError, match=r"no feature 'income'"):
        cq.evaluate(rule, unfit, cost=0.5)


def test_a_feature_the_log_does_not_have_is_an_error_that_names_it(rule):
    words = "the rule does not fit the log: no feature 'income', .*there are age, debt"
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.evaluate(rule, log_of("age", "debt"), cost=0.5)


def test_unrelated_names_are_refused_even_if_there_are_as_many():
    renamed = table().rename(columns={"income": "height", "debt": "weight"})
    log = cq.DecisionLog.from_frame(renamed, features=["height", "weight"], **NAMED)
    with pytest.raises(cq.DecisionLogError, match=r"no feature 'income'.*height, weight"):
        cq.compare(POLICY, cq.Logged(), log, cost=0.5)


def test_a_learned_policy_keeps_its_value_when_a_log_has_its_columns_in_another_order(right):
    learner = cq.FairPolicyLearner(method="direct", cost=0.5).fit_log(right)
    later = table(seed=1)
    values = [
        cq.evaluate(
            learner, cq.DecisionLog.from_frame(later, features=names, **NAMED), cost=0.5
        ).utility.value
        for names in (["income", "debt"], ["debt", "income"], ["debt", "age", "income"])
    ]
    assert_allclose(values, values[0], rtol=1e-9)


def test_policies_learned_from_words_are_judged_where_a_word_no_longer_occurs():
    rng = np.random.default_rng(2)
    people = table()
    purposes = people.assign(purpose=rng.choice(["boat", "car", "home"], len(people)))
    log = cq.DecisionLog.from_frame(purposes, features=["purpose", "income"], **NAMED)
    policy = cq.FairPolicyLearner(method="direct", cost=0.5).fit_log(log).policy_
    without = purposes[purposes["purpose"] != "boat"]
    later = cq.DecisionLog.from_frame(without, features=["income", "purpose"], **NAMED)
    assert later.feature_names == ("income", "purpose=car", "purpose=home")
    raw = without[["purpose", "income"]]
    assert_allclose(later.propensity_of(policy), policy.propensity(raw), rtol=1e-12)


def test_a_log_of_arrays_has_no_names_that_could_contradict_a_policys(rule, right):
    plain = cq.DecisionLog.from_arrays(
        right.features, right.decision, right.propensity, right.label, right.sensitive
    )
    assert_allclose(plain.propensity_of(rule), right.propensity_of(rule), rtol=1e-12)
    wider = log_of("age", "debt", "income")
    with pytest.raises(cq.DecisionLogError, match=r"looks at 2 features .* 3 columns"):
        cq.DecisionLog.from_arrays(
            wider.features, wider.decision, wider.propensity, wider.label
        ).propensity_of(POLICY)


def test_a_world_matches_columns_by_name_when_it_collects_and_when_it_measures():
    people = table()
    label = np.random.default_rng(3).integers(2, size=len(people))
    world = cq.worlds.from_frame(
        people.assign(repaid=label),
        features=["debt", "income"],
        sensitive="z",
        label="repaid",
        cost=0.5,
    )
    turned = cq.Policy([0.0, -2.0, 2.0], feature_names=["debt", "income"])
    mixed = [cq.Mixture([each, cq.AcceptAll()], [0.7, 0.3]) for each in (POLICY, turned)]
    for rule, same in ((POLICY, turned), mixed):
        assert_allclose(world.measure(rule).utility, world.measure(same).utility, rtol=1e-9)
        one, other = (world.collect(each, 50, np.random.default_rng(0)) for each in (rule, same))
        assert_allclose(one.propensity, other.propensity, rtol=1e-12)
    with pytest.raises(cq.PolicyError, match="no feature 'age'"):
        world.measure(cq.Policy([0.0, 1.0], feature_names=["age"]))
