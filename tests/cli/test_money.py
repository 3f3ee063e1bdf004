"""Money: `--gain`, `--loss`, `--unit` and amounts, in commands and their reports."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from loan_files import COLUMNS, FEATURES, LOGGED, people, results, text_of

from consequential.cli import main

MONEY = ["--gain", "400", "--loss", "600", "--unit", "EUR"]
POLICY = ["--policy", "accept-all"]


@pytest.fixture
def loans(here):
    """A log with amounts, and dates over eight months of 30 days."""
    table = people()
    days = np.datetime64("2024-01-01") + np.arange(800) * 240 // 800
    table = table.append_column("amount", pa.array(np.linspace(1000.0, 9000.0, 800)))
    pa.csv.write_csv(table.append_column("day", pa.array(days)), "loans.csv")
    return here


def test_gain_and_loss_stand_for_the_cost(loans):
    assert main(["evaluate", "loans.csv", *POLICY, *FEATURES, *LOGGED, *MONEY]) == 0
    found = results(loans / "consequential-evaluate")["results"]
    expected = found["evaluation"]["utility"]["value"] * 1000.0
    assert found["earnings"]["overall"]["new"]["value"] == pytest.approx(expected)
    assert (
        main(["evaluate", "loans.csv", *POLICY, *FEATURES, *LOGGED, "--cost", "0.6", "--out", "x"])
        == 0
    )
    plain = results(loans / "x")["results"]
    assert plain["evaluation"]["utility"] == found["evaluation"]["utility"]
    assert "earnings" not in plain


def test_a_month_has_as_many_applications_as_the_dates_say_or_as_given(loans):
    asked = ["evaluate", "loans.csv", *POLICY, *FEATURES, *LOGGED, *MONEY]
    assert main([*asked, "--time-step", "day", "--period", "day", "--out", "days"]) == 0
    monthly = results(loans / "days")["results"]["earnings"]["monthly"]
    assert monthly == pytest.approx(800 / 240 * 365.25 / 12)
    assert main([*asked, "--rate", "50", "--out", "given"]) == 0
    assert results(loans / "given")["results"]["earnings"]["monthly"] == 50.0


def test_fit_reports_money_by_group_and_against_the_past_rule(loans, capsys):
    assert main(["fit", "loans.csv", *FEATURES, *LOGGED, *MONEY, "--folds", "2"]) == 0
    said = capsys.readouterr().out
    assert "what it earns\nEUR " in said
    page = text_of(loans / "consequential-fit" / "report.html")
    section = page[page.index("What it earns") : page.index("Who changes")]
    assert "per 1000: f" in section
    assert "per month" not in section


@pytest.mark.parametrize("losing", [True, False])
def test_a_rule_that_surely_loses_is_said_to_first(loans, losing):
    asked = ["evaluate", "loans.csv", *POLICY, *FEATURES, *LOGGED, "--unit", "EUR"]
    assert main([*asked, "--gain", "100", "--loss", "1600" if losing else "1"]) == 0
    found = results(loans / "consequential-evaluate")
    brings = found["results"]["earnings"]["overall"]["new"]
    assert (brings["high"] < 0.0) == losing
    said = f"this policy loses {-brings['value']:.2f} EUR per application; accepting nobody"
    assert " ".join(found["notes"]).startswith(said) == losing
    assert ("policy loses" in str(found["notes"])) == losing


def test_amounts_are_money_with_a_unit_and_shares_of_them_with_gain_and_loss(loans):
    asked = ["compare", "loans.csv", "--new", "accept-all", *FEATURES, *LOGGED]
    amount = ["--amount", "amount", "--unit", "EUR"]
    assert main([*asked, *amount, "--cost", "0.6", "--out", "whole"]) == 0
    assert main([*asked, *amount, "--gain", "0.04", "--loss", "0.06", "--out", "shares"]) == 0
    whole, shares = (
        results(loans / name)["results"]["earnings"]["overall"]["difference"]["value"]
        for name in ("whole", "shares")
    )
    assert shares == pytest.approx(whole / 10.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gain", "10"], "give --gain, what label 1 brings, and --loss"),
        ([*MONEY, "--cost", "0.5"], "leave --cost, --cost-column and --value out"),
        (["--unit", "EUR", "--cost", "0.5"], "--unit is about money"),
    ],
)
def test_money_that_cannot_be_counted_is_refused_before_any_work(loans, capsys, more, said):
    assert main(["fit", "loans.csv", "--features", "income", *COLUMNS, "--propensity", "p", *more])
    assert said in capsys.readouterr().err
    assert not (loans / "consequential-fit").exists()


def test_a_plan_in_money_is_the_plan_in_utility_times_what_that_is_worth(loans, capsys):
    asked = ["plan", "loans.csv", *FEATURES, *LOGGED, "--floors", "0.05"]
    assert main([*asked, "--cost", "0.6", "--improvement", "0.02", "--out", "plain"]) == 0
    assert main([*asked, *MONEY, "--improvement", "20", "--out", "money"]) == 0
    said = capsys.readouterr().out
    assert "losses and improvement in EUR" in said
    assert "better by 20 EUR per applicant" in said
    (plain,), (money,) = (
        results(loans / name)["results"]["options"] for name in ("plain", "money")
    )
    assert money["decisions"] == plain["decisions"]
    for name in ("loss", "loss_low", "worst_loss", "total_loss"):
        assert money[name] == pytest.approx(1000.0 * plain[name])
    assert "Losses are in EUR." in text_of(loans / "money" / "report.html")
