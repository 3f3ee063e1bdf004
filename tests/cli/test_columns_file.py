"""`columns.toml`: written by a command that was told the columns, read by later ones."""

from __future__ import annotations

import tomllib

import pyarrow as pa
import pyarrow.csv
import pytest
from loan_files import COLUMNS, COST, FEATURES, LOGGED, people, results

from consequential.cli import main
from consequential.cli.column_options import columns_text, with_columns

FILE = ["--columns", "consequential-overlap/columns.toml"]


@pytest.fixture
def told(shared, here):
    """A folder in which `overlap` was told the columns."""
    assert main(["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED]) == 0
    return here


def test_a_command_writes_what_it_was_told(told, capsys):
    found = tomllib.loads((told / "consequential-overlap" / "columns.toml").read_text())
    assert found == {
        "features": ["income", "purpose"],
        "sensitive": "sex",
        "decision": "approved",
        "label": "repaid",
        "propensity": "p",
    }


def test_later_commands_do_the_same_with_the_file_as_with_the_options(shared, told, capsys):
    asked = ["evaluate", str(shared / "loans.csv"), "--policy", "accept-all", *COST]
    assert main([*asked, *FEATURES, *LOGGED]) == 0
    assert "columns: " in capsys.readouterr().out
    first = results(told / "consequential-evaluate")
    assert main([*asked, *FILE, "--overwrite"]) == 0
    assert "columns: " not in capsys.readouterr().out
    assert results(told / "consequential-evaluate") == first


def test_options_besides_the_file_take_its_place(shared, told):
    asked = ["overlap", str(shared / "loans.csv"), *FILE, "--features", "income", "--out", "other"]
    assert main([*asked, "--estimate-propensity"]) == 0
    found = results(told / "other")
    assert found["log"]["features"] == ["income"]
    assert found["parameters"]["estimate_propensity"]
    assert found["parameters"]["propensity"] is None
    assert "columns" not in found["parameters"]


def test_names_of_any_kind_survive(here):
    names = ["a, b", 'the "best"', "größe", "-dash", "back\\slash"]
    table = people()
    for name in names:
        table = table.append_column(name, table["income"])
    pa.csv.write_csv(table, "loans.csv")
    features = [part for name in names for part in (f"--features={name}",)]
    assert main(["overlap", "loans.csv", *features, *LOGGED]) == 0
    assert main(["overlap", "loans.csv", *FILE, "--out", "again"]) == 0
    assert results(here / "again")["log"]["features"] == names


def test_everything_about_columns_is_in_the_file():
    options = {"time_step": "day", "period": "month", "horizon": 3, "missing": "against"}
    options |= {"estimate_propensity": True, "cost": 0.5}
    found = tomllib.loads(columns_text(options, [], "loans.csv"))
    del options["cost"]
    assert found == options


def test_arguments_without_a_file_stay_as_they_are():
    for arguments in ([], ["demo"], ["fit", "loans.csv", "--columns"]):
        assert with_columns(arguments) == arguments


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("features = [", "is not TOML"),
        ("features = " + "[" * 100_000, "mine.toml is not TOML"),
        ("horizon = " + "9" * 5_000, "mine.toml is not TOML"),
        ('feature = "income"', "has 'feature', which is none of features, sensitive"),
        ("horizon = 1.5", "horizon must be a whole number, not 1.5"),
        ("features = [1]", "features must be a name in quotes, not [1]"),
        (None, "no file 'mine.toml' for --columns"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(shared, here, capsys, text, said):
    if text is not None:
        (here / "mine.toml").write_text(text)
    asked = ["overlap", str(shared / "loans.csv"), *COLUMNS, "--columns", "mine.toml"]
    assert main(asked) == 2
    assert said in capsys.readouterr().err


def test_values_take_the_place_of_a_label_and_of_the_one_hoped_for(here):
    (here / "columns.toml").write_text(
        'features = ["income"]\nlabel = "outcome"\npositive_label = "repaid"\n'
    )
    asked = ["fit", "loans.csv", "--columns", "columns.toml"]
    assert with_columns([*asked, "--value", "gain"]) == [
        "fit",
        "--features=income",
        *asked[1:],
        "--value",
        "gain",
    ]
    assert "--positive-label=repaid" in with_columns(asked)
