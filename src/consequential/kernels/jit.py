"""The compiler: how functions are compiled, and how that is reported."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Sums may be reordered, which vectorises them; NaN and infinity keep their meaning.
_VECTORISED: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp"},
}


@cache
def _sources_digest() -> str:
    """Return a digest of all kernels."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def compiled(function: _Function) -> _Function:
    """Compile a function on its first call, and cache it on disk until any kernel changes.

    Numba checks only the function's own file, and would go on using old code of the functions that
    it calls.
    """
    dispatcher = numba.njit(cache=True, **_VECTORISED)(function)
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_version") and hasattr(file, "_source_stamp"):
        # the version is compared before the index is read, which may name modules that are gone
        file._version = f"{file._version} {_sources_digest()}"
        file._source_stamp = None
    return cast(_Function, dispatcher)


def compiled_exactly(function: _Function) -> _Function:
    """Compile a function whose operations must keep their order, for example to round on purpose.

    Such functions are small and compiled into their callers.
    """
    return cast(_Function, numba.njit(error_model="numpy", fastmath={"contract"})(function))


_reported = False


@contextmanager
def compiling_reported() -> Iterator[None]:
    """Say so on standard error if the first call takes long because kernels are being compiled.

    They are cached on disk beside the package (or in Numba's cache directory), so this happens once
    after an installation.
    """
    global _reported
    if _reported:
        yield
        return
    _reported = True
    message = "compiling for this machine, once; this takes up to a minute ...\n"
    timer = threading.Timer(2.0, lambda: sys.stderr.write(message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
