"""`overlap`, `evaluate`, `compare`, `frontier` and `plan`: what they print and write."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from loan_files import COLUMNS, COST, FEATURES, LOGGED, people, results, text_of

import consequential as cq
from consequential.cli import main


def test_evaluate_takes_the_features_of_the_policy(shared, here, capsys):
    policy = shared / "fit" / "policy.json"
    arguments = ["evaluate", str(shared / "later.parquet"), "--policy", str(policy)]
    assert main([*arguments, *LOGGED, *COST]) == 0
    out = capsys.readouterr().out
    found = results(here / "consequential-evaluate")
    log = cq.DecisionLog.from_file(
        shared / "later.parquet",
        features=["income", "purpose"],
        sensitive="sex",
        decision="approved",
        label="repaid",
        propensity="p",
    )
    expected = cq.evaluate(cq.load_policy(policy), log, cost=0.6)
    assert found["results"]["evaluation"] == expected.to_dict()
    assert repr(expected) in out
    assert "this very log" not in out


def test_compare_sets_two_rules_against_each_other(shared, here, capsys):
    new = ["--new", str(shared / "fit" / "policy.json"), "--old", "accept-all"]
    assert main(["compare", str(shared / "later.parquet"), *new, *LOGGED, *COST]) == 0
    found = results(here / "consequential-compare")["results"]["comparison"]
    assert found["old"]["acceptance"]["value"] == 1.0
    assert found["verdict"] in capsys.readouterr().out
    assert "accept-all" in text_of(here / "consequential-compare" / "report.html")


def test_overlap_needs_no_labels(shared, here, capsys):
    columns = ["--sensitive", "sex", "--decision", "approved", "--propensity", "p"]
    assert main(["overlap", str(shared / "loans.csv"), *FEATURES, *columns]) == 0
    assert "exploring: yes" in capsys.readouterr().out
    assert results(here / "consequential-overlap")["results"]["overall"]["people"] == 800


def test_frontier_traces_bounds_and_draws_them(shared, here, capsys, drawn):
    arguments = ["frontier", str(shared / "loans.csv"), "--features", "income", *LOGGED, *COST]
    assert main([*arguments, "--max-gaps", "0.05", "--folds", "2"]) == 0
    out = capsys.readouterr().out
    assert "gap at most 0.05" in out
    assert "no bound" in out
    assert "<svg" in (here / "consequential-frontier" / "report.html").read_text()
    points = results(here / "consequential-frontier")["results"]["frontier"]["points"]
    assert [point["max_gap"] for point in points] == [0.05, None]


def test_a_frontier_within_a_capacity(shared, here):
    arguments = ["frontier", str(shared / "loans.csv"), "--features", "income", *LOGGED, *COST]
    bounds = ["--max-gaps", "0.05", "--max-acceptance", "0.2"]
    assert main([*arguments, *bounds, "--folds", "2", "--learn", "model"]) == 0
    points = results(here / "consequential-frontier")["results"]["frontier"]["points"]
    assert all(point["acceptance"] < 0.25 for point in points)


def test_plan_answers_for_a_rule_that_left_nothing_to_chance(shared, here, capsys):
    columns = [*COLUMNS, "--propensity", "approved"]
    asked = ["--improvement", "0.02", "--rate", "500", "--outcome-months", "12"]
    arguments = ["plan", str(shared / "loans.csv"), *FEATURES, *columns, *COST, *asked]
    assert main([*arguments, "--floors", "0.05"]) == 0
    said = capsys.readouterr().out
    assert "never had a chance of acceptance" in said
    assert "in words: With a floor of 0.05, " in said
    assert "With a floor of 0.05, " in text_of(here / "consequential-plan" / "report.html")
    (option,) = results(here / "consequential-plan")["results"]["options"]
    assert option["months"] == pytest.approx(option["decisions"] / 500 + 12)


def test_plan_takes_months_from_dates_and_a_horizon_of_0_leaves_nothing_out(here, capsys):
    table = people()
    dates = [f"2024-{1 + step:02d}-01" for step in table["month"].to_pylist()]
    pa.csv.write_csv(table.append_column("day", pa.array(dates)), "dated.csv")
    asked = ["dated.csv", *FEATURES, *LOGGED, "--time-step", "day"]
    plan = ["plan", *asked, "--period", "quarter", *COST, "--improvement", "0.02"]
    n_quarters = len({(int(date[5:7]) - 1) // 3 for date in dates})
    for horizon, months in (("1", 3.0), ("0", 0.0)):
        assert main([*plan, "--horizon", horizon, "--floors", "0.05", "--overwrite"]) == 0
        (option,) = results(here / "consequential-plan")["results"]["options"]
        rate = len(table) / n_quarters / 3.0
        assert option["months"] == pytest.approx(option["decisions"] / rate + months)
        left_out = "younger than the horizon of 1 time steps" in capsys.readouterr().out
        assert left_out == (horizon == "1")


def test_estimated_propensities_bring_bounds_for_hidden_reasons(shared, here, capsys):
    policy = ["--new", str(shared / "fit" / "policy.json")]
    arguments = ["compare", str(shared / "later.parquet"), *policy, *COLUMNS, *COST]
    assert main([*arguments, "--estimate-propensity"]) == 0
    assert "propensities were estimated" in capsys.readouterr().out
    found = results(here / "consequential-compare")["results"]
    assert found["sensitivity"]["gammas"][0] == 1.0
    assert "If propensities are wrong" in text_of(here / "consequential-compare" / "report.html")


def test_young_decisions_are_left_out_and_that_is_said(shared, here, capsys):
    asked = ["--policy", "logged", "--time-step", "month", "--horizon", "3"]
    arguments = ["evaluate", str(shared / "loans.csv"), *FEATURES, *asked]
    assert main([*arguments, *LOGGED, *COST]) == 0
    assert "younger than the horizon of 3 time steps left out" in capsys.readouterr().out


def test_american_spellings_of_notions_are_understood(shared, here):
    asked = ["--policy", "accept-all", "--fairness", "equalized-odds"]
    arguments = ["evaluate", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, *asked]
    assert main(arguments) == 0
    found = results(here / "consequential-evaluate")["results"]["evaluation"]
    assert found["fairness"] == "equalised_odds"


def test_labels_that_never_came_are_refused_or_made_up_for(here, capsys):
    table = people()
    labels = table["repaid"].to_pylist()
    accepted = [k for k, label in enumerate(labels) if label is not None]
    for k in accepted[::7]:
        labels[k] = None
    gone = table.set_column(table.column_names.index("repaid"), "repaid", pa.array(labels))
    pa.csv.write_csv(gone, "gone.csv")
    arguments = ["evaluate", "gone.csv", *FEATURES, *LOGGED, *COST, "--policy", "accept-all"]
    assert main([*arguments, "--out", "refused"]) != 0
    assert 'missing="against"' in capsys.readouterr().err
    for how in ("against", "at_random"):
        assert main([*arguments, "--missing", how, "--out", how]) == 0
        assert "accepted without a label" in capsys.readouterr().out
    wide, narrow = (
        results(here / how)["results"]["evaluation"]["utility"] for how in ("against", "at_random")
    )
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


def test_plan_says_that_its_candidate_was_learned_from_the_same_log(shared, here, capsys):
    candidate = ["--candidate", str(shared / "fit" / "policy.json"), "--improvement", "0.02"]
    asked = ["plan", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, *candidate]
    assert main(asked) == 0
    assert "was learned from this very log" in capsys.readouterr().out
    assert "was learned from this very log" in text_of(here / "consequential-plan" / "report.html")
