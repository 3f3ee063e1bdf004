"""Files are written whole or not at all, and only over files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from consequential.files import write_atomically

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and signals are POSIX's")

KILLED = """
import os, signal, sys
from consequential.files import write_atomically

def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, sys.argv[2], dies)
write_atomically(sys.argv[1], "new, and longer than before")
"""
FULL = """
import resource, sys
from consequential.files import write_atomically

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_atomically(sys.argv[1], "x" * 5000)
"""
WRITER = """
import sys
from consequential.files import write_atomically

for _ in range(100):
    write_atomically(sys.argv[1], sys.argv[2] * 5000)
"""


def run(program, *arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("old")
    return file


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_a_killed_process_leaves_the_old_file_and_the_next_one_cleans_up(call, file):
    assert run(KILLED, file, call).returncode == -signal.SIGKILL
    assert file.read_text() == "old"
    assert len(list(file.parent.iterdir())) == 2
    write_atomically(file, "new")
    assert file.read_text() == "new"
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_another_machine_writes_is_left_to_it(file):
    other = file.with_name(f".{file.name}.host.example.{2**22 + 1}.1.part")  # no process has it
    other.write_text("half")
    write_atomically(file, "new")
    assert sorted(file.parent.iterdir()) == [other, file]


def test_a_full_disk_leaves_the_old_file_and_no_other(file):
    assert f"File too large: {str(file)!r}" in run(FULL, file).stderr
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_two_processes_write_one_after_the_other(file):
    command = [sys.executable, "-c", WRITER, str(file)]
    writers = [subprocess.Popen([*command, letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        seen.add(file.read_text())
        time.sleep(0.001)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {"old", "a" * 5000, "b" * 5000}
    assert list(file.parent.iterdir()) == [file]


def test_a_link_stays_and_the_file_it_leads_to_is_written(file, tmp_path):
    (tmp_path / "folder").mkdir()
    link, new = tmp_path / "folder" / "link", tmp_path / "folder" / "new link"
    link.symlink_to(file)
    new.symlink_to(tmp_path / "not there yet")
    for each in (link, new):
        write_atomically(each, "new")
        assert each.is_symlink()
        assert each.read_text() == "new"
    assert file.read_text() == "new"


def test_what_is_no_file_is_refused(tmp_path):
    pipe, circle = tmp_path / "pipe", tmp_path / "circle"
    os.mkfifo(pipe)
    circle.symlink_to(circle)
    read, write = os.pipe()  # as /dev/stdout is one in a pipeline
    for path in (pipe, circle, tmp_path, "/dev/null", f"/dev/fd/{write}"):
        with pytest.raises(OSError, match="not a file that can be replaced"):
            write_atomically(path, "new")
    for end in (read, write):
        os.close(end)
    assert sorted(tmp_path.iterdir()) == [circle, pipe]


def test_a_file_is_replaced_only_when_asked(file):
    with pytest.raises(FileExistsError, match="exists: choose another file"):
        write_atomically(file, "new", replace=False)
    assert file.read_text() == "old"
    write_atomically(file.with_name("other"), "new", replace=False)
    assert sorted(path.name for path in file.parent.iterdir()) == ["file.txt", "other"]
