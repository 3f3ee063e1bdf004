"""The command line: help that teaches, and arguments that are refused."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import consequential as cq
from consequential.cli import command_parser, main


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "consequential", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_help_shows_the_commands(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "demo" in capsys.readouterr().out


def test_the_demos_help_shows_an_example_and_the_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "example: consequential demo --seeds 5 --output my-report.html" in out
    for option in ("--output", "--seeds", "--steps", "--compas-steps"):
        assert option in out
    assert "(default: consequential-report.html)" in out


def commands() -> list[str]:
    (names,) = (action.choices for action in command_parser()._actions if action.choices)
    return list(names)


@pytest.mark.parametrize("command", commands())
def test_help_teaches_with_examples_that_can_be_parsed(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out.rpartition("\nexample")[2].replace("\\\n", " ")
    examples = re.findall(r"consequential (\S+(?: +-*\S+)*?)(?:  [a-z].*)?$", text, re.MULTILINE)
    assert examples
    for example in examples:
        assert command_parser().parse_args(example.split()).command == command


def test_python_dash_m_tells_the_version(tmp_path):
    done = run("--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"consequential {cq.__version__}\n")


def test_running_the_package_runs_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["consequential", "demo", "--seeds", "0"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("consequential", run_name="__main__")
    assert stop.value.code == 2
    assert "must be at least 1" in capsys.readouterr().err


def test_the_installed_command_is_the_same(tmp_path):
    script = Path(sys.executable).with_name("consequential")
    if not script.exists():
        pytest.skip("the package is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"consequential {cq.__version__}\n")


def test_a_bad_argument_in_a_shell_exits_with_two(tmp_path):
    done = run("demo", "--seeds", "0", folder=tmp_path)
    assert done.returncode == 2
    assert "must be at least 1" in done.stderr
    assert "Traceback" not in done.stderr
