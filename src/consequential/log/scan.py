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
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from consequential.log.attributes import Attributes, intersection
from consequential.log.columns import DecisionLogError, Period, PositiveLabel, as_positive
from consequential.log.decision_log import DecisionLog
from consequential.log.frames import (
    as_table,
    check_features_are_listed,
    named_columns,
    with_clear_names,
)
from consequential.log.pieces import Draw, Piece, found_pieces, located, read_pieces
from consequential.policy import PolicyError, Preparation
from consequential.policy.cells import missing_values
from consequential.policy.group_codes import plain_groups
from consequential.policy.preparation import seen_columns
from consequential.policy.raw_column import Seen

Found = TypeVar("Found")
Task = Callable[[Piece, Any], Found]  # what is done with a piece and its table

# Tasks per thread of a cluster. A task is several pieces, since each task is a message there and
# back; but there are enough tasks for all threads to end at about the same time.
_TASKS_PER_THREAD = 6
MEDIAN_OF = 100_000  # rows, about, that medians of numbers are taken of


@dataclass(frozen=True)
class Names:
    """Which columns of the files have which role."""

    features: tuple[str, ...]
    decision: str
    propensity: str
    label: str | None = None
    sensitive: str | tuple[str, ...] | None = None
    time_step: str | None = None
    amount: str | None = None
    cost: str | None = None
    value: str | None = None
    value_range: tuple[float, float] | None = None
    period: Period | None = None
    positive_label: PositiveLabel | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        roles = [(name,) if isinstance(name, str) else name or () for name in self.roles.values()]
        return list(dict.fromkeys((*self.features, *chain(*roles))))

    @property
    def several(self) -> bool:
        """Whether groups are intersections, here tuples of values."""
        return isinstance(self.sensitive, tuple)

    @property
    def roles(self) -> dict[str, str | tuple[str, ...] | None]:
        """The columns other than features, by role."""
        others = ("features", "value_range", "period", "positive_label")
        return {k: name for k, name in vars(self).items() if k not in others}


class Contents(NamedTuple):
    """What the rows of a piece contain; periods are counted from 1970."""

    groups: tuple[Any, ...]
    features: dict[str, Seen]
    first_step: int
    last_step: int
    value_range: tuple[float, float] | None
    labels: frozenset[Any]  # the words, where one was said to be the outcome hoped for
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Common:
    """What all pieces of a scan have in common."""

    names: Names
    preparation: Preparation
    groups: tuple[Hashable, ...]
    horizon: int | None
    last_step: int
    notes: tuple[str, ...]

    def log(self, piece: Piece, table: Any, draw: Draw | None, settled: bool) -> DecisionLog:
        """Return the log of a piece's table, or of the rows drawn, or of the settled ones."""
        groups = self.groups if self.names.sensitive is not None else None
        asked = vars(self.names) | {"groups": groups, "like": self}
        with located(piece):
            log = DecisionLog.from_frame(table, **asked)
        log = replace(log, horizon=self.horizon, as_of=self.last_step)
        if draw is not None:
            log = log.take(draw.rows(piece))
        if not settled:
            return log
        young = len(log) == 0 or log.time_step.min() > self.last_step - (self.horizon or 0)
        return replace(log.take(slice(0, 0)), horizon=None) if young else log.settled()


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
    def _common(self) -> Common:
        """What a first pass over all rows finds."""
        every = max(1, len(self) // MEDIAN_OF)
        look = partial(_contents, self.names, every)
        contents = list(self._mapped(look, "looking at the log"))
        groups = self.given_groups
        if groups is None:
            groups = tuple(sorted({group for each in contents for group in each.groups}))
        last = max(each.last_step for each in contents)
        notes = [note for each in contents for note in each.notes]
        period = self.names.period
        if period is not None:
            first = min(each.first_step for each in contents)
            period = replace(period, first=first)
            notes.append(period.note)
            last -= first
        preparation = _preparation(contents)
        said = tuple(dict.fromkeys((*notes, *preparation.notes)))
        ranges = [each.value_range for each in contents if each.value_range is not None]
        ends = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
        positive = self.names.positive_label
        if positive is not None:
            positive.codes(frozenset().union(*(each.labels for each in contents)))
            positive = replace(positive, checked=True)
        names = replace(self.names, period=period, value_range=ends, positive_label=positive)
        return Common(names, preparation, groups, self.horizon, last, said)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was understood: which words are 1 and which 0, what a time step is."""
        return self._common.notes

    @property
    def has_costs(self) -> bool:
        """Whether every row has a cost of its own."""
        return self.names.cost is not None or self.names.value is not None

    @property
    def value_range(self) -> tuple[float, float] | None:
        """The smallest and the largest value there can be; None for a log of labels."""
        return self._common.names.value_range

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The sensitive groups, sorted."""
        groups = self._common.groups
        return tuple(map(intersection, groups)) if self.names.several else groups  # type: ignore[arg-type]

    @property
    def attributes(self) -> Attributes:
        """Names of the sensitive columns, with the value that each group has in them."""
        names, groups = self.names.sensitive, self._common.groups
        if isinstance(names, tuple):
            return dict(zip(names, zip(*groups, strict=True), strict=True))
        return {} if names is None else {names: groups}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; a column of words has one for each word."""
        return self.preparation.feature_names

    @property
    def preparation(self) -> Preparation:
        """What turns the raw columns of the files into features; medians are those of a sample."""
        return self._common.preparation

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the files, whichever columns and rows of them are read.

        It is of their names, sizes and footers; unlike a log's, not of the numbers in them.
        """
        digest = hashlib.sha256()
        for file in dict.fromkeys(piece.file for piece in self.pieces):
            digest.update(f"{Path(file.path).name} {file.size} {file.footer} ".encode())
        return digest.hexdigest()

    def map(
        self,
        function: Callable[[DecisionLog], Found],
        what: str = "reading the log",
        *,
        settled: bool = True,
    ) -> Iterator[Found]:
        """Apply a function to every piece; results come in the order of the rows.

        Of a piece the function sees settled rows, unless it is to see all. Pieces are worked on by
        a few threads, or read and worked on by the workers of a Dask client.
        """
        log = partial(self._common.log, draw=self.draw, settled=settled)
        return self._mapped(partial(_applied, function, log), what)

    def sample(self, n: int, rng: np.random.Generator) -> DecisionLog:
        """Return about n of the rows, settled, each as likely as any other, in memory."""
        return self.split(n, int(rng.integers(2**63)))[0]

    def split(self, n: int, seed: int = 0) -> tuple[DecisionLog, LogScan]:
        """Return about n rows in memory, settled, and a scan of all others.

        To learn from the former and evaluate on the latter.
        """
        draw = Draw(min(1.0, n / max(len(self), 1)), seed)
        drawn, rest = (replace(self, draw=replace(draw, inside=inside)) for inside in (True, False))
        for part in (drawn, rest):
            part.__dict__["_common"] = self._common  # holds for any of the rows
        parts = [part for part in drawn.map(DecisionLog.settled, "sampling the log") if len(part)]
        if not parts:
            raise DecisionLogError("the sample is empty: take more rows")
        return DecisionLog.concatenate(parts), rest

    def _mapped(self, task: Task[Found], what: str) -> Iterator[Found]:
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

    def _by_threads(self, task: Task[Found]) -> Iterator[Found]:
        n_threads = self.n_threads or (os.cpu_count() or 1)
        with ThreadPoolExecutor(n_threads) as pool:
            waiting: deque[Any] = deque()
            try:
                for piece, table in read_pieces(self.pieces, self.names.columns):
                    waiting.append(pool.submit(task, piece, table))
                    if len(waiting) > n_threads:  # so many pieces are in memory, and no more
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _by_client(self, task: Task[Found]) -> Iterator[Found]:
        n_tasks = _TASKS_PER_THREAD * max(1, sum(self.client.nthreads().values()))
        size = max(1, ceil(len(self.pieces) / n_tasks))
        chunks = [self.pieces[k : k + size] for k in range(0, len(self.pieces), size)]
        futures = self.client.map(partial(_each, task, self.names.columns), chunks, pure=False)
        try:
            for future in futures:
                yield from future.result()
        finally:
            self.client.cancel(futures)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"client": None}

    def __repr__(self) -> str:
        n_files, n_pieces = len({piece.file for piece in self.pieces}), len(self.pieces)
        return (
            f"LogScan({len(self)} decisions in {n_files} file{'s' if n_files != 1 else ''} and "
            f"{n_pieces} piece{'s' if n_pieces != 1 else ''}, columns {self.names.columns})"
        )


def scan_of(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str],
    groups: Sequence[Hashable] | None = None,
    horizon: int | None = None,
    n_threads: int | None = None,
    client: Any = None,
    period: str | None = None,
    value_range: tuple[float, float] | None = None,
    positive_label: Any = None,
    **columns: Any,
) -> LogScan:
    """Return a scan, after a look at every file's schema."""
    check_features_are_listed(features)
    if isinstance(sensitive := columns.get("sensitive"), list | tuple):
        columns["sensitive"] = tuple(sensitive) if len(sensitive) > 1 else sensitive[0]
    counted = None if period is None else Period(period)
    names = Names(
        tuple(features),
        period=counted,
        value_range=value_range,
        positive_label=as_positive(positive_label),
        **columns,
    )
    if groups is not None and names.sensitive is None:
        raise DecisionLogError("groups are given but no sensitive attribute that has them")
    if names.time_step is None and (horizon is not None or period is not None):
        asked = "a horizon counts time steps" if horizon else "period says what a time step is"
        raise DecisionLogError(f"{asked}: name the column with time_step=")
    for role, name in columns.items():
        if not isinstance(name, str | None) and not (role == "sensitive" and names.several):
            raise DecisionLogError(f"{role} of a scan is the name of a column, not {name!r}")
    pieces = found_pieces(path, names.columns)
    known = None if groups is None else plain_groups(groups)
    return LogScan(pieces, names, horizon, known, n_threads, client)


# What is done with a piece, by a thread or in another process


def _each(task: Task[Found], columns: list[str], pieces: Sequence[Piece]) -> list[Found]:
    return [task(piece, table) for piece, table in read_pieces(pieces, columns)]


def _applied(
    function: Callable[[DecisionLog], Found], log: Task[DecisionLog], piece: Piece, table: Any
) -> Found:
    return function(log(piece, table))


def _contents(names: Names, every: int, piece: Piece, native: Any) -> Contents:
    """Check the columns of a piece other than features, and return what all of them contain."""
    period = names.period if names.period is None else replace(names.period, first=0)
    table = as_table(native)
    with located(piece):
        columns = named_columns(table, **names.roles | {"time_step": names.time_step or 0})
        columns |= {"period": period, "value_range": names.value_range}
        labels: frozenset[Any] = frozenset()
        if (positive := names.positive_label) is not None:
            known = columns["label"]
            labels = frozenset(known[~missing_values(known)].tolist())
            columns["positive_label"] = replace(positive, checked=True)
        log = DecisionLog.from_arrays(np.zeros(len(table)), **columns)
        seen = seen_columns(table, names.features, every=every)
    first, last = int(log.time_step.min()), int(log.time_step.max())
    several = tuple(zip(*log.attributes.values(), strict=True)) if names.several else log.groups
    return Contents(several, seen, first, last, log.value_range, labels, log.notes)


def _preparation(contents: Sequence[Contents]) -> Preparation:
    """Return the preparation of all pieces, from what each contains."""
    first, *others = (each.features for each in contents)
    try:
        seen = {name: sum((each[name] for each in others), seen) for name, seen in first.items()}
        return with_clear_names(Preparation.of_seen(seen))
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None
