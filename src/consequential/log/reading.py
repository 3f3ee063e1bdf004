"""Reading pieces of a scan: what all of them have in common, and each of them as a log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.decision_log import DecisionLog
from consequential.log.errors import DecisionLogError
from consequential.log.periods import Period
from consequential.log.pieces import Piece, read_piece
from consequential.policies import MOST_CATEGORIES, is_words


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
    period: Period | None = None

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


@dataclass(frozen=True)
class Seen:
    """What all rows have in common, found by a first look at them."""

    groups: tuple[Hashable, ...]
    feature_names: tuple[str, ...]
    period: Period | None
    last_step: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Glimpse:
    """What the first look at a piece finds."""

    groups: NDArray[Any]
    words: dict[str, set[str]]
    steps: tuple[int, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """The first look at a piece: only at columns that say what there is."""

    names: Names

    def __call__(self, piece: Piece) -> Glimpse:
        """Read a piece, check it, and return what it has."""
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
        # the checks of a log, once for every row; periods are counted from 1970 until all are known
        if names.period is not None:
            names = replace(names, period=replace(names.period, first=0))
        log = log_of_piece(names, piece, table)
        steps = int(log.time_step.min()), int(log.time_step.max())
        return Glimpse(groups, words, steps, log.notes)


@dataclass(frozen=True)
class Applied:
    """A function of a piece's log."""

    names: Names
    horizon: int | None
    draw: Draw | None
    seen: Seen
    function: Callable[[DecisionLog], Any]
    settled: bool

    def __call__(self, piece: Piece) -> Any:
        """Read a piece and return what the function makes of it."""
        table = read_piece(piece, self.names.columns)
        seen = self.seen
        names = replace(self.names, features=seen.feature_names, period=seen.period)
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
            period=names.period,
        )
    except DecisionLogError as error:
        raise DecisionLogError(f"{piece.place}: {error}") from None


def seen_together(
    names: Names, looks: Sequence[Glimpse], groups: tuple[Hashable, ...] | None
) -> Seen:
    """Return what the looks at all pieces found."""
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
    for name in names.features:
        expanded += [f"{name}={word}" for word in sorted(words[name])] if name in words else [name]
    if groups is None:
        groups = ("everyone",)
        if names.sensitive is not None:
            groups = tuple(np.unique(np.concatenate([look.groups for look in looks])).tolist())
    first, last = min(look.steps[0] for look in looks), max(look.steps[1] for look in looks)
    notes = dict.fromkeys(note for look in looks for note in look.notes)
    period = names.period
    if period is not None:
        period = replace(period, first=first)
        notes[period.said] = None
        last -= first
    return Seen(groups, tuple(expanded), period, last, tuple(notes))
