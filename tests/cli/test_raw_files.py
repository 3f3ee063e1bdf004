"""Commands on a file with blanks, words, booleans and dates, and on tomorrow's."""

from __future__ import annotations

import numpy as np
import pytest
from loan_files import COST, results

import consequential as cq
from consequential.cli import main
from messy_tables import FEATURES, messy_table

COLUMNS = [
    *("--sensitive", "region", "--decision", "approved", "--label", "repaid"),
    *("--propensity", "p", "--time-step", "month", "--horizon", "2"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two files of loans, and a policy that was fitted to each of them."""
    folder = tmp_path_factory.mktemp("raw")
    purposes = {"old": ("car", "home", "study", "boat"), "new": ("car", "home", "plane", "boat")}
    for seed, name in enumerate(purposes):
        messy_table(900, seed, purposes[name]).to_csv(folder / f"{name}.csv", index=False)
        asked = ["--features", ",".join(FEATURES), *COLUMNS, *COST, "--folds", "2", "--l2", "1e-3"]
        assert main(["fit", str(folder / f"{name}.csv"), *asked, "--out", str(folder / name)]) == 0
    return folder


def test_a_raw_file_teaches_a_policy_that_knows_how_to_prepare_others(files):
    policy = cq.load_policy(files / "old" / "policy.json")
    assert policy.raw_columns == tuple(FEATURES)
    people = messy_table(50, seed=9)[FEATURES]
    assert np.isfinite(policy.propensity(people)).all()


def test_what_was_found_is_noted_before_how_columns_were_read(files):
    notes = results(files / "old")["notes"]
    (read,) = [k for k, note in enumerate(notes) if "values are missing in 'income'" in note]
    (found,) = [k for k, note in enumerate(notes) if "figures are cross-fitted" in note]
    assert found < read


def test_the_card_names_the_columns_of_the_file(files):
    card = (files / "old" / "model-card.md").read_text()
    assert f"- Decides by: {', '.join(FEATURES)}\n" in card


def test_policies_of_different_files_are_compared_and_unknown_words_reported(files, here, capsys):
    rules = [f"--{name}={files / name / 'policy.json'}" for name in ("new", "old")]
    assert main(["compare", str(files / "new.csv"), *rules, *COLUMNS, *COST]) == 0
    out = capsys.readouterr().out
    assert "'plane', which the policy has never seen: it counts as 'purpose=other words'" in out
    assert "new/policy.json was learned from this very log" in out
    assert "old/policy.json was learned from this very log" not in out
    found = results(here / "consequential-compare")["results"]["comparison"]
    log = cq.DecisionLog.from_file(
        files / "new.csv",
        features=FEATURES,
        sensitive="region",
        decision="approved",
        label="repaid",
        propensity="p",
        time_step="month",
        horizon=2,
    )
    old = cq.evaluate(cq.load_policy(files / "old" / "policy.json"), log, cost=0.6)
    assert found["old"]["utility"]["value"] == pytest.approx(old.utility.value)
