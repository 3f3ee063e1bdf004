"""Raw column: numbers, booleans, dates or words, and the features that it becomes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.policy.cells import (
    HOW_TO_WRITE,
    Cells,
    as_dates,
    as_number,
    check_spelling,
    days_of,
    is_code,
    is_number,
    missing_values,
)
from consequential.policy.features import OTHERS, FeaturesError, Floats, PolicyError

Kind = Literal["number", "boolean", "date", "word"]

# A word with fewer rows than this, and less than a hundredth of all, has no feature of its own.
_FEW_ROWS = 20
_MOST_WORDS = 50  # that have a feature of their own
_TOO_MANY = 10_000  # different words to keep if most rows have one of their own
_TRUTH = {"true": 1.0, "false": 0.0}
_MUST_BE = {
    "number": "finite numbers",
    "boolean": "true or false, or 1 and 0",
    "date": "dates, such as 2024-03-01",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What some rows show of a raw column; parts of a column add up.

    `values` are the numbers (or days), or a sample of them; `counts` says how often each text
    occurs. The kind of text is not known until all of it was seen.
    """

    kind: Kind | Literal["text"]
    n_rows: int
    n_missing: int
    values: Floats
    counts: Counter[str]

    @classmethod
    def of(cls, name: str, cells: Cells, *, every: int = 1, category: bool = False) -> Seen:
        """Look at cells; `every` thins numbers, and a category is words, also if it has numbers."""
        missing = missing_values(cells)
        known = cells[~missing]
        about = len(cells), int(missing.sum())
        if cells.dtype.kind == "b":  # as text, which booleans with blanks are
            true = int(known.sum())
            counts = +Counter({"True": true, "False": len(known) - true})
            return cls("text", *about, np.empty(0), counts)
        if cells.dtype.kind == "O":
            counts = Counter(known.tolist())
            if not category:
                check_spelling(name, cells, counts)
            many = len(counts) > max(_TOO_MANY, len(known) / 2)
            if many and (category or _kind_of(counts) == "word"):
                raise _no_categories(name, counts)  # before more of them fill the memory
            return cls("word" if category else "text", *about, np.empty(0), counts)
        kind: Kind = "date" if cells.dtype.kind == "M" else "number"
        return cls(kind, *about, known[::every].astype(np.float64), Counter())

    def __add__(self, other: Seen) -> Seen:
        if self.kind != other.kind:
            raise PolicyError(
                f"parts of one column are {self.kind} and {other.kind}: give them the same type"
            )
        return Seen(
            self.kind,
            self.n_rows + other.n_rows,
            self.n_missing + other.n_missing,
            np.concatenate([self.values, other.values]),
            self.counts + other.counts,
        )


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A raw column as it was when its preparation was made.

    Attributes
    ----------
    name, kind
        The column's name, and whether it has numbers, booleans, dates or words.
    typical
        The median of numbers and of dates (in days since 1970), the more frequent truth value, the
        commonest word. It replaces missing numbers.
    n_missing
        In how many rows the value was missing. If in any, a feature says where it is.
    words, rare
        Words that have a feature each, and those that share one.
    from_text
        Whether the values were text; booleans count as the texts true and false.
    """

    name: str
    kind: Kind
    typical: float | str
    n_missing: int = 0
    words: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    from_text: bool = False

    @classmethod
    def of(cls, name: str, seen: Seen) -> RawColumn:
        """Decide how a column is prepared."""
        kind = _kind_of(seen.counts) if seen.kind == "text" else seen.kind
        if kind == "word":
            common, rare = _common_and_rare(name, seen)
            commonest = next(iter(common + rare), "")
            words = tuple(sorted(common)), tuple(sorted(rare))
            return cls(name, kind, commonest, seen.n_missing, *words)
        from_text, values = seen.kind == "text" and bool(seen.counts), seen.values
        if from_text:
            texts, counts = np.array(list(seen.counts), object), list(seen.counts.values())
            values = np.repeat(_numbers(cls(name, kind, 0.0).read(texts)), counts)
        median = float(np.median(values)) if len(values) else 0.0
        typical = float(median >= 0.5) if kind == "boolean" else median
        return cls(name, kind, typical, seen.n_missing, from_text=from_text)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        names = [self.name]
        if self.kind == "word":
            names = [f"{self.name}={word}" for word in self.words]
            names += [f"{self.name}={OTHERS}"] if self.rare else []
        return (*names, *([f"{self.name} missing"] if self.n_missing else []))

    def read(self, cells: Cells) -> Cells:
        """Return cells as the column's kind has them: floats, days or text."""
        values, wrong = self._parsed(cells)
        if wrong.any():
            row = int(wrong.argmax())
            value = cells[row : row + 1].tolist()[0]
            advice = HOW_TO_WRITE if self.kind == "number" else ""
            raise FeaturesError(
                f"the column {self.name!r} must be {_MUST_BE[self.kind]}, but row {row} has "
                f"{value!r}{advice}"
            )
        return values

    def unreadable(self, cells: Cells) -> dict[int, Any]:
        """Return the rows whose cells cannot be read, with what is in them."""
        rows = np.flatnonzero(self._parsed(cells)[1])
        return dict(zip(rows.tolist(), cells[rows].tolist(), strict=True))

    def _parsed(self, cells: Cells) -> tuple[Cells, NDArray[np.bool_]]:
        """Return cells as the column's kind has them, and where they cannot be read."""
        match self.kind, cells.dtype.kind:
            case "word", kind:
                texts = cells if kind == "O" else _as_text(cells)
                return texts, np.zeros(len(cells), dtype=np.bool_)
            case "date", kind:
                values = cells if kind == "M" else days_of(cells)
            case _, "O" | "M":
                values = np.array([self._number(value) for value in cells.tolist()])
            case _:
                values = cells.astype(np.float64, copy=False)
        good = np.isin(values, (0.0, 1.0)) if self.kind == "boolean" else np.isfinite(values)
        return values, ~good & ~missing_values(cells)

    def _number(self, value: Any) -> float:
        if self.kind == "boolean" and isinstance(value, str):
            value = _TRUTH.get(value.strip().lower(), value)
        return as_number(value)

    @property
    def reference(self) -> Floats:
        """The features of a person with the typical value."""
        found = np.zeros(len(self.feature_names))
        if self.kind != "word":
            found[0] = self.typical
        elif self.typical in self.words:
            found[self.words.index(self.typical)] = 1.0
        return found

    def value_of(self, features: Floats) -> float | str:
        """Return one person's value from their features: a number, a word or a date."""
        if self.n_missing and features[-1]:
            return "missing"
        if self.kind == "word":
            words = [*self.words, *([OTHERS] if self.rare else [])]
            known = features[: len(words)]
            return words[int(known.argmax())] if known.any() else "another word"
        if self.kind == "date":
            return str(np.datetime64(round(features[0]), "D"))
        if self.kind == "boolean":
            return "true" if features[0] else "false"
        return float(features[0])

    def write_features(self, cells: Cells, out: Floats) -> dict[str, int]:
        """Write one row per feature, and return unknown words with their numbers of rows.

        Cells are as `read` returns them. The empty text stands for values that are missing although
        none were before.
        """
        missing = missing_values(cells)
        if self.kind == "word":
            unknown = self._write_indicators(cells, missing, out)
        else:
            unknown = {}
            out[0] = _numbers(cells)
            out[0, missing] = self.typical
        if self.n_missing:
            out[-1] = missing
        elif missing.any():
            unknown[""] = int(missing.sum())
        return unknown

    def _write_indicators(
        self, cells: Cells, missing: NDArray[np.bool_], out: Floats
    ) -> dict[str, int]:
        others = len(self.words)
        place = {word: k for k, word in enumerate(self.words)} | dict.fromkeys(self.rare, others)
        codes = np.array([place.get(word, -1) for word in cells.tolist()], dtype=np.intp)
        unknown = codes < 0
        if self.rare:
            codes[unknown] = others
        if self.n_missing:
            codes[missing] = -1  # they have a feature of their own
        rows = np.flatnonzero(codes >= 0)
        out[...] = 0.0
        out[codes[rows], rows] = 1.0
        return dict(Counter(cells[unknown & ~missing].tolist()))


def _kind_of(counts: Counter[str]) -> Kind:
    """Return the kind of values in a column of text; numbers if it is empty."""
    if all(text.strip().lower() in _TRUTH for text in counts) and counts:
        return "boolean"
    if all(is_number(text) and not is_code(text) for text in counts):
        return "number"
    return "word" if as_dates(list(counts)) is None else "date"


def _common_and_rare(name: str, seen: Seen) -> tuple[list[str], list[str]]:
    """Return the words that have a feature each, and the others; the most frequent first."""
    least = min(_FEW_ROWS, seen.n_rows // 100)
    ordered = sorted(seen.counts, key=lambda word: (-seen.counts[word], word))
    common = [word for word in ordered if seen.counts[word] >= least][:_MOST_WORDS]
    if len(ordered) > _MOST_WORDS and (not common or len(ordered) > seen.counts.total() / 2):
        raise _no_categories(name, seen.counts)
    return common, ordered[len(common) :]


def _no_categories(name: str, counts: Counter[str]) -> PolicyError:
    return PolicyError(
        f"the column {name!r} has {len(counts)} different values in {counts.total()} rows: names "
        "and numbers of cases are no categories to learn from; group them, or leave the column out"
    )


def _numbers(values: Cells) -> Floats:
    """Return floats; days as their number since 1970, NaN where missing."""
    if values.dtype.kind != "M":
        return values
    days: Floats = values.astype("datetime64[D]").astype(np.float64)
    return np.where(np.isnat(values), np.nan, days)


def _as_text(cells: Cells) -> NDArray[Any]:
    """Return numbers, booleans or dates as the words they would be in text."""
    whole = cells.dtype.kind == "f"
    texts = [str(int(v)) if whole and v == v and v.is_integer() else str(v) for v in cells.tolist()]
    found = np.array(texts, dtype=object)
    found[missing_values(cells)] = None
    return found
