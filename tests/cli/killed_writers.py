"""Processes that write results and are killed, or find the disk full: a program for a test.

It prints a line for each process: what it died of, what was in the folder then, and what is there
after the next command that names the folder.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from pathlib import Path

from consequential.cli import main, results
from consequential.cli.parser import command_parser

CALLS = ("replace", "rename", "mkdir", "unlink", "rmdir", "fsync", "chmod")
NOTES = "notes.txt"  # a file of the user's own
TARGET = Path("results")


def captured(arguments: list[str]) -> tuple:
    """Run a command into a folder of its own, and return what it wrote with."""
    kept: list[tuple] = []
    write = results.Folder.write

    def keeping(folder, *given):
        kept.append(given)
        write(folder, *given)

    results.Folder.write = keeping
    try:
        assert main(arguments) == 0
    finally:
        results.Folder.write = write
    return kept[0]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def state() -> str:
    """Return what a reader finds."""
    if not TARGET.exists():
        return "absent"
    found = content(TARGET)
    notes = found.pop(NOTES, None)
    known = [name for name in ("old", "new") if found == content(Path(name))]
    return f"{known[0] if known else 'mixed'}{'' if notes is None else ' with notes'}"


def died_of(work) -> int:
    """Do work in a process of its own; return the signal that killed it, or minus its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except OSError:
            os._exit(2)
        except BaseException:
            os._exit(3)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return -status


def kill_at(last: int) -> None:
    """Kill this process before a call that changes a folder or a file."""
    made = 0

    def counting(call):
        def counted(*args, **kwargs):
            nonlocal made
            made += 1
            if made == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        setattr(os, name, counting(getattr(os, name)))


def tried(before: Path | None, work) -> int:
    """Print what is left of a process that writes over what was there before."""
    shutil.rmtree(TARGET, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, TARGET)
        (TARGET / NOTES).write_text("mine")
    signalled = died_of(work)
    then = state()
    died_of(lambda: main([*asked("0.9"), "--out", str(TARGET)]))  # refused, if results are there
    entries = sorted(path.name for path in Path().iterdir() if path.name not in ("old", "new"))
    print("process", signalled, then, state(), *entries, sep=",")
    return signalled


def asked(floor: str) -> list[str]:
    return [*sys.argv[1:], "--floor", floor]


def run() -> None:
    main([*asked("0.1"), "--out", "old"])
    given = captured([*asked("0.3"), "--out", "new"])
    parse = command_parser().parse_args
    options = parse([*asked("0.3"), "--out", str(TARGET), "--overwrite"])

    def write() -> None:
        with results.Folder.opened(options) as folder:
            folder.write(*given)

    # a refused command must not read the log
    results.Folder.check = lambda *_: (_ for _ in ()).throw(OSError("refused"))
    for before in (None, Path("old")):
        calls = 1
        while tried(before, lambda calls=calls: (kill_at(calls), write())) == signal.SIGKILL:
            calls += 1
        for size in (0, 100, 2_000, 5_000):

            def with_full_disk(size=size) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                write()

            tried(before, with_full_disk)


if __name__ == "__main__":
    run()
