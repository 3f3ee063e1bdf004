"""Features: what a rule looks at, as matrices whose columns it finds by name, and group codes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_PLACEHOLDERS = ("x", "Column_")  # what we and LightGBM call the columns of an array


class PolicyError(ValueError):
    """A policy was built, used or stored in a way that cannot work."""


class FeaturesError(PolicyError):
    """A rule was asked about people without the features it looks at."""


class NamedFeatures(np.ndarray[Any, np.dtype[np.float64]]):
    """A matrix of features that knows the names of its columns.

    A log passes it to rules, so that each rule finds its own columns, also a rule inside another
    rule. Slices of it, and what is computed from it, have no names.

    Examples
    --------
    >>> import consequential as cq
    >>> from consequential.policies import NamedFeatures
    >>> people = NamedFeatures([[10.0, 0.0]], ["debt", "income"])
    >>> cq.Policy([0.0, 1.0, 0.0], feature_names=["income", "debt"]).propensity(people)
    array([0.5])
    """

    names: tuple[str, ...]

    def __new__(cls, matrix: ArrayLike, names: Sequence[str]) -> NamedFeatures:
        """Return a view of the matrix with names."""
        named = as_features(matrix).view(cls)
        named.names = tuple(names)
        return named

    def __array_finalize__(self, parent: Any) -> None:
        self.names = ()

    def __reduce__(self) -> Any:
        return NamedFeatures, (np.asarray(self), self.names)


def as_features(features: ArrayLike) -> Floats:
    """Return features as a float matrix, one row per person; a vector is one feature."""
    matrix = np.asarray(features, dtype=np.float64)
    if matrix.ndim not in (1, 2):
        raise PolicyError(f"features is one row per person, not of shape {matrix.shape}")
    return matrix[:, None] if matrix.ndim == 1 else matrix


def numbered_names(n: int) -> tuple[str, ...]:
    """Return names for the columns of an array without names: x0, x1, ..."""
    return tuple(f"x{k}" for k in range(n))


def matched_features(features: Any, names: Sequence[str]) -> Floats:
    """Return the columns of a matrix or a data frame that a rule looks at, in its order.

    Columns are matched by name. By position, which needs as many columns as the rule looks at,
    only where one side has no names: a plain array, or placeholders for one (x0, x1, ...). An
    indicator `column=word` of a word that no row has is 0.
    """
    frame = _as_frame(features) if names else None
    if frame is None:
        return _matched_columns(features, tuple(names))
    if _placeholders(names):
        return _matched_columns(feature_matrix(frame, frame.columns), tuple(names))
    return feature_matrix(frame, names)


def matched_frame(features: Any, names: Sequence[str]) -> Any:
    """Return the same as a data frame, for predictors that were fitted to one."""
    import narwhals as nw

    frame = _as_frame(features)
    if frame is None:
        backend: Literal["pandas", "pyarrow"] = "pandas" if find_spec("pandas") else "pyarrow"
        matrix = _matched_columns(features, tuple(names))
        return nw.from_numpy(matrix, list(names), backend=backend).to_native()
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise PolicyError(f"no column {missing[0]!r} in the frame; it has {frame.columns}")
    return frame.select(*names).to_native()


def counted_columns(matrix: Floats) -> str:
    """Say how many columns a matrix has."""
    n = matrix.shape[1]
    return "there is 1 column" if n == 1 else f"there are {n} columns"


def _as_frame(features: Any) -> Any:
    """Return a narwhals frame, or None for what is not a data frame."""
    import narwhals as nw

    if isinstance(features, np.ndarray):  # the usual case, and the fastest
        return None
    frame = nw.from_native(features, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def _placeholders(names: Sequence[str]) -> bool:
    """Whether names say nothing: there are none, or they only number the columns."""
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
        return np.column_stack([_column(matrix, names, name) for name in wanted])
    if matrix.shape[1] != len(wanted):
        listed = ", ".join(wanted[:5]) + (", ..." if len(wanted) > 5 else "")
        count = f"{len(wanted)} feature{'s' if len(wanted) != 1 else ''} ({listed})"
        raise FeaturesError(f"the rule looks at {count}, but {counted_columns(matrix)}")
    return matrix


def _column(matrix: Floats, names: tuple[str, ...], name: str) -> Floats:
    if name in names:
        return matrix[:, names.index(name)]
    variable, equals, _ = name.partition("=")
    words = [k for k, other in enumerate(names) if equals and other.startswith(f"{variable}=")]
    # no row has the word if every row has one of the others
    if words and (matrix[:, words].sum(axis=1) == 1.0).all():
        return np.zeros(len(matrix))
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
            raise PolicyError(f"the feature {name!r} has type {dtype}, not numbers or words")
        return np.asarray(frame[name].cast(nw.Float64).to_numpy(), dtype=np.float64)
    column, _, word = name.partition("=")
    if not word or column not in frame.columns:
        raise PolicyError(f"no column {name!r} in the frame; it has {frame.columns}")
    return np.array([str(value) == word for value in frame[column].to_list()], dtype=np.float64)


def is_words(column: Any) -> bool:
    """Whether a narwhals column holds words, not numbers."""
    import narwhals as nw

    return any(column.dtype == kind for kind in (nw.String, nw.Categorical, nw.Enum, nw.Object))


def plain_groups(groups: Any) -> tuple[Hashable, ...]:
    """Return groups as a tuple of Python values, each of them once."""
    names = tuple(groups.tolist() if hasattr(groups, "tolist") else groups)
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise PolicyError(f"the sensitive group {twice[0]!r} is given twice in {list(names)}")
    return names


def group_codes(sensitive: ArrayLike, groups: Sequence[Hashable]) -> NDArray[np.intp]:
    """Return the position of each row's group among `groups`."""
    values = np.asarray(sensitive)
    codes = np.full(values.shape, -1, dtype=np.intp)
    for code, group in enumerate(groups):
        codes[values == group] = code
    if codes.size and codes.min() < 0:
        unknown = values[codes < 0].tolist()[0]
        raise PolicyError(f"unknown sensitive group {unknown!r}; known: {list(groups)}")
    return codes


def sensitive_codes(
    sensitive: ArrayLike | None, groups: Sequence[Hashable], n: int
) -> NDArray[np.intp]:
    """Return the position of each of n people's group among those of a policy that has groups."""
    if sensitive is None:
        raise PolicyError(
            "this policy uses the sensitive attribute: pass `sensitive`, one value per row"
        )
    codes = group_codes(sensitive, groups)
    if codes.shape != (n,):
        raise PolicyError(
            f"sensitive has shape {codes.shape} but features has {n} rows: "
            "one value per row is needed"
        )
    return codes
