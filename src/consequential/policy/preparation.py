"""Preparation: what turns raw columns (numbers, words, dates) into a policy's features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from consequential.policy.cells import Cells, cells_of, columns_of
from consequential.policy.features import OTHERS, FeaturesError, NamedFeatures, PolicyError
from consequential.policy.raw_column import RawColumn, Seen


@dataclass(frozen=True, slots=True)
class Preparation:
    """What turns raw columns into features: it belongs to a log, and to policies learned from it.

    * Numbers stay as they are. A missing one is replaced by the median, and the feature
      `income missing` says where.
    * Booleans are 0 and 1, dates are days since 1970; otherwise they are as numbers.
    * Words have an indicator each, `purpose=car`. Rare words (fewer than 20 rows and less than 1 %
      of them, or beyond the commonest 50) share one, `purpose=other words`, and words never seen
      before go there too. A missing word is a word of its own, `purpose missing`.

    Text that has only numbers, dates, or true and false is read as such. A preparation is made of
    features only, never of labels. It scales nothing, since learners standardise for themselves.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from consequential.policy import Preparation
    >>> people = pa.table({"income": [2.0, None, 4.0], "purpose": ["car", "home", None]})
    >>> preparation = Preparation.of(people)
    >>> preparation.feature_names
    ('income', 'income missing', 'purpose=car', 'purpose=home', 'purpose missing')
    >>> found = preparation.transform({"income": None, "purpose": "boat"})
    >>> found
    NamedFeatures([[3., 1., 0., 0., 0.]])
    >>> found.unknown
    {'purpose': {'boat': 1}}
    """

    columns: tuple[RawColumn, ...]

    def __post_init__(self) -> None:
        names = Counter(name for column in self.columns for name in column.feature_names)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise PolicyError(
                f"two features would have the name {twice[0]!r}: rename a column, or leave out one "
                "that is named twice"
            )

    @classmethod
    def of(cls, people: Any, names: Sequence[str] | None = None) -> Preparation:
        """Make one for the named columns of a data frame (or all of them)."""
        return cls.of_seen(seen_columns(people, names))

    @classmethod
    def of_seen(cls, seen: Mapping[str, Seen]) -> Preparation:
        """Make one of what was seen of columns."""
        return cls(tuple(RawColumn.of(name, each) for name, each in seen.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the raw columns."""
        return tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that they become."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def transform(self, people: Any) -> NamedFeatures:
        """Return the features of people in a data frame, a dict (one person) or a list of dicts.

        A column that is missing, or one too many, is an error. What was never seen before is
        counted: see `unknown` and `notes` of the result.
        """
        cells = columns_of(people)
        if cells is None:
            raise FeaturesError(
                f"raw columns come in a data frame, a dict or a list of dicts, not in a "
                f"{type(people).__name__}"
            )
        more = [name for name in cells if name not in self.names]
        if more:
            raise FeaturesError(
                f"there is a column {more[0]!r}, which is none of those looked at: leave it out. "
                f"These are {', '.join(self.names)}"
            )
        return self.prepared(cells)

    def prepared(self, cells: Mapping[str, Cells]) -> NamedFeatures:
        """Return the features of people whose raw columns are these, among others."""
        missing = [name for name in self.names if name not in cells]
        if missing:
            raise FeaturesError(f"no column {missing[0]!r}; there are {', '.join(cells)}")
        names = self.feature_names
        rows = np.empty((len(names), len(cells[self.names[0]])))  # one per feature
        raw, unknown, start = {}, {}, 0
        for column in self.columns:
            values = column.read(cells[column.name])
            stop = start + len(column.feature_names)
            new = column.write_features(values, rows[start:stop])
            start = stop
            if new:
                unknown[column.name] = new
            if values.dtype.kind != "f" or np.isnan(values).any():
                raw[column.name] = values
        return NamedFeatures(np.ascontiguousarray(rows.T), names, self, raw, unknown)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the columns were read."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        blanks = [
            f"{column.name!r} ({_rows(column.n_missing)})"
            for column in self.columns
            if column.n_missing
        ]
        if blanks:
            yield (
                f"values are missing in {', '.join(blanks)}: a feature says where, and a missing "
                "number is replaced by the median"
            )
        for column in self.columns:
            if column.from_text and column.kind == "number":
                yield (
                    f"the column {column.name!r} is text that has only numbers, and was read as "
                    "numbers; if they are codes, make them words"
                )
            if column.rare:
                n, total = len(column.rare), len(column.rare) + len(column.words)
                counted = "is rare and counts" if n == 1 else "are rare and count"
                yield (
                    f"{n} of {total} words of {column.name!r} {counted} as '{column.name}={OTHERS}'"
                )
        if dates := [repr(column.name) for column in self.columns if column.kind == "date"]:
            yield f"dates in {', '.join(dates)} are days since 1970-01-01"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Preparation:
        """Return what `to_dict` made these values of."""
        lists = ("words", "rare")
        return cls(
            tuple(
                RawColumn(**each | {name: tuple(each[name]) for name in lists})
                for each in data["columns"]
            )
        )


def seen_columns(
    people: Any, names: Sequence[str] | None = None, *, every: int = 1
) -> dict[str, Seen]:
    """Return what a data frame shows of the named columns (or of all of them)."""
    import narwhals as nw

    frame = nw.from_native(people, eager_only=True)
    names = frame.columns if names is None else [str(name) for name in names]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise PolicyError(f"no column {missing[0]!r} in the frame; it has {frame.columns}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise PolicyError(f"two features have the name {twice[0]!r}")
    return {
        name: Seen.of(
            name,
            cells_of(frame[name]),
            every=every,
            category=frame[name].dtype in (nw.Categorical, nw.Enum),
        )
        for name in names
    }


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
