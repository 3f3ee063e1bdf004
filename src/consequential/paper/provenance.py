"""Provenance: which code, data, versions and kind of machine results come from."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable

from consequential import __version__

# what numbers depend on: figures, claims and pages are drawn again from stored results
_PACKAGES = (
    "policies",
    "log",
    "objective",
    "evaluation",
    "learning",
    "worlds",
    "accelerated",
    "simulation",
)
_MODULES = ("columns.py", "finals.py", "lending_example.py", "studies.py", "tasks.py")
_LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow")


@cache
def _digest() -> str:
    root = files("consequential")
    sources = [source for name in _PACKAGES for source in _sources(root / name, name)]
    sources += [(f"paper/{name}", root / "paper" / name) for name in _MODULES]
    digest = hashlib.sha256()
    for name, source in sorted(sources, key=lambda each: each[0]):
        content = source.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        where = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, where)
        elif entry.name.endswith(".py"):
            yield where, entry


def code() -> dict[str, str]:
    """Return the version, and a digest of the source that numbers depend on."""
    return {"version": __version__, "digest": _digest()}


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of what its numbers depend on."""
    ours = {"python": platform.python_version(), "consequential": __version__}
    return ours | {name: version(name) for name in _LIBRARIES}


def machine() -> dict[str, str | int]:
    """Return the kind of machine; not which one."""
    return {
        "type": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count() or 1,
    }


def data() -> dict[str, str]:
    """Return a digest of each data file that worlds are made of."""
    folder = files("consequential.worlds") / "data"
    shipped = [entry for entry in folder.iterdir() if ".csv" in entry.name]
    return {
        entry.name: hashlib.sha256(entry.read_bytes()).hexdigest()
        for entry in sorted(shipped, key=lambda entry: entry.name)
    }
