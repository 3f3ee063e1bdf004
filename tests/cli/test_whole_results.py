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

from consequential.cli import main

posix = pytest.mark.skipif(os.name != "posix", reason="locks and signals are POSIX's")


@pytest.fixture
def overlap(shared) -> list[str]:
    return ["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED, "--out", "x"]


KILLED = """
import os, signal, sys
from consequential.cli import main

renamed, left = os.rename, int(sys.argv[1])

def rename(*given, **named):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    renamed(*given, **named)

os.rename = rename
main(sys.argv[2:])
"""


@posix
def test_a_command_killed_while_it_replaces_results_leaves_the_old_ones_to_the_next(
    overlap, here, capsys
):
    assert main(overlap) == 0
    before = results(here / "x")
    again = [*overlap, "--floor", "0.3", "--overwrite"]
    killed = subprocess.run([sys.executable, "-c", KILLED, "2", *again], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (here / "x").exists()
    assert results(here / ".x.replaced") == before
    assert main(overlap) == 2  # which puts the old ones back
    assert "x is there already" in capsys.readouterr().err
    assert results(here / "x") == before
    assert main(again) == 0
    assert results(here / "x")["results"]["floor"] == 0.3
    assert os.listdir(here) == ["x"]


def check_runs(command, every) -> None:
    program = Path(__file__).with_name("killed_runs.py")
    asked = [sys.executable, program, command, str(every)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    died, left = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert set(died) == {str(-signal.SIGKILL), "2", "0"}  # killed, unable to write, or done
    assert "0" in left  # killed before the first file
    assert len(set(left)) > 2
    # every file takes two calls at least, a sync and a rename, and each call is tried in two ways
    assert len(died) > 4 * max(map(int, left)) / every


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
def test_results_are_written_to_where_a_link_leads(overlap, here):
    (here / "there").mkdir()
    (here / "x").symlink_to("there")
    assert main(overlap) == 0
    assert (here / "x").is_symlink()
    assert (here / "there" / "report.html").is_file()


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
