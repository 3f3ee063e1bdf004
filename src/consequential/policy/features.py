"""Features: what a rule looks at, as matrices whose columns it finds by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from consequential.policy.preparation import Preparation

Floats = NDArray[np.float64]

_PLACEHOLDERS = ("x", "Column_")  # what we and LightGBM call the columns of an array
OTHERS = "other words"  # the one feature of all rare words of a column
_SHOWN = 3  # unknown words of a column that are named


class PolicyError(ValueError):
    """A policy was built, used or stored in a way that cannot work."""


class FeaturesError(PolicyError):
    """A rule was asked about people without the features it looks at."""


class NamedFeatures(np.ndarray[Any, np.dtype[np.float64]]):
    """A matrix of features that knows the names of its columns, and what it was prepared from.

    A log passes it to rules, so that each rule finds its own columns, also a rule inside another
    rule. Slices of it, and what is computed from it, have no names.

    Attributes
    ----------
    names
        Those of the columns.
    preparation
        What made the columns of raw ones; None where nothing did.
    raw
        The raw columns that the matrix does not have: words, dates, numbers with blanks.
    unknown
        For each raw column the words in it that the preparation has never seen, and in how many
        rows; the empty text stands for a missing value in a column that never lacked one.

    Examples
    --------
    >>> import consequential as cq
    >>> from consequential.policy import NamedFeatures
    >>> people = NamedFeatures([[10.0, 0.0]], ["debt", "income"])
    >>> cq.Policy([0.0, 1.0, 0.0], feature_names=["income", "debt"]).propensity(people)
    array([0.5])
    """

    names: tuple[str, ...]
    preparation: Preparation | None
    raw: Mapping[str, NDArray[Any]]
    unknown: Mapping[str, Mapping[str, int]]

    def __new__(
        cls,
        matrix: ArrayLike,
        names: Sequence[str],
        preparation: Preparation | None = None,
        raw: Mapping[str, NDArray[Any]] | None = None,
        unknown: Mapping[str, Mapping[str, int]] | None = None,
    ) -> NamedFeatures:
        """Return a view of the matrix with names."""
        named = as_features(matrix).view(cls)
        named.names, named.preparation = tuple(names), preparation
        named.raw, named.unknown = raw or {}, unknown or {}
        return named

    def __array_finalize__(self, parent: Any) -> None:
        self.names, self.preparation, self.raw, self.unknown = (), None, {}, {}

    def __reduce__(self) -> Any:
        about = self.names, self.preparation, self.raw, self.unknown
        return NamedFeatures, (np.asarray(self), *about)

    def raw_columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]] | None:
        """Return raw columns; None where one of them is not known."""
        known = set(self.names) | set(self.raw)
        if not known.issuperset(names):
            return None
        matrix = np.asarray(self)
        return {
            name: self.raw[name] if name in self.raw else matrix[:, self.names.index(name)]
            for name in names
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each value in raw columns that the preparation has never seen."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        for column, counts in self.unknown.items():
            for word, count in sorted(counts.items(), key=lambda each: -each[1])[:_SHOWN]:
                rows = "1 row has" if count == 1 else f"{count} rows have"
                others = f"{column}={OTHERS}"
                instead = repr(others) if others in self.names else "none of the words it knows"
                if word:
                    yield (
                        f"{rows} the {column} {word!r}, which the policy has never seen: it counts "
                        f"as {instead}"
                    )
                else:
                    yield f"{rows} no {column}, which nobody lacked whom the policy learned from"


def unmasked(values: Any) -> Any:
    """Return values, and NaN or NaT where NumPy has masked them."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    kind, data = values.dtype.kind, values.data
    blank = np.array("NaT", values.dtype) if kind in "mM" else np.nan
    data = data if kind in "biufmM" else data.astype(object)
    return np.where(np.ma.getmaskarray(values), blank, data)


def as_features(features: ArrayLike) -> Floats:
    """Return features as a float matrix, one row per person; a vector is one feature."""
    try:
        given = np.asarray(unmasked(features))
        if given.dtype.kind in "cmM":  # NumPy would drop imaginary parts, and count nanoseconds
            raise TypeError(f"they are {given.dtype}")
        matrix = given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise PolicyError(f"features must be numbers, as many in every row: {error}") from None
    if matrix.ndim not in (1, 2):
        raise PolicyError(f"features is one row per person, not of shape {matrix.shape}")
    return matrix[:, None] if matrix.ndim == 1 else matrix


def numbered_names(n: int) -> tuple[str, ...]:
    """Return names for the columns of an array without names: x0, x1, ..."""
    return tuple(f"x{k}" for k in range(n))


def is_table(features: Any) -> bool:
    """Whether people come in a data frame, a dict (one person) or a list of dicts."""
    return is_records(features) or as_frame(features) is not None


def row_products(matrix: Floats, vector: Floats) -> Floats:
    """Return the product of each row with a vector, in the same bits alone as among other rows.

    BLAS does not promise that: it adds in another order when there are more rows.
    """
    found: Floats = np.einsum("ij,j->i", np.ascontiguousarray(matrix), vector)
    return found


def row_keys(matrix: Floats) -> list[bytes]:
    """Return bytes for each row that are equal where rows are."""
    whole = np.ascontiguousarray(matrix, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    keys: list[bytes] = whole.view(f"V{8 * whole.shape[1]}").ravel().tolist()
    return keys


def matched_features(features: Any, names: Sequence[str]) -> Floats:
    """Return the columns of a matrix, a data frame or records that a rule looks at, in its order.

    Columns are matched by name. By position, which needs as many columns as the rule looks at,
    only where one side has no names: a plain array, or placeholders for one (x0, x1, ...). An
    indicator `column=word` is 1 where a raw column says the word. A frame or a record has the
    columns that the rule looks at, and no others.
    """
    frame = as_frame(features)
    if frame is None:
        return _matched_columns(features, tuple(names))
    if not names or (_placeholders(names) and not set(names) <= set(frame.columns)):
        if is_records(features):
            raise FeaturesError(
                "the rule was learned from an array and knows no names for its features: give "
                "people as rows of numbers, in the same order"
            )
        return _matched_columns(feature_matrix(frame, frame.columns), tuple(names))
    check_columns(frame, names)
    return feature_matrix(frame, names)


def matched_frame(features: Any, names: Sequence[str]) -> Any:
    """Return the same as a data frame, for predictors that were fitted to one."""
    frame = as_frame(features)
    if frame is None:
        if isinstance(features, NamedFeatures) and not set(names) <= set(features.names):
            raw = features.raw_columns(names)  # a predictor may prepare them itself
            if raw is not None:
                return _made_frame(raw)
        return framed(_matched_columns(features, tuple(names)), names)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise PolicyError(f"no column {missing[0]!r} in the frame; it has {frame.columns}")
    check_columns(frame, names)
    found = frame.select(*names)
    if found.implementation.is_pyarrow() and find_spec("pandas"):
        return found.to_pandas()  # scikit-learn's ColumnTransformer does not know pyarrow
    return found.to_native()


def check_columns(features: Any, names: Sequence[str]) -> None:
    """Refuse a frame or records with columns that a rule with these features does not look at."""
    frame = as_frame(features)
    if frame is None or _placeholders(names):
        return
    looked_at = table_columns(names, frame.columns)
    others = [name for name in frame.columns if name not in looked_at]
    if others:
        raise FeaturesError(
            f"the rule does not look at {', '.join(map(repr, others))}: give the columns that it "
            f"looks at and no others ({', '.join(looked_at)}), so that none is mistaken for another"
        )


def columns_for(features: Any, names: Sequence[str]) -> Any:
    """Return the columns of a frame or records that these features need, for an inner rule.

    Anything without named columns is returned unchanged.
    """
    frame = as_frame(features)
    if frame is None or _placeholders(names):
        return features
    wanted = table_columns(names, frame.columns)
    return frame.select(*(name for name in frame.columns if name in wanted)).to_native()


def table_columns(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that features are made of, `purpose` for `purpose=car` and `purpose=tv`.

    A feature whose whole name is among the known columns is that column.
    """
    found = (name if name in known else name.partition("=")[0] for name in names)
    return tuple(dict.fromkeys(found))


def count_people(features: Any) -> int:
    """Return how many people a matrix, a data frame or records describe."""
    frame = as_frame(features)
    return len(as_features(features)) if frame is None else len(frame)


def check_finite(matrix: Floats, names: Sequence[str]) -> None:
    """Refuse features that are missing or infinite, and say which and whose."""
    if np.isfinite(matrix).all():
        return
    row, column = (int(place) for place in np.argwhere(~np.isfinite(matrix))[0])
    name = names[column] if column < len(names) else f"x{column}"
    raise FeaturesError(
        f"features must be finite: {name!r} of row {row} is {matrix[row, column]}. Impute missing "
        "values before deciding"
    )


def framed(matrix: Floats, names: Sequence[str]) -> Any:
    """Return a matrix as a data frame."""
    if matrix.shape[1] != len(names):
        raise FeaturesError(
            f"{len(names)} columns are needed ({', '.join(names)}), but {counted_columns(matrix)}"
        )
    return _made_frame(dict(zip(names, np.asarray(matrix).T, strict=True)))


def _made_frame(columns: Mapping[str, NDArray[Any]]) -> Any:
    import narwhals as nw

    backend: Literal["pandas", "pyarrow"] = "pandas" if find_spec("pandas") else "pyarrow"
    return nw.from_dict(columns, backend=backend).to_native()


def counted_columns(matrix: Floats) -> str:
    """Say how many columns a matrix has."""
    n = matrix.shape[1]
    return "there is 1 column" if n == 1 else f"there are {n} columns"


def as_frame(features: Any) -> Any:
    """Return a data frame or records as a narwhals frame, and None for anything else.

    A record is a dict, one value per column; one dict is one person, a list of them several.
    """
    if is_records(features):
        features = _table(record_columns(features))
    elif isinstance(features, np.ndarray | list | tuple):  # the usual case, and the fastest
        return None
    import narwhals as nw

    try:
        frame = nw.from_native(features, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise FeaturesError(f"two columns of the frame have one name. {error}") from None
    return frame if isinstance(frame, nw.DataFrame) else None


def is_records(features: Any) -> bool:
    """Whether people come in a dict (one person) or a list of dicts."""
    is_list = isinstance(features, list | tuple) and len(features) > 0
    return isinstance(features, Mapping) or (is_list and isinstance(features[0], Mapping))


def record_columns(records: Any) -> dict[str, list[Any]]:
    """Return the values of a dict (one person) or a list of dicts by column."""
    people = [records] if isinstance(records, Mapping) else records
    for row, person in enumerate(people):
        if not isinstance(person, Mapping):
            raise FeaturesError(f"row {row} is not a dict with one value per column")
    names = dict.fromkeys(name for person in people for name in person)
    for row, person in enumerate(people):
        if len(person) < len(names):
            missing = next(name for name in names if name not in person)
            raise FeaturesError(
                f"row {row} has no column {missing!r}, which others have: give None where a value "
                "is missing"
            )
    return {name: [person[name] for person in people] for name in names}


def _table(columns: Mapping[str, list[Any]]) -> Any:
    import pyarrow as pa

    def array(name: str) -> Any:
        try:
            values = pa.array(columns[name], from_pandas=True)  # NaN among words is missing
        except (pa.ArrowException, OverflowError) as error:
            raise FeaturesError(f"{name!r} has values of several kinds: {error}") from None
        return values.cast(pa.float64()) if pa.types.is_null(values.type) else values

    return pa.table({str(name): array(name) for name in columns})


def _placeholders(names: Sequence[str]) -> bool:
    """Whether there are no names, or names that only number the columns."""
    return any(all(name == f"{word}{k}" for k, name in enumerate(names)) for word in _PLACEHOLDERS)


def _matched_columns(features: ArrayLike, wanted: tuple[str, ...]) -> Floats:
    matrix = as_features(features)
    names: tuple[str, ...] = getattr(features, "names", ())
    if not wanted or wanted == names:
        return matrix
    nameless = _placeholders(wanted), _placeholders(names)
    if set(wanted) <= set(names) and not all(nameless):
        return matrix[:, [names.index(name) for name in wanted]]
    if not any(nameless):
        raw: Mapping[str, NDArray[Any]] = getattr(features, "raw", {})
        columns = np.array([_column(matrix, names, raw, name) for name in wanted])
        return np.ascontiguousarray(columns.T)  # several times faster than np.column_stack
    if matrix.shape[1] != len(wanted):
        listed = ", ".join(wanted[:5]) + (", ..." if len(wanted) > 5 else "")
        count = f"{len(wanted)} feature{'s' if len(wanted) != 1 else ''} ({listed})"
        raise FeaturesError(f"the rule looks at {count}, but {counted_columns(matrix)}")
    return matrix


def _column(
    matrix: Floats, names: tuple[str, ...], raw: Mapping[str, NDArray[Any]], name: str
) -> Floats:
    if name in names:
        return matrix[:, names.index(name)]
    column, word = _split_indicator(name, [each for each in raw if raw[each].dtype == object])
    if column:
        return np.asarray(raw[column] == word, dtype=np.float64)
    raise FeaturesError(
        f"no feature {name!r}, which the rule looks at; there are {', '.join(names)}"
    )


def feature_matrix(frame: Any, names: Sequence[str]) -> Floats:
    """Return columns of a narwhals frame; `column=word` is 1 where the column has the word."""
    columns = np.array([_feature(frame, name) for name in names]).reshape(len(names), len(frame))
    return np.ascontiguousarray(columns.T)  # several times faster than np.column_stack


def _feature(frame: Any, name: str) -> Floats:
    import narwhals as nw

    if name in frame.columns:
        dtype = frame[name].dtype
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            raise PolicyError(f"the feature {name!r} has type {dtype}, not numbers")
        return np.asarray(frame[name].cast(nw.Float64).to_numpy(), dtype=np.float64)
    column, word = _split_indicator(name, frame.columns)
    if not column:
        raise PolicyError(f"no column {name!r} in the frame; it has {frame.columns}")
    missing = frame[column].is_null().to_numpy()
    if missing.any():
        raise FeaturesError(f"the column {column!r} is missing in row {int(missing.argmax())}")
    return np.array([str(value) == word for value in frame[column].to_list()], dtype=np.float64)


def _split_indicator(name: str, columns: Sequence[str]) -> tuple[str, str]:
    """Return the column and the word of an indicator `column=word`; empty where there is none."""
    column = max((each for each in columns if name.startswith(f"{each}=")), key=len, default="")
    return column, name[len(column) + 1 :]
