"""`consequential demo`: two worlds from end to end, and what stops it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import consequential as cq
from consequential.cli import main
from consequential.lab import simulation, worlds
from consequential.lab.worlds import Parameters

TINY = Parameters(time_steps=2, n_proposals=200, n_iterations=3, batch_size=32)
COMMAND = [sys.executable, "-m", "consequential"]
# scikit-learn's Newton solver warns about COMPAS's collinear columns before it turns to another
collinear = pytest.mark.filterwarnings("ignore:The inner solver of NewtonCholeskySolver")


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Worlds that take no time, one process, and a folder to write to."""
    first, table = worlds.first_setting(), worlds.compas()
    first.parameters = table.parameters = TINY
    best = first.optimal()
    first.optimal = lambda: best
    monkeypatch.setattr(worlds, "first_setting", lambda: first)
    monkeypatch.setattr(worlds, "compas", lambda: table)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def idle(monkeypatch):
    """Nothing is simulated: what comes before must suffice."""

    def simulate(*_, **__):
        raise AssertionError("the demo started although it cannot end well")

    monkeypatch.setattr(simulation, "simulate", simulate)


@collinear
def test_the_demo_prints_a_table_a_world_and_writes_a_page(quick, capsys, drawn):
    arguments = ["demo", "--seeds", "2", "--steps", "1", "--compas-steps", "1"]
    assert main([*arguments, "--output", "page.html"]) == 0
    out = capsys.readouterr().out
    assert "first setting: 1 step" in out
    assert "COMPAS: 1 step" in out
    assert "best possible: utility 0.1780" in out
    for strategy in cq.paper_strategies():
        assert len(re.findall(rf"^{strategy.name} ", out, flags=re.MULTILINE)) == 2
    assert str(quick / "page.html") in out
    assert [file.name for file in quick.iterdir()] == ["page.html"]
    text = (quick / "page.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["First setting", "COMPAS"]
    assert text.count("<table>") == 2
    assert text.count("<svg") == 6
    assert "<td>best possible</td><td>0.1780</td>" in text


@pytest.mark.slow
def test_the_demo_as_it_stands_approaches_the_optimum(tmp_path):
    done = run("demo", folder=tmp_path)
    assert done.returncode == 0
    (line,) = re.findall(r"^semi-logistic, aggregated .*", done.stdout, flags=re.MULTILINE)[:1]
    utility = float(re.search(r"-?\d*\.\d{4}", line).group())
    assert utility > 0.17


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_at_once(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "demo", "--steps", "5000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "LOKY_MAX_CPU_COUNT": "1"},
    )
    while "first setting" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.rstrip().endswith("interrupted")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "place",
    [
        "nowhere/page.html",
        pytest.param(
            "a-file/page.html",
        ),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(
    idle, capsys, tmp_path, monkeypatch, place
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("in the way")
    assert main(["demo", "--output", place]) == 2
    err = capsys.readouterr().err
    folder = (tmp_path / place).parent
    assert err == f"consequential: cannot write to {folder}: choose another place with --output\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a-file"]


def test_a_folder_without_permission_is_refused_before_the_work(
    idle, capsys, tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setattr(os, "access", lambda *question: asked.append(question))  # no
    assert main(["demo", "--output", str(tmp_path / "page.html")]) == 2
    assert asked == [(tmp_path, os.W_OK)]
    assert "choose another place" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_as_output_is_refused_before_the_work(idle, capsys, tmp_path):
    assert main(["demo", "--output", str(tmp_path)]) == 2
    assert "--output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (ValueError("a bad value"), 2, "consequential: a bad value\n"),
        (OSError("disk is full"), 2, "consequential: disk is full\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_stops_the_demo_becomes_an_exit_code(quick, capsys, monkeypatch, error, code, message):
    def simulate(*_, **__):
        raise error

    monkeypatch.setattr(simulation, "simulate", simulate)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == message
    assert list(quick.iterdir()) == []


def test_a_mistake_of_ours_is_not_hidden(quick, monkeypatch):
    def simulate(*_, **__):
        raise TypeError("a bug")

    monkeypatch.setattr(simulation, "simulate", simulate)
    with pytest.raises(TypeError, match="a bug"):
        main(["demo"])


def test_ctrl_c_in_the_first_world_ends_the_demo(quick, monkeypatch):
    met = []

    def interrupted(world, *_, **__):
        met.append(world.name)
        names = ("utility", "effective_utility", "benefit_gap", "acceptance")
        metrics = {name: np.zeros(2) for name in names}
        run = simulation.Run("kept", 0.0, 0, metrics, cq.AcceptAll(), ())
        return cq.Runs((run,), world.name, (0, 1), "demographic_parity", interrupted=True)

    monkeypatch.setattr(simulation, "simulate", interrupted)
    assert main(["demo"]) == 130
    assert met == ["first setting"]
