"""`consequential fit`: what it learns, says and writes."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from loan_files import COLUMNS, COST, FEATURES, LOGGED, NAMES, people, results, text_of

import consequential as cq
from consequential.cli import main


def test_fit_writes_a_policy_that_finds_its_columns_by_name(shared):
    policy = cq.load_policy(shared / "fit" / "policy.json")
    assert list(policy.feature_names) == NAMES
    assert policy.floor == 0.02
    table = people(seed=2)
    shuffled = table.select(["purpose", "income"])
    log = cq.DecisionLog.from_frame(
        table, features=["income", "purpose"], decision="approved", label="repaid", propensity="p"
    )
    np.testing.assert_allclose(policy.propensity(shuffled), log.propensity_of(policy))


def test_fit_writes_everything_it_knows_as_json(shared):
    found = results(shared / "fit")
    assert (found["format"], found["schema"]) == ("consequential results", 1)
    assert found["command"] == "fit"
    assert found["parameters"]["max_gap"] == 0.1
    assert found["file"]["name"] == "loans.csv"
    assert len(found["file"]["sha256"]) == 64
    assert found["log"]["decisions"] == 800
    assert found["log"]["features"] == NAMES
    assert {"consequential", "numpy", "scikit-learn"} <= set(found["versions"])
    assert set(found["results"]) == {
        "bound",
        "candidates",
        "certificates",
        "policy_gap",
        "value",
        "comparisons",
        "swaps",
        "group_metrics",
        "effects",
        "overlap",
    }
    assert set(found["results"]["comparisons"]) == {"what the log did", "accept all", "reject all"}
    assert abs(found["results"]["certificates"]["benefit_gap"]) <= 0.1002
    assert str(shared) not in json.dumps(found)


def test_the_figures_of_fit_are_the_librarys_own(shared):
    log = cq.DecisionLog.from_file(
        shared / "loans.csv",
        features=["income", "purpose"],
        sensitive="sex",
        decision="approved",
        label="repaid",
        propensity="p",
    )
    learner = cq.FairPolicyLearner(cost=0.6, max_gap=0.1, floor=0.02).fit_log(log, folds=2)
    expected = cq.compare(
        learner.cross_fitted_, cq.Logged(), log, cost=0.6, weighting=learner.weighting_
    )
    found = results(shared / "fit")["results"]
    assert found["comparisons"]["what the log did"]["utility"] == expected.utility.to_dict()
    assert found["value"]["benefit_gap"] == expected.new.benefit_gap.to_dict()


def test_rejecting_all_means_the_same_in_every_table(shared):
    found = results(shared / "fit")["results"]
    (candidate,) = (each for each in found["candidates"]["entries"] if each["name"] == "reject all")
    beside = found["comparisons"]["reject all"]["old"]
    assert candidate["value"]["acceptance"]["value"] == pytest.approx(0.02)  # the floor
    for name in ("utility", "acceptance"):
        assert beside[name]["value"] == pytest.approx(candidate["value"][name]["value"])
    for name in ("report.html", "model-card.md"):
        said = text_of(shared / "fit" / name)
        assert said.count("are for comparison only: they have no floor and are never taken") == 1
        assert said.count("Rejecting all accepts 2.00%, the floor.") == 1


def test_fit_shows_what_was_booked(shared):
    booked = [row["repaid"] - 0.6 if row["approved"] else 0.0 for row in people().to_pylist()]
    past = results(shared / "fit")["results"]["comparisons"]["what the log did"]["old"]
    assert past["utility"]["value"] == pytest.approx(np.mean(booked))


def test_fit_says_who_changes_sides_by_group(shared):
    found = results(shared / "fit")["results"]["swaps"]
    rows = people().to_pylist()
    accepted = [row["sex"] for row in rows if row["approved"]]
    for sex in ("f", "m"):
        assert found["by_group"][sex]["accepted"] == accepted.count(sex)
    everyone = found["overall"]
    kept = everyone["accepted"] - everyone["leaving"]["value"] + everyone["entering"]["value"]
    assert everyone["accepted_now"]["value"] == pytest.approx(kept)
    page = text_of(shared / "fit" / "report.html")
    section = page[page.index("Who changes") : page.index("Rates by group")]
    assert f"{everyone['leaving']['value']:.0f} [" in section
    assert f"{everyone['by_chance']:.0f} of the {everyone['accepted']} accepted" in section


def test_the_page_needs_nothing_beside_itself_and_warns_first(shared):
    page = (shared / "fit" / "report.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(src|href)=['\"]http", page)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings[0] == "Read this first"
    assert headings[1:6] == [
        "Candidates",
        "What it is worth",
        "What it changes",
        "Who changes",
        "Rates by group, cross-fitted",
    ]
    assert page.count("<svg") == 2
    assert "cross-fitted" in page
    assert "sha256" in page


@pytest.mark.parametrize(
    "more",
    [
        ["--polynomial", "2", "--uses-sensitive", "--penalty", "1", "--weighting", "clipped:10"],
        ["--spline", "3", "--min-ratio", "0.8", "--method", "any_time", "--past-floor", "0.2"],
    ],
    ids=["products", "splines"],
)
def test_policies_of_other_forms_are_learned_stored_and_judged(shared, here, capsys, more):
    files = [str(shared / "loans.csv"), str(shared / "later.parquet")]
    arguments = ["fit", files[0], "--features", "income", *LOGGED, *COST, "--folds", "2"]
    assert main([*arguments, *more]) == 0
    policy = cq.load_policy(here / "consequential-fit" / "policy.json")
    assert policy.uses_sensitive == ("--uses-sensitive" in more)
    judged = ["--policy", "consequential-fit/policy.json"]
    assert main(["evaluate", files[1], *judged, *LOGGED, *COST]) == 0
    said = "decides by the sensitive attribute" in capsys.readouterr().out
    assert said == policy.uses_sensitive


def test_fit_warns_first_of_estimates_young_decisions_and_missed_bounds(shared, here):
    asked = ["--estimate-propensity", "--time-step", "month", "--horizon", "2", "--folds", "2"]
    form = ["--features", "income", "--max-gap", "0", "--uses-sensitive", "--spline", "5"]
    arguments = ["fit", str(shared / "loans.csv"), *form, *COLUMNS, *COST, *asked]
    assert main(arguments) == 0
    found = results(here / "consequential-fit")
    assert found["results"]["sensitivity"]["gammas"][0] == 1.0
    page = text_of(here / "consequential-fit" / "report.html")
    assert "DecisionLog(" in page[page.index("Where this comes from") :]
    assert page.count("DecisionLog(") == 1
    first = page[page.index("Read this first") : page.index("What it is worth")]
    assert "propensities were estimated" in first
    assert first.count("cross-fitted") == 1
    assert first.index("younger than the horizon of 2 time") < first.index("figures are cross-fit")
    assert "decides by the sensitive attribute" in first
    gap = found["results"]["value"]["benefit_gap"]
    assert ("the gap was bounded by 0 " in first) == (gap["low"] > 0 or gap["high"] < 0)


def test_fit_says_in_its_first_lines_whether_the_bound_is_kept_among_people(shared):
    found = results(shared / "fit")["results"]
    assert found["bound"].startswith("Bound (gap at most 0.1): ")
    assert "among people it was not learned from" in found["bound"]
    page = (shared / "fit" / "report.html").read_text()
    assert page.index("Bound (gap at most 0.1)") < page.index("Read this first")
    assert "gaps in tables are those of policies learned like it" in found["bound"]
    gap = found["policy_gap"]
    kept = max(gap["high"], -gap["low"]) <= 0.1
    assert ("kept among" in found["bound"] and "cannot" not in found["bound"]) == kept


def test_of_more_than_two_groups_fit_says_which_two_the_gap_is_between(here, capsys):
    table = people()
    ages = pa.array([("young", "middle", "old")[k % 3] for k in range(len(table))])
    pa.csv.write_csv(table.set_column(3, "sex", ages), "ages.csv")
    asked = ["fit", "ages.csv", *FEATURES, *LOGGED, *COST, "--max-gap", "0.1", "--folds", "2"]
    assert main(asked) == 0
    rates = results(here / "consequential-fit")["results"]["value"]["benefits"]
    highest, lowest = (pick(rates, key=lambda age: rates[age]["value"]) for pick in (max, min))
    said = f" between {highest}, the highest, and {lowest}."
    assert said in capsys.readouterr().out.splitlines()[2]


def test_the_report_says_which_features_move_the_policy(shared):
    found = results(shared / "fit")["results"]["effects"]
    assert found[0]["feature"] == "income"
    page = text_of(shared / "fit" / "report.html")
    section = page[page.index("What moves it") : page.index("Who is accepted")]
    assert "income" in section
    assert f"{found[0]['at_high']:.1%}" in section


def test_a_bound_on_the_ratio_is_reported_however_the_notion_is_spelt(shared, here, capsys):
    bound = ["--min-ratio", "0.5", "--fairness", "equal-opportunity", "--folds", "2"]
    assert main(["fit", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, *bound]) == 0
    assert "\nBound (ratio at least 0.5): " in capsys.readouterr().out


@pytest.mark.parametrize("learn", ["model", "direct"])
def test_the_gap_beside_a_bound_has_the_interval_that_is_asked_for(learn, shared, here, capsys):
    asked = ["--max-gap", "0.1", "--confidence", "0.5", "--folds", "2", "--learn", learn]
    assert main(["fit", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, *asked]) == 0
    found = results(here / "consequential-fit")["results"]
    gap = found["policy_gap"]
    assert gap["confidence"] == found["value"]["benefit_gap"]["confidence"] == 0.5
    assert f"there it is {gap['value']:.4f} [{gap['low']:.4f}, " in capsys.readouterr().out


def test_a_bound_with_confidence_is_shown_on_held_out_rows_or_nothing_is_written(
    shared, here, capsys
):
    pa.csv.write_csv(people(6000, seed=3), "many.csv")
    arguments = ["fit", "many.csv", *FEATURES, *LOGGED, *COST, "--max-gap", "0.3"]
    assert main([*arguments, "--bound-confidence", "0.95", "--out", "shown"]) == 0
    said = capsys.readouterr().out
    assert "Bound (gap at most 0.3): shown to be kept with confidence 0.95" in said
    assert results(here / "shown")["results"]["value"]["n"] == 3000
    bound = ["--max-gap", "0.005", "--fairness", "equal_opportunity", "--bound-confidence", "0.95"]
    few = ["fit", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, *bound, "--learn", "direct"]
    assert main([*few, "--out", "declined"]) != 0
    assert "no policy can be shown to keep a gap of at most 0.005" in capsys.readouterr().err
    assert not (here / "declined" / "policy.json").exists()


def test_a_log_without_exploration_is_refused_and_nothing_written(here, capsys):
    table = people()
    sure = pa.array([float(d) for d in table["approved"].to_pylist()])
    pa.csv.write_csv(table.set_column(table.column_names.index("p"), "p", sure), "sure.csv")
    assert main(["fit", "sure.csv", *FEATURES, *LOGGED, *COST, "--out", "no"]) != 0
    assert "cannot be told from this log" in capsys.readouterr().err
    assert not (here / "no").exists()


def test_fit_keeps_a_capacity_and_says_so_first(shared, here, capsys):
    arguments = [*FEATURES, *LOGGED, *COST, "--folds", "2", "--learn", "model"]
    shares = ["--max-acceptance", "f=0.2", "m=0.3"]
    assert main(["fit", str(shared / "loans.csv"), *arguments, *shares]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"Capacity \(accept at most 0.2 of f\): (kept|kept up to chance) ", printed)
    assert "Capacity (accept at most 0.3 of m)" in printed
    assert "--max-acceptance f=0.2 m=0.3 " in (here / "consequential-fit/model-card.md").read_text()
    policy = cq.load_policy(here / "consequential-fit" / "policy.json")
    table = people()
    propensity = policy.propensity(table.select(["income", "purpose"]))
    sex = np.array(table["sex"].to_pylist())
    assert propensity[sex == "f"].mean() <= 0.2 + 1e-4
    assert propensity[sex == "m"].mean() <= 0.3 + 1e-4


def test_fit_learns_a_policy_that_is_monotone(shared, here, capsys):
    arguments = ["fit", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, "--folds", "2"]
    assert main([*arguments, "--learn", "direct", "--monotone", "income=-"]) == 0
    policy = cq.load_policy(here / "consequential-fit" / "policy.json")
    found = policy.propensity([{"income": k, "purpose": "car"} for k in range(8)])
    assert (np.diff(found) <= 0.0).all()  # although the rich repay
    assert main([*arguments, "--monotone", "purpose=+", "--out", "words"]) != 0
    assert "a column of words" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--monotone", "income:+"])
    assert "must be COLUMN=+ or COLUMN=-, not 'income:+'" in capsys.readouterr().err


def test_a_capacity_of_an_unknown_group_is_refused_with_the_groups_there_are(shared, capsys):
    arguments = [*FEATURES, *LOGGED, *COST, "--max-acceptance", "women=0.2"]
    assert main(["fit", str(shared / "loans.csv"), *arguments]) != 0
    assert "which are f, m" in capsys.readouterr().err


@pytest.fixture(scope="module")
def of_two_attributes(shared, tmp_path_factory):
    """A log with two sensitive columns, and what `fit` wrote about it."""
    folder = tmp_path_factory.mktemp("attributes")
    table = people()
    age = np.random.default_rng(1).choice(["old", "young"], len(table))
    pa.csv.write_csv(table.append_column("age", pa.array(age)), folder / "loans.csv")
    bounds = ["--bound", "demographic_parity:0.05:sex", "--bound", "equal-opportunity:0.3:age"]
    columns = ["--decision", "approved", "--label", "repaid", "--propensity", "p"]
    arguments = [*FEATURES, "--sensitive", "sex,age", *columns, *COST, *bounds, "--uses-sensitive"]
    shares = ["--min-acceptance", "0.4", "--max-acceptance", "0.4"]
    learn = ["--learn", "direct", "--folds", "2", "--out", str(folder / "fit")]
    assert main(["fit", str(folder / "loans.csv"), *arguments, *shares, *learn]) == 0
    return folder


def test_fit_states_every_bound_and_every_share(of_two_attributes):
    found = results(of_two_attributes / "fit")["results"]
    lines = found["bound"].splitlines()
    assert [line.partition(":")[0] for line in lines[3:]] == [
        "Capacity (accept at most 0.4)",
        "Capacity (accept at least 0.4)",
    ]
    for line, bound in zip(lines, found["policy_gaps"], strict=False):
        assert line.startswith(f"Bound ({bound}): ")
    assert list(found["policy_gaps"]) == [
        "demographic_parity by sex: gap at most 0.05",
        "equal_opportunity by age: gap at most 0.3",
    ]
    assert set(found["value"]["benefits"]) == {"f", "m"}
    assert abs(found["certificates"]["benefit_gap"]) <= 0.0502
    assert lines[0] in text_of(of_two_attributes / "fit" / "report.html")


def test_several_sensitive_columns_are_kept_for_later_commands(of_two_attributes, here):
    columns = of_two_attributes / "fit" / "columns.toml"
    assert 'sensitive = "sex,age"' in columns.read_text()
    file = str(of_two_attributes / "loans.csv")
    assert main(["overlap", file, "--columns", str(columns)]) == 0
    groups = results(here / "consequential-overlap")["log"]["groups"]
    assert set(groups) == {"f & old", "f & young", "m & old", "m & young"}


def test_a_policy_of_intersections_decides_by_several_columns(of_two_attributes, here, capsys):
    policy = str(of_two_attributes / "fit" / "policy.json")
    file = str(of_two_attributes / "loans.csv")
    asked = ["--policy", policy, "--seed", "1"]
    assert main(["decide", file, *asked, "--sensitive", "sex,age"]) == 0
    decided = pa.csv.read_csv(here / "decisions.csv")["propensity"].to_numpy()
    assert decided.mean() == pytest.approx(0.4, abs=1e-3)
    assert main(["decide", file, *asked, "--sensitive", "sex", "--overwrite"]) != 0
    assert "not one of f & old" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bound", "demographic_parity"], "--bound takes a notion, a gap"),
        (["--bound", "demographic_parity:0.1:age"], "no sensitive attribute 'age'"),
        (
            ["--bound", "demographic_parity:0.1", "--bound-confidence", "0.9"],
            "--bound-confidence does not go with --bound",
        ),
    ],
)
def test_bounds_that_cannot_be_meant_are_refused(shared, here, capsys, arguments, said):
    given = [*FEATURES, *LOGGED, *COST, *arguments]
    assert main(["fit", str(shared / "loans.csv"), *given]) != 0
    assert said in capsys.readouterr().err
