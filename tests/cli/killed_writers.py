"""Processes that write results and are killed, or find the disk full: a program for a test.

It prints a line for each process: what it died of, what was in the folder then, and what is there
after the next command that names the folder has begun.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

from consequential import files
from consequential.cli import analyses, main, results
from consequential.cli.parser import command_parser
from consequential.report import figures

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


def died_of(works) -> int:
    """Do works at once, a process each: return 9 if one was killed, 0 if one succeeded, else -2."""
    children = [started(work) for work in works]
    return max(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def started(work) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except OSError:
            os._exit(2)
        except BaseException:
            os._exit(3)
        os._exit(0)
    return child


def stop_at(last: int, stop) -> None:
    """Stop this process before a call that changes a file or folder, and at all later ones."""
    made = 0

    def counting(call):
        def counted(*args, **kwargs):
            nonlocal made
            made += 1
            if made >= last:
                stop()
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        setattr(os, name, counting(getattr(os, name)))
    files.exchange = counting(files.exchange)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tried(before: Path | None, options, *works) -> int:
    """Print what is left of processes that write over what was there before."""
    shutil.rmtree(TARGET, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, TARGET)
        (TARGET / NOTES).write_text("mine")
    signalled = died_of(works)
    then = state()
    with results.Folder.opened(options):
        pass
    entries = sorted(path.name for path in Path().iterdir() if path.name not in ("old", "new"))
    print("process", signalled, then, state(), *entries, sep=",")
    return signalled


def asked(floor: str) -> list[str]:
    return [*sys.argv[1:], "--floor", floor]


def run() -> None:
    analyses.svg_of = figures.svg_of = lambda *_, **__: "<svg></svg>"
    main([*asked("0.1"), "--out", "old"])
    given = captured([*asked("0.3"), "--out", "new"])
    options = command_parser().parse_args([*asked("0.3"), "--out", str(TARGET), "--overwrite"])

    def write() -> None:
        with results.Folder.opened(options) as folder:
            folder.write(*given)

    def killed(last: int) -> None:
        stop_at(last, kill)
        write()

    def with_full_disk(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        write()

    for before in (None, Path("old")):
        calls = itertools.count(1)
        while tried(before, options, partial(killed, next(calls))) == signal.SIGKILL:
            pass
        for size in (0, 100, 1_000, 3_000):
            tried(before, options, partial(with_full_disk, size))
        tried(before, options, write, write, write)


if __name__ == "__main__":
    run()
