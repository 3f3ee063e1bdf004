"""Logs of raw tables: what a policy does with people in a table is what the log saw of them."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import consequential as cq
from consequential.log import scan as scan_module
from consequential.policy import Preparation
from messy_tables import FEATURES, NAMED, messy_table

WAITING = {"time_step": "month", "horizon": 2}


def log_of(table, **more) -> cq.DecisionLog:
    return cq.DecisionLog.from_frame(table, features=FEATURES, **NAMED, **WAITING, **more)


@pytest.fixture(scope="module")
def table():
    return messy_table()


@pytest.fixture(scope="module")
def log(table):
    return log_of(table)


@pytest.fixture(scope="module")
def policy(log):
    return cq.FairPolicyLearner(cost=0.5, max_gap=0.1, l2=1e-4).fit_log(log).policy_


def test_a_messy_table_becomes_a_log_of_numbers_and_says_how(log):
    assert log.feature_names == (
        "income",
        "income missing",
        "purpose=car",
        "purpose=home",
        "purpose=study",
        "purpose=other words",
        "purpose missing",
        "owner",
        "owner missing",
        "opened",
        "opened missing",
        "born",
        "debt",
    )
    assert np.isfinite(log.features).all()
    assert log.groups == ("east", "north", "west")
    assert log.n_pending > 0
    assert log.concerns == ()
    assert log.notes[0].startswith("values are missing in 'income' (")
    assert log.notes[1:] == (
        "1 of 4 words of 'purpose' is rare and counts as 'purpose=other words'",
        "the column 'debt' is text that has only numbers, and was read as numbers; if they are "
        "codes, make them words",
        "dates in 'opened', 'born' are days since 1970-01-01",
    )


def test_every_library_makes_the_same_log(table, log):
    for frame in (pl.from_pandas(table), pa.Table.from_pandas(table)):
        again = log_of(frame)
        assert again.fingerprint == log.fingerprint
        assert again.preparation == log.preparation


def test_a_policy_does_with_raw_people_what_it_did_in_its_log(table, log, policy):
    assert policy.preparation == log.preparation
    seen = log.propensity_of(policy)
    raw = table[FEATURES]
    for people in (raw, pl.from_pandas(raw), raw.to_dict("records")):
        assert_array_equal(policy.propensity(people), seen)
    assert policy.supports(raw).tolist() == policy.supports(log.named_features).tolist()


@pytest.mark.parametrize("like", [True, False], ids=["as the policy", "in its own way"])
def test_a_later_log_is_judged_by_what_the_policy_will_do(policy, like):
    later = messy_table(400, seed=1, purposes=("car", "home", "plane", "boat"))
    if like:
        log = cq.DecisionLog.from_frame(later, like=policy, **NAMED)
        assert log.feature_names == policy.feature_names
        assert "'plane', which the policy has never seen" in log.notes[0]
    else:
        log = cq.DecisionLog.from_frame(later, features=FEATURES, **NAMED)
        assert "purpose=plane" in log.feature_names
    assert_array_equal(log.propensity_of(policy), policy.propensity(later[FEATURES]))
    some = np.arange(0, 400, 7)
    assert_array_equal(
        log.take(some).propensity_of(policy), policy.propensity(later[FEATURES].iloc[some])
    )


def test_policies_that_learned_from_different_logs_are_compared_on_one(policy):
    other = messy_table(600, seed=5, purposes=("home", "car", "study", "boat"))
    names = ["debt", "income", "purpose"]
    recent = cq.DecisionLog.from_frame(other, features=names, **NAMED, **WAITING)
    second = cq.FairPolicyLearner(cost=0.5, l2=1e-4).fit_log(recent).policy_
    later = messy_table(400, seed=6)
    log = log_of(later)
    mixed = cq.Mixture([policy, second], [0.5, 0.5])
    expected = policy.propensity(later[FEATURES]) + second.propensity(later[names])
    assert_array_equal(log.propensity_of(mixed), expected / 2)
    raw = later[FEATURES]  # the second policy looks at half of the columns
    for people in (raw, raw.to_dict("records")):
        assert_array_equal(mixed.propensity(people), expected / 2)
    one = mixed.propensity(raw.iloc[0].to_dict())
    assert_allclose(one, expected[:1] / 2, rtol=1e-9)
    assert mixed.unfamiliar(raw) == ()


def test_a_predictor_fitted_to_a_raw_table_is_judged_on_its_log(table, log):
    encoder = OneHotEncoder(handle_unknown="ignore")
    columns = ["purpose", "debt"]
    pipeline = make_pipeline(
        ColumnTransformer([("words", encoder, ["purpose"]), ("debt", "passthrough", ["debt"])]),
        LogisticRegression(),
    )
    rows = table.assign(debt=table["debt"].astype(float))[columns]
    rule = cq.ThresholdPolicy(pipeline.fit(rows, table["owner"].fillna(False).astype(int)), 0.4)
    assert_array_equal(log.propensity_of(rule), rule.propensity(rows))


def test_logs_of_later_tables_are_concatenated_if_they_are_prepared_alike(table, log, policy):
    later = messy_table(300, seed=1)
    alike = cq.DecisionLog.from_frame(later, like=log, **NAMED, **WAITING)
    both = cq.DecisionLog.concatenate([log, alike])
    expected = [policy.propensity(each[FEATURES]) for each in (table, later)]
    assert_array_equal(both.propensity_of(policy), np.concatenate(expected))
    other = cq.Policy(np.ones(2), feature_names=["purpose=boat"])  # needs the raw column
    assert both.propensity_of(other).max() > 0.8
    with pytest.raises(cq.DecisionLogError, match=r"prepared differently.*like=, the first log"):
        cq.DecisionLog.concatenate([log, log_of(table.assign(income=table["income"] * 2))])


def test_complete_numbers_are_concatenated_whatever_their_medians():
    logs = [
        cq.DecisionLog.from_frame(messy_table(50, seed=seed), features=["month", "p"], **NAMED)
        for seed in (0, 1)
    ]
    assert logs[0].preparation != logs[1].preparation
    assert len(cq.DecisionLog.concatenate(logs)) == 100


def test_raw_columns_stay_with_a_log_that_is_split_or_sent_elsewhere(table, log):
    early, _ = log.split(0.5)
    sent = pickle.loads(pickle.dumps(early))
    rows = table[FEATURES].iloc[: len(early)]
    other = Preparation.of(rows.head(100))
    theta = np.linspace(-1e-4, 1e-4, 1 + len(other.feature_names))
    policy = cq.Policy(theta, feature_names=other.feature_names, preparation=other)
    assert_array_equal(sent.propensity_of(policy), policy.propensity(rows))


def test_other_features_than_those_of_the_log_it_shall_be_like_are_refused(table, log):
    with pytest.raises(cq.DecisionLogError, match="features are income, but what"):
        cq.DecisionLog.from_frame(table, like=log, features=["income"], **NAMED)


def test_a_table_without_a_column_of_the_policy_is_refused(table, policy):
    with pytest.raises(cq.DecisionLogError, match="no column 'debt' in the frame"):
        cq.DecisionLog.from_frame(table.drop(columns="debt"), like=policy, **NAMED)


# --- files larger than memory


@pytest.fixture
def folder(table, tmp_path):
    for k, rows in enumerate(np.array_split(np.arange(len(table)), 3)):
        part = pa.Table.from_pandas(table.iloc[rows], preserve_index=False)
        pq.write_table(part, tmp_path / f"{k}.parquet", row_group_size=150)
    return tmp_path


def test_a_scan_of_raw_files_is_the_log_of_their_rows(folder, log, policy):
    scan = cq.DecisionLog.scan(folder, features=FEATURES, **NAMED, **WAITING)
    assert scan.preparation == log.preparation
    assert scan.notes == log.notes
    pieces = scan.map(lambda piece: piece, settled=False)
    whole = cq.DecisionLog.concatenate(list(pieces))
    assert_array_equal(whole.features, log.features)
    assert_array_equal(whole.propensity_of(policy), log.propensity_of(policy))
    learned = cq.FairPolicyLearner(cost=0.5, l2=1e-4).fit_log(scan).policy_
    assert learned.preparation == log.preparation


def test_medians_of_a_large_scan_are_those_of_a_sample(folder, log, monkeypatch):
    monkeypatch.setattr(scan_module, "MEDIAN_OF", 400)
    scan = cq.DecisionLog.scan(folder, features=["income"], **NAMED)
    sampled, exact = (each.preparation.columns[0] for each in (scan, log))
    assert sampled.typical != exact.typical
    assert abs(sampled.typical - exact.typical) < 0.3
    assert sampled.n_missing == exact.n_missing


@pytest.mark.parametrize(("accepted", "others"), [(1, "rejected"), (0, "accepted")])
def test_a_feature_that_is_known_only_after_the_decision_is_refused(accepted, others, tmp_path):
    decision = np.arange(200) % 4 // 2
    known = (decision == accepted) & (np.arange(200) % 10 > 0)  # some outcomes are not known yet
    table = pa.table(
        {
            "income": pa.array(np.arange(200) % 7, mask=np.arange(200) % 3 == 0),
            "later": pa.array(np.arange(200) % 9, mask=~known),
            "p": np.full(200, 0.5),
            "decision": decision,
            "repaid": pa.array(np.arange(200) % 3 // 2, mask=decision == 0),
        }
    )
    named = {"decision": "decision", "propensity": "p", "label": "repaid"}
    pq.write_table(table, tmp_path / "log.parquet")
    message = f"'later' is filled for {known.sum()} of 100 .* nobody {others}: .* Leave it out"
    with pytest.raises(cq.DecisionLogError, match=message):
        cq.DecisionLog.from_frame(table, features=["income", "later"], **named)
    with pytest.raises(cq.DecisionLogError, match="'later' is filled"):
        cq.DecisionLog.scan(tmp_path, features=["income", "later"], **named).sample(
            10, np.random.default_rng(0)
        )
    assert len(cq.DecisionLog.from_frame(table, features=["income"], **named)) == 200
    few = cq.DecisionLog.from_frame(table.slice(0, 36), features=["income", "later"], **named)
    assert len(few) == 36
