"""Runs of `simulate` and `reproduce` that are killed or cannot write: a program for a test.

Of the calls that change the folder, every one or every so many is the last. The program prints a
line for each process: what it died of, and how many files it left. Then it runs the command again,
which must do what is missing and nothing else, and leave what a run in peace does.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from killed_writers import died_of, kill, stop_at

from consequential.cli import main
from consequential.paper import reproduction, tasks
from consequential.simulation import page
from consequential.store import Store

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


def command(arguments: list[str], out: Path) -> None:
    """Run a command in silence; an exit code of 2 is an OSError here."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        if main([*arguments, *SEEDS, "--out", str(out)]) != 0:
            raise OSError


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder but those that have times in them."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {n: b if n.startswith(("results", "figures")) else b"" for n, b in found.items()}


def finished() -> set[str]:
    """Return the results and parts that a reader finds, each of them as it was written."""
    if not (OUT / "manifest.json").exists():
        return set()
    store = Store.existing(OUT)
    names = store.manifest["files"]
    return {name for name in names if (OUT / name).exists() and store.checked(OUT / name)}


def missing(there: set[str]) -> list[int]:
    """Return the blocks that are not done for every file."""
    files = [path.stem for path in (PEACE / "results").iterdir()]
    needed = {
        k: [(f"results/{f}.parquet", f"parts/{f}/{k:04d}.parquet") for f in files] for k in known
    }
    return [k for k in known if not all(there.intersection(each) for each in needed[k])]


def tried(arguments: list[str], before: Path | None, *works) -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, OUT)
    died = died_of(works)
    there = finished()
    with suppress(FileNotFoundError):
        assert (OUT / "report.html").read_text().endswith(("</html>", "</html>\n"))
    asked.clear()
    command(arguments, OUT)
    assert content(OUT) == content(PEACE)
    assert asked == missing(there)
    print("process", died, len(there), sep=",", flush=True)
    return died


def refuse() -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def run(arguments: list[str], every: int) -> None:
    without_work()
    command(arguments, PEACE)
    work = partial(command, arguments, OUT)

    def stopped(last: int, stop) -> None:
        stop_at(last, stop)
        work()

    def with_full_disk(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work()

    for before in (None, PEACE):
        for stop in (kill, refuse):
            calls = itertools.count(1, every)
            while tried(arguments, before, partial(stopped, next(calls), stop)) != 0:
                pass
        for size in (0, 1_000, 5_000, 20_000):
            tried(arguments, before, partial(with_full_disk, size))
        tried(arguments, before, work, work, work)


if __name__ == "__main__":
    run(COMMANDS[sys.argv[1]], int(sys.argv[2]))
