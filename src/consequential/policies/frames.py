"""Features out of data frames, by name; a category is an indicator of its own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.policies.features import PolicyError, made_up, own_columns

# a column with more different words is a name or an address, not a category
MOST_CATEGORIES = 50
_ROWS = 4096  # of a matrix that stay in the cache while columns are put side by side


def named_features(features: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the columns of a data frame or a matrix that a rule looks at, found by name."""
    frame = _as_frame(features) if names else None
    if frame is not None and made_up(names):
        return own_columns(feature_matrix(frame, frame.columns), names)
    return own_columns(features, names) if frame is None else feature_matrix(frame, names)


def named_frame(features: Any, names: Sequence[str]) -> Any:
    """Return the same as a data frame, which predictors that know names ask for."""
    import narwhals as nw

    frame = _as_frame(features)
    if frame is None:
        backend: Literal["pandas", "pyarrow"] = "pandas" if find_spec("pandas") else "pyarrow"
        matrix = own_columns(features, names)
        return nw.from_numpy(matrix, list(names), backend=backend).to_native()
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise PolicyError(f"no column {missing[0]!r} in the frame; it has {frame.columns}")
    return frame.select(*names).to_native()


def _as_frame(features: Any) -> Any:
    """A narwhals frame, or None where something is no data frame."""
    import narwhals as nw

    if isinstance(features, np.ndarray):  # the usual case, and the fastest
        return None
    frame = nw.from_native(features, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def feature_matrix(frame: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """Return columns of a narwhals frame; `column=word` is 1 where the column has the word."""
    columns = [_feature(frame, name) for name in names]
    matrix = np.empty((len(frame), len(columns)))
    for start in range(0, len(matrix), _ROWS):
        part = matrix[start : start + _ROWS]
        for k, column in enumerate(columns):
            part[:, k] = column[start : start + _ROWS]
    return matrix


def expanded_names(frame: Any, names: Sequence[str]) -> list[str]:
    """Return features' names with each column of words replaced by one indicator a word."""
    expanded: list[str] = []
    for name in names:
        if name not in frame.columns or not is_words(frame[name]):
            expanded.append(name)
            continue
        column = frame[name]
        missing = np.asarray(column.is_null().to_numpy(), dtype=np.bool_)
        if missing.any():
            count = "1 row" if missing.sum() == 1 else f"{missing.sum()} rows"
            raise PolicyError(
                f"the column {name!r} is missing in {count} (first: row {missing.argmax()}): name "
                "a category for them, say 'unknown'"
            )
        words = sorted({str(word) for word in column.unique().to_list()})
        if len(words) > MOST_CATEGORIES:
            raise PolicyError(
                f"the column {name!r} has {len(words)} different values: more than "
                f"{MOST_CATEGORIES} are no categories to learn from; group them"
            )
        expanded += [f"{name}={word}" for word in words]
    return expanded


def _feature(frame: Any, name: str) -> NDArray[np.float64]:
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
