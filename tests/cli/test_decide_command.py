"""`consequential decide`: decisions, propensities and reasons for the people in a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from loan_files import people

import consequential as cq
from consequential.cli import main
from consequential.policy import Support


@pytest.fixture
def new(here, shared):
    """A folder with tomorrow's people, and the policy that was learned from yesterday's."""
    table = people(n=60, seed=3).select(["number", "income", "purpose", "sex"])
    pa.csv.write_csv(table, here / "new.csv")
    pa.parquet.write_table(table, here / "new.parquet")
    cq.save_policy(cq.load_policy(shared / "fit" / "policy.json"), here / "policy.json")
    return here


def command(file="new.csv", *more):
    return ["decide", file, "--policy", "policy.json", "--seed", "7", *more]


def changed(**columns):
    """Write people again with other columns, a row's value by its number."""
    table = pa.csv.read_csv("new.csv")
    for name, changes in columns.items():
        values = table[name].to_pylist()
        for row, value in changes.items():
            values[row] = value
        if any(isinstance(value, str) for value in values):
            values = [None if value is None else str(value) for value in values]
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pa.csv.write_csv(table, "new.csv")


def rows(file="decisions.csv") -> list[dict]:
    return pa.csv.read_csv(file).to_pylist()


def test_decisions_are_those_of_the_library(new, capsys):
    assert main(command("new.csv", "--id", "number")) == 0
    policy = cq.load_policy("policy.json")
    frame = people(n=60, seed=3).select(["income", "purpose"])
    decision = policy.decide(frame, rng=np.random.default_rng(7))
    found = rows()
    assert list(found[0]) == ["number", "decision", "propensity", "reasons"]
    assert [row["number"] for row in found] == list(range(60))
    assert [row["decision"] for row in found] == decision.astype(int).tolist()
    assert [row["propensity"] for row in found] == policy.propensity(frame).tolist()
    out = capsys.readouterr().out
    assert f"{decision.sum()} accepted, {60 - decision.sum()} refused" in out
    assert hashlib.sha256(Path("policy.json").read_bytes()).hexdigest() in out


def test_refusals_have_up_to_four_reasons_in_words(new):
    assert main(command()) == 0
    policy = cq.load_policy("policy.json")
    frame = people(n=60, seed=3).select(["income", "purpose"]).to_pylist()
    refused = [row for row in rows() if row["decision"] == 0]
    assert refused
    assert not any(row["reasons"] for row in rows() if row["decision"] == 1)
    for row in refused:
        expected = [str(reason) for reason in policy.reasons(frame[row["row"]])]
        expected = expected or ["no single feature at its reference value would raise the score"]
        if row["propensity"] >= 0.5:
            expected = [f"chance, at a propensity of {row['propensity']:.2g}", *expected]
        assert row["reasons"] == "; ".join(expected)
    assert any("would raise the score by" in row["reasons"] for row in refused)


def test_files_may_be_parquet(new):
    assert main(command()) == 0
    assert main(command("new.parquet", "--out", "decisions.parquet")) == 0
    assert pa.parquet.read_table("decisions.parquet").to_pylist() == [
        row | {"reasons": row["reasons"] or None} for row in rows()
    ]


def test_another_seed_draws_other_decisions(new):
    assert main(command()) == 0
    assert main([*command()[:-1], "8", "--out", "other.csv"]) == 0
    assert [r["decision"] for r in rows()] != [r["decision"] for r in rows("other.csv")]
    assert [r["propensity"] for r in rows()] == [r["propensity"] for r in rows("other.csv")]


BROKEN = {"income": {3: None, 7: "12k", 11: "inf"}, "purpose": {20: None}}
WHY = ["row 7: income is '12k'", "row 11: income is 'inf'"]


def test_rows_that_cannot_be_decided_are_listed_and_nothing_is_written(new, capsys):
    changed(**BROKEN)
    before = sorted(new.iterdir())
    assert main(command()) == 2
    shown = capsys.readouterr().err
    for line in WHY:
        assert line in shown
    assert "2 rows of new.csv cannot be decided, so nothing is written" in shown
    assert sorted(new.iterdir()) == before


def test_undecided_rows_can_be_allowed_and_have_a_reason_in_place_of_a_decision(new, capsys):
    changed(**BROKEN)
    assert main(command("new.csv", "--allow-undecided")) == 0
    shown = capsys.readouterr()
    assert WHY[0] in shown.err
    assert "2 left undecided" in shown.out
    assert "1 row has no income, which nobody lacked whom the policy learned from" in shown.out
    found = rows()
    assert len(found) == 60
    for row in (7, 11):
        assert found[row]["decision"] is None
        assert found[row]["propensity"] is None
        assert found[row]["reasons"].startswith("cannot be decided: ")
    assert all(found[row]["decision"] is not None for row in (0, 3, 20, 59))


def test_many_undecided_rows_are_counted(new, capsys):
    table = pa.table({"income": [None] * 300, "purpose": ["car"] * 300})
    pa.csv.write_csv(table.set_column(0, "income", pa.array(["?"] * 300)), "new.csv")
    assert main(command()) == 2
    shown = capsys.readouterr().err
    assert shown.count("income is '?'") == 100
    assert "... and 200 more" in shown


def test_nobody_decidable_is_no_error_where_that_is_allowed(new):
    pa.csv.write_csv(pa.table({"income": ["?"], "purpose": ["car"]}), "new.csv")
    assert main(command("new.csv", "--allow-undecided")) == 0
    assert rows()[0]["reasons"] == "cannot be decided: income is '?'"


def test_a_word_never_seen_is_decided_and_said(new, capsys):
    changed(purpose={5: "boat"})
    assert main(command()) == 0
    assert (
        "1 row has the purpose 'boat', which the policy has never seen" in capsys.readouterr().out
    )
    assert rows()[5]["decision"] in (0, 1)


@pytest.fixture
def by_group(new):
    """A policy that decides by the sensitive attribute, in place of the other."""
    policy = cq.Policy([0.0, 0.1, -9.0, 0.1], groups=["f", "m"], feature_names=["income"])
    cq.save_policy(policy, "policy.json")
    return new


def test_a_policy_by_group_is_given_the_group(by_group, capsys):
    assert main(command()) == 2
    assert "say with --sensitive which column has it" in capsys.readouterr().err
    assert main(command("new.csv", "--sensitive", "sex")) == 0
    assert "no reasons are given" in capsys.readouterr().out
    sex = people(n=60, seed=3)["sex"].to_pylist()
    assert all(
        (row["propensity"] > 0.4) == (group == "f") for row, group in zip(rows(), sex, strict=True)
    )


def test_an_unknown_group_cannot_be_decided(by_group, capsys):
    changed(sex={2: "x", 4: None})
    assert main(command("new.csv", "--sensitive", "sex")) == 2
    shown = capsys.readouterr().err
    assert "row 2: sex is 'x', not one of f, m" in shown
    assert "row 4: sex is missing, not one of f, m" in shown


def test_people_whom_the_log_did_not_support_are_told_so(new):
    features = np.linspace(0.0, 6.0, 1_000)[:, None]
    support = Support.of(features, np.where(features[:, 0] < 3.0, 0.0, 0.5), n=1_000)
    summary = cq.FeatureSummary.of(features, ["income"])
    policy = cq.Policy([9.0, 0.1], feature_names=["income"], support=support, summary=summary)
    cq.save_policy(policy, "policy.json")
    assert main(command()) == 0
    told = [row for row in rows() if "accepted next to nobody like this" in str(row["reasons"])]
    assert len(told) == sum(row["propensity"] == 0.0 for row in rows()) > 0


def test_rules_without_reasons_decide_too(new):
    for policy, decision in (("accept-all", 1), ("reject-all", 0)):
        arguments = ["decide", "new.csv", "--policy", policy, "--seed", "1", "--overwrite"]
        assert main(arguments) == 0
        assert {row["decision"] for row in rows()} == {decision}


REFUSED = {
    "a file that is there": (["--out", "taken.csv"], "taken.csv exists"),
    "the input": (["--out", "new.csv", "--overwrite"], "is read by this command"),
    "the policy": (["--out", "policy.json", "--overwrite"], "is read by this command"),
    "a folder": (["--out", "."], "is a folder: name a file"),
    "no folder": (["--out", "no/where.csv"], "choose another place"),
    "an unknown id": (["--id", "numbre"], "no column for --id: 'numbre'; did you mean number"),
    "an id of a column written": (["--id", "decision"], "has the name of a column"),
    "no policy": (["--policy", "nothing.json"], "no policy file"),
    "a policy without names": (["--policy", "nameless.json"], "does not know the names"),
    "a policy of other columns": (["--policy", "other.json"], "looks at: 'height'"),
    "what a log did": (["--policy", "logged"], "has no propensity for other people"),
}


@pytest.mark.parametrize(("more", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_and_nothing_is_written(more, message, new, capsys):
    (new / "taken.csv").write_text("mine")
    cq.save_policy(cq.Policy([0.0, 1.0]), "nameless.json")
    cq.save_policy(cq.Policy([0.0, 1.0], feature_names=["height"]), "other.json")
    before = {file: file.read_bytes() for file in new.iterdir()}
    assert main([*command(), *more]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert {file: file.read_bytes() for file in new.iterdir()} == before


def test_an_earlier_file_is_replaced_on_request(new):
    (new / "decisions.csv").write_text("mine")
    assert main(command()) == 2
    assert main(command("new.csv", "--overwrite")) == 0
    assert len(rows()) == 60


def test_a_seed_must_be_given(new, capsys):
    with pytest.raises(SystemExit):
        main(["decide", "new.csv", "--policy", "policy.json"])
    assert "required: --seed" in capsys.readouterr().err
