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

import numpy as np

try:
    import numba
except ImportError as error:
    raise ImportError(
        'simulations and learning from minibatches need Numba: pip install "consequential[lab]"'
    ) from error

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
    it calls. Where no directory can be written to, every process compiles again.
    """
    global _once
    try:
        dispatcher = _njit(function, cache=True, **_VECTORISED)
    except RuntimeError:  # no locator available: neither the package nor the home is writable
        _once = "for this process; set NUMBA_CACHE_DIR to a writable directory to do so once"
        dispatcher = _njit(function, **_VECTORISED)
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None:
        # the version is compared before the index is read, which may name modules that are gone
        file._version = f"{file._version} {_sources_digest()}"
        file._source_stamp = None
    return cast(_Function, dispatcher)


def compiled_exactly(function: _Function) -> _Function:
    """Compile a function whose operations must keep their order, for example to round on purpose.

    Such functions are small and compiled into their callers.
    """
    return cast(_Function, _njit(function, error_model="numpy", fastmath={"contract"}))


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return np.errstate(all="ignore")(function)  # compiled code does not warn of overflow either
    return numba.njit(**options)(function)


_reported = False
_once = "for this machine, once"


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
    message = f"compiling {_once}; this takes up to a minute ...\n"
    timer = threading.Timer(2.0, lambda: sys.stderr.write(message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
