"""Reproduction: the named studies run, drawn, and their claims tested."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from consequential.paper import page, tasks
from consequential.paper.results import Results
from consequential.paper.studies import STUDIES, Scale
from consequential.store import Store


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
    parameters = {
        "seeds": scale.seeds,
        "penalties": list(scale.penalty_values),
        "time_steps": scale.time_steps,
    }
    with Store.opened(folder, "reproduce", parameters) as store:
        wanted = [tasks.task_of(STUDIES[name], scale) for name in names]
        tasks.complete(store, wanted, n_jobs=n_jobs, progress=progress)
        if progress:
            sys.stderr.write("drawing figures and testing claims\n")
        return page.write(Results(folder), folder, n_jobs)
