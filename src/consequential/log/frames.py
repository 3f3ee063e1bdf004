"""Logs in and out of data frames and files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.checks import DecisionLogError, PropensityEstimator
from consequential.policies import PolicyError, expanded_names, feature_matrix


def frame_columns(
    frame: Any, features: Sequence[str], **named: str | PropensityEstimator | None
) -> tuple[NDArray[Any], list[str], dict[str, Any]]:
    """Feature matrix, the features' names, and named columns of a frame of any library.

    A column of words becomes one indicator a word. An estimator in a column's place stays there.
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
    features = list(features)
    if not features:
        raise DecisionLogError("features is empty: name at least one column")
    try:
        names = expanded_names(table, features)
        matrix = feature_matrix(table, names)
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None
    columns = {key: None if name is None else _values(table[name]) for key, name in wanted.items()}
    return matrix, names, columns | estimated


def _numeric(series: Any) -> NDArray[np.float64]:
    import narwhals as nw

    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _values(series: Any) -> NDArray[Any]:
    dtype = series.dtype
    if dtype.is_numeric():
        return _numeric(series) if series.is_null().any() else np.asarray(series.to_numpy())
    return np.array(series.to_list(), dtype=object)


def read_table(path: str | os.PathLike[str]) -> Any:
    """A CSV or Parquet file as a pyarrow table, by its ending."""
    import pyarrow.csv
    import pyarrow.parquet

    if not Path(path).exists():
        raise FileNotFoundError(f"no file {os.fspath(path)!r}")
    with read_damage(os.fspath(path)):
        if Path(path).suffix.lower() == ".parquet":
            return pyarrow.parquet.read_table(path)
        return pyarrow.csv.read_csv(
            path, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True)
        )


@contextmanager
def read_damage(where: str) -> Iterator[None]:
    """Say where a file could not be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DecisionLogError(f"{where} cannot be read: {error}") from None


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
