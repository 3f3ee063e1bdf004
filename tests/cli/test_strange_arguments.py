"""Argument lists that are changed at random: a command does what it says, or says what is wrong."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from loan_files import COST, FEATURES, LOGGED, people

import consequential as cq
from consequential import cli, tradeoff
from consequential.cli import main
from consequential.lab import simulation
from consequential.lab.paper import reproduction, tasks

LOG = ["loans.csv", *FEATURES, *LOGGED]
ASKED = [
    ["overlap", *LOG, "--floor", "0.1"],
    ["evaluate", *LOG, *COST, "--policy", "policy.json", "--time-step", "month"],
    ["compare", *LOG, *COST, "--new", "accept-all", "--old", "logged"],
    ["plan", *LOG, *COST, "--improvement", "0.01"],
    ["fit", *LOG, *COST, "--max-gap", "0.05", "--spline", "3", "--folds", "2"],
    ["frontier", *LOG, *COST, "--polynomial", "2"],
    ["decide", "loans.csv", "--policy", "policy.json", "--seed", "1", "--id", "number"],
    ["simulate", "lending", "--seeds", "2", "--steps", "1", "--penalties", "0", "1"],
    ["reproduce", "second-time", "--quick", "--seeds", "2", "--jobs", "1"],
    ["demo", "--seeds", "1", "--steps", "2"],
]
WRITTEN = {"decide": "decisions.csv", "demo": "page.html"}  # the others write folders
FILES = ("later.csv", "empty.csv", "bytes.csv", "nested.json", "folder", "nowhere.csv", "world.py")
ODD = (
    *("", " ", "-", "--", "=", "a=b", ",", ":", "x", "é", "\x00", "\udcff", "none", "1", "0", "-1"),
    *("0.5", "1e-300", "1e400", "nan", "inf", "-inf", "100%", "0,5", "999999999999", "9" * 400),
    *("income", "income,income", "purpose=car", "number", "sex,purpose", "all-others", "clipped:0"),
    *("logged", "equal_opportunity:0.1:sex", "f=0.5", "/dev/null", "lending", "all", "x" * 5000),
    *("world.py:World", "nowhere.py:World", "loans.csv", "policy.json", *FILES),
)
ALONE = ("--cluster", "--help", "--version")  # connects, or does what argparse does


@cache
def options_of(command: str) -> list[str]:
    (commands,) = (each for each in cli.command_parser()._actions if each.dest == "command")
    known = [text for each in commands.choices[command]._actions for text in each.option_strings]
    return [text for text in known if text.startswith("--") and text not in ALONE]


def mutated(rng: np.random.Generator, out: str) -> list[str]:
    """Return arguments with one or two changes: words left out, repeated, replaced or added."""
    arguments = list(ASKED[rng.integers(len(ASKED))])
    command = arguments[0]
    option = "--output" if command == "demo" else "--out"
    arguments += [option, f"{out}-{WRITTEN.get(command, 'folder')}"]
    for _ in range(rng.integers(1, 3)):
        place, odd = int(rng.integers(1, len(arguments) + 1)), ODD[rng.integers(len(ODD))]
        match int(rng.integers(5)):
            case 0:
                del arguments[place : place + 1]
            case 1:
                arguments[place:place] = arguments[place : place + 2]
            case 2:
                arguments[place : place + 1] = [odd]
            case _:
                options = options_of(command) or [odd]
                arguments += [options[rng.integers(len(options))], odd][: rng.integers(1, 3)]
    return arguments


def stopped(*_, **__):
    raise ValueError("everything was understood, and the work would begin")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strange")
    for name, seed in (("loans.csv", 0), ("later.csv", 1)):
        pa.csv.write_csv(people(120, seed), folder / name)
    (folder / "empty.csv").touch()
    (folder / "bytes.csv").write_bytes(bytes(range(256)))
    (folder / "nested.json").write_text("[" * 100_000)
    (folder / "folder").mkdir()
    (folder / "world.py").write_text("1 / 0\n")
    cq.save_policy(cq.Policy([-3.0, 1.0], feature_names=["income"]), folder / "policy.json")
    return folder


@pytest.fixture
def quick(files, monkeypatch):
    """Where commands run: what takes long is left out, once all arguments are understood."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(cli, "command_parser", cache(cli.command_parser))
    monkeypatch.setattr(cq.FairPolicyLearner, "fit_log", stopped)
    monkeypatch.setattr(tradeoff, "frontier", stopped)
    monkeypatch.setattr(simulation, "simulate", stopped)
    monkeypatch.setattr(tasks, "complete", stopped)
    monkeypatch.setattr(reproduction, "write_page", stopped)


def check(seed, capsys) -> None:
    arguments = mutated(np.random.default_rng([19, seed]), f"out{seed}")
    try:
        code = main(arguments)
    except SystemExit as stop:  # argparse's
        code = stop.code
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {arguments}") from error
    shown = capsys.readouterr().err
    assert code in (0, 2), arguments
    assert "Traceback" not in shown, arguments
    if code == 2:
        said = [line for line in shown.splitlines() if line.startswith("consequential")]
        assert len(said) == 1, (arguments, shown)
        assert len(shown) < 20_000, arguments


@pytest.mark.parametrize("block", range(10))
def test_a_command_does_what_it_says_or_says_what_is_wrong(block, quick, capsys):
    for seed in range(30 * block, 30 * block + 30):
        check(seed, capsys)
