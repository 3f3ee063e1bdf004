"""Stores: results directories that are whole at any moment, and remember how they were made."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consequential.paper.provenance import code, data, machine, versions
from consequential.policies import write_whole

FORMAT = "consequential results"
SCHEMA = 1

# where a process that was killed may have left a file it had not finished
_FOLDERS = ("results", "parts", "figures")
_FILES = ("manifest.json", "report.html", "claims.json")


class StoreError(ValueError):
    """A directory that cannot take these results."""


class Store:
    """One directory: `results/`, `parts/` of what is not done yet, and `manifest.json`.

    Every file is written whole, so that a run can be killed at any moment and go on later. A
    directory belongs to one command and its parameters; nothing in another one is touched.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    @contextmanager
    def opened(
        cls, folder: str | os.PathLike[str], command: str, parameters: dict[str, Any]
    ) -> Iterator[Store]:
        """Make or find a directory for a command with these parameters, and hold it alone."""
        place = Path(folder)
        wanted = {
            "format": FORMAT,
            "schema": SCHEMA,
            "command": command,
            # as they will read from the file
            "parameters": json.loads(json.dumps(parameters)),
            "studies": [],
            "code": code(),
            "versions": versions(),
            "machine": machine(),
            "data": data(),
            "seconds": {},
        }
        _known(place, wanted)  # a folder that is refused is left as it is
        _make(place)
        with _alone(place):
            store = cls(place, _known(place, wanted) or wanted)
            _sweep(place)
            store._write_manifest()
            yield store

    def expect(self, files: list[str]) -> None:
        """Note what was asked for; where work is left, the machine must be the one of before."""
        if any(not self.has(file) for file in files):
            self._check_surroundings()
        every = [*self.manifest["studies"], *files]
        self.manifest["studies"] = sorted(dict.fromkeys(every))
        self._write_manifest()

    def result(self, file: str) -> Path:
        """Return where a result is or will be."""
        return self.folder / "results" / f"{file}.parquet"

    def has(self, file: str) -> bool:
        """Whether a result is there, whole."""
        return self.result(file).is_file()

    def part(self, file: str, number: int) -> Path:
        """Return where a part of a result is or will be."""
        return self.folder / "parts" / file / f"{number:04d}.parquet"

    def make_room(self, file: str) -> None:
        """Make the folders of a result and its parts."""
        self.part(file, 0).parent.mkdir(parents=True, exist_ok=True)
        self.result(file).parent.mkdir(exist_ok=True)

    def took(self, file: str, seconds: float) -> None:
        """Note how long a part took."""
        spent = self.manifest["seconds"]
        spent[file] = round(spent.get(file, 0.0) + seconds, 2)
        self._write_manifest()

    def finish(self, file: str) -> None:
        """Remove the parts of a result that is there."""
        shutil.rmtree(self.folder / "parts" / file, ignore_errors=True)
        if not any((self.folder / "parts").iterdir()):
            (self.folder / "parts").rmdir()

    def _write_manifest(self) -> None:
        text = json.dumps(self.manifest, indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(self.folder / "manifest.json", text + "\n")

    def _check_surroundings(self) -> None:
        before = {**self.manifest["versions"], "machine": self.manifest["machine"]["type"]}
        now = {**versions(), "machine": machine()["type"]}
        changed = [
            f"{name} {before.get(name)} then, {now[name]} now"
            for name in now
            if before.get(name) != now[name]
        ]
        if changed:
            raise StoreError(
                f"{self.folder} was begun elsewhere ({'; '.join(changed)}), and its numbers could "
                "differ from new ones: name another folder with --out"
            )


def _known(place: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a directory says about itself; None for one that is new or empty."""
    file = place / "manifest.json"
    if not file.exists():
        if place.is_dir() and any(not _unfinished(path) for path in place.iterdir()):
            raise StoreError(
                f"{place} holds other files and no results of ours: name an empty or a new "
                "folder with --out"
            )
        return None
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or manifest["schema"] != SCHEMA:
            raise ValueError("another format")
    except (ValueError, KeyError, TypeError):
        raise StoreError(
            f"{file} is not a manifest that this version reads: name another folder with --out"
        ) from None
    _compare(place, manifest, wanted)
    known: dict[str, Any] = manifest
    return known


def _compare(place: Path, known: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a directory that was made by another command, with other parameters or code."""
    if known["command"] != wanted["command"]:
        raise StoreError(
            f"{place} was made by `consequential {known['command']}`: name another folder "
            "with --out"
        )
    before, now = known["parameters"], wanted["parameters"]
    changed = [
        f"{name.replace('_', ' ')} {_short(before.get(name))} then, {_short(now.get(name))} now"
        for name in sorted({**before, **now})
        if before.get(name) != now.get(name)
    ]
    if changed:
        raise StoreError(
            f"{place} was made with other parameters ({'; '.join(changed)}): give the same ones, "
            "or name another folder with --out"
        )
    if known["code"] != wanted["code"] or known["data"] != wanted["data"]:
        raise StoreError(
            f"{place} was made by another version of consequential ({known['code']['version']}, "
            f"code {known['code']['digest'][:8]}; this is {wanted['code']['version']}, code "
            f"{wanted['code']['digest'][:8]}): name another folder with --out"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not os.access(place, os.W_OK):
            raise PermissionError("no permission")
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(
            f"cannot write to {place} ({why}): choose another place with --out"
        ) from None


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the directory until the end of the process, however that comes."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another run is writing to {place}: wait for its end") from None
        yield
    finally:
        os.close(handle)


def _unfinished(path: Path) -> bool:
    """Whether a file in the directory itself is one that a killed process had not finished."""
    return any(path.name.startswith(f".{name}.") for name in _FILES)


def _sweep(place: Path) -> None:
    """Remove what killed processes left half written, and parts of results that are there."""
    inside = [path for name in _FOLDERS for path in (place / name).rglob(".*")]
    for path in [*place.glob(".*"), *inside]:
        if path.is_file() and (path.parent != place or _unfinished(path)):
            path.unlink()
    for parts in (place / "parts").glob("*"):
        if (place / "results" / f"{parts.name}.parquet").is_file():
            shutil.rmtree(parts)
