"""Bad input: refused with a reason, and nothing is written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from loan_files import COLUMNS, COST, FEATURES, LOGGED, people

import consequential as cq
from consequential.cli import main

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
        "propensity (column 'text') must be numbers, but row 0 has '40%': write numbers as 1234.5",
    ),
    "a misspelt number": (
        with_(OVERLAP, **{"loans.csv": "misspelt.csv"}),
        "the column 'income' must be numbers, but row 17 has '12k': write numbers as 1234.5",
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
    "a label named by a bad outcome": (
        with_(OVERLAP, repaid="default"),
        "'default' has numbers: is 1 the outcome hoped for, or 0? Say which with positive_label=",
    ),
    "no cost": (FIT[:-2], "give --cost"),
    "two costs": ([*FIT, "--cost-column", "p"], "give one of --cost, --cost-column and --value"),
    "an unknown notion": ([*FIT, "--fairness", "niceness"], "unknown fairness notion 'niceness'"),
    "a misspelt notion": ([*FIT, "--fairness", "demographic_party"], "write 'demographic_parity'"),
    "an unknown weighting": ([*FIT, "--weighting", "inverted"], "did you mean inverse?"),
    "weights clipped at nothing": ([*FIT, "--weighting", "clipped"], "takes the largest weight"),
    "a weighting with a number": ([*FIT, "--weighting", "inverse:3"], "takes no number"),
    "one group": (
        ["frontier", "loans.csv", *FEATURES, *LOGGED[2:], *COST],
        "a gap needs a sensitive attribute",
    ),
    "no policy file": ([*EVALUATE, "polcy.json"], "no policy file 'polcy.json'"),
    "a policy file without a name": ([*EVALUATE, ""], "no policy file ''"),
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
    "a floor for normal intervals": (
        [*EVALUATE, "logged", "--past-floor", "0.1"],
        "--past-floor is for --method any_time",
    ),
    "a file for a folder": ([*OVERLAP, "--out", "empty.csv"], "is not a folder"),
    "a folder that cannot be": ([*OVERLAP, "--out", "no/where"], "choose another place"),
    "an improvement out of reach": (
        ["plan", "loans.csv", *FEATURES, *LOGGED, *COST, "--improvement", "0.9"],
        "out of reach",
    ),
    "an improvement too small to prove": (
        ["plan", "loans.csv", *FEATURES, *LOGGED, *COST, "--improvement", "1e-300"],
        "would not be proven in 1e+12 decisions: ask for a larger one",
    ),
}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory):
    """A folder of files that are wrong in one way each."""
    here = tmp_path_factory.mktemp("bad")
    table = people()
    more = table.append_column("nothing", pa.nulls(len(table)))
    pa.csv.write_csv(more.append_column("default", table["repaid"]), here / "loans.csv")
    (here / "damaged.parquet").write_bytes(b"PAR1 and then nothing")
    (here / "empty.csv").write_text("")
    pa.csv.write_csv(table.slice(0, 0), here / "headings.csv")
    dates = np.datetime64("2024-01-01") + np.arange(len(table))
    pa.csv.write_csv(table.append_column("day", pa.array(dates)), here / "dated.csv")
    percent = table.set_column(5, "p", pa.array(100 * table["p"].to_numpy()))
    pa.csv.write_csv(percent.append_column("text", pa.array(["40%"] * 800)), here / "percent.csv")
    texts = [str(value) for value in table["income"].to_pylist()]
    texts[17] = "12k"
    pa.csv.write_csv(table.set_column(1, "income", pa.array(texts)), here / "misspelt.csv")
    (here / "twice.csv").write_text("income,purpose,sex,approved,repaid,p,p\n1,car,f,1,1,.5,.5\n")
    income = table["income"].to_numpy()
    sharp = table.set_column(4, "approved", pa.array((income > 3.2).astype(int)))
    known = [int(i % 3 > 0) if x > 3.2 else None for i, x in enumerate(income)]
    pa.csv.write_csv(sharp.set_column(6, "repaid", pa.array(known)), here / "sharp.csv")
    cq.save_policy(cq.Policy([0.0, 1.0], feature_names=["height"]), here / "strange.json")
    mixed = cq.Policy([0.0, 1.0], feature_names=["height"]).with_floor(0.1)
    cq.save_policy(cq.Mixture([mixed, cq.AcceptAll()], [0.7, 0.3]), here / "mixed.json")
    by_group = cq.Policy([0.0, 1.0, 0.0, 2.0], groups=["f", "m"], feature_names=["income"])
    cq.save_policy(by_group, here / "by-group.json")
    return here


@pytest.fixture
def bad(bad_files, monkeypatch):
    """The same folder, to run commands in."""
    monkeypatch.chdir(bad_files)
    return bad_files


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


USAGE = [
    ([], "required: command"),
    (["dance"], "invalid choice: 'dance'"),
    (["demo", "--seeds", "0"], "argument --seeds: must be at least 1, not 0"),
    (["demo", "--seeds"], "expected one argument"),
    *((["demo", "--seeds", text], f"must be a whole number, not {text!r}") for text in ("2.5", "")),
    (["demo", "--seed", "many"], "--seeds: "),
    (["demo", "now"], "unrecognized arguments: now"),
    (["demo", "--speed", "5"], "unrecognized arguments: --speed 5 (see consequential demo"),
    (["simulate", "lending", "--seeds", "9" * 30], "--seeds: must be at most 10000000, not 999"),
    (FIT[:2], "required: --features, --decision"),
    ([*OVERLAP, "--estimate-propensity"], "not allowed with argument --propensity"),
    ([*OVERLAP, "--period", "decade"], "invalid choice: 'decade'"),
    ([*FIT, "--max-gap", "0.1", "--penalty", "2"], "not allowed with argument --max-gap"),
    ([*FIT, "--spline", "1"], "--spline: must be at least 2, not 1"),
    ([*FIT, "--floor", "1"], "a share lies strictly between 0 and 1, not '1'"),
    *(
        ([*FIT, "--cost", text], f"--cost: a share lies strictly between 0 and 1, not {text!r}")
        for text in ("60", "60%", "0,6", "-1")
    ),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=[said for _, said in USAGE])
def test_arguments_that_cannot_be_meant_are_refused_on_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("consequential")
    assert message in err
    assert err.count("\n") == 1
    assert err.rstrip().endswith("--help)")
