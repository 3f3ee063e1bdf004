"""Commands on decision logs: what they print and write, and how they refuse."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import consequential as cq
from consequential.cli import main

COLUMNS = ["--sensitive", "sex", "--decision", "approved", "--label", "repaid"]
LOGGED = [*COLUMNS, "--propensity", "p"]
FEATURES = ["--features", "income,purpose"]
COST = ["--cost", "0.6"]
NAMES = ["income", "purpose=car", "purpose=home"]


def people(n=800, seed=0) -> pa.Table:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    income = rng.normal(3.0, 1.0, n) + 0.4 * (sex == "m")
    purpose = rng.choice(["car", "home"], n)
    p = (0.2 + 0.6 / (1 + np.exp(3.0 - income))).round(4)
    approved = rng.random(n) < p
    repaid = rng.random(n) < 1 / (1 + np.exp(2.5 - income - 0.5 * (purpose == "home")))
    return pa.table(
        {
            "number": np.arange(n),
            "income": income.round(3),
            "purpose": purpose,
            "sex": sex,
            "approved": approved.astype(int),
            "p": p,
            "repaid": pa.array(
                [int(y) if d else None for d, y in zip(approved, repaid, strict=True)]
            ),
            "month": np.arange(n) * 12 // n,
        }
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Files that every test may read: two logs and what `fit` made of the first."""
    folder = tmp_path_factory.mktemp("shelf")
    pa.csv.write_csv(people(), folder / "loans.csv")
    pa.parquet.write_table(people(seed=1), folder / "later.parquet")
    arguments = ["fit", str(folder / "loans.csv"), *FEATURES, *LOGGED, *COST]
    bounds = ["--max-gap", "0.05", "--floor", "0.02", "--folds", "2"]
    assert main([*arguments, *bounds, "--out", str(folder / "fit")]) == 0
    return folder


@pytest.fixture
def here(shelf, tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def text_of(page) -> str:
    return re.sub(r"<[^>]+>", " ", page.read_text())


# --- what is written


def test_fit_writes_a_policy_that_finds_its_columns_by_name(shelf):
    policy = cq.load_policy(shelf / "fit" / "policy.json")
    assert list(policy.feature_names) == NAMES
    assert policy.floor == 0.02
    table = people(seed=2)
    shuffled = table.select(["sex", "purpose", "number", "income"])
    log = cq.DecisionLog.from_frame(
        table, features=NAMES, decision="approved", label="repaid", propensity="p"
    )
    np.testing.assert_allclose(policy.propensity(shuffled), log.propensity_of(policy))


def test_fit_writes_everything_it_knows_as_json(shelf):
    found = results(shelf / "fit")
    assert (found["format"], found["schema"]) == ("consequential results", 1)
    assert found["command"] == "fit"
    assert found["parameters"]["max_gap"] == 0.05
    assert found["file"]["name"] == "loans.csv"
    assert len(found["file"]["sha256"]) == 64
    assert found["log"]["decisions"] == 800
    assert found["log"]["features"] == NAMES
    assert {"consequential", "numpy", "scikit-learn"} <= set(found["versions"])
    assert set(found["results"]) == {
        "bound",
        "certificates",
        "policy_gap",
        "value",
        "comparisons",
        "group_metrics",
        "overlap",
    }
    assert set(found["results"]["comparisons"]) == {"what the log did", "accept all", "reject all"}
    assert abs(found["results"]["certificates"]["benefit_gap"]) <= 0.0502
    assert str(shelf) not in json.dumps(found)


def test_the_figures_of_fit_are_the_librarys_own(shelf):
    log = cq.DecisionLog.from_file(
        shelf / "loans.csv",
        features=["income", "purpose"],
        sensitive="sex",
        decision="approved",
        label="repaid",
        propensity="p",
    )
    learner = cq.FairPolicyLearner(cost=0.6, max_gap=0.05, floor=0.02)
    expected = cq.compare(learner, cq.Logged(), log, cost=0.6, folds=2)
    found = results(shelf / "fit")["results"]
    assert found["comparisons"]["what the log did"]["utility"] == expected.utility.to_dict()
    assert found["value"]["benefit_gap"] == expected.new.benefit_gap.to_dict()


def test_the_page_needs_nothing_beside_itself_and_warns_first(shelf):
    page = (shelf / "fit" / "report.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(src|href)=['\"]http", page)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings[0] == "Read this first"
    assert headings[1:4] == ["What it is worth", "What it changes", "Rates by group, cross-fitted"]
    assert page.count("<svg") == 2
    assert "cross-fitted" in page
    assert "sha256" in page


def test_evaluate_takes_the_features_of_the_policy(shelf, here, capsys):
    policy = shelf / "fit" / "policy.json"
    arguments = ["evaluate", str(shelf / "later.parquet"), "--policy", str(policy)]
    assert main([*arguments, *LOGGED, *COST]) == 0
    out = capsys.readouterr().out
    found = results(here / "consequential-evaluate")
    log = cq.DecisionLog.from_file(
        shelf / "later.parquet",
        features=NAMES,
        sensitive="sex",
        decision="approved",
        label="repaid",
        propensity="p",
    )
    expected = cq.evaluate(cq.load_policy(policy), log, cost=0.6)
    assert found["results"]["evaluation"] == expected.to_dict()
    assert repr(expected) in out
    assert "this very log" not in out


@pytest.mark.parametrize("more", [[], ["--features", "purpose,income,month"]], ids=["own", "more"])
def test_a_policy_judged_on_its_own_log_is_called_flattered(shelf, here, capsys, more):
    policy = shelf / "fit" / "policy.json"
    arguments = ["evaluate", str(shelf / "loans.csv"), "--policy", str(policy), *more]
    assert main([*arguments, *LOGGED, *COST]) == 0
    assert "learned from this very log" in capsys.readouterr().out
    page = text_of(here / "consequential-evaluate" / "report.html")
    assert "learned from this very log" in page
    assert page.index("Read this first") < page.index("What it is worth")


def test_another_sensitive_attribute_does_not_hide_where_a_policy_was_learned(shelf, here, capsys):
    policy = ["--policy", str(shelf / "fit" / "policy.json")]
    columns = ["--sensitive", "purpose", *LOGGED[2:]]
    assert main(["evaluate", str(shelf / "loans.csv"), *policy, *columns, *COST]) == 0
    assert "learned from this very log" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [
        ["--polynomial", "2", "--uses-sensitive", "--penalty", "1", "--weighting", "clipped:10"],
        ["--spline", "3", "--min-ratio", "0.8", "--method", "bernstein", "--past-floor", "0.2"],
    ],
    ids=["products", "splines"],
)
def test_policies_of_other_forms_are_learned_stored_and_judged(shelf, here, capsys, more):
    files = [str(shelf / "loans.csv"), str(shelf / "later.parquet")]
    arguments = ["fit", files[0], "--features", "income", *LOGGED, *COST, "--folds", "2"]
    assert main([*arguments, *more]) == 0
    policy = cq.load_policy(here / "consequential-fit" / "policy.json")
    assert policy.uses_sensitive == ("--uses-sensitive" in more)
    judged = ["--policy", "consequential-fit/policy.json"]
    assert main(["evaluate", files[1], *judged, *LOGGED, *COST]) == 0
    said = "decides by the sensitive attribute" in capsys.readouterr().out
    assert said == policy.uses_sensitive


def test_more_features_in_another_order_do_not_change_a_policys_value(shelf, here):
    policy = ["--policy", str(shelf / "fit" / "policy.json")]
    found = []
    for name, more in (("a", []), ("b", ["--features", "month,purpose,income"])):
        arguments = ["evaluate", str(shelf / "later.parquet"), *policy, *LOGGED, *COST, *more]
        assert main([*arguments, "--out", name]) == 0
        found.append(results(here / name)["results"]["evaluation"]["utility"])
    assert found[0] == found[1]


def saved_rules():
    """Rules of every kind that can be stored, all of income and month, in two orders."""
    from sklearn.linear_model import LogisticRegression

    table = people().to_pandas()
    policy = cq.Policy([-6.0, 2.0, -0.1], feature_names=["income", "month"])
    turned = cq.Policy([-6.0, -0.1, 2.0], feature_names=["month", "income"])
    rich = (table["income"] > 3.0).astype(int)
    cut = cq.ThresholdPolicy(LogisticRegression().fit(table[["month", "income"]], rich), 0.5)
    return {
        "policy": policy,
        "floor": turned.with_floor(0.1),
        "mixture": cq.Mixture([policy, turned, cut], [0.4, 0.4, 0.2]),
        "nth": cq.EveryNth(5, turned),
        "threshold": cut,
    }


@pytest.mark.parametrize("kind", ["policy", "floor", "mixture", "nth", "threshold"])
def test_stored_rules_of_every_kind_find_their_columns_by_name(shelf, here, kind):
    rule = saved_rules()[kind]
    cq.save_policy(rule, "rule.json")
    file, truth = shelf / "later.parquet", []
    for features in (["income", "month"], ["purpose", "month", "income"]):
        log = cq.DecisionLog.from_file(
            file, features=features, decision="approved", label="repaid", propensity="p"
        )
        truth.append(cq.evaluate(rule, log, cost=0.6).utility.value)
    assert truth[0] == pytest.approx(truth[1])
    asked = [str(file), *LOGGED[2:], *COST]
    more = ["--features", "purpose,month,income"]
    assert main(["evaluate", *asked, *more, "--policy", "rule.json"]) == 0
    assert main(["compare", *asked, "--new", "rule.json"]) == 0
    found = results(here / "consequential-evaluate")["results"]["evaluation"]
    assert found["utility"]["value"] == pytest.approx(truth[0])
    found = results(here / "consequential-compare")["results"]["comparison"]
    assert found["new"]["utility"]["value"] == pytest.approx(truth[0])


def test_a_policy_of_arrays_takes_the_features_asked_for_in_their_order(shelf, here, capsys):
    cq.save_policy(cq.Policy([-6.0, 2.0, -0.1], feature_names=["x0", "x1"]), "array.json")
    asked = ["evaluate", str(shelf / "later.parquet"), "--policy", "array.json", *LOGGED, *COST]
    assert main([*asked, "--features", "income,month"]) == 0
    cq.save_policy(saved_rules()["policy"], "named.json")
    found = results(here / "consequential-evaluate")["results"]["evaluation"]["utility"]
    asked[3] = "named.json"
    assert main([*asked, "--out", "named"]) == 0
    assert results(here / "named")["results"]["evaluation"]["utility"] == found
    assert main([*asked[:3], "array.json", *asked[4:], "--features", "income", "--out", "x"]) == 2
    assert "looks at 2 features (x0, x1), but there is 1 column" in capsys.readouterr().err


def test_a_word_the_policy_has_never_seen_is_reported(shelf, here, capsys):
    table = people(seed=3)
    words = ["boat", *table["purpose"].to_pylist()[1:]]
    table = table.set_column(2, "purpose", pa.array(words))
    pa.parquet.write_table(table, "boats.parquet")
    policy = ["--policy", str(shelf / "fit" / "policy.json")]
    assert main(["evaluate", "boats.parquet", *policy, *LOGGED, *COST]) == 0
    assert (
        "1 row has the purpose 'boat', which the policy has never seen" in capsys.readouterr().out
    )


def test_compare_sets_two_rules_against_each_other(shelf, here, capsys):
    new = ["--new", str(shelf / "fit" / "policy.json"), "--old", "accept-all"]
    assert main(["compare", str(shelf / "later.parquet"), *new, *LOGGED, *COST]) == 0
    found = results(here / "consequential-compare")["results"]["comparison"]
    assert found["old"]["acceptance"]["value"] == 1.0
    assert found["verdict"] in capsys.readouterr().out
    assert "accept-all" in text_of(here / "consequential-compare" / "report.html")


def test_overlap_needs_no_labels(shelf, here, capsys):
    columns = ["--sensitive", "sex", "--decision", "approved", "--propensity", "p"]
    assert main(["overlap", str(shelf / "loans.csv"), *FEATURES, *columns]) == 0
    assert "exploring: yes" in capsys.readouterr().out
    assert results(here / "consequential-overlap")["results"]["overall"]["people"] == 800


def test_all_other_columns_can_be_features(shelf, here):
    arguments = ["overlap", str(shelf / "loans.csv"), "--features", "all-others", *LOGGED]
    assert main([*arguments, "--time-step", "month"]) == 0
    names = results(here / "consequential-overlap")["log"]["features"]
    assert names == ["number", *NAMES]


def test_frontier_traces_bounds_and_draws_them(shelf, here, capsys):
    arguments = ["frontier", str(shelf / "loans.csv"), "--features", "income", *LOGGED, *COST]
    assert main([*arguments, "--max-gaps", "0.05", "--folds", "2"]) == 0
    out = capsys.readouterr().out
    assert "gap at most 0.05" in out
    assert "no bound" in out
    assert "<svg" in (here / "consequential-frontier" / "report.html").read_text()
    points = results(here / "consequential-frontier")["results"]["frontier"]["points"]
    assert [point["max_gap"] for point in points] == [0.05, None]


def test_plan_answers_for_a_rule_that_left_nothing_to_chance(shelf, here, capsys):
    columns = [*COLUMNS, "--propensity", "approved"]
    asked = ["--improvement", "0.02", "--rate", "500", "--outcome-months", "12"]
    arguments = ["plan", str(shelf / "loans.csv"), *FEATURES, *columns, *COST, *asked]
    assert main([*arguments, "--floors", "0.05"]) == 0
    assert "never had a chance of acceptance" in capsys.readouterr().out
    (option,) = results(here / "consequential-plan")["results"]["options"]
    assert option["months"] == pytest.approx(option["decisions"] / 500 + 12)


def test_estimated_propensities_bring_bounds_for_hidden_reasons(shelf, here, capsys):
    policy = ["--new", str(shelf / "fit" / "policy.json")]
    arguments = ["compare", str(shelf / "later.parquet"), *policy, *COLUMNS, *COST]
    assert main([*arguments, "--estimate-propensity"]) == 0
    assert "propensities were estimated" in capsys.readouterr().out
    found = results(here / "consequential-compare")["results"]
    assert found["sensitivity"]["gammas"][0] == 1.0
    assert "If propensities are wrong" in text_of(here / "consequential-compare" / "report.html")


def test_fit_warns_first_of_estimates_young_decisions_and_missed_bounds(shelf, here):
    asked = ["--estimate-propensity", "--time-step", "month", "--horizon", "2", "--folds", "2"]
    form = ["--features", "income", "--max-gap", "0", "--uses-sensitive", "--spline", "20"]
    arguments = ["fit", str(shelf / "loans.csv"), *form, *COLUMNS, *COST, *asked]
    assert main(arguments) == 0
    found = results(here / "consequential-fit")
    assert found["results"]["sensitivity"]["gammas"][0] == 1.0
    page = text_of(here / "consequential-fit" / "report.html")
    first = page[page.index("Read this first") : page.index("What it is worth")]
    assert "propensities were estimated" in first
    assert "younger than the horizon of 2 time steps" in first
    assert "decides by the sensitive attribute" in first
    gap = found["results"]["value"]["benefit_gap"]
    assert ("the gap was bounded by 0 " in first) == (gap["low"] > 0 or gap["high"] < 0)


def test_young_decisions_are_left_out_and_that_is_said(shelf, here, capsys):
    asked = ["--policy", "logged", "--time-step", "month", "--horizon", "3"]
    arguments = ["evaluate", str(shelf / "loans.csv"), *FEATURES, *asked]
    assert main([*arguments, *LOGGED, *COST]) == 0
    assert "younger than the horizon of 3 time steps left out" in capsys.readouterr().out


# --- what was understood, and what is suspicious

COMMANDS = {
    "overlap": [],
    "fit": [*COST, "--folds", "2"],
    "evaluate": [*COST, "--policy", "accept-all"],
    "compare": [*COST, "--new", "accept-all"],
    "frontier": [*COST, "--max-gaps", "0.1", "--folds", "2"],
    "plan": [*COST, "--improvement", "0.02"],
}


@pytest.fixture(scope="module")
def european(tmp_path_factory):
    """A file as a spreadsheet writes it, with words for decisions and a constant feature."""
    table = people().to_pandas()
    table["approved"] = table["approved"].map({1: "approved", 0: "declined"})
    table["repaid"] = table["repaid"].map({1: "repaid", 0: "defaulted"})
    table["day"] = np.datetime64("2024-01-15") + 31 * table["month"].to_numpy()
    table["country"] = 49
    file = tmp_path_factory.mktemp("european") / "loans.csv"
    table.to_csv(file, sep=";", decimal=",", index=False)
    return file


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_begins_with_what_it_understood(european, here, capsys, command):
    columns = ["--features", "income,country", *LOGGED, "--time-step", "day", "--period", "month"]
    assert main([command, str(european), *columns, *COMMANDS[command]]) == 0
    notes = [
        "the file was read with semicolons between columns, with decimal commas",
        "decision: 'approved' is 1, 'declined' is 0",
        "label: 'repaid' is 1, 'defaulted' is 0",
        "time_step: one step per month, step 0 is 2024-01",
        "the feature 'country' has the same value in all rows: nothing can depend on it",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(notes)] == [f"note: {note}" for note in notes]
    found = here / f"consequential-{command}"
    assert results(found)["notes"][: len(notes)] == notes
    page = text_of(found / "report.html")
    assert "Read this first" in page
    assert "the file was read with semicolons" in page


def test_a_file_of_words_and_decimal_commas_gives_the_same_figures(shelf, european, here):
    asked = ["--features", "income", *LOGGED, *COST, "--policy", "accept-all"]
    for name, file in (("a", shelf / "loans.csv"), ("b", european)):
        assert main(["evaluate", str(file), *asked, "--out", name]) == 0
    one, other = (results(here / name)["results"]["evaluation"] for name in "ab")
    assert one["utility"] == other["utility"]


def test_propensities_of_the_action_taken_are_reported_first(here, capsys):
    table = people().to_pandas()
    p = table["p"] / 2
    d = np.random.default_rng(0).random(len(p)) < p
    table = table.assign(approved=d.astype(int), p=np.where(d, p, 1 - p), repaid=None)
    table.to_csv("taken.csv", index=False)
    columns = ["--sensitive", "sex", "--decision", "approved", "--propensity", "p"]
    assert main(["overlap", "taken.csv", *FEATURES, *columns]) == 0
    said = "they look like probabilities of the action taken (use 1 - p for the rejected)"
    assert said in capsys.readouterr().out.splitlines()[0]
    assert said in results(here / "consequential-overlap")["notes"][0]


def test_american_spellings_of_notions_are_understood(shelf, here):
    asked = ["--policy", "accept-all", "--fairness", "equalized-odds"]
    arguments = ["evaluate", str(shelf / "loans.csv"), *FEATURES, *LOGGED, *COST, *asked]
    assert main(arguments) == 0
    found = results(here / "consequential-evaluate")["results"]["evaluation"]
    assert found["fairness"] == "equalised_odds"


# --- results that are there already


def test_the_same_command_again_replaces_its_own_results(shelf, here):
    arguments = ["overlap", str(shelf / "loans.csv"), *FEATURES, *LOGGED]
    assert main(arguments) == 0
    before = (here / "consequential-overlap" / "report.html").read_bytes()
    assert main(arguments) == 0
    assert (here / "consequential-overlap" / "report.html").read_bytes() == before


def test_other_results_are_replaced_only_when_asked(shelf, here, capsys):
    arguments = ["overlap", str(shelf / "loans.csv"), *FEATURES, *LOGGED]
    assert main(arguments) == 0
    before = (here / "consequential-overlap" / "results.json").read_bytes()
    assert main([*arguments, "--floor", "0.3"]) == 2
    assert "has other results of `overlap`" in capsys.readouterr().err
    assert (here / "consequential-overlap" / "results.json").read_bytes() == before
    assert main([*arguments, "--floor", "0.3", "--overwrite"]) == 0
    assert results(here / "consequential-overlap")["results"]["floor"] == 0.3


def test_results_of_another_command_are_never_replaced(shelf, here, capsys):
    assert main(["overlap", str(shelf / "loans.csv"), *FEATURES, *LOGGED, "--out", "x"]) == 0
    asked = ["plan", str(shelf / "loans.csv"), *FEATURES, *LOGGED, *COST, "--improvement", "0.02"]
    assert main([*asked, "--out", "x", "--overwrite"]) == 2
    assert "has results of `overlap`" in capsys.readouterr().err


def test_files_of_somebody_else_are_never_replaced(shelf, here, capsys):
    (here / "x").mkdir()
    (here / "x" / "results.json").write_text("{}")
    arguments = ["overlap", str(shelf / "loans.csv"), *FEATURES, *LOGGED, "--out", "x"]
    assert main([*arguments, "--overwrite"]) == 2
    assert "that this command did not write" in capsys.readouterr().err
    assert (here / "x" / "results.json").read_text() == "{}"


# --- bad input

OVERLAP = ["overlap", "loans.csv", *FEATURES, *LOGGED]
FIT = ["fit", "loans.csv", *FEATURES, *LOGGED, *COST]
EVALUATE = ["evaluate", "loans.csv", *FEATURES, *LOGGED, *COST, "--policy"]


def with_(arguments, **changes):
    """Return a command with some words replaced."""
    return [changes.get(word.strip("-"), word) for word in arguments]


BAD = {
    "no file": (with_(OVERLAP, **{"loans.csv": "loams.csv"}), "no file 'loams.csv'"),
    "a folder": (with_(OVERLAP, **{"loans.csv": "."}), "is a folder"),
    "a damaged file": (with_(OVERLAP, **{"loans.csv": "damaged.parquet"}), "cannot be read"),
    "an empty file": (with_(OVERLAP, **{"loans.csv": "empty.csv"}), "cannot be read"),
    "a file without rows": (with_(OVERLAP, **{"loans.csv": "headings.csv"}), "has no rows"),
    "two columns of one name": (with_(OVERLAP, **{"loans.csv": "twice.csv"}), "two columns 'p'"),
    "a misspelt column": (
        with_(OVERLAP, repaid="repayed"),
        "no column for --label: 'repayed'; did you mean repaid?",
    ),
    "a misspelt feature": (
        with_(OVERLAP, **{"income,purpose": "incme"}),
        "no column for --features: 'incme'; did you mean income",
    ),
    "no feature": (with_(OVERLAP, **{"income,purpose": ","}), "names no column"),
    "the label as a feature": (
        with_(OVERLAP, **{"income,purpose": "income,repaid"}),
        "'repaid' is given as --label and as a feature",
    ),
    "the group as a feature": (with_(OVERLAP, **{"income,purpose": "sex"}), "--uses-sensitive"),
    "propensities outside 0 and 1": (with_(OVERLAP, p="number"), "propensity outside [0, 1]"),
    "decisions that are none": (with_(OVERLAP, approved="month"), "decision that is not 0 or 1"),
    "a horizon without time": ([*OVERLAP, "--horizon", "3"], "say with --time-step"),
    "a period without time": ([*OVERLAP, "--period", "month"], "say with --time-step"),
    "a period of numbers": (
        [*OVERLAP, "--period", "month", "--time-step", "month"],
        "period numbers dates, but time_step (column 'month') has 0",
    ),
    "dates without a period": (
        [*with_(OVERLAP, **{"loans.csv": "dated.csv"}), "--time-step", "day"],
        "has dates, such as 2024-01-01: say period='month'",
    ),
    "percentages for propensities": (
        with_(OVERLAP, **{"loans.csv": "percent.csv"}),
        "These look like percentages: divide by 100",
    ),
    "percentages in text": (
        with_(OVERLAP, **{"loans.csv": "percent.csv", "p": "text"}),
        "propensity (column 'text') must be numbers, but row 0 has '40%': a percentage; write 0.6",
    ),
    "a misspelt number": (
        with_(OVERLAP, **{"loans.csv": "misspelt.csv"}),
        "the column 'income' must be numbers, but row 17 has '12k': write 12000 for 12k",
    ),
    "a missing feature": (
        with_(OVERLAP, **{"loans.csv": "holes.csv"}),
        "'income' in 2 (first: row 5)",
    ),
    "other words": (
        with_(OVERLAP, approved="purpose", **{"income,purpose": "income"}),
        "decision has the values 'car', 'home', which are not known as yes and no",
    ),
    "a rule without chance": (
        ["fit", "sharp.csv", "--features", "income", *COLUMNS, *COST, "--estimate-propensity"],
        "left next to nothing to chance",
    ),
    "no label at all": (with_(FIT, repaid="nothing"), "accepted rows have no label"),
    "no cost": (FIT[:-2], "give --cost"),
    "two costs": ([*FIT, "--cost-column", "p"], "not both"),
    "an unknown notion": ([*FIT, "--fairness", "niceness"], "unknown fairness notion 'niceness'"),
    "an abbreviated notion": ([*FIT, "--fairness", "dp"], "write 'demographic_parity'"),
    "an unknown weighting": ([*FIT, "--weighting", "inverted"], "did you mean inverse?"),
    "weights clipped at nothing": ([*FIT, "--weighting", "clipped"], "takes the largest weight"),
    "a weighting with a number": ([*FIT, "--weighting", "inverse:3"], "takes no number"),
    "one group": (
        ["frontier", "loans.csv", *FEATURES, *LOGGED[2:], *COST],
        "a gap needs a sensitive attribute",
    ),
    "no policy file": ([*EVALUATE, "polcy.json"], "no policy file 'polcy.json'"),
    "a policy file that is none": ([*EVALUATE, "loans.csv"], "is not a policy file"),
    "a policy of other features": (
        [*EVALUATE, "strange.json"],
        "no column 'height' in the frame",
    ),
    "a mixture with other features": (
        [*EVALUATE, "mixed.json"],
        "no column 'height' in the frame",
    ),
    "no features for a rule without": (
        ["evaluate", "loans.csv", *LOGGED, *COST, "--policy", "logged"],
        "give --features",
    ),
    "a policy by group without groups": (
        ["evaluate", "loans.csv", *FEATURES, *LOGGED[2:], *COST, "--policy", "by-group.json"],
        "say with --sensitive which column has it",
    ),
    "a floor for normal intervals": ([*EVALUATE, "logged", "--past-floor", "0.1"], "bernstein"),
    "a file for a folder": ([*OVERLAP, "--out", "empty.csv"], "is a file"),
    "a folder that cannot be": ([*OVERLAP, "--out", "no/where"], "choose another place"),
    "an improvement out of reach": (
        ["plan", "loans.csv", *FEATURES, *LOGGED, *COST, "--improvement", "0.9"],
        "out of reach",
    ),
}


@pytest.fixture
def bad(shelf, here):
    """Files that are wrong in one way each."""
    table = people()
    pa.csv.write_csv(table.append_column("nothing", pa.nulls(len(table))), "loans.csv")
    (here / "damaged.parquet").write_bytes(b"PAR1 and then nothing")
    (here / "empty.csv").write_text("")
    pa.csv.write_csv(table.slice(0, 0), "headings.csv")
    dates = np.datetime64("2024-01-01") + np.arange(len(table))
    pa.csv.write_csv(table.append_column("day", pa.array(dates)), "dated.csv")
    percent = table.set_column(5, "p", pa.array(100 * table["p"].to_numpy()))
    pa.csv.write_csv(percent.append_column("text", pa.array(["40%"] * 800)), "percent.csv")
    texts = [str(value) for value in table["income"].to_pylist()]
    texts[17] = "12k"
    pa.csv.write_csv(table.set_column(1, "income", pa.array(texts)), "misspelt.csv")
    holes = [None if k in (5, 9) else value for k, value in enumerate(table["income"].to_pylist())]
    pa.csv.write_csv(table.set_column(1, "income", pa.array(holes)), "holes.csv")
    (here / "twice.csv").write_text("income,purpose,sex,approved,repaid,p,p\n1,car,f,1,1,.5,.5\n")
    income = table["income"].to_numpy()
    sharp = table.set_column(4, "approved", pa.array((income > 3.2).astype(int)))
    known = [int(i % 3 > 0) if x > 3.2 else None for i, x in enumerate(income)]
    pa.csv.write_csv(sharp.set_column(6, "repaid", pa.array(known)), "sharp.csv")
    cq.save_policy(cq.Policy([0.0, 1.0], feature_names=["height"]), "strange.json")
    mixed = cq.Policy([0.0, 1.0], feature_names=["height"]).with_floor(0.1)
    cq.save_policy(cq.EveryNth(3, mixed), "mixed.json")
    by_group = cq.Policy([0.0, 1.0, 0.0, 2.0], groups=["f", "m"], feature_names=["income"])
    cq.save_policy(by_group, "by-group.json")
    return here


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_a_reason_and_nothing_is_written(bad, capsys, case):
    arguments, message = BAD[case]
    before = sorted(bad.iterdir())
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.startswith("consequential: ")
    assert "Traceback" not in shown.err
    assert sorted(bad.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (FIT[:2], "required: --features, --decision, --label"),
        ([*OVERLAP, "--estimate-propensity"], "not allowed with argument --propensity"),
        ([*FIT, "--max-gap", "0.1", "--penalty", "2"], "not allowed with argument --max-gap"),
        ([*FIT, "--spline", "1"], "--spline: must be at least 2, not 1"),
        ([*FIT, "--folds", "1"], "--folds: must be at least 2, not 1"),
        ([*FIT, "--floor", "1"], "must lie strictly between 0 and 1"),
        ([*FIT, "--cost", "60"], "--cost: must lie strictly between 0 and 1, not 60: write 0.6"),
        ([*FIT, "--cost", "60%"], "must lie strictly between 0 and 1, not 60%: write 0.6"),
        ([*FIT, "--cost", "0,6"], "must lie strictly between 0 and 1, not 0,6: write 0.6"),
        ([*FIT, "--cost", "-1"], "must lie strictly between 0 and 1, not -1"),
        ([*OVERLAP, "--period", "decade"], "invalid choice: 'decade'"),
        ([*FIT, "--method", "magic"], "invalid choice: 'magic'"),
    ],
    ids=[
        "nothing",
        "propensity",
        "bounds",
        "spline",
        "folds",
        "floor",
        "cost",
        "percent",
        "comma",
        "negative",
        "period",
        "method",
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_with_usage(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_failure_while_writing_leaves_nothing(shelf, here, capsys, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("consequential.files.write_atomically", full)
    assert main(["overlap", str(shelf / "loans.csv"), *FEATURES, *LOGGED]) == 2
    assert "no space left" in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("command", ["fit", "evaluate", "compare", "overlap", "frontier", "plan"])
def test_help_teaches_with_an_example_that_can_be_parsed(command, capsys):
    from consequential.cli import _parser

    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    example = out.split("example:\n")[1].replace("\\\n", " ")
    options = _parser().parse_args(example.split()[1:])
    assert options.command == command


# --- bounds among people, people without support, labels that never came


def test_fit_says_in_its_first_lines_whether_the_bound_is_kept_among_people(shelf):
    found = results(shelf / "fit")["results"]
    assert found["bound"].startswith("Bound (gap at most 0.05): ")
    assert "among people it was not learned from" in found["bound"]
    page = (shelf / "fit" / "report.html").read_text()
    assert page.index("Bound (gap at most 0.05)") < page.index("Read this first")
    gap = found["policy_gap"]
    kept = max(gap["high"], -gap["low"]) <= 0.05
    assert ("kept among" in found["bound"] and "cannot" not in found["bound"]) == kept


def test_a_bound_with_confidence_is_shown_on_held_out_rows_or_nothing_is_written(
    shelf, here, capsys
):
    pa.csv.write_csv(people(6000, seed=3), "many.csv")
    arguments = ["fit", "many.csv", *FEATURES, *LOGGED, *COST, "--max-gap", "0.3"]
    assert main([*arguments, "--bound-confidence", "0.95", "--out", "shown"]) == 0
    said = capsys.readouterr().out
    assert "Bound (gap at most 0.3): shown to be kept with confidence 0.95" in said
    assert results(here / "shown")["results"]["value"]["n"] == 3000
    bound = ["--max-gap", "0.005", "--fairness", "equal_opportunity", "--bound-confidence", "0.95"]
    few = ["fit", str(shelf / "loans.csv"), *FEATURES, *LOGGED, *COST, *bound]
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
    assert "missing=" in capsys.readouterr().err
    for how in ("against", "at_random"):
        assert main([*arguments, "--missing", how, "--out", how]) == 0
        assert "accepted without a label" in capsys.readouterr().out
    wide, narrow = (
        results(here / how)["results"]["evaluation"]["utility"] for how in ("against", "at_random")
    )
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
