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
from numpy.typing import NDArray

from consequential.log.checks import DecisionLogError
from consequential.log.decision_log import DecisionLog
from consequential.log.pieces import Piece, footer, found_pieces, read_piece
from consequential.policies import MOST_CATEGORIES, is_words, plain_groups

Found = TypeVar("Found")

# A task is several pieces, since each is a message there and back; but so many tasks a thread of
# the cluster, for all to end at about the same time.
_TASKS_A_THREAD = 6


@dataclass(frozen=True)
class Names:
    """Which columns of the files play which part."""

    features: tuple[str, ...]
    decision: str
    propensity: str
    label: str
    sensitive: str | None = None
    time_step: str | None = None
    amount: str | None = None
    cost: str | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        others = (
            self.decision,
            self.propensity,
            self.label,
            self.sensitive,
            self.time_step,
            self.amount,
            self.cost,
        )
        return list(dict.fromkeys((*self.features, *(name for name in others if name))))


@dataclass(frozen=True, slots=True)
class Draw:
    """Which rows of a piece are in a sample, or outside it: the same whoever reads, and when."""

    share: float
    seed: int
    inside: bool = True

    def rows(self, piece: Piece) -> NDArray[np.bool_]:
        """Return a mask."""
        name = f"{Path(piece.path).name} {piece.row_group} {piece.start}"
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        uniforms = np.random.default_rng([self.seed, key]).random(piece.n_rows)
        inside: NDArray[np.bool_] = uniforms < self.share
        return inside if self.inside else ~inside


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
    def _seen(self) -> _Seen:
        """What a first look at all rows finds: groups, words of categories, the last time step."""
        looks = list(self._mapped(_Look(self.names), "looking at the log"))
        words: dict[str, set[str]] = {}
        for look in looks:
            for name, found in look.words.items():
                words.setdefault(name, set()).update(found)
        for name, found in words.items():
            if len(found) > MOST_CATEGORIES:
                raise DecisionLogError(
                    f"the column {name!r} has {len(found)} different values or more: beyond "
                    f"{MOST_CATEGORIES} they are no categories to learn from; group them"
                )
        expanded: list[str] = []
        for name in self.names.features:
            if name in words:
                expanded += [f"{name}={word}" for word in sorted(words[name])]
            else:
                expanded.append(name)
        groups: tuple[Hashable, ...] = ("everyone",)
        if self.given_groups is not None:
            groups = self.given_groups
        elif self.names.sensitive is not None:
            groups = tuple(np.unique(np.concatenate([look.groups for look in looks])).tolist())
        return _Seen(groups, tuple(expanded), max(look.last_step for look in looks))

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
        task = _Applied(self.names, self.horizon, self.draw, self._seen, function, settled)
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


@dataclass(frozen=True)
class _Seen:
    groups: tuple[Hashable, ...]
    feature_names: tuple[str, ...]
    last_step: int


@dataclass(frozen=True)
class _Glimpse:
    groups: NDArray[Any]
    words: dict[str, set[str]]
    last_step: int


@dataclass(frozen=True)
class _Look:
    """The first look at a piece: only at columns that say what there is."""

    names: Names

    def __call__(self, piece: Piece) -> _Glimpse:
        import narwhals as nw

        names = self.names
        table = read_piece(piece, names.columns)
        frame = nw.from_native(table, eager_only=True)
        words = {
            name: {str(word) for word in frame[name].unique().to_list() if word is not None}
            for name in names.features
            if is_words(frame[name])
        }
        groups = np.array([])
        if names.sensitive is not None:
            column = frame[names.sensitive].unique()
            groups = np.unique(column.drop_nulls().to_numpy())
        last = 0
        if names.time_step is not None:
            last = int(frame[names.time_step].max() or 0)
        # the checks of a log, once for every row
        log_of_piece(names, piece, table)
        return _Glimpse(groups, words, last)


@dataclass(frozen=True)
class _Applied:
    """A function of a piece's log."""

    names: Names
    horizon: int | None
    draw: Draw | None
    seen: _Seen
    function: Callable[[DecisionLog], Any]
    settled: bool

    def __call__(self, piece: Piece) -> Any:
        table = read_piece(piece, self.names.columns)
        seen = self.seen
        names = replace(self.names, features=seen.feature_names)
        log = log_of_piece(names, piece, table, seen.groups)
        log = replace(log, horizon=self.horizon, as_of=seen.last_step)
        if self.draw is not None:
            log = log.take(self.draw.rows(piece))
        return self.function(_settled(log) if self.settled else log)


def _settled(log: DecisionLog) -> DecisionLog:
    """The piece's rows that are old enough: none of them, maybe."""
    old = len(log) > 0
    if old and log.horizon and log.as_of is not None:
        old = bool(log.time_step.min() <= log.as_of - log.horizon)
    return log.settled() if old else replace(log.take(slice(0, 0)), horizon=None)


def log_of_piece(
    names: Names, piece: Piece, table: Any, groups: Sequence[Hashable] | None = None
) -> DecisionLog:
    """Return a piece's rows as a log, checked as every log is."""
    try:
        return DecisionLog.from_frame(
            table,
            features=list(names.features),
            decision=names.decision,
            propensity=names.propensity,
            label=names.label,
            sensitive=names.sensitive,
            time_step=names.time_step,
            amount=names.amount,
            cost=names.cost,
            groups=groups if names.sensitive is not None else None,
        )
    except DecisionLogError as error:
        raise DecisionLogError(f"{piece.place}: {error}") from None


def scan_of(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str],
    groups: Sequence[Hashable] | None = None,
    horizon: int | None = None,
    n_threads: int | None = None,
    client: Any = None,
    **columns: Any,
) -> LogScan:
    """Return a scan, after a look at every file's schema."""
    if isinstance(features, str):
        raise DecisionLogError(f"features is a list of columns: write features=[{features!r}]")
    names = Names(tuple(features), **columns)
    if not names.features:
        raise DecisionLogError("features is empty: name at least one column")
    if groups is not None and names.sensitive is None:
        raise DecisionLogError("groups are given but no sensitive attribute that has them")
    if horizon is not None and names.time_step is None:
        raise DecisionLogError("a horizon counts time steps: name the column with time_step=")
    for part, name in columns.items():
        if not isinstance(name, str | None):
            raise DecisionLogError(f"{part} of a scan is the name of a column, not {name!r}")
    pieces = found_pieces(path, names.columns)
    known = None if groups is None else plain_groups(groups)
    return LogScan(pieces, names, horizon, known, n_threads, client)
