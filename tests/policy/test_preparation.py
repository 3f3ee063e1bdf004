"""Raw columns become features, in every kind of table the same, and again for one person."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import skops.io
from numpy.testing import assert_array_equal

import consequential as cq
from consequential.policy import NamedFeatures, Preparation
from consequential.policy.raw_column import Seen
from messy_tables import FEATURES, messy_table


def pandas(columns):
    return pd.DataFrame(columns)


def nullable(columns):
    return pd.DataFrame(columns).convert_dtypes()


def on_arrow(columns):
    return pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow")


LIBRARIES = [pandas, nullable, on_arrow, pl.DataFrame, pa.table]
DAY = dt.date(1970, 1, 3)
KINDS = {
    "numbers": ([1.5, 2.0, 4.0], {"x": [1.5, 2.0, 4.0]}),
    "numbers with blanks": (
        [1.0, None, 5.0],
        {"x": [1.0, 3.0, 5.0], "x missing": [0, 1, 0]},
    ),
    "whole numbers with blanks": (
        [1, None, 5],
        {"x": [1.0, 3.0, 5.0], "x missing": [0, 1, 0]},
    ),
    "words": (["b", "a", "b"], {"x=a": [0, 1, 0], "x=b": [1, 0, 1]}),
    "words with blanks": (
        ["b", None, " "],
        {"x=b": [1, 0, 0], "x missing": [0, 1, 1]},
    ),
    "booleans": ([True, False, True], {"x": [1, 0, 1]}),
    "booleans with blanks": (
        [True, True, None],
        {"x": [1, 1, 1], "x missing": [0, 0, 1]},
    ),
    "dates": ([dt.date(1970, 1, 1), DAY, dt.date(1969, 12, 31)], {"x": [0, 2, -1]}),
    "dates with blanks": (
        [DAY, None, dt.date(1970, 1, 5)],
        {"x": [2, 3, 4], "x missing": [0, 1, 0]},
    ),
    "times": ([dt.datetime(1970, 1, 2, 23, 59), dt.datetime(1970, 1, 3)], {"x": [1, 2]}),
    "dates in text": (["1970-01-01", None, "1970-01-03"], {"x": [0, 1, 2], "x missing": [0, 1, 0]}),
    "months in text": (["1970-01", "1970-02"], {"x": [0, 31]}),
    "numbers in text": (["10", "-2.5", None], {"x": [10, -2.5, 3.75], "x missing": [0, 0, 1]}),
    "codes": (["01", "10", "01"], {"x=01": [1, 0, 1], "x=10": [0, 1, 0]}),
    "the text nan among numbers": (["1", "NAN"], {"x": [1, 1], "x missing": [0, 1]}),
    "truth in text": (["true", "FALSE"], {"x": [1, 0]}),
    "nothing at all": ([None, None], {"x": [0, 0], "x missing": [1, 1]}),
}


@pytest.mark.parametrize("make", LIBRARIES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("values", "expected"), KINDS.values(), ids=KINDS)
def test_a_column_becomes_features_whatever_the_library(values, expected, make):
    frame = make({"x": values})
    preparation = Preparation.of(frame)
    found = preparation.transform(frame)
    assert found.names == preparation.feature_names == tuple(expected)
    assert_array_equal(found, np.array(list(expected.values()), dtype=float).T)
    records = [{"x": value} for value in values]
    assert_array_equal(preparation.transform(records), found)
    assert_array_equal(preparation.transform(records[1]), found[1:2])
    assert not found.unknown


def test_times_are_the_day_it_was_there():
    when = pd.to_datetime(["1970-01-02 23:30", "1970-01-04 00:30"]).tz_localize("Pacific/Auckland")
    for frame in (pd.DataFrame({"x": when}), pl.DataFrame({"x": pl.Series(when)})):
        assert_array_equal(Preparation.of(frame).transform(frame), [[1.0], [3.0]])


def test_categories_are_words_also_if_they_have_numbers():
    frame = pd.DataFrame({"x": pd.Categorical(["1", "2", "1"])})
    preparation = Preparation.of(frame)
    assert preparation.feature_names == ("x=1", "x=2")
    # tomorrow's file may have them as numbers, and beside blanks even with a decimal point
    for again in ([1, 2, 1], [1.0, 2.0, 1.0]):
        tomorrow = pd.DataFrame({"x": again})
        assert_array_equal(preparation.transform(tomorrow), preparation.transform(frame))


# --- rare and unknown words


def counted(**counts) -> pd.DataFrame:
    return pd.DataFrame({"x": [word for word, n in counts.items() for _ in range(n)]})


def test_rare_words_share_a_feature():
    preparation = Preparation.of(counted(common=1960, twenty=20, nineteen=19, one=1))
    assert preparation.feature_names == ("x=common", "x=twenty", "x=other words")
    assert preparation.notes == ("2 of 4 words of 'x' are rare and count as 'x=other words'",)
    # in a small table a word is not rare before it has less than a hundredth of the rows
    small = Preparation.of(counted(common=198, two=2, one=1))
    assert small.feature_names == ("x=common", "x=two", "x=other words")
    assert Preparation.of(counted(common=98, one=1)).feature_names == ("x=common", "x=one")


def test_only_the_commonest_words_have_a_feature_each():
    preparation = Preparation.of(counted(**{f"w{k:02}": 100 + k for k in range(60)}))
    assert preparation.feature_names[0] == "x=w10"
    assert len(preparation.feature_names) == 51
    assert preparation.columns[0].typical == "w59"


def test_unknown_words_go_where_rare_ones_are_and_are_counted():
    preparation = Preparation.of(counted(common=1990, rare=10))
    found = preparation.transform([{"x": "plane"}, {"x": "rare"}, {"x": "plane"}, {"x": None}])
    assert_array_equal(found, [[0, 1], [0, 1], [0, 1], [0, 1]])
    assert found.unknown == {"x": {"plane": 2, "": 1}}
    assert found.notes == (
        "2 rows have the x 'plane', which the policy has never seen: it counts as 'x=other words'",
        "1 row has no x, which nobody lacked whom the policy learned from",
    )


def test_without_rare_words_an_unknown_one_is_none_of_those_known():
    found = Preparation.of(counted(a=5, b=5)).transform({"x": "plane"})
    assert_array_equal(found, [[0, 0]])
    assert "it counts as none of the words it knows" in found.notes[0]


def test_a_number_that_was_never_missing_is_replaced_and_counted():
    preparation = Preparation.of(pd.DataFrame({"x": [1.0, 2.0, 4.0]}))
    found = preparation.transform({"x": None})
    assert_array_equal(found, [[2.0]])
    assert found.unknown == {"x": {"": 1}}


def test_names_and_numbers_of_cases_are_no_categories():
    for words in ([f"street {k}" for k in range(60)], [f"n{k % 1000}" for k in range(5000)]):
        with pytest.raises(cq.PolicyError, match=r"different values in .* no categories"):
            Preparation.of(pd.DataFrame({"x": words}))


# --- what cannot be


@pytest.fixture(scope="module")
def messy() -> pd.DataFrame:
    return messy_table()[FEATURES]


@pytest.fixture(scope="module")
def preparation(messy) -> Preparation:
    return Preparation.of(messy)


WRONG = {
    "a column missing": (lambda t: t.drop(columns="debt"), "no column 'debt'; there are income"),
    "one too many": (lambda t: t.assign(sex="f"), "there is a column 'sex', which is none of"),
    "words for numbers": (
        lambda t: t.assign(income=["3"] * 7 + ["12k"] * (len(t) - 7)),
        "column 'income' must be finite numbers, but row 7 has '12k': write numbers as 1234.5",
    ),
    "dates for numbers": (
        lambda t: t.assign(income=t["born"]),
        "'income' must be finite numbers, but",
    ),
    "no dates": (
        lambda t: t.assign(opened=["2020-01-01"] * 3 + ["soon"] * (len(t) - 3)),
        "column 'opened' must be dates, such as 2024-03-01, but row 3 has 'soon'",
    ),
    "numbers for dates": (lambda t: t.assign(born=7), "'born' must be dates, .* row 0 has 7"),
    "no truth": (lambda t: t.assign(owner="maybe"), "'owner' must be true or .* row 0 has 'maybe'"),
    "numbers for truth": (lambda t: t.assign(owner=7), r"'owner' must be true .* row 0 has 7\.0"),
    "infinity": (lambda t: t.assign(income=np.inf), "'income' must be finite numbers, .* has inf"),
    "a record without a column": (
        lambda t: [*t.head(2).to_dict("records"), {"income": 1.0}],
        "row 2 has no column 'purpose', which others have",
    ),
    "a matrix": (lambda t: np.zeros((2, 6)), "raw columns come in a data frame, .* not in a ndarr"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_named(change, words, messy, preparation):
    with pytest.raises(cq.PolicyError, match=words):
        preparation.transform(change(messy))


def test_columns_that_become_features_of_one_name_are_refused():
    frame = pd.DataFrame({"x": ["y=car", "z"], "x=y": ["car", "bus"]})
    with pytest.raises(cq.PolicyError, match="two features would have the name 'x=y=car'"):
        Preparation.of(frame)
    # a name with an equals sign in it is no trouble by itself
    fine = Preparation.of(frame.assign(x=["y", "z"]))
    assert fine.feature_names == ("x=y", "x=z", "x=y=bus", "x=y=car")
    assert_array_equal(fine.transform({"x": "y", "x=y": "car"}), [[1, 0, 0, 1]])


# --- policies that prepare raw columns


def policy_of(preparation) -> cq.Policy:
    n = len(preparation.feature_names)
    theta = np.random.default_rng(0).normal(size=n + 1) / 1e3
    return cq.Policy(theta, preparation=preparation)


def test_a_policy_decides_on_raw_people_as_on_prepared_ones(messy, preparation):
    policy = policy_of(preparation)
    prepared = preparation.transform(messy)
    expected = policy.propensity(np.asarray(prepared))
    shuffled = messy[FEATURES[::-1]]
    for people in (messy, shuffled, pl.from_pandas(messy), messy.to_dict("records"), prepared):
        assert_array_equal(policy.propensity(people), expected)
        one, other = (policy.decide(x, rng=np.random.default_rng(0)) for x in (people, messy))
        assert_array_equal(one, other)
    assert policy.propensity(messy.iloc[5].to_dict()) == pytest.approx(expected[5], rel=1e-12)
    assert policy.raw_columns == tuple(FEATURES)


def test_rules_around_a_policy_take_raw_people_too(messy, preparation):
    policy = policy_of(preparation)
    expected = policy.propensity(messy)
    mixed = cq.Mixture([policy, cq.AcceptAll(), cq.RejectAll()], [0.5, 0.25, 0.25])
    assert_array_equal(mixed.propensity(messy.to_dict("records")), 0.5 * expected + 0.25)
    assert mixed.raw_columns == tuple(FEATURES)
    unknown = messy.assign(purpose="plane")
    assert mixed.unfamiliar(unknown) == policy.unfamiliar(unknown)
    assert "'plane', which the policy has never seen" in policy.unfamiliar(unknown)[0]
    assert cq.AcceptAll().propensity(messy.iloc[0].to_dict()).tolist() == [1.0]


def test_a_policy_prepares_raw_columns_of_others_in_its_own_way(messy, preparation):
    policy = policy_of(preparation)
    other = messy_table(300, seed=1)[FEATURES]
    prepared_there = Preparation.of(other).transform(other)
    assert prepared_there.preparation != preparation
    assert_array_equal(policy.propensity(prepared_there), policy.propensity(other))
    # without raw columns features are found by name
    names = preparation.feature_names
    turned = NamedFeatures(preparation.transform(messy)[:, ::-1], names[::-1])
    np.testing.assert_allclose(policy.propensity(turned), policy.propensity(messy), rtol=1e-12)


def test_features_that_nobody_prepared_are_found_by_name():
    table = pd.DataFrame({"born": pd.to_datetime(["1970-01-02", "1970-01-04"]), "n": [1, None]})
    preparation = Preparation.of(table)
    policy = policy_of(preparation)
    bare = NamedFeatures(preparation.transform(table), preparation.feature_names)
    assert_array_equal(policy.propensity(bare), policy.propensity(table))
    # an array without blanks has no feature that says where they are
    numbers = policy_of(Preparation.of(table[["n"]]))
    assert_array_equal(
        numbers.propensity(NamedFeatures([[2.0]], ["n"])), numbers.propensity({"n": 2})
    )


def test_indicators_of_words_need_no_preparation():
    policy = cq.Policy([0.0, 1.0, 2.0, -1.0], feature_names=["income", "by=car", "by=boat"])
    people = pd.DataFrame({"by": ["boat", "car", "foot"], "income": [1.0, 2.0, 3.0]})
    same = cq.Policy([0.0, 1.0, 2.0, -1.0]).propensity([[1, 0, 1], [2, 1, 0], [3, 0, 0]])
    assert_array_equal(policy.propensity(people), same)
    assert_array_equal(policy.propensity(Preparation.of(people).transform(people)), same)


# --- storage


def test_a_preparation_survives_skops_and_json(messy, preparation, tmp_path):
    stored = skops.io.dumps(preparation)
    trusted = skops.io.get_untrusted_types(data=stored)
    assert all(name.startswith("consequential.policy.") for name in trusted)
    assert skops.io.loads(stored, trusted=trusted) == preparation
    assert Preparation.from_dict(preparation.to_dict()) == preparation
    policy = policy_of(preparation)
    cq.save_policy(policy, tmp_path / "policy.json")
    again = cq.load_policy(tmp_path / "policy.json")
    assert again.preparation == preparation
    assert_array_equal(again.propensity(messy), policy.propensity(messy))


# --- reasons and rows that cannot be read


def test_reasons_speak_of_raw_columns():
    table = pd.DataFrame(
        {
            "income": [1.0, 2.0, None, 3.0, 2.0],
            "by": ["car", "car", "foot", None, "car"],
            "owner": [True, True, False, None, True],
            "since": pd.to_datetime(["1970-01-02", "1970-01-05", "1970-01-05", None, "1970-01-09"]),
        }
    )
    preparation = Preparation.of(table)
    assert preparation.feature_names[:5] == (
        "income",
        "income missing",
        "by=car",
        "by=foot",
        "by missing",
    )
    theta = [0.0, 1.0, -5.0, 0.5, -0.5, -2.0, 0.25, -0.5, 0.125, -3.0]
    features = preparation.transform(table)
    summary = cq.FeatureSummary.of(features, preparation.feature_names)
    policy = cq.Policy(theta, preparation=preparation, summary=summary)
    nothing = dict.fromkeys(table.columns)
    assert [str(reason) for reason in policy.reasons(nothing)] == [
        "income is missing (2 would raise the score by 5, the probability to 0.0601)",
        "since is missing (1970-01-05 would raise the score by 3, the probability to 0.00858)",
        "by is missing (car would raise the score by 2.5, the probability to 0.00522)",
        "owner is missing (true would raise the score by 0.5, the probability to 0.00071)",
    ]
    other = {"income": 1.5, "by": "plane", "owner": False, "since": "1970-01-02"}
    assert [str(reason) for reason in policy.reasons(other)] == [
        "income is 1.5 (2 would raise the score by 0.5, the probability to 0.893)",
        "by is another word (car would raise the score by 0.5, the probability to 0.893)",
        "since is 1970-01-02 (1970-01-05 would raise the score by 0.375, the probability to 0.881)",
        "owner is false (true would raise the score by 0.25, the probability to 0.867)",
    ]


def test_rows_that_cannot_be_read_are_found():
    income, by = Preparation.of(pd.DataFrame({"income": [1.0, 2.0], "by": ["car", "foot"]})).columns
    cells = np.array(["1", "12k", None, "inf"], dtype=object)
    assert income.unreadable(cells) == {1: "12k", 3: "inf"}
    assert income.unreadable(np.array([1.0, np.nan])) == {}
    assert by.unreadable(cells) == {}


def test_parts_of_a_column_of_two_kinds_are_not_one_column():
    numbers, words = (Seen.of("x", np.array(each)) for each in ([1.0], np.array(["a"], object)))
    with pytest.raises(cq.PolicyError, match="parts of one column are number and text"):
        numbers + words
    assert (words + words).counts == {"a": 2}


def test_a_whole_number_too_large_for_a_float_is_refused():
    policy = cq.Policy([0.0, 1.0], preparation=Preparation.of(pa.table({"x": [1.0, 2.0]})))
    with pytest.raises(
        cq.PolicyError, match="the column 'x' must be finite numbers, but row 0 has '1000"
    ):
        policy.propensity({"x": 10**400})
