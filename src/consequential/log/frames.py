"""Logs in and out of data frames and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.checks import PropensityEstimator
from consequential.log.errors import DecisionLogError
from consequential.log.numbers import check_spelling
from consequential.policies import PolicyError, expanded_names, feature_matrix, is_words

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog


def frame_columns(
    frame: Any, features: Sequence[str], **named: str | PropensityEstimator | None
) -> tuple[NDArray[Any], list[str], dict[str, Any]]:
    """Feature matrix, the features' names, and named columns of a frame of any library.

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
    if isinstance(features, str):
        raise DecisionLogError(f"features is a list of columns: write features=[{features!r}]")
    estimated = {key: it for key, it in named.items() if isinstance(it, PropensityEstimator)}
    wanted = {key: name for key, name in named.items() if key not in estimated}
    unknown = [name for name in wanted.values() if name is not None and name not in table.columns]
    if unknown:
        raise DecisionLogError(f"no column {unknown[0]!r} in the frame; it has {table.columns}")
    names = feature_names(table, list(features))
    try:
        matrix = feature_matrix(table, names)
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None
    columns = {key: None if name is None else _values(table[name]) for key, name in wanted.items()}
    return matrix, names, columns | estimated


def feature_names(frame: Any, features: Sequence[str]) -> list[str]:
    """Return the features' names, each column of words replaced by one indicator per word."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    if not features:
        raise DecisionLogError("features is empty: name at least one column")
    for name in features:
        if name in table.columns and is_words(table[name]):
            check_spelling(name, table[name].to_list())
    try:
        return expanded_names(table, features)
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None


def _numeric(series: Any) -> NDArray[np.float64]:
    import narwhals as nw

    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _values(series: Any) -> NDArray[Any]:
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_temporal():
        if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
            series = series.dt.replace_time_zone(None)  # the day it was there
        return np.asarray(series.to_numpy())
    if dtype.is_numeric():
        return _numeric(series) if series.is_null().any() else np.asarray(series.to_numpy())
    return np.array(series.to_list(), dtype=object)


def log_frame(log: DecisionLog, backend: str) -> Any:
    """Return the rows of a log as a native frame; unknown labels are missing values."""
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
    """Columns as a native frame of the library named; NaN in `label` becomes missing."""
    import narwhals as nw
    import pyarrow as pa

    arrays = {
        name: pa.array(values, from_pandas=(name == "label")) for name, values in columns.items()
    }
    table = pa.table(arrays)
    if backend == "pyarrow":
        return table
    frame = nw.from_native(table, eager_only=True)
    if backend == "pandas":
        return frame.to_pandas()
    if backend == "polars":
        return frame.to_polars()
    raise ValueError(f"unknown backend {backend!r}; choose pyarrow, pandas or polars")
