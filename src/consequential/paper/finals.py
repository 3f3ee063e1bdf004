"""Finals: where runs ended, a row a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.objective import fairness_named
from consequential.paper.columns import joined, read_columns, write_columns
from consequential.simulation import Run, RunsError
from consequential.worlds import TableWorld, World

Floats = NDArray[np.float64]

_LAST = ("utility", "effective_utility", "benefit_gap", "acceptance")


@dataclass(frozen=True, slots=True, eq=False)
class Finals:
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
        """Keep the ends of runs."""
        trained = np.full((len(runs), 2), np.nan)
        if isinstance(world, TableWorld):
            population, notion = world.population("training"), fairness_named(fairness)
            for row, run in zip(trained, runs, strict=True):
                assert run.policy is not None  # runs from memory have theirs
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

    @classmethod
    def join(cls, pieces: Sequence[Finals], strategies: Sequence[str]) -> Finals:
        """Put pieces together, in an order that does not depend on how they were cut."""
        columns = joined([piece._columns() for piece in pieces])
        place = np.array([strategies.index(name) for name in columns["strategy"]])
        order = np.lexsort((columns["seed"], columns["penalty"], place))
        return cls._from({name: values[order] for name, values in columns.items()})

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies, in the order they were given."""
        return tuple(dict.fromkeys(self.strategy.tolist()))

    @property
    def penalties(self) -> tuple[float, ...]:
        """The penalties, increasing."""
        return tuple(np.unique(self.penalty).tolist())

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, increasing."""
        return tuple(np.unique(self.seed).tolist())

    def select(self, strategy: str, penalty: float) -> NDArray[np.intp]:
        """Return the rows of a strategy and penalty, by seed."""
        if strategy not in self.strategies:
            raise RunsError(f"no strategy {strategy!r}; there are {list(self.strategies)}")
        return np.flatnonzero((self.strategy == strategy) & (self.penalty == penalty))

    def quartiles(self, metric: str, strategy: str) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the penalties, and over seeds the lower quartile, median and upper quartile."""
        values: Floats = getattr(self, metric)
        by_penalty = [values[self.select(strategy, penalty)] for penalty in self.penalties]
        low, middle, high = np.array([np.percentile(v, [25, 50, 75]) for v in by_penalty]).T
        return np.array(self.penalties), low, middle, high

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one Parquet file."""
        write_columns(path, self._columns())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Finals:
        """Read what `save` wrote."""
        return cls._from(read_columns(path))

    def _columns(self) -> dict[str, NDArray[Any]]:
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "theta"}
        return plain | {f"theta {k}": column for k, column in enumerate(self.theta.T)}

    @classmethod
    def _from(cls, columns: dict[str, NDArray[Any]]) -> Finals:
        plain = {name: v for name, v in columns.items() if not name.startswith("theta ")}
        thetas = [columns[f"theta {k}"] for k in range(len(columns) - len(plain))]
        theta = np.stack(thetas, axis=1) if thetas else np.empty((len(plain["seed"]), 0))
        return cls(**plain, theta=theta)
