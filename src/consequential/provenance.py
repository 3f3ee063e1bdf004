"""Provenance: which code, data, versions and kind of machine results come from."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable

# numbers do not depend on these: figures, claims and pages are made again from stored results
_PRESENTATION = (
    "cli",
    "report",
    "service",
    "plotting.py",
    "tables.py",
    "lab/paper/claims",
    "lab/paper/figures",
    "lab/paper/reproduction.py",
    "lab/simulation/page.py",
)
_PACKAGES = ("consequential", "numpy", "scipy", "numba", "scikit-learn", "pyarrow")


@cache
def code() -> dict[str, str]:
    """Return the version, and a digest of the source that numbers depend on."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files("consequential")), key=lambda each: each[0]):
        content = source.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return {"version": version("consequential"), "digest": digest.hexdigest()}


def _sources(folder: Traversable, within: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        name = within + entry.name
        if name in _PRESENTATION:
            continue
        if entry.is_dir():
            yield from _sources(entry, f"{name}/")
        elif name.endswith(".py"):
            yield name, entry


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of what its numbers depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):  # Numba is there only where simulations run
            found[name] = version(name)
    return found


def machine() -> dict[str, str | int]:
    """Return the kind of machine, and nothing that identifies it."""
    return {
        "type": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count() or 1,
    }


def data() -> dict[str, str]:
    """Return a digest of each data file that worlds are made of."""
    folder = files("consequential.lab.worlds") / "data"
    shipped = [entry for entry in folder.iterdir() if ".csv" in entry.name]
    return {
        entry.name: hashlib.sha256(entry.read_bytes()).hexdigest()
        for entry in sorted(shipped, key=lambda entry: entry.name)
    }
