"""Results folder: results that work can be stopped in and resumed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from consequential import provenance
from consequential.files import write_atomically

FORMAT = "consequential results, schema 4"

# of these the manifest has a table; where one of the first three differs, so do the results
_DESCRIBED = {
    "parameters": "other parameters",
    "code": "another version of consequential",
    "data": "other data",
    "versions": "",
    "machine": "",
}


class ResultsFolderError(ValueError):
    """A folder that holds no results, or cannot hold these."""


class ResultsFolder:
    """A folder of results: `results/`, `parts/` of those not finished, and `manifest.json`.

    Every file is written completely or not at all, so a file that is there is finished: a process
    can be killed at any moment and another one continue. The manifest says what the folder was
    made by, and never changes: a folder of another command, other parameters or another version
    of the code is refused and left as it is, and so is one that holds anything else.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    def opened(
        cls, folder: str | os.PathLike[str], command: str, parameters: dict[str, Any]
    ) -> ResultsFolder:
        """Create a folder for a command with these parameters, or find what it has done so far."""
        place = Path(folder)
        wanted = {
            "format": FORMAT,
            "command": command,
            # as they will be read from the file
            "parameters": json.loads(json.dumps(parameters)),
            "code": provenance.code(),
            "versions": provenance.versions(),
            "machine": provenance.machine(),
            "data": provenance.data(),
        }
        store = cls(place, wanted)
        if is_known := (place / "manifest.json").exists():
            store = cls.existing(place)
            store._check_same(wanted)
        # a process that was killed before it wrote the manifest leaves a hidden file
        elif place.is_dir() and any(not path.name.startswith(".") for path in place.iterdir()):
            raise ResultsFolderError(
                f"{place} holds other files and no results of ours: name an empty or a new "
                "folder with --out"
            )
        try:
            place.mkdir(parents=True, exist_ok=True)
            if not os.access(place, os.W_OK):
                raise PermissionError("no permission")
            if not is_known:
                text = json.dumps(wanted, indent=2, ensure_ascii=False)
                write_atomically(place / "manifest.json", text + "\n")
        except OSError as error:
            raise ResultsFolderError(
                f"cannot write to {place} ({error.strerror or error}): choose another place "
                "with --out"
            ) from None
        return store

    @classmethod
    def existing(cls, folder: str | os.PathLike[str]) -> ResultsFolder:
        """Return the folder to read from."""
        file = Path(folder) / "manifest.json"
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise ResultsFolderError(
                f"{folder} holds no results: it has no manifest.json"
            ) from None
        except (ValueError, RecursionError, IsADirectoryError):
            known = None
        made_here = isinstance(known, dict) and known.get("format") == FORMAT
        if not made_here or not all(isinstance(known.get(name), dict) for name in _DESCRIBED):
            raise ResultsFolderError(
                f"{file} is damaged, or of another version of consequential: name another folder "
                "with --out"
            )
        return cls(Path(folder), known)

    def result(self, name: str) -> Path:
        """Return where a result is or will be."""
        return self.folder / "results" / f"{name}.parquet"

    def part(self, name: str, number: int) -> Path:
        """Return where a part of a result is or will be."""
        return self.folder / "parts" / name / f"{number:04d}.parquet"

    def read(self, path: Path, load: Callable[[Path], Any]) -> Any:
        """Load a result or a part; where it is damaged, say what to do."""
        try:
            return load(path)
        except ValueError as error:
            raise ResultsFolderError(f"{error}. Delete it and run the same command again") from None

    def remove_parts(self, name: str) -> None:
        """Remove the parts of a result that is there."""
        shutil.rmtree(self.folder / "parts" / name, ignore_errors=True)
        with suppress(OSError):  # others are in it, or it is gone
            (self.folder / "parts").rmdir()

    def check_surroundings(self) -> None:
        """Refuse to add results where versions or the kind of machine are not those of before."""
        before = self.manifest["versions"] | {"machine": self.manifest["machine"].get("type")}
        now = provenance.versions() | {"machine": provenance.machine()["type"]}
        if before != now:
            raise ResultsFolderError(
                f"{self.folder} was begun elsewhere ({_changes(before, now)}), and its numbers "
                "could differ from new ones: name another folder with --out"
            )

    def _check_same(self, wanted: dict[str, Any]) -> None:
        """Refuse a folder that something else is kept in."""
        known = self.manifest
        if known.get("command") != wanted["command"]:
            raise ResultsFolderError(
                f"{self.folder} was made by `consequential {known.get('command')}`: name another "
                "folder with --out"
            )
        for name, what in _DESCRIBED.items():
            if what and known[name] != wanted[name]:
                raise ResultsFolderError(
                    f"{self.folder} was made with {what} ({_changes(known[name], wanted[name])}): "
                    "name another folder with --out"
                )


def _changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    return "; ".join(
        f"{name.replace('_', ' ')} {_short(before.get(name))} then, {_short(now.get(name))} now"
        for name in sorted({**before, **now})
        if before.get(name) != now.get(name)
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
