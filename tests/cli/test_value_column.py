"""`--value`: a column of profits and losses in place of labels and a cost."""

from __future__ import annotations

import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from loan_files import FEATURES, people, results, text_of

import consequential as cq
from consequential.cli import main

ROLES = ["--sensitive", "sex", "--decision", "approved", "--propensity", "p"]
VALUED = [*FEATURES, *ROLES, "--value", "profit"]


@pytest.fixture
def loans(here):
    """A log of profits: 400 if repaid, else a loss of 600, with some spread."""
    table = people()
    spread = np.random.default_rng(0).uniform(0.5, 1.5, len(table))
    profit = [
        None if y is None else (400.0 if y else -600.0) * float(s)
        for y, s in zip(table["repaid"].to_pylist(), spread, strict=True)
    ]
    pa.csv.write_csv(table.append_column("profit", pa.array(profit)), "loans.csv")
    return here


def test_a_policy_is_learned_from_profits_and_reported_in_their_unit(loans, capsys):
    asked = ["fit", "loans.csv", *VALUED, "--value-range=-900,600", "--unit", "EUR", "--folds", "2"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "values from -900 to 600" in said
    assert "what it earns\nEUR " in said
    found = results(loans / "consequential-fit")
    assert list(found["results"]["group_metrics"]) == ["selection_rate", "notes"]
    value = found["results"]["value"]["utility"]["value"]
    assert found["results"]["earnings"]["overall"]["new"]["value"] == pytest.approx(value)
    assert "values from -900 to 600" in text_of(loans / "consequential-fit" / "report.html")
    log = cq.DecisionLog.from_file(
        "loans.csv",
        features=["income", "purpose"],
        sensitive="sex",
        decision="approved",
        propensity="p",
        value="profit",
        value_range=(-900.0, 600.0),
    )
    policy = cq.load_policy(loans / "consequential-fit" / "policy.json")
    assert policy.learned_from == log.fingerprint


def test_later_commands_read_the_column_and_its_range_from_a_file(loans):
    assert main(["overlap", "loans.csv", *VALUED, "--value-range=-900,600.5"]) == 0
    file = loans / "consequential-overlap" / "columns.toml"
    assert tomllib.loads(file.read_text())["value_range"] == [-900.0, 600.5]
    asked = ["evaluate", "loans.csv", "--columns", str(file), "--policy", "accept-all"]
    assert main(asked) == 0
    found = results(loans / "consequential-evaluate")["results"]["evaluation"]["utility"]["value"]
    assert -600.0 < found < 400.0
    # a label given besides the file takes the place of its value
    file.write_text(file.read_text().replace("value_range = [-900.0, 600.5]\n", ""))
    assert main([*asked, "--label", "repaid", "--cost", "0.6", "--out", "labels"]) == 0
    assert abs(results(loans / "labels")["results"]["evaluation"]["utility"]["value"]) < 1.0


def test_a_plan_counts_losses_in_the_values_unit(loans):
    assert main(["plan", "loans.csv", *VALUED, "--improvement", "20", "--floors", "0.05"]) == 0
    option = results(loans / "consequential-plan")["results"]["options"][0]
    assert option["worst_loss"] > 1000.0
    assert "label 1" not in text_of(loans / "consequential-plan" / "report.html")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--cost", "0.6"], "give one of --cost, --cost-column and --value"),
        (["--gain", "4", "--loss", "6"], "leave --cost, --cost-column and --value out"),
        (["--fairness", "equal_opportunity"], "equal_opportunity counts people with label 1"),
        (["--value-range=-100,100"], "a value outside -100 to 100 (first: row"),
    ],
)
def test_what_does_not_go_with_values_is_refused(loans, capsys, more, message):
    assert main(["evaluate", "loans.csv", *VALUED, "--policy", "accept-all", *more]) == 2
    assert message in capsys.readouterr().err


def test_a_label_and_a_value_exclude_each_other(loans, capsys):
    with pytest.raises(SystemExit):
        main(["fit", "loans.csv", *VALUED, "--label", "repaid"])
    assert "not allowed with argument --value" in capsys.readouterr().err
