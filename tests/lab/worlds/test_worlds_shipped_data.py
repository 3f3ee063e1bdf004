"""The data that come with the package: what the cards say is what the files and worlds hold."""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from collections import Counter
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict

import consequential as cq

ROOT = Path(__file__).parents[3]
DATA = files("consequential.lab.worlds") / "data"


@cache
def rows(name: str) -> list[dict[str, str]]:
    content = (DATA / name).read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    return list(csv.DictReader(text.splitlines()))


@cache
def page() -> str:
    return (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def card(title: str) -> str:
    """A card's section of the page."""
    return page().split(f"\n## {title}\n")[1].split("\n## ")[0]


def group_table(title: str) -> dict[str, list[str]]:
    """The rows of a card's table that begins `| group |`, by their first cell."""
    lines = card(title).splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("| group |"))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, *cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        found[first] = cells
    return found


def by_group(world: cq.worlds.TableWorld) -> dict[object, tuple[int, int]]:
    """People and label 1, by group."""
    table = world.table
    return {
        group: (int((table.group == k).sum()), int(table.label[table.group == k].sum()))
        for k, group in enumerate(world.groups)
    }


# Files


def checksums() -> dict[str, str]:
    lines = (DATA / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


@pytest.mark.parametrize("name", checksums())
def test_a_shipped_file_has_its_checksum(name):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == checksums()[name]


def test_every_shipped_file_has_a_checksum():
    shipped = {path.name for path in DATA.iterdir() if path.is_file()}
    assert shipped == {*checksums(), "SHA256SUMS"}


def test_the_cards_name_the_checksums_of_the_sources_that_the_build_script_asks_for():
    script = (ROOT / "tools" / "build_data.py").read_text()
    wanted = set(re.findall(r'"([0-9a-f]{64})"', script))
    assert len(wanted) == 6
    assert wanted == set(re.findall(r"`([0-9a-f]{64})`", page()))


@pytest.mark.parametrize(
    ("name", "n_rows"),
    [
        ("compas.csv", 831),
        ("fico.csv", 198),
        ("fico_totals.csv", 4),
        ("german.csv", 1000),
        ("taiwan.csv.gz", 30_000),
    ],
)
def test_a_file_has_the_rows_that_the_overview_states(name, n_rows):
    assert len(rows(name)) == n_rows
    overview = page().split("\n## ")[0]
    assert str(n_rows) in overview or name == "fico_totals.csv"


@pytest.mark.parametrize("name", ["compas.csv", "german.csv", "taiwan.csv.gz"])
def test_rows_are_sorted_so_that_their_order_carries_nothing(name):
    def key(row: dict[str, str]) -> list[object]:
        return [int(v) if v.lstrip("-").isdigit() else v for v in row.values()]

    keys = [key(row) for row in rows(name)]
    assert keys == sorted(keys)


@pytest.mark.parametrize("name", ["compas.csv", "german.csv", "taiwan.csv.gz"])
def test_no_column_identifies_people(name):
    header = set(rows(name)[0])
    assert not header & {"id", "name", "first", "last", "dob", "date_of_birth", "case_number"}


# COMPAS


def test_compas_holds_the_papers_5278_people_of_whom_2483_were_arrested_again():
    world = cq.worlds.compas(label="rearrest")
    assert len(world.table.label) == 5278
    assert int(world.table.label.sum()) == 2483
    assert by_group(world) == {"African-American": (3175, 1661), "Caucasian": (2103, 822)}


@pytest.mark.parametrize(
    "group", ["African-American", "Caucasian", "Hispanic", "Other", "Asian", "Native American"]
)
def test_the_compas_card_counts_people_by_race(group):
    people, rearrested, rate = group_table("COMPAS")[group]
    mine = [row for row in rows("compas.csv") if row["race"] == group]
    counted = sum(int(row["count"]) for row in mine)
    again = sum(int(row["count"]) for row in mine if row["rearrest"] == "1")
    assert (counted, again) == (int(people), int(rearrested))
    assert again / counted == pytest.approx(float(rate), abs=5.1e-5)


def test_the_compas_card_counts_people_by_sex_and_single_rows():
    people, again, _ = group_table("COMPAS")["Female / Male, all"]
    counted, rearrested = Counter(), Counter()
    for row in rows("compas.csv"):
        counted[row["sex"]] += int(row["count"])
        rearrested[row["sex"]] += int(row["count"]) * int(row["rearrest"])
    assert f"{counted['Female']} / {counted['Male']}" == people
    assert f"{rearrested['Female']} / {rearrested['Male']}" == again
    assert counted.total() == 6172
    alone = sum(row["count"] == "1" for row in rows("compas.csv"))
    assert f"{alone} stand for one person" in card("COMPAS")


def test_compas_has_five_features_in_the_papers_order():
    world = cq.worlds.compas()
    assert world.feature_names == (
        "age 25-45",
        "age over 45",
        "age under 25",
        "priors (standardised)",
        "misdemeanour",
    )
    features = world.table.features
    assert features.shape == (5278, 5)
    assert (features[:, :3].sum(axis=1) == 1).all()
    assert set(np.unique(features[:, 4])) == {0.0, 1.0}
    pair = [row for row in rows("compas.csv") if row["race"] in world.groups]
    for column, age in enumerate(["25-45", "over 45", "under 25"]):
        known = sum(int(row["count"]) for row in pair if row["age"] == age)
        assert features[:, column].sum() == known
    misdemeanours = sum(int(row["count"]) for row in pair if row["misdemeanour"] == "1")
    assert features[:, 4].sum() == misdemeanours


def test_compas_priors_are_standardised_with_the_authors_mean_and_deviation():
    priors = cq.worlds.compas().table.features[:, 3] * 4.8754415528 + 3.4615384615
    assert priors == pytest.approx(np.round(priors), abs=1e-7)
    assert (priors.min(), priors.max()) == pytest.approx((0.0, 38.0), abs=1e-7)
    assert priors.mean() == pytest.approx(3.4615384615, abs=1e-9)
    assert priors.std() == pytest.approx(4.8754415528, abs=1e-9)


def test_compas_labels_are_each_others_opposite():
    default, literal = cq.worlds.compas(), cq.worlds.compas(label="rearrest")
    assert np.array_equal(default.table.label, 1 - literal.table.label)
    assert np.array_equal(default.table.features, literal.table.features)
    assert np.array_equal(default.held_out_rows, literal.held_out_rows)
    assert default.table.label.mean() == pytest.approx(0.5296, abs=5.1e-5)
    assert default.name != literal.name


def test_compas_groups_can_be_the_sexes():
    world = cq.worlds.compas(sensitive="sex")
    assert world.groups == ("Female", "Male")
    pair = [row for row in rows("compas.csv") if row["race"] in {"African-American", "Caucasian"}]
    women = sum(int(row["count"]) for row in pair if row["sex"] == "Female")
    assert by_group(world)["Female"][0] == women
    assert np.array_equal(world.table.features, cq.worlds.compas().table.features)


def test_compas_is_run_as_in_the_paper():
    world = cq.worlds.compas()
    p = world.parameters
    assert world.cost == 0.6
    assert (p.time_steps, p.n_proposals, p.n_iterations, p.batch_size, p.learning_rate) == (
        200,
        64**2,
        40 * 64,
        64,
        0.1,
    )
    assert len(world.held_out_rows) == round(0.2 * 5278)


@pytest.mark.parametrize(("label", "utility"), [("rearrest", 0.0329), ("no_rearrest", 0.0510)])
def test_with_all_labels_logistic_regression_reaches_the_known_utility_on_compas(label, utility):
    """Cross-validated over shuffled rows; the shuffle moves it by half a thousandth or so."""
    world = cq.worlds.compas(label=label)
    folds = KFold(10, shuffle=True, random_state=0)
    table = world.table
    predicted = cross_val_predict(
        LogisticRegression(), table.features, table.label, cv=folds, method="predict_proba"
    )[:, 1]
    found = ((predicted >= world.cost) * (table.label - world.cost)).mean()
    assert found == pytest.approx(utility, abs=1e-3)


# FICO


@pytest.mark.parametrize("group", ["white", "black", "hispanic", "asian"])
def test_the_fico_card_states_people_repayment_and_median(group):
    people, share, repaid, median = group_table("FICO")[group]
    totals = {row["group"]: int(row["count"]) for row in rows("fico_totals.csv")}
    assert totals[group] == int(people)
    assert totals[group] / sum(totals.values()) == pytest.approx(float(share), abs=5.1e-5)
    cdf = np.array([float(row[f"cdf_{group}"]) for row in rows("fico.csv")])
    rate = np.array([float(row[f"repaid_{group}"]) for row in rows("fico.csv")])
    assert np.diff(cdf, prepend=0.0) @ rate == pytest.approx(float(repaid), abs=5.1e-5)
    assert float(rows("fico.csv")[int(np.argmax(cdf >= 0.5))]["percentile"]) == float(median)
    assert (np.diff(cdf) >= 0).all()
    assert cdf[-1] == 1.0


# German credit


@pytest.mark.parametrize(
    ("sensitive", "names"),
    [
        ("sex", {"Female": "Female (as coded)", "Male": "Male (as coded)"}),
        ("age", {"25 and under": "age up to 25", "over 25": "age over 25"}),
    ],
)
def test_german_credit_has_the_groups_of_its_card(sensitive, names):
    world = cq.worlds.german(sensitive=sensitive)
    assert world.groups == tuple(names)
    for group, (people, repaid) in by_group(world).items():
        stated = group_table("German credit")[names[group]]
        assert [people, repaid] == [int(stated[0]), int(stated[1])]
        assert repaid / people == pytest.approx(float(stated[2]), abs=5.1e-5)
    assert (len(world.table.label), int(world.table.label.sum())) == (1000, 700)


@pytest.mark.parametrize("sensitive", ["sex", "age"])
def test_german_credit_does_not_use_what_makes_its_groups(sensitive):
    names = cq.worlds.german(sensitive=sensitive).feature_names
    assert not any(name.startswith(("sex", "repaid")) for name in names)
    assert ("age" in names) is (sensitive == "sex")


def test_german_credit_encodes_words_and_standardises_numbers():
    world = cq.worlds.german()
    features = dict(zip(world.feature_names, world.table.features.T, strict=True))
    amount = np.array([float(row["amount"]) for row in rows("german.csv")])
    assert features["amount"] == pytest.approx((amount - amount.mean()) / amount.std())
    own = [float(row["housing"] == "own") for row in rows("german.csv")]
    assert features["housing: own"].tolist() == own
    assert "housing: free" not in features  # the base line
    n_words = {
        name: len({row[name] for row in rows("german.csv")})
        for name in rows("german.csv")[0]
        if not rows("german.csv")[0][name].isdigit() and name != "sex"
    }
    n_numbers = len(rows("german.csv")[0]) - len(n_words) - 2  # less sex and the label
    assert len(features) == n_numbers + sum(n_words.values()) - len(n_words)


# Taiwan credit cards


def test_taiwan_has_the_groups_of_its_card():
    world = cq.worlds.taiwan()
    assert len(world.table.label) == 30_000
    told = group_table("Taiwan credit cards")
    assert int(world.table.label.sum()) == int(told["all"][1]) == 23_364
    for group, (people, repaid) in by_group(world).items():
        stated = told[str(group)]
        assert [people, repaid] == [int(stated[0]), int(stated[1])]
    assert not any(name.startswith(("sex", "repaid")) for name in world.feature_names)


@pytest.mark.parametrize(
    ("column", "value", "name"),
    [
        ("education", "graduate school", "graduate school"),
        ("education", "university", "university"),
        ("education", "high school", "high school"),
        ("education", "other", "other education"),
    ],
)
def test_the_taiwan_card_counts_people_by_education(column, value, name):
    mine = [row for row in rows("taiwan.csv.gz") if row[column] == value]
    repaid = sum(row["repaid"] == "1" for row in mine)
    assert group_table("Taiwan credit cards")[name][:2] == [str(len(mine)), str(repaid)]


@pytest.mark.parametrize(
    "world", [cq.worlds.compas, cq.worlds.german, cq.worlds.taiwan], ids=lambda f: f.__name__
)
def test_a_fifth_of_the_rows_is_held_out_and_numbers_are_finite(world):
    table = world()
    assert len(table.held_out_rows) == round(0.2 * len(table.table.label))
    assert not np.intersect1d(table.held_out_rows, table.training_rows).size
    assert np.isfinite(table.table.features).all()
    assert len(table.feature_names) == table.table.features.shape[1]


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (cq.worlds.compas, {"label": "arrest"}, "label is one of no_rearrest, rearrest"),
        (cq.worlds.compas, {"sensitive": "age"}, "sensitive is one of race, sex, not 'age'"),
        (cq.worlds.german, {"sensitive": "race"}, "sensitive is one of sex, age, not 'race'"),
    ],
)
def test_unknown_choices_are_errors_that_list_the_known_ones(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize("make", [cq.worlds.german, cq.worlds.taiwan], ids=lambda f: f.__name__)
def test_the_cost_can_be_chosen(make):
    assert make(cost=0.8333).cost == 0.8333
    assert 0 < make().cost < 1


def test_people_with_equal_features_on_compas_share_their_label_probability():
    world = cq.worlds.compas()
    table = world.table
    sensitive = np.array(world.groups, dtype=object)[table.group]
    train = world.training_rows
    found = world.label_probability(table.features[train], sensitive[train])
    key = np.column_stack([table.features, table.group])[train]
    _, which = np.unique(key, axis=0, return_inverse=True)
    share = np.bincount(which, table.label[train]) / np.bincount(which)
    assert found == pytest.approx(share[which])
