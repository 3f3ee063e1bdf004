"""Store: a folder of results that work can be stopped in and resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from consequential import provenance
from consequential.files import locked, write_atomically

FORMAT = "consequential results"
SCHEMA = 3  # 2 had one split of a table for all seeds, and no column of the authors' code

# where killed processes may leave unfinished files
_FOLDERS = ("results", "parts", "figures")
_FILES = ("manifest.json", "report.html", "claims.json")


class StoreError(ValueError):
    """A folder that holds no results, or cannot hold these."""


class Store:
    """A folder of results: `results/`, `parts/` of those not finished, and `manifest.json`.

    Every file is written completely or not at all, so that a process can be killed at any moment
    and another one continue. The manifest has the SHA-256 of every finished file and a digest of
    itself: a file that it does not list counts as missing, one whose content is not what was
    written is refused. A folder belongs to one command and its parameters; a folder that holds
    anything else is refused and left as it is.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    @contextmanager
    def opened(
        cls, folder: str | os.PathLike[str], command: str, parameters: dict[str, Any]
    ) -> Iterator[Store]:
        """Create or find a folder for a command with these parameters, and lock it."""
        place = Path(folder)
        wanted = {
            "format": FORMAT,
            "schema": SCHEMA,
            "command": command,
            # as they will be read from the file
            "parameters": json.loads(json.dumps(parameters)),
            "studies": [],
            "files": {},
            "code": provenance.code(),
            "versions": provenance.versions(),
            "machine": provenance.machine(),
            "data": provenance.data(),
            "seconds": {},
        }
        _checked_manifest(place, wanted)
        busy = StoreError(f"another run is writing to {place}: wait for its end")
        with locked(place.resolve(), _make_folder, busy):
            store = cls(place, _checked_manifest(place, wanted) or wanted)
            store._remove_leftovers()
            store._write_manifest()
            yield store

    @classmethod
    def existing(cls, folder: str | os.PathLike[str]) -> Store:
        """Return a store to read from."""
        place = Path(folder)
        try:
            return cls(place, _read_manifest(place / "manifest.json"))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"{place} holds no results: it has no manifest.json") from None

    def expect(self, names: Sequence[str]) -> None:
        """Note which results were asked for.

        Where some are missing, the versions and the kind of machine must be those of before.
        """
        if not all(self.has(name) for name in names):
            self._check_surroundings()
        every = {*self.manifest["studies"], *names}
        self.manifest["studies"] = sorted(every)
        self._write_manifest()

    def result(self, name: str) -> Path:
        """Return where a result is or will be."""
        return self.folder / "results" / f"{name}.parquet"

    def has(self, name: str) -> bool:
        """Whether a result is there."""
        return self.is_finished(self.result(name))

    def part(self, name: str, number: int) -> Path:
        """Return where a part of a result is or will be."""
        return self.folder / "parts" / name / f"{number:04d}.parquet"

    def is_finished(self, path: Path) -> bool:
        """Whether a result or a part is there; a file that the manifest does not list is not."""
        return self._name(path) in self.manifest["files"] and path.is_file()

    def checked(self, path: Path) -> Path:
        """Return a finished file to read, if its content is what was written."""
        if _sha256(path.read_bytes()) != self.manifest["files"].get(self._name(path)):
            raise StoreError(
                f"{path} is damaged or was replaced: its content is not what was written. Delete "
                "it and run the same command again"
            )
        return path

    def make_folders(self, name: str) -> None:
        """Make the folders of a result and of its parts."""
        self.part(name, 0).parent.mkdir(parents=True, exist_ok=True)
        self.result(name).parent.mkdir(exist_ok=True)

    def write(
        self, files: Mapping[Path, Callable[[Path], None]], study: str, seconds: float = 0.0
    ) -> None:
        """Write results or parts, each by its function, and note how long a study took for them.

        The manifest lists a file before it appears, so that no moment to be killed at loses it.
        """
        for path, save in files.items():
            save(_unfinished(path))
            self.manifest["files"][self._name(path)] = _sha256(_unfinished(path).read_bytes())
        spent = self.manifest["seconds"]
        spent[study] = round(spent.get(study, 0.0) + seconds, 2)
        self._write_manifest()
        for path in files:
            _unfinished(path).replace(path)

    def remove_parts(self, name: str) -> None:
        """Remove the parts of a result that is there."""
        parts = self.folder / "parts"
        files = self.manifest["files"].items()
        own = f"parts/{name}/"
        self.manifest["files"] = {path: sha for path, sha in files if not path.startswith(own)}
        self._write_manifest()
        for path in (parts / name).glob("*.parquet"):
            path.unlink()
        for place in (parts / name, parts):
            with suppress(OSError):  # files of others are in it
                place.rmdir()

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _write_manifest(self) -> None:
        document = self.manifest | {"digest": _digest(self.manifest)}
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(self.folder / "manifest.json", text + "\n")

    def _check_surroundings(self) -> None:
        before = {**self.manifest["versions"], "machine": self.manifest["machine"]["type"]}
        now = {**provenance.versions(), "machine": provenance.machine()["type"]}
        changed = [
            f"{k} {before.get(k)} then, {now[k]} now" for k in now if before.get(k) != now[k]
        ]
        if changed:
            raise StoreError(
                f"{self.folder} was begun elsewhere ({'; '.join(changed)}), and its numbers could "
                "differ from new ones: name another folder with --out"
            )

    def _remove_leftovers(self) -> None:
        """Remove unfinished files of killed processes, and parts of finished results."""
        every = [path for name in _FOLDERS for path in (self.folder / name).rglob(".*")]
        inside = [path for path in every if path.suffix in (".parquet", ".part")]
        for path in [*filter(_is_leftover, self.folder.glob(".*")), *inside]:
            if path.is_file():
                path.unlink()
        for parts in list((self.folder / "parts").glob("*")):
            if self.has(parts.name):
                self.remove_parts(parts.name)


def _checked_manifest(place: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of a folder, None for a new or empty one; refuse that of other work."""
    file = place / "manifest.json"
    if not file.exists():
        if place.is_dir() and any(not _is_leftover(path) for path in place.iterdir()):
            raise StoreError(
                f"{place} holds other files and no results of ours: name an empty or a new "
                "folder with --out"
            )
        return None
    known = _read_manifest(file)
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
    return known


def _read_manifest(file: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        whole = known.pop("digest") == _digest(known)
        if not whole or known["format"] != FORMAT:
            raise ValueError("damaged, or another format")
        if known["schema"] != SCHEMA:
            raise StoreError(
                f"{file} is of another version of consequential (results of schema "
                f"{known['schema']}, this version has {SCHEMA}): name another folder with --out, "
                "or read these with the version that wrote them"
            )
    except StoreError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, IsADirectoryError):
        raise StoreError(
            f"{file} is damaged or not a manifest that this version reads: name another folder "
            "with --out"
        ) from None
    return known


def _digest(manifest: dict[str, Any]) -> str:
    return _sha256(json.dumps(manifest, sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not os.access(place, os.W_OK):
            raise PermissionError("no permission")
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(
            f"cannot write to {place} ({why}): choose another place with --out"
        ) from None


def _is_leftover(path: Path) -> bool:
    """Whether a file of the folder itself was left unfinished by a process that was killed."""
    return any(path.name.startswith(f".{name}.") for name in _FILES)
