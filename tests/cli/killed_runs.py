"""Runs of `simulate` and `reproduce` that are killed or cannot write: a program for a test.

Of the calls that change the folder, every so many is the last. The program prints a line for each
process: what it died of, and how many files it left. Then it runs the command again, which must do
what is missing and nothing else, and leave what a run in peace does.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

from consequential.cli import main
from consequential.lab.paper import reproduction, tasks
from consequential.lab.simulation import Runs, page

CALLS = ("replace", "mkdir", "unlink", "rmdir", "fsync", "chmod")
OUT, PEACE = Path("out"), Path("peace")
COMMANDS = {
    "simulate": ["simulate", "drift", "--steps", "2", "--strategies", "logistic-iterative"],
    "reproduce": ["reproduce", "drift-time", "settings", "--quick", "--jobs", "1"],
}
SEEDS = ["--seeds", "11"]  # two blocks

known: dict[int, object] = {}  # the results of blocks: they are computed once
asked: list[int] = []  # blocks that the last run did


class Drawing:
    def savefig(self, buffer, **_):
        buffer.write(b"a drawing")


def without_work() -> None:
    """Leave computing and drawing out: what is tried here is writing."""
    compute = tasks.Simulation.run

    def run(self, numbers, n_jobs, progress):
        asked.extend(numbers)
        if not known:
            known.update(compute(self, range(len(self.blocks)), n_jobs, progress))
        yield from ((number, known[number]) for number in numbers)

    tasks.Simulation.run = run
    page.svg_of = reproduction.svg_of = lambda *_, **__: "<svg></svg>"
    page._figures = lambda section: {}
    reproduction.check_claims = lambda results: []
    figure = replace(reproduction.FIGURES["settings"], draw=lambda *_: Drawing())
    reproduction.FIGURES = {"settings": figure}


def command(arguments: list[str], out: Path) -> int:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return main([*arguments, *SEEDS, "--out", str(out)])


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder but those that have times in them."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {n: b if n.startswith(("results", "figures")) else b"" for n, b in found.items()}


def finished() -> set[str]:
    """Return the results and parts that a reader finds, each of them whole."""
    found = [*OUT.glob("results/[!.]*"), *OUT.glob("parts/*/[!.]*")]
    assert all(Runs.load(path) for path in found)
    return {path.relative_to(OUT).as_posix() for path in found}


def missing(there: set[str]) -> list[int]:
    """Return the blocks that are not done for every file."""
    files = [path.stem for path in (PEACE / "results").iterdir()]
    needed = {
        k: [(f"results/{f}.parquet", f"parts/{f}/{k:04d}.parquet") for f in files] for k in known
    }
    return [k for k in known if not all(there.intersection(each) for each in needed[k])]


def stopped(arguments: list[str], last: int, stop) -> int:
    """Run a command in a process that stops at this call; return what it died of."""
    child = os.fork()
    if child == 0:
        left = last

        def counting(call):
            def counted(*given, **named):
                nonlocal left
                left -= 1
                if left <= 0:
                    stop()
                return call(*given, **named)

            return counted

        for name in CALLS:
            setattr(os, name, counting(getattr(os, name)))
        os._exit(command(arguments, OUT))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tried(arguments: list[str], last: int, stop) -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    died = stopped(arguments, last, stop)
    there = finished()
    asked.clear()
    assert command(arguments, OUT) == 0
    assert content(OUT) == content(PEACE)
    assert asked == missing(there)
    print(died, len(there), flush=True)
    return died


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def run(arguments: list[str], every: int) -> None:
    without_work()
    assert command(arguments, PEACE) == 0
    for stop in (kill, refuse):
        calls = itertools.count(1, every)
        while tried(arguments, next(calls), stop) != 0:
            pass


if __name__ == "__main__":
    run(COMMANDS[sys.argv[1]], int(sys.argv[2]))
