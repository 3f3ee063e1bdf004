"""The README's programs run as they stand, its commands too, and every command is named."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from consequential.cli import command_parser, main
from consequential.cli.column_options import columns_text, with_columns

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/consequential ([^#\n]*)", README.replace("\\\n", " "), re.M)


def test_the_programs_run_in_order_as_they_stand_and_the_first_command_on_their_file(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for program in PROGRAMS:
        exec(program, {})
    plt.close("all")
    said = capsys.readouterr().out
    for sentence in ("exploring: yes", "cross-fitted: every row", "better: utility is higher"):
        assert sentence in said
    assert (tmp_path / "utility.png").stat().st_size > 1000
    assert main(shlex.split(COMMANDS[0])) == 0


@pytest.mark.slow
def test_the_commands_on_a_log_run_in_order_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(PROGRAMS[0], {})
    on_the_log = [line for line in COMMANDS if "loans.parquet" in line]
    assert len(on_the_log) == 3
    assert [main(shlex.split(line)) for line in on_the_log] == [0, 0, 0]


def test_every_command_is_in_the_readme():
    (commands,) = (action.choices for action in command_parser()._actions if action.choices)
    for command in commands:
        assert re.search(rf"(consequential|make|`)(:? ?){command}\b", README), command


def test_the_commands_in_the_readme_can_be_parsed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "consequential-overlap").mkdir()
    roles = {"decision": "approved", "label": "repaid", "propensity": "p"}
    told = columns_text(roles, ["income"], "loans.parquet")
    (tmp_path / "consequential-overlap" / "columns.toml").write_text(told)
    assert len(COMMANDS) == 7
    for line in COMMANDS:
        command_parser().parse_args(with_columns(shlex.split(line)))


def test_the_readme_is_short():
    assert len(README.split()) <= 700
