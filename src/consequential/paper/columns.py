"""Columns: arrays of equal length in one Parquet file, whole and to the last bit."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log.frames import make_frame
from consequential.policies import write_whole
from consequential.simulation import RunsError


def write_columns(path: str | os.PathLike[str], columns: dict[str, NDArray[Any]]) -> None:
    """Write arrays; equal arrays make equal bytes."""
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(make_frame(columns, "pyarrow"), buffer)
    write_whole(path, buffer.getvalue())


def read_columns(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read what `write_columns` wrote."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunsError(f"{os.fspath(path)} is damaged or no Parquet file: {error}") from None
    return {
        name: table[name].combine_chunks().to_numpy(zero_copy_only=False)
        for name in table.column_names
    }


def joined(pieces: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return the rows of several pieces one after the other."""
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
