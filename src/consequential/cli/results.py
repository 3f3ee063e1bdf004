"""Results: a folder with the page, the numbers and the policy of one command."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consequential.cli.columns import Source
    from consequential.log import DecisionLog
    from consequential.policies import DecisionRule
    from consequential.report.log import Piece

FORMAT = "consequential results"
SCHEMA = 1
_FILES = ("results.json", "report.html", "policy.json")
_NOT_PARAMETERS = ("run", "command", "file", "out", "overwrite")


def add_out(parser: argparse.ArgumentParser, command: str) -> None:
    """Add where results go."""
    add = parser.add_argument_group("results").add_argument
    add(
        "--out",
        type=Path,
        default=Path(f"consequential-{command}"),
        metavar="DIR",
        help="folder for results",
    )
    add("--overwrite", action="store_true", help="replace other results of the same command")
    parser.set_defaults(command=command)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a command found: numbers for a machine, pieces of a page for people."""

    title: str
    introduction: str
    log: DecisionLog
    numbers: dict[str, Any]
    pieces: Sequence[Piece]
    notes: Sequence[str] = ()
    policy: DecisionRule | None = None
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a command's results go; looked at before the work, written after it."""

    path: Path
    command: str
    overwrite: bool
    parameters: dict[str, Any]

    @classmethod
    def of(cls, options: argparse.Namespace) -> Folder:
        """Return the folder, if results of this command can be written to it."""
        path: Path = options.out
        if path.exists() and not path.is_dir():
            raise OSError(f"{path} is a file: name a folder with --out")
        there = path if path.is_dir() else path.absolute().parent
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise OSError(f"cannot write to {there}: choose another place with --out")
        parameters = {
            name: value.name if isinstance(value, Path) else value
            for name, value in sorted(vars(options).items())
            if name not in _NOT_PARAMETERS
        }
        folder = cls(path, options.command, options.overwrite, parameters)
        folder._known()
        return folder

    def check(self, source: Source, files: dict[str, str] | None = None) -> None:
        """Refuse to replace results of another question or another file."""
        known = self._known()
        if known is None or self.overwrite:
            return
        same = (
            known.get("parameters") == json.loads(json.dumps(self.parameters))
            and known.get("file", {}).get("sha256") == source.sha256
            and known.get("files", {}) == (files or {})
        )
        if not same:
            raise OSError(
                f"{self.path} has other results of `{self.command}`: choose another folder with "
                "--out, or replace them with --overwrite"
            )

    def write(self, source: Source, found: Findings) -> None:
        """Write everything: a new folder appears whole, files in an old one are replaced whole."""
        from consequential.files import write_atomically
        from consequential.policies import save_policy
        from consequential.report.log import details_piece, log_page

        log = found.log
        notes = list(dict.fromkeys([*log.notes, *log.concerns, *found.notes]))
        about = {
            "file": {"name": source.name, "sha256": source.sha256, "rows": len(source.table)},
            "log": _about(log),
            "versions": _versions(),
        }
        document = {
            "format": FORMAT,
            "schema": SCHEMA,
            "command": self.command,
            "parameters": self.parameters,
            "files": found.files,
            **about,
            "notes": notes,
            "results": found.numbers,
        }
        numbers = json.dumps(document, indent=2, allow_nan=False) + "\n"
        details = details_piece(
            {
                "file": f"{source.name}, sha256 {source.sha256}",
                "log": repr(log),
                "command": f"{self.command} {_shown(self.parameters)}",
                "versions": ", ".join(f"{k} {v}" for k, v in about["versions"].items()),
            }
        )
        page = log_page(found.title, found.introduction, notes, [*found.pieces, details])

        def fill(folder: Path) -> None:
            if found.policy is not None:
                save_policy(found.policy, folder / "policy.json")
            write_atomically(folder / "report.html", page)
            write_atomically(folder / "results.json", numbers)

        if self.path.is_dir():
            fill(self.path)
            return
        fresh = Path(tempfile.mkdtemp(dir=self.path.absolute().parent, prefix=".consequential-"))
        try:
            fill(fresh)
            umask = os.umask(0)
            os.umask(umask)
            fresh.chmod(0o777 & ~umask)
            fresh.rename(self.path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def said(self) -> str:
        """Say where the page is."""
        return f"report: {(self.path / 'report.html').resolve()}"

    def _known(self) -> dict[str, Any] | None:
        """Return what is there, None where nothing of ours is; refuse what is not ours."""
        there = [name for name in _FILES if (self.path / name).exists()]
        if not there:
            return None
        try:
            known = json.loads((self.path / "results.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = None
        if not isinstance(known, dict) or known.get("format") != FORMAT:
            raise OSError(
                f"{self.path} has a {there[0]} that this command did not write: choose another "
                "folder with --out"
            )
        if known.get("command") != self.command:
            raise OSError(
                f"{self.path} has results of `{known.get('command')}`: choose another folder with "
                "--out"
            )
        return known


def _about(log: DecisionLog) -> dict[str, Any]:
    return {
        "decisions": len(log),
        "accepted": log.n_accepted,
        "pending": log.n_pending,
        "features": list(log.feature_names),
        "groups": {
            str(name): int(count) for name, count in zip(log.groups, log.group_counts, strict=True)
        },
        "horizon": log.horizon,
        "estimated_propensity": log.estimated_propensity,
        "fingerprint": log.fingerprint,
    }


def _versions() -> dict[str, str]:
    from consequential.provenance import versions

    return versions()


def _shown(parameters: dict[str, Any]) -> str:
    parts = []
    for name, value in parameters.items():
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        shown = "" if value is True else " " + " ".join(str(each) for each in values)
        parts.append(option + shown)
    return " ".join(parts)
