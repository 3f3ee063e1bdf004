"""Results in a folder are whole, whatever happens to the process that writes them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from loan_files import FEATURES, LOGGED, results

from consequential import files
from consequential.cli import main
from consequential.cli.parser import command_parser
from consequential.cli.results import Folder

posix = pytest.mark.skipif(os.name != "posix", reason="locks and signals are POSIX's")


@pytest.fixture
def overlap(shared) -> list[str]:
    return ["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED, "--out", "x"]


@posix
def test_a_killed_command_or_a_full_disk_leaves_the_old_or_the_new_results(shared, here):
    program = Path(__file__).with_name("killed_writers.py")
    asked = ["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED]
    done = subprocess.run(
        [sys.executable, program, *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    lines = [line.split(",")[1:] for line in printed if line.startswith("process,")]
    killed = [line for line in lines if line[0] == str(int(signal.SIGKILL))]
    full = [line for line in lines if line[0] == "-2"]
    assert len(killed) > 25
    assert len(full) >= 6
    fresh = {("absent", "absent"), ("new", "new")}
    replaced = {("old with notes",) * 2, ("new with notes",) * 2, ("new", "new with notes")}
    assert {(then, after) for _, then, after, *_ in lines} == fresh | replaced
    for _, _, after, *entries in lines:
        assert entries == ([] if after == "absent" else ["results"])
    assert {(then, after) for _, then, after, *_ in full} == {
        ("absent", "absent"),
        ("old with notes", "old with notes"),
    }


def check_runs(command, every) -> None:
    program = Path(__file__).with_name("killed_runs.py")
    asked = [sys.executable, program, command, str(every)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split(",")[1:] for line in done.stdout.splitlines()]
    died, left = ({line[k] for line in lines} for k in range(2))
    assert died == {str(int(signal.SIGKILL)), "-2", "0"}  # killed, unable to write, or done
    assert "0" in left  # killed before the first file
    assert len(left) > 1
    assert len(lines) > 80 / every


@posix
@pytest.mark.parametrize("command", ["simulate", "reproduce"])
def test_runs_that_are_killed_or_cannot_write_leave_whole_files_and_go_on(command, here):
    check_runs(command, every=13)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("command", ["simulate", "reproduce"])
def test_runs_that_end_at_any_write_leave_whole_files_and_go_on(command, here):
    check_runs(command, every=1)


@posix
def test_a_second_command_is_refused_while_the_first_one_runs(overlap, here, capsys):
    with Folder.opened(command_parser().parse_args(overlap)):
        assert main(overlap) == 2
    assert "another command is writing to" in capsys.readouterr().err
    assert main(overlap) == 0
    assert [path.name for path in here.iterdir()] == ["x"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_files_of_the_user_stay_beside_new_results(exchanges, overlap, here, monkeypatch):
    if not exchanges:  # as file systems that cannot
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    assert main(overlap) == 0
    (here / "x" / "notes").mkdir()
    (here / "x" / "notes" / "mine.txt").write_text("mine")
    (here / "x").chmod(0o750)
    assert main([*overlap, "--floor", "0.3", "--overwrite"]) == 0
    assert results(here / "x")["results"]["floor"] == 0.3
    assert (here / "x" / "notes" / "mine.txt").read_text() == "mine"
    assert (here / "x").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["loans.txt", "policy.json"])
def test_a_folder_of_other_files_is_refused(name, overlap, here, capsys):
    if name == "policy.json":
        assert main(overlap) == 0
    (here / "x").mkdir(exist_ok=True)
    (here / "x" / name).write_text("mine")
    assert main([*overlap, "--overwrite"]) == 2
    assert f"has a {name} that this command did not write" in capsys.readouterr().err
    assert (here / "x" / name).read_text() == "mine"


def test_the_folder_that_one_is_in_is_not_replaced(overlap, here, capsys):
    assert main([*overlap, "--out", "."]) == 2
    assert "cannot be replaced as a whole" in capsys.readouterr().err


@posix
def test_results_are_written_to_where_a_link_leads(overlap, here):
    (here / "there").mkdir()
    (here / "x").symlink_to("there")
    assert main(overlap) == 0
    assert (here / "x").is_symlink()
    assert (here / "there" / "report.html").is_file()


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(overlap, here, capsys):
    (here / "file").touch()  # where root could not make a folder either
    assert main(["overlap", "no such file", *overlap[2:-1], "file/x"]) == 2
    assert "cannot write to" in capsys.readouterr().err


@posix
def test_results_are_written_also_when_nobody_reads_what_is_printed(overlap, here, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", buffering=1) as pipe, open(os.dup(write), "w", buffering=1) as errors:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", errors)
        assert main(overlap) == 141
    assert (here / "x" / "report.html").is_file()


def test_results_are_written_also_when_output_is_closed(overlap, here, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(overlap) == 0
    assert (here / "x" / "report.html").is_file()
    assert main([*overlap, "--floor", "0.3"]) == 2


@posix
def test_letters_that_the_terminal_lacks_are_printed_by_number(overlap, here, monkeypatch):
    for place, shown in (("\udcff", rb"\udcff"), ("caf\u00e9", rb"caf\xe9")):
        (here / place).mkdir()
        printed = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
        monkeypatch.setattr(sys, "stdout", printed)
        assert main([*overlap, "--out", f"{place}/x"]) == 0
        assert b"/" + shown + b"/x/report.html" in printed.buffer.getvalue()


@posix
@pytest.mark.parametrize("out", ["loop", "/dev/stdout"])
def test_what_is_no_folder_is_refused_before_any_work(out, overlap, here, capfd):
    (here / "loop").symlink_to("loop")
    assert main(["overlap", "no such file", *overlap[2:-1], out]) == 2
    assert f"{out} is not a folder: name one with --out" in capfd.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_results_are_written_also_when_they_cannot_be_printed(overlap, here, monkeypatch, capsys):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(overlap) == 2
    assert "what it printed is lost: [Errno 28] No space" in capsys.readouterr().err
    assert (here / "x" / "report.html").is_file()


@posix
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_decisions_are_not_written_over_a_device_or_a_pipe(kind, shared, here, capsys):
    out = Path("/dev/null") if kind == "device" else here / "pipe"
    if kind == "pipe":
        os.mkfifo(out)
    policy = ["--policy", str(shared / "fit" / "policy.json")]
    asked = [
        "decide",
        str(shared / "loans.csv"),
        *policy,
        "--seed",
        "1",
        "--overwrite",
        "--out",
        str(out),
    ]
    assert main(asked) == 2
    assert "is a device or a pipe" in capsys.readouterr().err
    assert out.exists()
    assert not out.is_file()
