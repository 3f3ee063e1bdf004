"""Results: the folder with the page, the numbers and the policy that a command writes."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consequential import files, policies
from consequential.cli.columns import columns_text
from consequential.cli.inputs import Source
from consequential.evaluation.estimate import json_ready
from consequential.log import DecisionLog
from consequential.provenance import versions
from consequential.report import render
from consequential.workers import cluster

_FORMAT = "consequential results"
_SCHEMA = 1
_FILES = ("results.json", "report.html", "policy.json", "model-card.md", "columns.toml")
_SIGN_OFF = (
    "allowed, allowed with conditions, or refused",
    "conditions",
    "largest loss that is borne",
    "ends on, unless renewed",
    "ends sooner if",
    "who watches it, and who can stop it today",
    "name and role",
    "date and signature",
)
_NOT_PARAMETERS = ("command", "file", "columns", "out", "overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a command found.

    `results` are objects of the library by name, or one of them: `results.json` has them as plain
    data, and the page's template shows them. `page` is what else the template needs.
    """

    text: str  # to print
    title: str
    introduction: str
    results: Any
    notes: Sequence[str] = ()
    page: dict[str, Any] = field(default_factory=dict)
    policy: policies.DecisionRule | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the results of a command go: checked before the work, written after it."""

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
        check_writable(path if path.is_dir() else path.absolute().parent, "--out")
        parameters = {
            name: value.name if isinstance(value, Path) else value
            for name, value in sorted(vars(options).items())
            if name not in _NOT_PARAMETERS
        }
        folder = cls(path, options.command, options.overwrite, parameters)
        folder._earlier()
        return folder

    def check(self, source: Source, rules: dict[str, str]) -> None:
        """Refuse to replace results of another question, another log or other rules."""
        earlier = self._earlier()
        if earlier is None or self.overwrite:
            return
        same = (
            earlier.get("parameters") == json.loads(json.dumps(self.parameters))
            and earlier.get("file", {}).get("sha256") == source.sha256
            and earlier.get("files", {}) == rules
        )
        if not same:
            raise OSError(
                f"{self.path} has other results of `{self.command}`: choose another folder with "
                "--out, or replace them with --overwrite"
            )

    def write(
        self, found: Findings, log: DecisionLog, source: Source, rules: dict[str, str]
    ) -> None:
        """Write all files: a new folder appears when it is complete, old files are replaced."""
        notes = list(dict.fromkeys([*log.notes, *log.concerns, *found.notes]))
        document = {
            "format": _FORMAT,
            "schema": _SCHEMA,
            "command": self.command,
            "parameters": self.parameters,
            "files": rules,
            "file": {"name": source.name, "sha256": source.sha256, "rows": len(source.table)},
            "log": _summary(log),
            "versions": versions(),
            "notes": notes,
            "results": _plain(found.results),
        }
        shown = {"title": found.title, "introduction": found.introduction, "log": log}
        shown |= {"results": found.results, **found.page}
        columns = columns_text(self.parameters, source.features, source.name)
        written = {"columns.toml": columns}
        if found.policy is not None:
            written["policy.json"] = content = policies.policy_to_json(found.policy)
            digest = hashlib.sha256(content.encode()).hexdigest()
            shown |= {"policy": found.policy, "policy_sha256": digest, "sign_off": _SIGN_OFF}
            if self.overwrite or not self._has_card(digest):
                written["model-card.md"] = render("model-card.md", **document | shown)
        written["report.html"] = render(f"{self.command}.html", **document | shown)
        written["results.json"] = json.dumps(document, indent=2, allow_nan=False) + "\n"

        def fill(folder: Path) -> None:
            for name, content in written.items():
                files.write_atomically(folder / name, content)

        if self.path.is_dir():
            fill(self.path)
            return
        new = self.path.absolute().parent / f".consequential-{uuid.uuid4().hex}"
        new.mkdir()
        try:
            fill(new)
            new.rename(self.path)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def _has_card(self, digest: str) -> bool:
        """Whether a card of this policy is there: somebody may have filled it in."""
        card = self.path / "model-card.md"
        return card.is_file() and digest in card.read_text(encoding="utf-8", errors="replace")

    def _earlier(self) -> dict[str, Any] | None:
        """Return earlier results in the folder, None without any; refuse files of others."""
        there = [name for name in _FILES if (self.path / name).exists()]
        if not there:
            return None
        try:
            known = json.loads((self.path / "results.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = None
        if not isinstance(known, dict) or known.get("format") != _FORMAT:
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


def cluster_of(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return the context in which `--cluster` does the work, or this machine without it."""
    return nullcontext() if options.cluster is None else cluster(options.cluster)


def check_writable(folder: Path, option: str) -> None:
    """Refuse a folder that is not there or cannot be written to, before any work."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OSError(f"cannot write to {folder}: choose another place with {option}")


def write_resumable(options: argparse.Namespace, write: Callable[[], Path]) -> int:
    """Write results that are kept as they come, print where their page is; return the exit code."""
    started = time.monotonic()
    try:
        with cluster_of(options):
            page = write()
    except KeyboardInterrupt:
        kept = f"what is done is kept in {options.out}; the same command goes on from there"
        print(f"interrupted: {kept}", file=sys.stderr)
        return 130
    print(f"report: {page.resolve()}  ({time.monotonic() - started:.0f} s)")
    return 0


def _summary(log: DecisionLog) -> dict[str, Any]:
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


def _plain(results: Any) -> Any:
    """Return results as data that JSON can hold."""
    if isinstance(results, dict):
        return {str(name): _plain(value) for name, value in results.items()}
    return results.to_dict() if hasattr(results, "to_dict") else json_ready(results)
