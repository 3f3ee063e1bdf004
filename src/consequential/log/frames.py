"""Data frames of any library, from which logs are built and to which they are converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log.columns import check_spelling
from consequential.log.errors import DecisionLogError
from consequential.log.estimation import EstimatedPropensity
from consequential.policies import PolicyError, feature_matrix, is_words

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog

# a column with more different words is a name or an address, not a category
_MOST_CATEGORIES = 50


def frame_columns(
    frame: Any, features: Sequence[str], **named: str | EstimatedPropensity | None
) -> tuple[NDArray[Any], list[str], dict[str, Any]]:
    """Return the feature matrix, the features' names, and the named columns of a frame.

    A column of words becomes one indicator per word. An estimator in a column's place stays there.
    """
    import narwhals as nw

    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        raise DecisionLogError(
            f"{type(frame).__name__} is not a data frame that narwhals knows "
            f"(pandas, polars, pyarrow): {error}"
        ) from None
    check_features_are_listed(features)
    wanted = {role: name for role, name in named.items() if isinstance(name, str)}
    unknown = [name for name in wanted.values() if name not in table.columns]
    if unknown:
        raise DecisionLogError(f"no column {unknown[0]!r} in the frame; it has {table.columns}")
    names = feature_names(table, list(features))
    try:
        matrix = feature_matrix(table, names)
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None
    return matrix, names, named | {role: _values(table[name]) for role, name in wanted.items()}


def check_features_are_listed(features: Sequence[str]) -> None:
    """Refuse a single name in place of a list of names, and an empty list."""
    if isinstance(features, str):
        raise DecisionLogError(f"features is a list of columns: write features=[{features!r}]")
    if len(features) == 0:
        raise DecisionLogError("features is empty: name at least one column")


def feature_names(frame: Any, features: Sequence[str]) -> list[str]:
    """Return the features' names, each column of words replaced by one indicator per word."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    names: list[str] = []
    for name in features:
        if name not in table.columns or not is_words(table[name]):
            names.append(name)
            continue
        values = table[name].to_list()
        check_spelling(name, values)
        missing = np.asarray(table[name].is_null().to_numpy(), dtype=np.bool_)
        if missing.any():
            count = "1 row" if missing.sum() == 1 else f"{missing.sum()} rows"
            raise DecisionLogError(
                f"the column {name!r} is missing in {count} (first: row {missing.argmax()}): name "
                "a category for them, say 'unknown'"
            )
        names += indicator_names(name, {str(word) for word in values})
    return names


def indicator_names(name: str, words: set[str]) -> list[str]:
    """Return the name of one indicator per word of a column."""
    if len(words) > _MOST_CATEGORIES:
        raise DecisionLogError(
            f"the column {name!r} has {len(words)} different values: more than "
            f"{_MOST_CATEGORIES} are no categories to learn from; group them"
        )
    return [f"{name}={word}" for word in sorted(words)]


def _values(series: Any) -> NDArray[Any]:
    import narwhals as nw

    dtype = series.dtype
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        series = series.dt.replace_time_zone(None)  # the day it was there
    if dtype.is_numeric() and series.is_null().any():
        series = series.cast(nw.Float64)
    if dtype.is_temporal() or dtype.is_numeric():
        return np.asarray(series.to_numpy())
    return np.array(series.to_list(), dtype=object)


def to_frame(log: DecisionLog, backend: Literal["pyarrow", "pandas", "polars"] = "pyarrow") -> Any:
    """Return the rows as a data frame; unknown labels are missing values."""
    columns: dict[str, NDArray[Any]] = {}
    if len(log.groups) > 1:
        columns["sensitive"] = log.sensitive
    columns |= {
        "decision": log.decision.astype(np.int8),
        "propensity": log.propensity,
        "label": log.label,
        "time_step": log.time_step,
    }
    for name in ("amount", "cost", "observed"):
        if getattr(log, name) is not None:
            columns[name] = getattr(log, name)
    features = {name: log.features[:, k] for k, name in enumerate(log.feature_names)}
    clash = sorted(features.keys() & columns.keys())
    if clash:
        raise DecisionLogError(f"the feature {clash[0]!r} has the name of a column: rename it")
    return make_frame(features | columns, backend)


def make_frame(columns: dict[str, NDArray[Any]], backend: str) -> Any:
    """Return columns as a native frame of the library named; NaN in `label` becomes missing."""
    import narwhals as nw
    import pyarrow as pa

    if backend not in ("pyarrow", "pandas", "polars"):
        raise ValueError(f"unknown backend {backend!r}; choose pyarrow, pandas or polars")
    table = pa.table(
        {name: pa.array(values, from_pandas=name == "label") for name, values in columns.items()}
    )
    frame = nw.from_native(table, eager_only=True)
    return table if backend == "pyarrow" else getattr(frame, f"to_{backend}")()
