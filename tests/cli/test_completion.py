"""Completion: the shell is told every command, option and kind of path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from consequential.cli import main

SHELLS = ("bash", "zsh", "fish")


def script_for(shell: str) -> str:
    said = StringIO()
    with redirect_stdout(said):
        assert main(["completion", shell]) == 0
    return said.getvalue()


@pytest.fixture(scope="module", params=SHELLS)
def script(request) -> tuple[str, str]:
    return request.param, script_for(request.param)


def test_commands_and_options_are_in_the_script(script):
    _, text = script
    for word in ("demo", "fit", "overlap", "max-gap", "estimate-propensity"):
        assert word in text


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_a_shell_of_this_machine_can_read_its_script(shell, tmp_path):
    file = tmp_path / "script"
    file.write_text(script_for(shell), encoding="utf-8")
    subprocess.run([shell, "-n", file], check=True)


def completions(line: str, folder) -> list[str]:
    """What bash offers at the end of a line."""
    *words, _ = line.split(" ")
    program = f"""
eval "$SCRIPT"
COMP_LINE='{line}' COMP_WORDS=({line if line[-1] != " " else line + "''"})
COMP_CWORD={len(words)}
$(complete -p consequential | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", program],
        env=os.environ | {"SCRIPT": script_for("bash")},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("consequential fr", "frontier"),
        ("consequential completion z", "zsh"),
        ("consequential fit loa", "loans.csv"),
        ("consequential fit loans.csv --max-g", "--max-gap"),
        ("consequential fit loans.csv --link smooth", "smooth_semi_logistic"),
    ],
)
def test_bash_completes(line, offered, tmp_path):
    (tmp_path / "loans.csv").touch()
    assert offered in completions(line, tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="pipes differ there")
@pytest.mark.parametrize("arguments", [["completion", "bash"], ["fit", "--help"]], ids=" ".join)
def test_output_that_nobody_reads_to_its_end_is_no_error(arguments):
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "consequential", *arguments]
    done = subprocess.run(program, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode in (0, 141)  # argparse itself ignores it
