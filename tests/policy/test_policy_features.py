"""Columns are matched by name, by whatever rule and however deep it stands inside another."""

from __future__ import annotations

import pickle
import time
import tracemalloc
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from threadpoolctl import threadpool_limits

import consequential as cq
from consequential.policy import NamedFeatures, Support
from consequential.policy.links import LINKS

POLICY = cq.Policy([0.1, 2.0, -1.0], feature_names=["income", "debt"])
TURNED = cq.Policy([0.1, -1.0, 2.0], feature_names=["debt", "income"])


@cache
def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(rng.normal(size=(60, 3)), columns=["income", "debt", "age"])


def predicted(threshold, *steps) -> cq.ThresholdPolicy:
    """A threshold over a model that was fitted to a frame with debt before income."""
    model = make_pipeline(*steps, LogisticRegression()) if steps else LogisticRegression()
    model.fit(table()[["debt", "income"]], (table()["income"] > 0).astype(int))
    return cq.ThresholdPolicy(model, threshold)


SCALED = [("scaled", StandardScaler(), ["income"]), ("same", "passthrough", ["debt"])]
RULES = {
    "policy": lambda: POLICY,
    "floor": lambda: POLICY.with_floor(0.1),
    "threshold": lambda: predicted(0.5),
    "pipeline": lambda: predicted(0.5, ColumnTransformer(SCALED)),
    "threshold with a floor": lambda: predicted(0.5).with_floor(0.2),
    "mixture of two orders": lambda: cq.Mixture([POLICY, TURNED], [0.5, 0.5]),
    "rules within rules": lambda: cq.Mixture(
        [cq.Mixture([TURNED, POLICY], [0.8, 0.2]), predicted(0.4), cq.RejectAll()], [0.5, 0.3, 0.2]
    ),
}


@pytest.fixture(params=RULES)
def rule(request):
    return RULES[request.param]()


ORDERS = [["income", "debt"], ["debt", "income"], ["debt", "age", "income"]]


def people(names) -> NamedFeatures:
    return NamedFeatures(table()[names].to_numpy(), names)


@pytest.mark.parametrize("names", ORDERS[1:], ids=["turned round", "one more"])
def test_a_rule_finds_its_columns_by_name_in_whatever_order_they_come(rule, names):
    assert_allclose(rule.propensity(people(names)), rule.propensity(people(ORDERS[0])), rtol=1e-12)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_a_frame_and_a_matrix_with_names_are_answered_alike(rule, library):
    frame = library(table()[ORDERS[1]].to_dict("list"))
    assert_allclose(rule.propensity(frame), rule.propensity(people(ORDERS[0])), rtol=1e-12)


def test_decisions_follow_names_too(rule):
    one, other = (rule.decide(people(names), rng=np.random.default_rng(0)) for names in ORDERS[:2])
    assert_array_equal(one, other)


def test_a_rule_says_which_features_it_looks_at(rule):
    assert set(rule.feature_names) == {"income", "debt"}


def test_a_feature_that_is_not_there_is_named(rule):
    with pytest.raises(cq.PolicyError, match=r"no feature 'debt'.*there are income, age"):
        rule.propensity(people(["income", "age"]))


def test_two_orders_of_the_same_policy_are_the_same_policy():
    truth = expit(0.1 + 2.0 * table()["income"] - table()["debt"])
    for names in ORDERS:
        assert_allclose(POLICY.propensity(people(names)), truth, rtol=1e-12)
        assert_allclose(TURNED.propensity(people(names)), truth, rtol=1e-12)


# --- where one side has no names


MADE_UP = cq.Policy([0.1, 2.0, -1.0], feature_names=["x0", "x1"])
NAMELESS = cq.Policy([0.1, 2.0, -1.0])


@pytest.mark.parametrize("policy", [MADE_UP, NAMELESS], ids=["x0, x1", "none"])
def test_a_policy_learned_from_arrays_takes_columns_by_position(policy):
    by_position = expit(0.1 + 2.0 * table()["debt"] - table()["income"])
    turned = ["debt", "income"]
    assert_allclose(policy.propensity(people(turned)), by_position, rtol=1e-12)
    assert_allclose(policy.propensity(table()[turned]), by_position, rtol=1e-12)


def test_a_policy_with_names_takes_the_columns_of_an_array_by_position():
    matrix = table()[ORDERS[0]].to_numpy()
    for nameless in (matrix, NamedFeatures(matrix, ["x0", "x1"])):
        assert_allclose(
            POLICY.propensity(nameless), POLICY.propensity(table()[ORDERS[0]]), rtol=1e-12
        )


def test_names_that_look_made_up_but_come_in_another_order_are_names():
    matrix = table()[ORDERS[1]].to_numpy()
    turned = NamedFeatures(matrix, ["x1", "x0"])
    assert_allclose(MADE_UP.propensity(turned), POLICY.propensity(table()[ORDERS[0]]), rtol=1e-12)


WRONG_COUNTS = {
    "a policy with names": (lambda: POLICY, r"looks at 2 features \(income, debt\), .* 3 columns"),
    "a policy with made-up names": (
        lambda: MADE_UP,
        r"looks at 2 features \(x0, x1\), .* 3 columns",
    ),
    "a policy without names": (
        lambda: NAMELESS,
        "theta has 3 parameters but the features give 4 inputs",
    ),
    "a predictor without names": (
        lambda: cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0, 1.0]), 0.5),
        "fitted to 2 features, but there are 3 columns",
    ),
    "a predictor with names": (RULES["threshold"], "looks at 2 features .* 3 columns"),
}


@pytest.mark.parametrize(("make", "words"), WRONG_COUNTS.values(), ids=WRONG_COUNTS)
def test_by_position_as_many_columns_are_needed_as_the_rule_looks_at(make, words):
    for rule in (make(), cq.Mixture([make(), cq.AcceptAll()], [0.5, 0.5])):
        with pytest.raises(cq.PolicyError, match=words):
            rule.propensity(NamedFeatures(table().to_numpy(), ["x0", "x1", "x2"]))


# --- words


WORDS = cq.Policy([0.0, 1.0, -1.0, 2.0], feature_names=["income", "by=car", "by=boat"])


def test_an_indicator_is_one_where_the_raw_column_says_its_word():
    by = np.array(["boat", "foot", "car", None], dtype=object)
    here = NamedFeatures([[1.0], [2.0], [3.0], [4.0]], ["income"], raw={"by": by})
    assert_allclose(WORDS.propensity(here), expit([3.0, 2.0, 2.0, 4.0]), rtol=1e-12)


def test_an_indicator_that_is_merely_left_out_is_missing():
    # the second person has another word than car: boat, maybe
    here = NamedFeatures([[1.0, 1.0], [2.0, 0.0]], ["income", "by=car"])
    with pytest.raises(cq.PolicyError, match=r"no feature 'by=boat'"):
        WORDS.propensity(here)


# --- the matrix itself


def test_names_do_not_survive_what_may_change_the_columns():
    named = people(ORDERS[0])
    assert named.names == ("income", "debt")
    for derived in (named[:, ::-1], named * 2.0, named[:5], named.T, np.sort(named)):
        assert derived.names == ()
    assert type(np.asarray(named)) is np.ndarray
    assert pickle.loads(pickle.dumps(named)).names == named.names


def test_a_rule_of_ones_own_gets_an_array_it_can_compute_with():
    class Rich(cq.DecisionRule):
        def propensity(self, features, sensitive=None):
            return (features[:, 0] > 0).astype(float)

    log = cq.DecisionLog.from_arrays(
        [[1.0, 2.0], [-1.0, 2.0]], [1, 0], [0.5, 0.5], [1, None], feature_names=["a", "b"]
    )
    found = log.propensity_of(Rich())
    assert type(found) is np.ndarray
    assert_array_equal(found, [1.0, 0.0])


# --- frames and records


def records(names) -> list[dict]:
    return table()[names].to_dict("records")


def test_records_are_answered_like_the_rows_of_a_frame(rule):
    expected = rule.propensity(people(ORDERS[0]))
    assert_allclose(rule.propensity(records(ORDERS[1])), expected, rtol=1e-12)
    assert_allclose(rule.propensity(records(ORDERS[1])[7]), expected[[7]], rtol=1e-12)


def test_a_record_is_decided_on_like_a_row(rule):
    one, other = (
        rule.decide(given, rng=np.random.default_rng(0))
        for given in (records(ORDERS[0]), people(ORDERS[0]))
    )
    assert_array_equal(one, other)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.Table.from_pylist, list])
def test_a_column_missing_or_too_many_is_an_error_with_its_name(rule, library):
    with pytest.raises(cq.PolicyError, match=r"no column 'debt' in the frame; it has \['income'\]"):
        rule.propensity(library(records(["income"])))
    with pytest.raises(cq.PolicyError, match=r"does not look at 'age'.* no others \("):
        rule.propensity(library(records(ORDERS[2])))


def test_rules_without_features_count_records_too():
    assert_array_equal(cq.AcceptAll().propensity(records(ORDERS[2])), np.ones(60))
    assert_array_equal(cq.RejectAll().propensity({"purpose": "car"}), [0.0])


def test_a_record_can_come_with_its_group():
    policy = cq.Policy([0.0, 1.0, 5.0, 1.0], groups=["f", "m"], feature_names=["income"])
    assert_allclose(policy.propensity({"income": 1.0}, "m"), expit([6.0]))


REFUSED = {
    "a missing number": ({"income": None, "debt": 1.0}, "'income' of row 0 is nan"),
    "no number": ({"income": "12k", "debt": 1.0}, "'income' has type String"),
    "an endless number": ({"income": 1.0, "debt": np.inf}, "'debt' of row 0 is inf"),
    "other columns in the second": (
        [{"income": 1.0, "debt": 1.0}, {"income": 1.0}],
        "row 1 has no column 'debt', which others have",
    ),
    "no dict among dicts": ([{"income": 1.0, "debt": 1.0}, 3.0], "row 1 is not a dict"),
    "kinds that do not mix": (
        [{"income": 1.0, "debt": 1.0}, {"income": "much", "debt": 1.0}],
        "'income' has values of several kinds",
    ),
}


@pytest.mark.parametrize(("given", "words"), REFUSED.values(), ids=REFUSED)
def test_a_record_that_cannot_be_decided_is_refused_with_the_reason(given, words):
    with pytest.raises(cq.PolicyError, match=words):
        POLICY.propensity(given)


def test_a_policy_without_names_says_that_it_cannot_read_a_record():
    for policy in (MADE_UP, NAMELESS):
        with pytest.raises(cq.PolicyError, match="knows no names for its features"):
            policy.propensity({"income": 1.0, "debt": 1.0})
    assert_allclose(MADE_UP.propensity({"x1": 1.0, "x0": 2.0}), expit([3.1]))


def test_words_in_records_are_found_and_a_missing_word_is_refused():
    assert_allclose(WORDS.propensity({"by": "boat", "income": 1.0}), expit([3.0]))
    with pytest.raises(cq.PolicyError, match="the column 'by' is missing in row 0"):
        WORDS.propensity({"by": None, "income": 1.0})


# --- bits


@pytest.mark.parametrize("n_features", [1, 2, 3, 5, 8, 20, 33])
@pytest.mark.parametrize("order", ["C", "F"])
def test_one_row_has_the_same_bits_as_in_a_batch(n_features, order, rng):
    matrix = np.asarray(rng.normal(size=(1_000, n_features)), order=order)
    logged = np.where(matrix.sum(axis=1) > 0.3, 0.5, 0.0)
    policies = [
        cq.Policy(rng.normal(size=n_features + 1), floor=0.1),
        cq.Policy(
            rng.normal(size=n_features + 1), support=Support.of(matrix, logged, n=len(matrix))
        ),
        cq.Policy(
            rng.normal(size=5 * n_features + 1),
            "smooth_semi_logistic",
            SplineTransformer(n_knots=4, include_bias=False).fit(matrix),
        ),
    ]
    for policy in policies:
        together = policy.propensity(matrix)
        alone = [policy.propensity(matrix[k : k + 1])[0] for k in range(0, 1_000, 41)]
        assert_array_equal(alone, together[::41])


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("by_group", [False, True])
def test_rows_of_every_chunk_have_the_bits_they_have_alone(link, by_group, rng):
    n = 2 * 16_384 + 3
    matrix, sensitive = rng.normal(size=(n, 6)), rng.integers(2, size=n)
    groups = (0, 1) if by_group else ()
    policy = cq.Policy(rng.normal(size=7 * max(1, len(groups))), link, groups=groups)
    together = policy.propensity(matrix, sensitive)
    for k in (*range(0, n, 997), 16_383, 16_384, n - 1):
        here = slice(k, k + 1)
        assert policy.propensity(matrix[here], sensitive[here])[0] == together[k]


def test_propensities_of_many_people_need_less_memory_than_the_features(rng):
    matrix = rng.normal(size=(200_000, 20))
    policy = cq.Policy(rng.normal(size=21))
    tracemalloc.start()
    try:
        policy.propensity(matrix)
        assert tracemalloc.get_traced_memory()[1] < matrix.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "people",
    [np.array([["2024-01-01"]], "M8[ns]"), [[1j]], [[10**400]], [["x"]], [[1.0], [1.0, 2.0]]],
    ids=["dates", "complex", "giant", "words", "ragged"],
)
def test_people_who_are_no_numbers_are_refused(people):
    with pytest.raises(cq.PolicyError, match="features must be numbers"):
        cq.Policy([0.0, 1.0]).propensity(people)


@pytest.mark.slow
def test_many_rows_take_hardly_longer_than_with_blas(rng):
    matrix, theta = rng.normal(size=(200_000, 20)), rng.normal(size=21)
    policy = cq.Policy(theta)

    def with_blas():
        assert np.isfinite(matrix).all()
        return policy.probability(np.column_stack([np.ones(len(matrix)), matrix]) @ theta)

    def seconds(work) -> float:
        started = time.process_time()  # not of the clock: others may use the machine
        work()
        return time.process_time() - started

    with threadpool_limits(1):  # threads that wait for a busy processor count as working
        pairs = [(seconds(lambda: policy.propensity(matrix)), seconds(with_blas)) for _ in range(7)]
    ours, theirs = (min(each) for each in zip(*pairs, strict=True))
    assert ours <= 1.3 * theirs


@pytest.mark.parametrize("names", [(), ("income",)], ids=["nameless", "named"])
def test_a_policy_does_not_see_through_a_mask(names):
    policy = cq.Policy([0.0, 1.0], feature_names=names)
    with pytest.raises(cq.PolicyError, match="of row 1 is nan"):
        policy.propensity(np.ma.array([1.0, 2.0], mask=[False, True]))
    by_group = cq.Policy([0.0, 1.0, 0.0, 2.0], groups=["f", "m"])
    with pytest.raises(cq.PolicyError, match="unknown sensitive group nan"):
        by_group.propensity([1.0, 2.0], np.ma.array(["f", "m"], mask=[False, True]))
