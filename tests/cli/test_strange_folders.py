"""Folders in the way of results: what is there, and what a command that writes there says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from loan_files import FEATURES, LOGGED, results

from consequential.cli import main

OTHERS = "has a {} that this command did not write: choose another folder with --out"


@pytest.fixture(scope="module")
def written(shared, tmp_path_factory) -> Path:
    """A folder that `overlap` wrote."""
    folder = tmp_path_factory.mktemp("written") / "x"
    assert main(asked(shared, folder)) == 0
    return folder


def asked(shared, out) -> list[str]:
    return ["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED, "--out", str(out)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change_results(folder: Path, **changes) -> None:
    (folder / "results.json").write_text(json.dumps(results(folder) | changes))


def replace_results(text: str):
    return lambda folder: (folder / "results.json").write_text(text)


# what is done to results of the same command, and what is said although --overwrite is given
STRANGE = {
    "a note": (lambda x: (x / "notes.txt").write_text("mine"), OTHERS.format("notes.txt")),
    "a folder": (lambda x: (x / "mine").mkdir(), OTHERS.format("mine")),
    "a hidden folder": (lambda x: (x / ".git").mkdir(), OTHERS.format(".git")),
    "a folder of a file's name": (lambda x: (x / "policy.json").mkdir(), OTHERS.format("policy")),
    "another command": (lambda x: change_results(x, command="fit"), "has results of `fit`"),
    "another program": (lambda x: change_results(x, format="other"), OTHERS.format("columns.toml")),
    "no results": (lambda x: (x / "results.json").unlink(), OTHERS.format("columns.toml")),
    "cut": (replace_results('{"format"'), OTHERS.format("columns.toml")),
    "no object": (replace_results("[]"), OTHERS.format("columns.toml")),
    "empty object": (replace_results("{}"), OTHERS.format("columns.toml")),
    "nested": (replace_results("[" * 100_000), OTHERS.format("columns.toml")),
}


@pytest.mark.parametrize(("change", "said"), STRANGE.values(), ids=STRANGE)
def test_what_the_command_did_not_write_is_never_replaced(
    change, said, shared, written, here, capsys
):
    shutil.copytree(written, here / "x")
    change(here / "x")
    before = content(here)
    assert main([*asked(shared, "x"), "--overwrite"]) == 2
    assert said.split(" that")[0] in capsys.readouterr().err
    assert content(here) == before


def test_results_are_replaced_only_when_asked(shared, written, here, capsys):
    shutil.copytree(written, here / "x")
    before = content(here)
    assert main([*asked(shared, "x"), "--floor", "0.3"]) == 2
    assert "x is there already: choose another folder with --out, or" in capsys.readouterr().err
    assert content(here) == before
    (here / "x" / ".DS_Store").touch()  # the Finder's, which nobody misses
    (here / "x").chmod(0o750)
    assert main([*asked(shared, "x"), "--floor", "0.3", "--overwrite"]) == 0
    assert results(here / "x")["results"]["floor"] == 0.3
    assert (here / "x").stat().st_mode & 0o777 == 0o750
    assert os.listdir(here) == ["x"]


def test_an_empty_folder_is_written_to(shared, here):
    (here / "x").mkdir()
    assert main(asked(shared, "x")) == 0
    assert (here / "x" / "report.html").is_file()


def test_a_file_that_came_while_the_command_ran_is_not_removed(shared, written, here, monkeypatch):
    shutil.copytree(written, here / "x")
    render = "consequential.report.render"
    monkeypatch.setattr(render, lambda *_, **__: (here / "x" / "notes.txt").touch() or "page")
    assert main([*asked(shared, "x"), "--overwrite"]) == 2
    assert (here / "x" / "notes.txt").is_file()
    assert results(here / "x") == results(written)


@pytest.mark.skipif(os.name != "posix", reason="links and devices are POSIX's")
@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("file", "file is not a folder: name one with --out"),
        ("loop", "loop is not a folder: name one with --out"),
        ("/dev/stdout", "/dev/stdout is not a folder: name one with --out"),
        ("file/x", "cannot write to"),  # where root could not make a folder either
        (".", "cannot be replaced as a whole: name a folder in it with --out"),
    ],
)
def test_what_cannot_be_a_folder_is_refused_before_any_work(out, said, here, capfd):
    (here / "file").touch()
    (here / "loop").symlink_to("loop")
    assert main(["overlap", "no such file", *FEATURES, *LOGGED, "--out", out]) == 2
    assert said in capfd.readouterr().err
