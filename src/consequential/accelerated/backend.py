"""JAX, imported where it is first used, so that the package can be imported without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.learning.ascent import Schedule


def needed(library: str) -> Any:
    """Return an optional library, or say how to get it."""
    try:
        return importlib.import_module(library)
    except ImportError as missing:
        raise ImportError(f"this needs {library}: pip install consequential[jax]") from missing


@cache
def compiled(function: Callable[..., Any], *static: str, donate: str | None = None) -> Any:
    """Return a compiled function, one for each function and its static arguments.

    It may write its result into the argument it is to `donate`.
    """
    given = () if donate is None else (donate,)
    return needed("jax").jit(function, static_argnames=static, donate_argnames=given)


def round_length(n: int) -> int:
    """Return the next power of two: logs of about the same size share a compiled loop."""
    return 1 << max(n - 1, 0).bit_length()


def pad(column: NDArray[Any], length: int) -> NDArray[Any]:
    """Return the column with zeros below it."""
    padded = np.zeros((length, *column.shape[1:]), column.dtype)
    padded[: len(column)] = column
    return padded


def shortened(schedule: Schedule) -> Schedule:
    """Return the same schedule for the shortest log that has it.

    A loop is compiled for a schedule, so that longer logs share the compiled loop.
    """
    return replace(schedule, n_batches=max(1, schedule.n_before))
