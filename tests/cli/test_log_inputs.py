"""Files of logs and rules: what is understood, and what is said about it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from loan_files import COST, FEATURES, LOGGED, NAMES, people, results, text_of

import consequential as cq
from consequential.cli import main

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
    kept = results(found)["notes"]  # what was found stands before how the file was read
    assert set(notes) <= set(kept)
    assert kept.index(notes[-1]) < kept.index(notes[0])
    page = text_of(found / "report.html")
    assert "Read this first" in page
    assert "the file was read with semicolons" in page


def test_a_file_of_words_and_decimal_commas_gives_the_same_figures(shared, european, here):
    asked = ["--features", "income", *LOGGED, *COST, "--policy", "accept-all"]
    for name, file in (("a", shared / "loans.csv"), ("b", european)):
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


def test_all_other_columns_can_be_features(shared, here):
    arguments = ["overlap", str(shared / "loans.csv"), "--features", "all-others", *LOGGED]
    assert main([*arguments, "--time-step", "month"]) == 0
    names = results(here / "consequential-overlap")["log"]["features"]
    assert names == ["number", *NAMES]


def test_a_word_the_policy_has_never_seen_is_reported(shared, here, capsys):
    table = people(seed=3)
    words = ["boat", *table["purpose"].to_pylist()[1:]]
    table = table.set_column(2, "purpose", pa.array(words))
    pa.parquet.write_table(table, "boats.parquet")
    policy = ["--policy", str(shared / "fit" / "policy.json")]
    assert main(["evaluate", "boats.parquet", *policy, *LOGGED, *COST]) == 0
    assert (
        "1 row has the purpose 'boat', which the policy has never seen" in capsys.readouterr().out
    )


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
        "threshold": cut,
    }


@pytest.mark.parametrize("kind", ["policy", "floor", "mixture", "threshold"])
def test_stored_rules_of_every_kind_find_their_columns_by_name(shared, here, kind):
    rule = saved_rules()[kind]
    cq.save_policy(rule, "rule.json")
    file, truth = shared / "later.parquet", []
    for features in (["income", "month"], ["purpose", "month", "income"]):
        log = cq.DecisionLog.from_file(
            file, features=features, decision="approved", label="repaid", propensity="p"
        )
        truth.append(cq.evaluate(rule, log, cost=0.6).utility.value)
    assert truth[0] == pytest.approx(truth[1])
    asked = [str(file), *LOGGED[2:], *COST]
    if kind == "mixture":
        assert main(["compare", *asked, "--new", "rule.json"]) == 0
        found = results(here / "consequential-compare")["results"]["comparison"]["new"]
    else:
        more = ["--features", "purpose,month,income"]
        assert main(["evaluate", *asked, *more, "--policy", "rule.json"]) == 0
        found = results(here / "consequential-evaluate")["results"]["evaluation"]
    assert found["utility"]["value"] == pytest.approx(truth[0])


def test_a_policy_of_arrays_takes_the_features_asked_for_in_their_order(shared, here, capsys):
    cq.save_policy(cq.Policy([-6.0, 2.0, -0.1], feature_names=["x0", "x1"]), "array.json")
    asked = ["evaluate", str(shared / "later.parquet"), "--policy", "array.json", *LOGGED, *COST]
    assert main([*asked, "--features", "income,month"]) == 0
    cq.save_policy(saved_rules()["policy"], "named.json")
    found = results(here / "consequential-evaluate")["results"]["evaluation"]["utility"]
    asked[3] = "named.json"
    assert main([*asked, "--out", "named"]) == 0
    assert results(here / "named")["results"]["evaluation"]["utility"] == found
    assert main([*asked[:3], "array.json", *asked[4:], "--features", "income", "--out", "x"]) == 2
    assert "looks at 2 features (x0, x1), but there is 1 column" in capsys.readouterr().err


def test_more_features_in_another_order_do_not_change_a_policys_value(shared, here):
    policy = ["--policy", str(shared / "fit" / "policy.json")]
    found = []
    for name, more in (("a", []), ("b", ["--features", "month,purpose,income"])):
        arguments = ["evaluate", str(shared / "later.parquet"), *policy, *LOGGED, *COST, *more]
        assert main([*arguments, "--out", name]) == 0
        found.append(results(here / name)["results"]["evaluation"]["utility"])
    assert found[0] == found[1]


@pytest.mark.parametrize("more", [[], ["--features", "purpose,income,month"]], ids=["own", "more"])
def test_a_policy_judged_on_its_own_log_is_called_flattered(shared, here, capsys, more):
    policy = shared / "fit" / "policy.json"
    arguments = ["evaluate", str(shared / "loans.csv"), "--policy", str(policy), *more]
    assert main([*arguments, *LOGGED, *COST]) == 0
    assert "learned from this very log" in capsys.readouterr().out
    page = text_of(here / "consequential-evaluate" / "report.html")
    assert "learned from this very log" in page
    assert page.index("Read this first") < page.index("What it is worth")


def test_another_sensitive_attribute_does_not_hide_where_a_policy_was_learned(shared, here, capsys):
    policy = ["--policy", str(shared / "fit" / "policy.json")]
    columns = ["--sensitive", "purpose", *LOGGED[2:]]
    assert main(["evaluate", str(shared / "loans.csv"), *policy, *columns, *COST]) == 0
    assert "learned from this very log" in capsys.readouterr().out
