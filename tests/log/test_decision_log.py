"""The log: what it holds, its parts, what it may be asked, and that nothing changes it."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import consequential as cq
from exploring_logs import exploring_log

NAN = np.nan
COLUMNS = {
    "features": [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0], [3.5, 4.0]],
    "decision": [0, 1, 1, 1],
    "propensity": [0.4, 0.8, 0.2, 1.0],
    "label": [None, 1, 0, None],
    "sensitive": ["b", "a", "b", "c"],
    "time_step": [0, 0, 1, 2],
    "amount": [1.0, 2.0, 3.0, 4.0],
    "cost": [0.1, 0.2, 0.3, 0.4],
}
ROW_COLUMNS = ["features", "decision", "propensity", "label", "group", "time_step"]


def log_of(**changes) -> cq.DecisionLog:
    return cq.DecisionLog.from_arrays(**(COLUMNS | changes))


def rows_of(log: cq.DecisionLog) -> list[np.ndarray]:
    return [getattr(log, name) for name in [*ROW_COLUMNS, "amount", "cost"]]


def test_a_log_holds_what_it_was_given():
    log = log_of(horizon=3)
    assert_array_equal(log.features, COLUMNS["features"])
    assert_array_equal(log.decision, [False, True, True, True])
    assert_array_equal(log.propensity, COLUMNS["propensity"])
    assert_array_equal(log.label, [NAN, 1.0, 0.0, NAN])
    assert_array_equal(log.outcome, [0.0, 1.0, 0.0, 0.0])
    assert_array_equal(log.group, [1, 0, 1, 2])
    assert_array_equal(log.sensitive, COLUMNS["sensitive"])
    assert_array_equal(log.time_step, COLUMNS["time_step"])
    assert_array_equal(log.amount, COLUMNS["amount"])
    assert_array_equal(log.cost, COLUMNS["cost"])
    assert_array_equal(log.group_counts, [1, 2, 1])
    assert (log.groups, log.feature_names, log.horizon) == (("a", "b", "c"), ("x0", "x1"), 3)
    assert (len(log), log.n_accepted, log.n_pending) == (4, 3, 1)


def test_what_is_left_out_has_a_plain_default():
    log = cq.DecisionLog.from_arrays([1.0, 2.0], [0, 1], [0.5, 0.5], [None, 1])
    assert log.features.shape == (2, 1)
    assert log.groups == ("everyone",)
    assert_array_equal(log.time_step, [0, 0])
    assert log.amount is log.cost is log.horizon is None
    assert log.policies == {}


def test_a_log_sums_itself_up():
    counts = "4 decisions, 3 accepted, 1 pending, 2 features, groups a: 1, b: 2, c: 1"
    assert repr(log_of()) == f"DecisionLog({counts})"
    one = cq.DecisionLog.from_arrays([[1.0]], [1], [0.5], [None])
    assert repr(one) == "DecisionLog(1 decisions, 1 accepted, 1 pending, 1 feature)"


@pytest.mark.parametrize(
    ("sensitive", "groups", "expected", "codes"),
    [
        (["b", "a", "b", "c"], None, ("a", "b", "c"), [1, 0, 1, 2]),
        ([10, 9, 10, 2], None, (2, 9, 10), [2, 1, 2, 0]),
        ([True, False, True, True], None, (False, True), [1, 0, 1, 1]),
        (["m", "f", "m", "m"], ["m", "f"], ("m", "f"), [0, 1, 0, 0]),
        (["a", "a", "a", "a"], ["z", "a"], ("z", "a"), [1, 1, 1, 1]),
        ([0, 0, 1, 1], range(4), (0, 1, 2, 3), [0, 0, 1, 1]),
    ],
    ids=["text", "integers", "booleans", "given order", "absent group", "more than seen"],
)
def test_groups_are_sorted_unless_their_order_is_given(sensitive, groups, expected, codes):
    log = log_of(sensitive=sensitive, groups=groups)
    assert log.groups == expected
    assert_array_equal(log.group, codes)
    assert_array_equal(log.group_counts, np.bincount(codes, minlength=len(expected)))
    assert_array_equal(log.sensitive, sensitive)


# Nothing changes a log


@pytest.mark.parametrize(
    "made",
    [
        lambda log: log,
        lambda log: log.take(slice(1, 3)),
        lambda log: log.take(np.array([2, 0])),
        lambda log: cq.DecisionLog.concatenate([log, log]),
    ],
    ids=["from arrays", "a slice", "an index", "concatenated"],
)
def test_every_column_is_read_only(made):
    for column in rows_of(made(log_of())):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


@pytest.mark.parametrize("name", ["outcome", "group_counts"])
def test_what_is_computed_once_is_read_only_too(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(log_of(), name)[0] = 1


def test_the_policies_of_a_log_are_read_only():
    log = log_of(policies={0: cq.AcceptAll()})
    with pytest.raises(TypeError):
        log.policies[0] = cq.RejectAll()


def test_no_field_can_be_set():
    with pytest.raises(FrozenInstanceError):
        log_of().label = np.zeros(4)


def test_a_log_does_not_follow_the_arrays_it_was_made_of():
    own = {
        name: np.array([NAN if v is None else v for v in column] if name == "label" else column)
        for name, column in COLUMNS.items()
    }
    own["decision"] = own["decision"].astype(bool)
    policies = {0: cq.AcceptAll()}
    log = cq.DecisionLog.from_arrays(**own, policies=policies)
    before = [column.copy() for column in rows_of(log)]
    for column in own.values():
        assert column.flags.writeable
        column[:] = column[::-1].copy()
    policies.clear()
    for column, copy in zip(rows_of(log), before, strict=True):
        assert_array_equal(column, copy)
    assert log.policies == {0: cq.AcceptAll()}


# Fingerprints


@pytest.mark.parametrize(
    "changes",
    [
        {"features": [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0], [3.5, np.nextafter(4.0, 5.0)]]},
        {"decision": [1, 1, 1, 1]},
        {"propensity": [0.4, 0.8, 0.3, 1.0]},
        {"label": [None, 1, 0, 0]},
        {"sensitive": ["b", "a", "b", "a"], "groups": ["a", "b", "c"]},
        {"groups": ["b", "a", "c"]},
        {"sensitive": None},
        {"time_step": [0, 0, 1, 3]},
        {"amount": [1.0, 2.0, 3.0, 5.0]},
        {"amount": None},
        {"cost": [0.1, 0.2, 0.3, 0.5]},
        {"cost": None},
        {"amount": None, "cost": None},
        {"feature_names": ["x0", "x2"]},
        {"horizon": 3},
    ],
    ids=lambda changes: ", ".join(changes),
)
def test_another_column_is_another_fingerprint(changes):
    assert log_of(**changes).fingerprint != log_of().fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"decision": [False, True, True, True]},
        {"decision": np.array([0, 1, 1, 1], dtype=np.uint8)},
        {"label": [NAN, 1.0, 0.0, NAN]},
        {"label": [NAN, 1.0, 0.0, -NAN]},
        {"features": np.asfortranarray(COLUMNS["features"])},
        {"sensitive": np.array(["b", "a", "b", "c"], dtype=object)},
        {"groups": ["a", "b", "c"]},
        {"groups": np.array(["a", "b", "c"])},
        {"time_step": [0.0, 0.0, 1.0, 2.0]},
        {"feature_names": ["x0", "x1"]},
        {"policies": {0: cq.AcceptAll()}},
    ],
    ids=[
        "the same",
        "boolean decisions",
        "small decisions",
        "NaN labels",
        "NaN with a sign",
        "column order in memory",
        "objects",
        "groups given",
        "groups as an array",
        "float time steps",
        "names given",
        "policies, which are no rows",
    ],
)
def test_the_same_rows_have_the_same_fingerprint(changes):
    assert log_of(**changes).fingerprint == log_of().fingerprint


def test_the_same_numbers_in_another_column_are_another_log():
    amounts = log_of(amount=COLUMNS["cost"], cost=None)
    assert amounts.fingerprint != log_of(amount=None).fingerprint


# Parts


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        (np.array([3, 0, 0]), [3, 0, 0]),
        (np.array([-1]), [3]),
        (np.array([True, False, False, True]), [0, 3]),
    ],
    ids=["slice", "reversed", "index with repeats", "from the end", "mask"],
)
def test_taking_rows_takes_them_from_every_column_and_keeps_the_groups(rows, expected):
    log = log_of(horizon=1, policies={0: cq.AcceptAll()})
    part = log.take(rows)
    for column, whole in zip(rows_of(part), rows_of(log), strict=True):
        assert_array_equal(column, whole[expected])
    for name in ("groups", "feature_names", "horizon", "policies"):
        assert getattr(part, name) == getattr(log, name)


def test_what_was_counted_in_the_whole_is_counted_again_in_a_part():
    log = log_of()
    whole = (log.n_accepted, log.n_pending, log.outcome.sum(), log.group_counts[0], log.fingerprint)
    part = log.take(slice(0, 1))
    assert whole[:4] == (3, 1, 1.0, 1)
    assert (part.n_accepted, part.n_pending, part.outcome.sum(), part.group_counts[0]) == (0,) * 4
    assert part.fingerprint != log.fingerprint


def test_columns_a_log_does_not_have_its_parts_do_not_have():
    part = log_of(amount=None).take(slice(0, 2))
    assert part.amount is None
    assert_array_equal(part.cost, [0.1, 0.2])


def test_logs_go_under_one_another_with_their_policies():
    first = log_of(policies={0: cq.AcceptAll(), 1: (kept := cq.Policy([0.0]))})
    second = log_of(policies={1: kept, 2: cq.RejectAll()}, cost=[0.5] * 4)
    both = cq.DecisionLog.concatenate([first, second])
    for column, *parts in zip(rows_of(both), rows_of(first), rows_of(second), strict=True):
        assert_array_equal(column, np.concatenate(parts))
    assert both.policies == {0: cq.AcceptAll(), 1: kept, 2: cq.RejectAll()}


def test_logs_without_amounts_go_under_one_another():
    log = log_of(amount=None, cost=None)
    both = cq.DecisionLog.concatenate([log, log])
    assert both.amount is both.cost is None
    assert len(both) == 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sensitive": ["a", "a", "b", "b"]}, r"different groups .*\('a', 'b', 'c'\) and \('a'"),
        ({"groups": ["c", "b", "a"]}, "different groups"),
        ({"feature_names": ["x0", "age"]}, "different feature_names .*'x1'.*'age'"),
        ({"horizon": 2}, "different horizon cannot be concatenated: None and 2"),
        ({"amount": None}, "some of the logs have amount and some do not"),
        ({"cost": None}, "some of the logs have cost and some do not"),
        ({"policies": {0: cq.RejectAll()}}, "two different policies at time step 0"),
    ],
    ids=lambda v: ", ".join(v) if isinstance(v, dict) else "",
)
def test_logs_that_differ_are_not_concatenated(changes, words):
    logs = [log_of(policies={0: cq.AcceptAll()}), log_of(**changes)]
    with pytest.raises(cq.DecisionLogError, match=words):
        cq.DecisionLog.concatenate(logs)


def test_nothing_cannot_be_concatenated():
    with pytest.raises(cq.DecisionLogError, match="give at least one log"):
        cq.DecisionLog.concatenate([])


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_taking_a_log_apart_and_putting_it_together_gives_the_log(data):
    n = data.draw(st.integers(1, 12))
    log = exploring_log(n, n_groups=3, seed=n, time_step=np.arange(n), cost=np.full(n, 0.4))
    order = np.array(data.draw(st.permutations(range(n))))
    cuts = data.draw(st.lists(st.integers(0, n), max_size=3).map(sorted))
    parts = [log.take(rows) for rows in np.split(order, cuts)]
    whole = cq.DecisionLog.concatenate(parts)
    assert whole.take(np.argsort(order)).fingerprint == log.fingerprint
    assert sum(part.n_accepted for part in parts) == log.n_accepted
    assert_array_equal(sum(part.group_counts for part in parts), log.group_counts)


@pytest.mark.parametrize(
    ("fraction", "last_early_step"),
    [(0.01, 0), (0.3, 0), (0.44, 0), (0.46, 1), (0.7, 1), (0.76, 2), (0.99, 2)],
)
def test_a_split_by_time_cuts_between_steps_nearest_to_the_fraction(fraction, last_early_step):
    step = np.repeat([0, 1, 2, 3], [30, 30, 30, 10])[np.random.default_rng(0).permutation(100)]
    log = exploring_log(100, time_step=step)
    early, late = log.split(fraction)
    assert_array_equal(early.features, log.features[step <= last_early_step])
    assert_array_equal(late.features, log.features[step > last_early_step])
    assert set(early.time_step).isdisjoint(late.time_step)


def test_a_random_split_divides_the_rows_by_the_generator():
    log = exploring_log(50)
    first, second = log.split(0.3, by="random", rng=np.random.default_rng(1))
    again, _ = log.split(0.3, by="random", rng=np.random.default_rng(1))
    other, _ = log.split(0.3, by="random", rng=np.random.default_rng(2))
    assert (len(first), len(second)) == (15, 35)
    both = np.concatenate([first.features, second.features])
    assert_array_equal(np.sort(both, axis=0), np.sort(log.features, axis=0))
    assert first.fingerprint == again.fingerprint != other.fingerprint


SPLITS = {
    "all of it": ({"fraction": 1.0}, "strictly between 0 and 1, not 1.0"),
    "none of it": ({"fraction": 0.0}, "strictly between 0 and 1, not 0.0"),
    "a NaN fraction": ({"fraction": NAN}, "strictly between 0 and 1"),
    "without a generator": ({"fraction": 0.5, "by": "random"}, "needs rng="),
    "one time step": ({"fraction": 0.5}, 'one time step, .* split by="random"'),
    "by what there is not": ({"fraction": 0.5, "by": "randomly"}, "'randomly'"),
}


@pytest.mark.parametrize(("arguments", "words"), SPLITS.values(), ids=SPLITS)
def test_a_split_says_what_it_cannot_do(arguments, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        log_of(time_step=7).split(**arguments)


# Labels that are still to come

TWO_PER_STEP = {
    "features": np.arange(10.0),
    "decision": [0, 1] * 5,
    "propensity": [0.5] * 10,
    "time_step": np.repeat(np.arange(5), 2),
}


def delayed_log(known: int, horizon: int | None) -> cq.DecisionLog:
    """One rejected and one accepted person per step, the first `known` steps with a label."""
    label = [1.0 if k % 2 and k < 2 * known else NAN for k in range(10)]
    return cq.DecisionLog.from_arrays(label=label, horizon=horizon, **TWO_PER_STEP)


@pytest.mark.parametrize(
    ("known", "horizon", "rows"),
    [(5, None, 10), (5, 0, 10), (4, 1, 8), (5, 1, 8), (3, 2, 6), (1, 4, 2)],
)
def test_settled_decisions_are_as_old_as_the_horizon_accepted_and_rejected_alike(
    known, horizon, rows
):
    settled = delayed_log(known, horizon).settled()
    assert_array_equal(settled.features[:, 0], np.arange(float(rows)))
    assert settled.n_pending == 0


UNSETTLED = {
    "outcomes thought immediate": (4, None, "1 accepted .* no label. .* horizon="),
    "a horizon of zero": (3, 0, "2 accepted rows have no label. If"),
    "later than the horizon": (1, 2, "2 accepted .* although 2 time steps old or more"),
    "all too young": (5, 5, "no decision is as old as the horizon of 5 time steps"),
}


@pytest.mark.parametrize(("known", "horizon", "words"), UNSETTLED.values(), ids=UNSETTLED)
def test_a_pending_label_is_never_silently_a_failure(known, horizon, words):
    with pytest.raises(cq.DecisionLogError, match=words):
        delayed_log(known, horizon).settled()


def test_pending_counts_accepted_people_only():
    log = delayed_log(known=2, horizon=3)
    assert (log.n_pending, int(np.isnan(log.label).sum())) == (3, 8)


def test_a_replaced_field_keeps_the_rows_read_only():
    assert not replace(log_of(), label=np.array([NAN, 1.0, 1.0, 1.0])).label.flags.writeable


def test_a_part_of_a_log_counts_age_by_the_whole(rng):
    log = cq.DecisionLog.from_arrays(
        [[0.0]] * 4, [1] * 4, [0.5] * 4, [1, 0, None, None], time_step=[0, 1, 2, 3], horizon=2
    )
    early, _ = log.split(0.5)
    assert len(early.settled()) == 2
    assert len(log.settled().settled()) == 2


def test_a_log_survives_pickling_read_only():
    log = cq.DecisionLog.from_arrays([[0.5]], [1], [0.5], [1], policies={0: cq.AcceptAll()})
    again = pickle.loads(pickle.dumps(log))
    assert again.fingerprint == log.fingerprint
    assert again.policies == log.policies
    with pytest.raises(ValueError, match="read-only"):
        again.features[0, 0] = 1.0


def test_equal_policies_at_one_step_are_no_conflict():
    parts = [
        cq.DecisionLog.from_arrays([[x]], [1], [1.0], [1], policies={0: cq.AcceptAll()})
        for x in (0.0, 1.0)
    ]
    assert cq.DecisionLog.concatenate(parts).policies == {0: cq.AcceptAll()}
