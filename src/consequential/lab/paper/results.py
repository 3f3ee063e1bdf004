"""Results: what studies found, read from the folder that `consequential reproduce` filled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.lab.paper.lending_example import LendingTable, Scoring
from consequential.lab.results_folder import ResultsFolder, ResultsFolderError
from consequential.lab.simulation import Runs

Floats = NDArray[np.float64]

_CONFIDENCE = 0.95


class Results:
    """What studies found, by study and column; read only."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._store = ResultsFolder.existing(folder)
        self.manifest: dict[str, Any] = self._store.manifest
        self._runs: dict[str, Runs] = {}  # cached: figures and claims read them several times

    def __reduce__(self) -> tuple[type[Results], tuple[Path]]:
        # the cache may change while another thread pickles this object for a worker
        return Results, (self._store.folder,)

    def has(self, study: str, column: str) -> bool:
        """Whether a study is finished."""
        return self._store.result(f"{study}-{column}").is_file()

    def runs(self, study: str, column: str) -> Runs:
        """Return all steps of a study over time, or the last ones of a study against the penalty.

        The last policies on a table have `table_utility` and `table_benefit_gap` too, which are
        exact on all of its rows, held out or not.
        """
        name = f"{study}-{column}"
        if name not in self._runs:
            self._runs[name] = self._read(study, column, Runs.load)
        return self._runs[name]

    def lending(self, scoring: Scoring = "accuracy") -> LendingTable:
        """Return the lending example, its ridge chosen by one score or the other."""
        table: LendingTable = self._read("lending", "paper", LendingTable.load)
        return table.scored_by(scoring)

    def _read(self, study: str, column: str, load: Callable[[Path], Any]) -> Any:
        folder = self._store.folder
        if not self.has(study, column):
            raise ResultsFolderError(
                f"no results of {study} ({column}) in {folder}; "
                f"`consequential reproduce {study} --out {folder}` makes them"
            )
        return self._store.read(self._store.result(f"{study}-{column}"), load)


def last_values(runs: Runs, metric: str, strategy: str) -> list[Floats]:
    """Return a metric at the last step over seeds, one array per penalty."""
    return [runs.metric(metric, strategy, penalty)[:, -1] for penalty in runs.penalties]


def quartiles(samples: Iterable[Floats]) -> Floats:
    """Return lower quartile, median and upper quartile, one column per sample."""
    return np.array([np.percentile(values, [25, 50, 75]) for values in samples]).T


def median_interval(values: Floats | float) -> tuple[float, float, float]:
    """Return the median of runs between the ends of a 95 % interval; an exact number thrice.

    The ends are order statistics, so nothing is assumed about how runs are distributed: either
    end misses the true median with probability 2.5 % at most. Fewer than six runs tell nothing.
    """
    if np.ndim(values) == 0:
        return float(values), float(values), float(values)
    each = np.sort(np.asarray(values, dtype=np.float64))
    n, median = len(each), float(np.median(each))
    below = np.cumsum([comb(n, k) for k in range(n + 1)]) / 2.0**n
    k = int(np.searchsorted(below, (1.0 - _CONFIDENCE) / 2.0, side="right"))
    if k == 0 or np.isnan(median):
        return -np.inf, median, np.inf
    return float(each[k - 1]), median, float(each[n - k])
