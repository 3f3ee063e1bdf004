"""Reproduce: do what is missing of some tasks, then draw and judge what is there."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from consequential.paper import page
from consequential.paper.results import Results
from consequential.paper.store import Store
from consequential.paper.studies import Scale, studies_named
from consequential.paper.tasks import Task, task_of

_BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"


def reproduce(
    names: Iterable[str],
    folder: Path,
    scale: Scale,
    *,
    n_jobs: int | None = None,
    progress: bool = True,
) -> Path:
    """Run the named studies, in both columns, and write the report; return its path.

    What is already in the folder is not run again, whether the last run ended or was killed.
    """
    tasks = [task_of(studies_named(name), scale) for name in names]
    parameters = {
        "seeds": scale.seeds,
        "penalties": list(scale.penalty_values),
        "time_steps": scale.time_steps,
    }
    with Store.opened(folder, "reproduce", parameters) as store:
        complete(store, tasks, n_jobs=n_jobs, progress=progress)
        if progress:
            sys.stderr.write("drawing figures and judging claims\n")
        return page.write(Results(folder), folder, n_jobs)


def _one_thread() -> threadpool_limits:
    """Keep linear algebra to one thread: the order of sums, and so the last bits, is fixed."""
    return threadpool_limits(limits=1, user_api="blas")


def complete(
    store: Store, tasks: Sequence[Task], *, n_jobs: int | None = None, progress: bool = True
) -> None:
    """Do what is missing, part by part; each is kept as soon as it is done."""
    store.expect([file for task in tasks for file in task.files])
    missing = {
        task.name: [k for k in range(len(task.blocks)) if not _is_there(store, task, k)]
        for task in tasks
    }
    work = sum(task.seconds * len(task.blocks[k]) for task in tasks for k in missing[task.name])
    with (
        tqdm(total=work, bar_format=_BAR, smoothing=0.1, disable=not progress or not work) as bar,
        _one_thread(),
    ):
        for task in tasks:
            if all(store.has(file) for file in task.files):
                continue
            bar.set_description_str(task.name)
            for file in task.files:
                store.make_room(file)

            def tick(n_seeds: float, weight: float = task.seconds) -> None:
                bar.update(min(n_seeds * weight, work - bar.n))  # never a rounding above 100%

            started = time.monotonic()
            # where all is there, nothing is to be asked for
            for k, kept in task.run(missing[task.name], n_jobs, tick) if missing[task.name] else ():
                for file, piece in zip(task.files, kept, strict=True):
                    piece.save(store.part(file, k))
                store.took(task.name, time.monotonic() - started)
                started = time.monotonic()
            for file in task.files:
                if not store.has(file):
                    parts = [store.part(file, k) for k in range(len(task.blocks))]
                    task.join(parts, store.result(file))
                store.finish(file)


def _is_there(store: Store, task: Task, k: int) -> bool:
    """Whether a part of a task is done, for all of its files."""
    return all(store.has(file) or store.part(file, k).is_file() for file in task.files)
