"""Worlds made of a table of your own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import consequential as cq

N = 60


def columns() -> dict[str, list]:
    rng = np.random.default_rng(8)
    return {
        "income": rng.integers(1, 5, size=N).astype(float).tolist(),
        "debt": rng.integers(0, 2, size=N).astype(float).tolist(),
        "sex": ["f" if u < 0.4 else "m" for u in rng.random(N)],
        "repaid": rng.integers(0, 2, size=N).tolist(),
    }


FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
NAMES = {"features": ["income", "debt"], "sensitive": "sex", "label": "repaid", "cost": 0.45}


def world(backend: str = "pyarrow", **changes: object) -> cq.worlds.TableWorld:
    return cq.worlds.from_frame(FRAMES[backend](columns()), **(NAMES | changes))


def matrix() -> np.ndarray:
    return np.column_stack([columns()["income"], columns()["debt"]])


@pytest.mark.parametrize("backend", FRAMES)
def test_every_kind_of_frame_gives_the_same_world(backend):
    found = world(backend)
    assert np.array_equal(found.table.features, matrix())
    assert np.array(found.groups)[found.table.group].tolist() == columns()["sex"]
    assert found.table.label.tolist() == columns()["repaid"]
    assert found.feature_names == ("income", "debt")
    assert found.groups == ("f", "m")
    same = cq.worlds.TableWorld(
        matrix(),
        columns()["sex"],
        columns()["repaid"],
        cost=0.45,
        feature_names=["income", "debt"],
    )
    assert np.array_equal(found.held_out_rows, same.held_out_rows)
    logs = [w.collect(cq.AcceptAll(), 50, np.random.default_rng(0)) for w in (found, same)]
    assert logs[0].fingerprint == logs[1].fingerprint


def test_name_cost_and_parameters_are_those_given():
    parameters = cq.worlds.Parameters(batch_size=7)
    found = world(name="my bank", cost=0.2, parameters=parameters)
    assert (found.name, found.cost, found.parameters.batch_size) == ("my bank", 0.2, 7)
    assert (world().name, world().parameters) == ("table", cq.worlds.Parameters())


def test_without_a_sensitive_column_there_is_one_group():
    found = world(sensitive=None)
    assert found.groups == ("everyone",)
    metrics = found.measure(cq.AcceptAll())
    assert metrics.benefit_gap == 0.0
    assert metrics.benefits == pytest.approx({"everyone": 1.0})
    features, sensitive = found.propose(5, np.random.default_rng(0))
    assert (features.shape, set(sensitive)) == ((5, 2), {"everyone"})


@pytest.mark.parametrize(
    ("fraction", "n_held_out"), [(0.2, 12), (0.5, 30), (0.001, 1), (0.31, 19), (0.97, 58)]
)
def test_rows_are_split_without_overlap_or_loss(fraction, n_held_out):
    found = world(held_out_fraction=fraction)
    assert len(found.held_out_rows) == n_held_out
    together = np.concatenate([found.held_out_rows, found.training_rows])
    assert sorted(together.tolist()) == list(range(N))


def test_the_split_is_random_and_a_function_of_its_seed():
    def held_out(**seed: int) -> list[int]:
        found = cq.worlds.TableWorld(matrix(), None, columns()["repaid"], cost=0.5, **seed)
        return found.held_out_rows.tolist()

    assert held_out() == held_out(split_seed=0)
    assert held_out() != held_out(split_seed=1)
    assert held_out() != list(range(12))


def test_held_out_rows_are_never_drawn():
    """Every row has a number of its own here, so a drawn row can be told."""
    found = cq.worlds.TableWorld(np.arange(N), None, columns()["repaid"], cost=0.5)
    features, _ = found.propose(5000, np.random.default_rng(0))
    log = found.collect(cq.AcceptAll(), 5000, np.random.default_rng(1))
    assert set(features[:, 0]) == set(found.training_rows)
    assert set(log.features[:, 0]) == set(found.training_rows)


@pytest.mark.parametrize("part", ["held_out", "training"])
def test_a_part_is_a_population_of_its_rows_and_their_labels(part):
    found = world()
    rows = found.held_out_rows if part == "held_out" else found.training_rows
    policy = cq.Policy([-1.0, 0.4, 0.3, 0.5, -0.2, 0.1], groups=("f", "m"))
    sex, label = np.array(columns()["sex"])[rows], np.array(columns()["repaid"])[rows]
    pi = policy.propensity(matrix()[rows], sex)
    metrics = found.population(part).metrics(policy, 0.45, cq.fairness.DemographicParity())
    assert metrics.utility == pytest.approx((pi * (label - 0.45)).mean())
    assert metrics.acceptance == pytest.approx(pi.mean())
    by_group = {group: pi[sex == group].mean() for group in ("f", "m")}
    assert metrics.benefits == pytest.approx(by_group)
    if part == "held_out":
        assert found.measure(policy) == metrics


def test_the_label_probability_is_the_share_among_equal_training_rows():
    found = world()
    sex = np.array(columns()["sex"], dtype=object)
    probability = found.label_probability(matrix(), sex)
    train = np.isin(np.arange(N), found.training_rows)
    label = np.array(columns()["repaid"])
    for row in range(N):
        equal = train & (matrix() == matrix()[row]).all(axis=1) & (sex == sex[row])
        known = label[equal].mean() if equal.any() else np.nan
        assert probability[row] == pytest.approx(known, nan_ok=True)
    assert ((probability[train] > 0) & (probability[train] < 1)).any()


def test_people_the_table_does_not_know_have_no_label_probability():
    found = world()
    assert np.isnan(found.label_probability(np.array([[99.0, 0.0]]), np.array(["f"])))


@pytest.mark.parametrize(
    "same", [np.array([[1, 0]]), np.array([[1.0, -0.0]])], ids=["whole numbers", "minus zero"]
)
def test_equal_numbers_have_equal_label_probabilities(same):
    found = cq.worlds.TableWorld([[1.0, 0.0]] * 10, None, [0, 1] * 5, cost=0.5)
    known = found.label_probability(np.array([[1.0, 0.0]]), np.array(["everyone"]))
    assert found.label_probability(same, np.array(["everyone"])) == pytest.approx(known)


def test_the_table_cannot_be_changed_from_outside():
    given = matrix()
    found = cq.worlds.TableWorld(given, columns()["sex"], columns()["repaid"], cost=0.5)
    given[:] = 0.0
    assert np.array_equal(found.table.features, matrix())
    with pytest.raises(ValueError, match="read-only"):
        found.table.features[0, 0] = 1.0


def test_the_initial_policy_is_learned_from_training_rows_alone():
    """Held-out rows with other labels make no difference."""
    label = np.array(columns()["repaid"])
    found = world()
    label[found.held_out_rows] = 1 - label[found.held_out_rows]
    other = cq.worlds.TableWorld(matrix(), columns()["sex"], label, cost=0.45)
    assert found.initial_policy().theta.tolist() == other.initial_policy().theta.tolist()
    assert found.measure(cq.AcceptAll()).utility != other.measure(cq.AcceptAll()).utility


def test_logs_of_a_table_have_its_feature_names():
    log = world().collect(cq.AcceptAll(), 5, np.random.default_rng(0))
    assert log.feature_names == ("income", "debt")


@pytest.mark.parametrize("cost", [-0.1, 1.5, float("nan")])
def test_a_cost_outside_0_to_1_is_an_error(cost):
    with pytest.raises(ValueError, match="cost"):
        world(cost=cost)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_held_out_fraction_outside_0_to_1_is_an_error(fraction):
    with pytest.raises(ValueError, match=r"held_out_fraction lies in \(0, 1\)"):
        world(held_out_fraction=fraction)


@pytest.mark.parametrize(("rows", "fraction"), [(1, 0.2), (60, 0.999)])
def test_a_table_without_training_rows_is_an_error_at_once(rows, fraction):
    with pytest.raises(ValueError, match=r"held_out_fraction|training"):
        cq.worlds.TableWorld(
            matrix()[:rows], None, columns()["repaid"][:rows], cost=0.5, held_out_fraction=fraction
        )


@pytest.mark.parametrize("backend", FRAMES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "paid"}, "no column 'paid' in the frame"),
        ({"sensitive": "race"}, "no column 'race' in the frame"),
        ({"features": ["income", "wealth"]}, "no column 'wealth' in the frame"),
        ({"features": []}, "name at least one column"),
        ({"features": "income"}, r"features is a list of columns: write features=\['income'\]"),
        ({"label": "income"}, "a label that is not 0 or 1"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_columns_that_cannot_serve_are_errors_that_name_them(backend, change, message):
    with pytest.raises(cq.DecisionLogError, match=message):
        world(backend, **change)


def with_missing(name: str) -> dict[str, list]:
    data = columns()
    data[name][3] = None
    return data


@pytest.mark.parametrize("backend", FRAMES)
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("repaid", "1 .*row has no label"),
        ("sex", r"1 row has no sensitive group \(first: row 3\)"),
    ],
)
def test_missing_values_are_errors_that_say_where(backend, column, message):
    with pytest.raises(cq.DecisionLogError, match=message):
        cq.worlds.from_frame(FRAMES[backend](with_missing(column)), **NAMES)


def test_a_missing_label_in_a_table_does_not_lead_to_advice_on_horizons():
    with pytest.raises(cq.DecisionLogError) as caught:
        cq.worlds.from_frame(pa.table(with_missing("repaid")), **NAMES)
    assert "horizon" not in str(caught.value)


@pytest.mark.parametrize("column", ["sensitive", "label"])
def test_columns_of_another_length_are_errors(column):
    data = {"sensitive": columns()["sex"], "label": columns()["repaid"]}
    data[column] = data[column][:-1]
    with pytest.raises(cq.DecisionLogError, match=f"{column} has .* but features has 60 rows"):
        cq.worlds.TableWorld(matrix(), **data, cost=0.5)


def test_what_is_no_frame_is_an_error_that_lists_what_is():
    with pytest.raises(cq.DecisionLogError, match="pandas, polars, pyarrow"):
        cq.worlds.from_frame(columns(), **NAMES)


def test_feature_names_that_do_not_fit_are_an_error():
    with pytest.raises(cq.DecisionLogError, match="1 feature names were given for 2 features"):
        cq.worlds.TableWorld(matrix(), None, columns()["repaid"], cost=0.5, feature_names=["a"])
