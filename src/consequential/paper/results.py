"""Results: what studies found, read from the folder that `consequential reproduce` filled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from consequential.fairness import fairness_named
from consequential.files import Columns, joined_columns, load_columns, save_columns
from consequential.simulation import Run, Runs, RunsError
from consequential.store import Store, StoreError
from consequential.worlds import TableWorld, World

Floats = NDArray[np.float64]
Scoring = Literal["accuracy", "likelihood"]

SCORINGS: tuple[Scoring, ...] = ("accuracy", "likelihood")
_LAST = ("utility", "effective_utility", "benefit_gap", "acceptance")


@dataclass(frozen=True, slots=True, eq=False)
class StoredTable:
    """Arrays with one entry per row, stored in one Parquet file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one Parquet file."""
        save_columns(path, self._columns())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        return cls._from(load_columns(path)[0])

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Return the rows of several tables, one after the other."""
        return cls._from(joined_columns([piece._columns() for piece in pieces]))

    def at(self, rows: NDArray[Any]) -> Self:
        """Return some rows, given by index or as a mask."""
        return self._from({name: values[rows] for name, values in self._columns().items()})

    def _columns(self) -> Columns:
        """Return one array per column; a matrix `theta` becomes `theta 0`, `theta 1`, ..."""
        found: Columns = {}
        for field in fields(self):
            values = getattr(self, field.name)
            if values.ndim == 1:
                found[field.name] = values
            else:
                found |= {f"{field.name} {k}": column for k, column in enumerate(values.T)}
        return found

    @classmethod
    def _from(cls, columns: Columns) -> Self:
        nothing = np.empty((len(next(iter(columns.values()))), 0))
        found: Columns = {}
        for field in fields(cls):
            parts = [v for name, v in columns.items() if name.startswith(f"{field.name} ")]
            plain = columns.get(field.name)
            found[field.name] = np.column_stack([nothing, *parts]) if plain is None else plain
        return cls(**found)


@dataclass(frozen=True, slots=True, eq=False)
class Finals(StoredTable):
    """The last policy of every run, measured; by strategy as given, then penalty, then seed.

    `train_utility` and `train_benefit_gap` are exact on the rows that a table world draws people
    from, NaN in worlds without a table.
    """

    strategy: NDArray[np.object_]
    penalty: Floats
    seed: NDArray[np.int64]
    utility: Floats
    effective_utility: Floats
    benefit_gap: Floats
    acceptance: Floats
    train_utility: Floats
    train_benefit_gap: Floats
    theta: Floats  # (runs, inputs)

    def __len__(self) -> int:
        return len(self.penalty)

    @classmethod
    def of(cls, runs: Sequence[Run], world: World, fairness: str = "demographic_parity") -> Finals:
        """Measure the last policies of runs."""
        trained = np.full((len(runs), 2), np.nan)
        if isinstance(world, TableWorld):
            population, notion = world.population("training"), fairness_named(fairness)
            for row, run in zip(trained, runs, strict=True):
                assert run.policy is not None  # only files can lack it
                metrics = population.metrics(run.policy, world.cost, notion)
                row[:] = metrics.utility, metrics.benefit_gap
        return cls(
            strategy=np.array([run.strategy for run in runs], dtype=object),
            penalty=np.array([run.penalty for run in runs]),
            seed=np.array([run.seed for run in runs], dtype=np.int64),
            train_utility=trained[:, 0],
            train_benefit_gap=trained[:, 1],
            theta=np.array([() if run.thetas is None else run.thetas[-1] for run in runs]),
            **{name: np.array([run.metrics[name][-1] for run in runs]) for name in _LAST},
        )

    def ordered(self, strategies: Sequence[str]) -> Finals:
        """Return the rows by strategy as listed, penalty and seed."""
        place = np.array([strategies.index(name) for name in self.strategy])
        return self.at(np.lexsort((self.seed, self.penalty, place)))

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies, in the order they were given."""
        return tuple(dict.fromkeys(self.strategy.tolist()))

    @property
    def penalties(self) -> tuple[float, ...]:
        """The penalties, increasing."""
        return tuple(np.unique(self.penalty).tolist())

    def select(self, strategy: str, penalty: float) -> NDArray[np.intp]:
        """Return the rows of a strategy and penalty, by seed."""
        if strategy not in self.strategies:
            raise RunsError(f"no strategy {strategy!r}; there are {list(self.strategies)}")
        return np.flatnonzero((self.strategy == strategy) & (self.penalty == penalty))

    def values(self, metric: str, strategy: str) -> list[Floats]:
        """Return the values over seeds, one array per penalty."""
        found: Floats = getattr(self, metric)
        return [found[self.select(strategy, penalty)] for penalty in self.penalties]

    def quartiles(self, metric: str, strategy: str) -> Floats:
        """Return lower quartile, median and upper quartile over seeds, one column per penalty."""
        by_penalty = self.values(metric, strategy)
        return np.array([np.percentile(values, [25, 50, 75]) for values in by_penalty]).T


@dataclass(frozen=True, slots=True, eq=False)
class LendingTable(StoredTable):
    """The model and its rule for each score to choose the ridge by, threshold and seed.

    `intercept` and `slope` are of the model, in points of the score.
    """

    scoring: NDArray[np.object_]
    threshold: Floats
    seed: NDArray[np.int64]
    intercept: Floats
    slope: Floats
    utility: Floats
    benefit_gap: Floats

    def scored_by(self, scoring: Scoring) -> LendingTable:
        """Return the rows whose ridge was chosen by one score."""
        return self.at(self.scoring == scoring)

    def ordered(self) -> LendingTable:
        """Return the rows by score, threshold and seed."""
        return self.at(np.lexsort((self.seed, self.threshold, self.scoring.astype(str))))


class Results:
    """What studies found, by study and column; read only."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._store = Store.existing(folder)
        self.manifest: dict[str, Any] = self._store.manifest
        self._runs: dict[Path, Runs] = {}  # cached: figures and claims read them several times

    def has(self, study: str, column: str) -> bool:
        """Whether a study is finished."""
        return self._store.has(f"{study}-{column}")

    def runs(self, study: str, column: str) -> Runs:
        """Return the runs of a study over time."""
        file = self._file(study, column)
        if file not in self._runs:
            self._runs[file] = Runs.load(file)
        return self._runs[file]

    def finals(self, study: str, column: str) -> Finals:
        """Return the last policies of a study against the penalty."""
        return Finals.load(self._file(study, column))

    def lending(self, scoring: Scoring = "accuracy") -> LendingTable:
        """Return the lending example, its ridge chosen by one score or the other."""
        return LendingTable.load(self._file("lending", "paper")).scored_by(scoring)

    def _file(self, study: str, column: str) -> Path:
        folder = self._store.folder
        if not self.has(study, column):
            raise StoreError(
                f"no results of {study} ({column}) in {folder}; "
                f"`consequential reproduce {study} --out {folder}` makes them"
            )
        return self._store.result(f"{study}-{column}")
