"""`consequential simulate`: shipped worlds and one's own, and what is written."""

from __future__ import annotations

import json
import re

import pytest

import consequential as cq
from consequential.cli import command_parser, main

OWN = """
import numpy as np
from consequential.lab.worlds import Parameters, World

class Coins(World):
    name = "coins"
    cost = 0.5
    parameters = Parameters(time_steps=2, n_proposals=100, n_iterations=3, batch_size=16)
    def propose(self, n, rng):
        return rng.random((n, 1)), rng.integers(2, size=n)
    def label_probability(self, features, sensitive):
        return features[:, 0]

class Costly(Coins):
    def __init__(self, cost=0.8):
        self.cost = cost

class Demanding(Coins):
    def __init__(self, cost):
        self.cost = cost
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


def test_a_world_of_ones_own_is_run_tabled_and_drawn(folder, capsys):
    arguments = ["simulate", "mine.py:Coins", "--seeds", "2", "--strategies", "logistic-iterative"]
    assert main([*arguments, "--penalties", "1", "0"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall("^logistic, iterative ", out, flags=re.MULTILINE)) == 2
    assert "after 2 steps" in out
    where = folder / "consequential-simulation"
    assert f"report: {where / 'report.html'}" in out
    assert "coins" in (where / "report.html").read_text()
    runs = cq.Runs.load(where / "results" / "runs.parquet")
    assert (runs.world, runs.seeds, runs.penalties) == ("coins", (0, 1), (0.0, 1.0))
    manifest = json.loads((where / "manifest.json").read_text())
    assert manifest["parameters"]["world"] == "mine.py:Coins"
    assert str(folder) not in json.dumps(manifest)


def test_results_are_those_of_simulate(folder):
    arguments = "lending --seeds 3 --steps 2 --fairness equal_opportunity --penalties 2"
    arguments += " --strategies deterministic-aggregated smooth-semi-logistic-iterative"
    assert main(["simulate", *arguments.split(), "--out", "x"]) == 0
    found = cq.Runs.load(folder / "x" / "results" / "runs.parquet")
    expected = cq.simulate(
        cq.worlds.lending(),
        [cq.lab.LearnToPredict("aggregated"), cq.lab.LearnToDecide("smooth_semi_logistic")],
        seeds=3,
        penalties=[2.0],
        time_steps=2,
        fairness="equal_opportunity",
        progress=False,
    )
    expected.save(folder / "expected.parquet")
    stored = (folder / "x" / "results" / "runs.parquet").read_bytes()
    assert stored == (folder / "expected.parquet").read_bytes()
    assert found.fairness == "equal_opportunity"
    assert "best possible" in (folder / "x" / "report.html").read_text()


def test_the_papers_estimators_and_label_can_be_asked_for(folder, monkeypatch):
    tasks = []

    def noted(store, given, *, n_jobs):
        tasks.extend(given)
        raise KeyboardInterrupt

    from consequential.lab.paper import tasks as paper_tasks

    monkeypatch.setattr(paper_tasks, "complete", noted)
    arguments = ["simulate", "compas", "--label", "rearrest", "--normalisation", "paper"]
    assert main(arguments) == 130
    (task,) = tasks
    (strategies,) = task.strategies
    assert [strategy.name for strategy in strategies] == [
        strategy.name for strategy in cq.paper_strategies()
    ]
    assert strategies[-1].normalisation == "paper"
    assert task.time_steps == 200
    assert task.world().table.label.sum() == 2483
    assert [list(block) for block in task.blocks] == [list(range(10))]


def test_many_runs_a_seed_make_small_parts(folder, monkeypatch):
    from consequential.lab.paper import tasks as paper_tasks

    seen = []
    monkeypatch.setattr(
        paper_tasks, "complete", lambda store, tasks, **_: seen.extend(tasks) or 1 / 0
    )
    penalties = [str(k) for k in range(20)]
    with pytest.raises(ZeroDivisionError):
        main(["simulate", "mine.py:Coins", "--seeds", "3", "--penalties", *penalties])
    assert [list(block) for block in seen[0].blocks] == [[0], [1], [2]]


def test_a_world_that_drifts_has_no_best_possible(folder):
    small = ["--steps", "1", "--seeds", "1", "--strategies", "logistic-iterative"]
    assert main(["simulate", "drift", *small]) == 0
    text = (folder / "consequential-simulation" / "report.html").read_text()
    assert "best possible" not in text


def test_a_world_of_ones_own_goes_to_other_processes(folder):
    # the fair predictor is fitted in Python, a process a seed
    arguments = ["simulate", "mine.py:Coins", "--seeds", "2", "--jobs", "2", "--steps", "1"]
    assert main([*arguments, "--strategies", "fair-deterministic-iterative"]) == 0
    runs = cq.Runs.load(folder / "consequential-simulation" / "results" / "runs.parquet")
    assert runs.seeds == (0, 1)


def test_a_changed_file_is_another_world(folder, capsys):
    arguments = ["simulate", "mine.py:Coins", "--seeds", "1", "--strategies", "logistic-iterative"]
    assert main(arguments) == 0
    (folder / "mine.py").write_text(OWN.replace("cost = 0.5", "cost = 0.4"))
    assert main(arguments) == 2
    assert "made with other parameters (file sha256" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frist_setting"], "no world 'frist_setting'; did you mean first_setting"),
        (["nowhere.py:Coins"], "no file 'nowhere.py' to read the world 'Coins' from"),
        (["mine.py:Cions"], "no world in mine.py: 'Cions'; did you mean Coins"),
        (["mine.py:Demanding"], "mine.py:Demanding cannot be made without arguments: "),
        (["empty.py:Coins"], "empty.py has no world: write a subclass of consequential.lab.worlds"),
        (["lending", "--label", "rearrest"], "--label is for compas"),
        (["lending", "--fairness", "justice"], "unknown fairness notion 'justice'; choose one"),
        (["lending", "--strategies", "logistc-iterative"], "did you mean logistic-iterative"),
        (
            ["lending", "--strategies", "zzz"],
            "no strategy 'zzz'; there are deterministic-iterative",
        ),
        (["lending", "--out", "mine.py"], "mine.py (File exists): choose another place with --out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_before_the_work(folder, capsys, arguments, message):
    (folder / "empty.py").write_text("from consequential.lab.worlds import World\n")
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "empty.py",
        "mine.py",
    ]


@pytest.mark.parametrize("value", ["-1", "inf", "nan", "much"])
def test_a_penalty_that_cannot_be_is_refused(folder, capsys, value):
    with pytest.raises(SystemExit):
        main(["simulate", "lending", f"--penalties={value}"])
    assert "--penalties: must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_to_be_found", "line 1: ModuleNotFoundError: No module named 'nowhere_"),
        ("def f(:", "line 1: SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
        (OWN + "    def propose(self, n, rng): return n[0]", "line 21: TypeError: 'int' object is"),
    ],
    ids=["import", "syntax", "exit", "method"],
)
def test_an_error_in_a_file_of_ones_own_is_told_with_its_line(folder, capsys, text, message):
    (folder / "bad.py").write_text(text.replace("(self, cost):", "(self, cost=0.5):"))
    small = ["--seeds", "1", "--strategies", "logistic-iterative"]
    assert main(["simulate", "bad.py:Demanding", *small]) == 2
    assert f"consequential: an error in bad.py, {message}" in capsys.readouterr().err


def test_an_error_in_another_process_is_told_with_its_line(folder, capsys):
    (folder / "bad.py").write_text(OWN.replace("features[:, 0]", "features[:, 7]"))
    asked = ["--seeds", "2", "--jobs", "2", "--strategies", "fair-deterministic-iterative"]
    assert main(["simulate", "bad.py:Coins", *asked]) == 2
    assert "an error in bad.py, line 12: IndexError: index 7" in capsys.readouterr().err


def test_a_class_with_defaults_can_be_made(folder):
    small = ["--seeds", "1", "--strategies", "logistic-iterative"]
    assert main(["simulate", "mine.py:Costly", *small]) == 0
    manifest = json.loads((folder / "consequential-simulation" / "manifest.json").read_text())
    assert manifest["parameters"]["world"] == "mine.py:Costly"
    assert len(manifest["parameters"]["file_sha256"]) == 64


def test_help_names_the_worlds_and_its_examples_can_be_parsed(capsys):
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    out = capsys.readouterr().out
    for world in ("first_setting", "compas", "taiwan", "drift", "file.py:ClassName"):
        assert world in out
    examples = re.findall(r"^  consequential (simulate.*)$", out, flags=re.MULTILINE)
    assert [command_parser().parse_args(example.split()).world for example in examples] == [
        "second_setting",
        "compas",
        "my_world.py:MyWorld",
    ]
