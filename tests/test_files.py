"""Files and folders are written whole or not at all, and only over files and folders."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from consequential.files import new_folder, put_back, write_atomically

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

KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from consequential.files import new_folder, write_atomically

left = int(sys.argv[2])

def counted(call):
    def made(*given, **named):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return call(*given, **named)
    return made

for name in ("mkdir", "fsync", "replace", "chmod", "rename", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
with new_folder(Path(sys.argv[1]), replace=True) as folder:
    for name in ("a", "b"):
        write_atomically(folder / name, "new")
"""
OLD, NEW = {"a": "old", "c": "old"}, {"a": "new", "b": "new"}


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


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        write_atomically(tmp_path / "nowhere" / "file", "new")


def test_a_file_is_replaced_only_when_asked(file):
    with pytest.raises(FileExistsError, match="exists: choose another file"):
        write_atomically(file, "new", replace=False)
    assert file.read_text() == "old"
    write_atomically(file.with_name("other"), "new", replace=False)
    assert sorted(path.name for path in file.parent.iterdir()) == ["file.txt", "other"]


# --- folders


@pytest.fixture
def folder(tmp_path):
    return made(tmp_path / "folder")


def made(folder):
    folder.mkdir()
    for name, text in OLD.items():
        (folder / name).write_text(text)
    return folder


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else None


@pytest.mark.parametrize("before", [None, OLD], ids=["nothing", "a folder"])
def test_a_process_killed_at_any_moment_leaves_one_whole_folder(before, tmp_path):
    left = []
    for calls in itertools.count():
        parent = tmp_path / str(calls)
        parent.mkdir()
        target = parent / "folder"
        if before:
            made(target)
        code = run(KILLED_BETWEEN, target, calls).returncode
        aside = content(parent / ".folder.replaced")
        left.append((content(target), aside))
        put_back(target)
        assert content(target) == (left[-1][0] or aside)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        with new_folder(target, replace=True) as new:
            (new / "d").write_text("later")
        assert content(target) == {"d": "later"}
        assert list(parent.iterdir()) == [target]
    between = [(None, OLD), (NEW, OLD)] if before else []  # both renames
    whole = [(before, None), *between, (NEW, None)]
    assert [each for each in whole if each not in left] == []
    assert [each for each in left if each not in whole] == []


def test_a_folder_that_could_not_be_written_leaves_the_old_one(folder):
    def write():
        with new_folder(folder, replace=True) as new:
            (new / "a").write_text("new")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write()
    assert content(folder) == OLD
    assert list(folder.parent.iterdir()) == [folder]


def test_the_names_in_a_folder_are_on_disk_before_it_has_its_own(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    with new_folder(tmp_path / "folder", mode=0o700) as new:
        (new / "a").write_text("new")
    made = (tmp_path / "folder").stat()
    assert synced == [made.st_ino]
    assert made.st_mode & 0o777 == 0o700


def test_only_an_empty_folder_is_replaced_without_asking(folder, tmp_path):
    with pytest.raises(OSError, match="not empty"), new_folder(folder):
        pass
    assert content(folder) == OLD
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o750)
    with new_folder(empty) as new:
        (new / "a").write_text("new")
    assert content(empty) == {"a": "new"}
    assert empty.stat().st_mode & 0o777 == 0o750
    assert sorted(tmp_path.iterdir()) == [empty, folder]
