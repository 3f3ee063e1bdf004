"""Extra: what to install for commands that need more than the library itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing_service() -> Iterator[None]:
    """Say how the service is installed, where its libraries are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the service needs {error.name}: pip install 'consequential[service]'"
        ) from None


@contextmanager
def needing_lab() -> Iterator[None]:
    """Say how Numba is installed, where it is missing."""
    try:
        yield
    except ImportError as error:
        raise ValueError(str(error)) from None
