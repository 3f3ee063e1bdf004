"""LogScan: a log that is larger than memory, read piece by piece from Parquet files."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from consequential.log.decision_log import DecisionLog
from consequential.log.errors import DecisionLogError
from consequential.log.periods import Period
from consequential.log.pieces import Piece, footer, found_pieces
from consequential.log.reading import Applied, Draw, Look, Names, Seen, seen_together
from consequential.policies import plain_groups

Found = TypeVar("Found")

# A task is several pieces, since each is a message there and back; but so many tasks a thread of
# the cluster, for all to end at about the same time.
_TASKS_A_THREAD = 6


def _itself(log: DecisionLog) -> DecisionLog:
    return log


@dataclass(frozen=True)
class LogScan:
    """A log in Parquet files, of which a piece at a time is in memory.

    Make one with `DecisionLog.scan`. What learns from a log or evaluates on it takes a scan in its
    place wherever it needs only sums over rows. Every piece is checked as a log is, and an error
    names the file and the row group.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile, pyarrow.parquet as pq, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(cq.Policy([0.0, 1.0]), 1000, np.random.default_rng(0))
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> pq.write_table(log.to_frame(), folder / "part-0.parquet", row_group_size=400)
    >>> scan = cq.DecisionLog.scan(folder, features=["x0"], decision="decision", label="label",
    ...                            propensity="propensity", sensitive="sensitive")
    >>> scan
    LogScan(1000 decisions in 1 file and 3 pieces,
            columns ['x0', 'decision', 'propensity', 'label', 'sensitive'])
    >>> sum(scan.map(lambda piece: piece.n_accepted)) == log.n_accepted
    True
    """

    pieces: tuple[Piece, ...]
    names: Names
    horizon: int | None = None
    given_groups: tuple[Hashable, ...] | None = None
    n_threads: int | None = None
    client: Any = field(default=None, repr=False, compare=False)
    draw: Draw | None = None

    def __len__(self) -> int:
        return sum(piece.n_rows for piece in self.pieces)

    @cached_property
    def _seen(self) -> Seen:
        """What a first look at all rows finds: groups, words of categories, time steps."""
        looks = list(self._mapped(Look(self.names), "looking at the log"))
        return seen_together(self.names, looks, self.given_groups)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was understood: which words are 1 and which 0, what a time step is."""
        return self._seen.notes

    @property
    def has_costs(self) -> bool:
        """Whether every row has a cost of its own."""
        return self.names.cost is not None

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The sensitive groups, sorted."""
        return self._seen.groups

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; a column of words has one for each word."""
        return self._seen.feature_names

    @cached_property
    def fingerprint(self) -> str:
        """A digest of files, rows and columns; unlike a log's, not of the numbers in them."""
        digest = hashlib.sha256(repr((self.names, self.horizon)).encode())
        for path in dict.fromkeys(piece.path for piece in self.pieces):
            digest.update(f"{Path(path).name} {os.path.getsize(path)}".encode())
            digest.update(footer(path))
        return digest.hexdigest()

    def map(
        self,
        function: Callable[[DecisionLog], Found],
        what: str = "reading the log",
        *,
        settled: bool = True,
    ) -> Iterator[Found]:
        """Apply a function to every piece; results come in the order of the rows.

        Of a piece the function sees settled rows, unless it is to see all. Pieces are read by a few
        threads, or by the workers of a Dask client.
        """
        task = Applied(self.names, self.horizon, self.draw, self._seen, function, settled)
        return self._mapped(task, what)

    def sample(self, n: int, rng: np.random.Generator) -> DecisionLog:
        """Return about n of the rows, settled, each as likely as any other, in memory."""
        return self.split(n, int(rng.integers(2**63)))[0]

    def split(self, n: int, seed: int = 0) -> tuple[DecisionLog, LogScan]:
        """Return about n rows in memory, settled, and a scan of all others.

        To learn from the ones and judge on the others.
        """
        chosen = Draw(min(1.0, n / max(len(self), 1)), seed)
        drawn = replace(self, draw=chosen)
        drawn.__dict__["_seen"] = self._seen  # what was seen of all rows holds for these
        parts = [part for part in drawn.map(_itself, "sampling the log") if len(part)]
        if not parts:
            raise DecisionLogError("the sample is empty: take more rows")
        rest = replace(self, draw=replace(chosen, inside=False))
        rest.__dict__["_seen"] = self._seen
        return DecisionLog.concatenate(parts), rest

    def _mapped(self, task: Callable[[Piece], Found], what: str) -> Iterator[Found]:
        from tqdm import tqdm

        bar = tqdm(
            total=len(self),
            desc=what,
            unit=" rows",
            unit_scale=True,
            leave=False,
            disable=not sys.stderr.isatty(),
        )
        with bar:
            done = self._by_client(task) if self.client is not None else self._by_threads(task)
            for piece, result in zip(self.pieces, done, strict=True):
                bar.update(piece.n_rows)
                yield result

    def _by_threads(self, task: Callable[[Piece], Found]) -> Iterator[Found]:
        n_threads = self.n_threads or (os.cpu_count() or 1)
        with ThreadPoolExecutor(n_threads) as pool:
            waiting: deque[Any] = deque()
            try:
                for piece in self.pieces:
                    waiting.append(pool.submit(task, piece))
                    if len(waiting) > n_threads:  # so many pieces are in memory, and no more
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _by_client(self, task: Callable[[Piece], Found]) -> Iterator[Found]:
        n_tasks = _TASKS_A_THREAD * max(1, sum(self.client.nthreads().values()))
        size = max(1, ceil(len(self.pieces) / n_tasks))
        some = [self.pieces[k : k + size] for k in range(0, len(self.pieces), size)]
        futures = self.client.map(partial(_one_after_another, task), some, pure=False)
        try:
            for future in futures:
                yield from future.result()
        finally:
            self.client.cancel(futures)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "client"} | {
            "client": None
        }

    def __repr__(self) -> str:
        n_files, n_pieces = len({piece.path for piece in self.pieces}), len(self.pieces)
        return (
            f"LogScan({len(self)} decisions in {n_files} file{'s' if n_files != 1 else ''} and "
            f"{n_pieces} piece{'s' if n_pieces != 1 else ''}, columns {self.names.columns})"
        )


def _one_after_another(task: Callable[[Piece], Found], pieces: Sequence[Piece]) -> list[Found]:
    return [task(piece) for piece in pieces]


def scan_of(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str],
    groups: Sequence[Hashable] | None = None,
    horizon: int | None = None,
    n_threads: int | None = None,
    client: Any = None,
    period: str | None = None,
    **columns: Any,
) -> LogScan:
    """Return a scan, after a look at every file's schema."""
    if isinstance(features, str):
        raise DecisionLogError(f"features is a list of columns: write features=[{features!r}]")
    names = Names(tuple(features), period=None if period is None else Period(period), **columns)
    if not names.features:
        raise DecisionLogError("features is empty: name at least one column")
    if groups is not None and names.sensitive is None:
        raise DecisionLogError("groups are given but no sensitive attribute that has them")
    if names.time_step is None and (horizon is not None or period is not None):
        asked = "a horizon counts time steps" if horizon else "period says what a time step is"
        raise DecisionLogError(f"{asked}: name the column with time_step=")
    for part, name in columns.items():
        if not isinstance(name, str | None):
            raise DecisionLogError(f"{part} of a scan is the name of a column, not {name!r}")
    pieces = found_pieces(path, names.columns)
    known = None if groups is None else plain_groups(groups)
    return LogScan(pieces, names, horizon, known, n_threads, client)
