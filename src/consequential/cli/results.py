"""Results: the folder with the page, the numbers and the policy that a command writes."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consequential import files, policies
from consequential.cli.columns import columns_text
from consequential.cli.inputs import Source
from consequential.evaluation.estimate import json_ready
from consequential.log import DecisionLog
from consequential.provenance import versions
from consequential.workers import cluster

_FORMAT = "consequential results"
_SCHEMA = 1
_POLICY_FILES = ("policy.json", "model-card.md")  # written by `fit` alone
_FILES = ("results.json", "report.html", "columns.toml", *_POLICY_FILES)
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
    """Where the results of a command go: checked before the work, written after it.

    New results are written to a hidden folder beside it, which then takes its place. Files of
    others in it are kept. Another command cannot write to it until this one ends.
    """

    path: Path
    command: str
    overwrite: bool
    parameters: dict[str, Any]

    @classmethod
    @contextmanager
    def opened(cls, options: argparse.Namespace) -> Iterator[Folder]:
        """Lock the folder, if results of this command can be written to it."""
        path = Path(os.path.realpath(options.out))
        # a link that leads to itself exists neither, and is no folder
        if (options.out.exists() or os.path.lexists(path)) and not path.is_dir():
            raise OSError(f"{options.out} is not a folder: name one with --out")
        if path == Path.cwd() or path.is_mount():
            raise OSError(f"{path} cannot be replaced as a whole: name a folder in it with --out")
        for place in (path.parent, path) if path.exists() else (path.parent,):
            check_writable(place, "--out")
        parameters = {
            name: value.name if isinstance(value, Path) else value
            for name, value in sorted(vars(options).items())
            if name not in _NOT_PARAMETERS
        }
        folder = cls(path, options.command, options.overwrite, parameters)
        busy = f"another command is writing to {path}: wait for its end, or choose another --out"
        with files.locked(folder._beside, lambda place: place.mkdir(exist_ok=True), OSError(busy)):
            try:
                folder._settle()
                folder._earlier()
                yield folder
            finally:
                folder._settle()
                folder._beside.rmdir()

    def check(self, source: Source, rules: dict[str, str]) -> None:
        """Refuse to replace results of another question, another log or other rules."""
        earlier = self._earlier()
        if earlier is None or self.overwrite:
            return
        same = (
            earlier.get("parameters") == json.loads(json.dumps(self.parameters))
            and isinstance(earlier.get("file"), dict)
            and earlier["file"].get("sha256") == source.sha256
            and earlier.get("files") == rules
        )
        if not same:
            raise OSError(
                f"{self.path} has other results of `{self.command}`: choose another folder with "
                "--out, or replace them with --overwrite"
            )

    def write(
        self, found: Findings, log: DecisionLog, source: Source, rules: dict[str, str]
    ) -> None:
        """Write all files: the folder appears, or takes the place of the old one, as a whole."""
        from consequential.report import render  # heavy, and `decide` writes no report

        notes = list(dict.fromkeys([*log.concerns, *found.notes, *log.notes]))
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
        shown["command_line"] = command_line(self.command, source.name, self.parameters)
        columns = columns_text(self.parameters, source.features, source.name)
        written: dict[str, str | bytes] = {"columns.toml": columns}
        if found.policy is not None:
            written["policy.json"] = policy = policies.policy_to_json(found.policy)
            digest = hashlib.sha256(policy.encode()).hexdigest()
            shown |= {"policy": found.policy, "policy_sha256": digest, "sign_off": _SIGN_OFF}
            shown["policy_digest"] = policies.policy_digest(found.policy)
            card = None if self.overwrite else self._card_of(digest)
            written["model-card.md"] = card or render("model-card.md", **document | shown)
        written["report.html"] = render(f"{self.command}.html", **document | shown)
        written["results.json"] = json.dumps(document, indent=2, allow_nan=False) + "\n"

        new, old = self._beside / "new", self._beside / "old"
        new.mkdir()
        for name, content in written.items():
            files.write_atomically(new / name, content)
        if self.path.is_dir():
            shutil.copymode(self.path, new)
            if files.exchange(new, self.path):
                return
            self.path.rename(old)
        new.rename(self.path)

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f".{self.path.name}.consequential")

    def _settle(self) -> None:
        """Put the old folder back if no new one took its place, and remove what is left over.

        After an exchange the old results are in the folder `new`.
        """
        new, old = self._beside / "new", self._beside / "old"
        if old.is_dir() and not self.path.is_dir():
            old.rename(self.path)
        for folder in filter(Path.is_dir, (new, old)):
            known = [folder / name for name in _FILES]
            ours = {*known, *(path for each in known for path in files.unfinished_files(each))}
            for path in set(folder.iterdir()) - ours:
                if self.path.is_dir() and not os.path.lexists(self.path / path.name):
                    path.rename(self.path / path.name)
            for path in ours:
                path.unlink(missing_ok=True)
            folder.rmdir()  # fails, and should, if there are still files of others

    def _card_of(self, digest: str) -> bytes | None:
        """Return the card of this policy that is there: somebody may have filled it in."""
        card = self.path / "model-card.md"
        content = card.read_bytes() if card.is_file() else b""
        return content if digest.encode() in content else None

    def _earlier(self) -> dict[str, Any] | None:
        """Return earlier results in the folder, None without any; refuse files of others alone."""
        there = sorted(os.listdir(self.path)) if self.path.is_dir() else []
        if not there:
            return None
        try:
            known = json.loads((self.path / "results.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            known = None
        is_ours = isinstance(known, dict) and known.get("format") == _FORMAT
        theirs = [name for name in _FILES if (self.path / name).is_dir()]
        theirs += () if self.command == "fit" else _POLICY_FILES
        strange = [name for name in there if name in theirs or not is_ours]
        if strange or not isinstance(known, dict):
            raise OSError(
                f"{self.path} has a {strange[0]} that this command did not write: choose another "
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


def command_line(command: str, file: str, parameters: dict[str, Any]) -> str:
    """Return a command with all its options, as a shell takes it."""
    words = ["consequential", command, file]
    for name, value in parameters.items():
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        if name == "value_range":  # the first number may be negative
            words.append(f"{option}={value[0]},{value[1]}")
        elif name == "bound":  # each has its own option
            words += [word for each in value for word in (option, each)]
        else:
            each = value if isinstance(value, list) else [] if value is True else [value]
            words += [option, *map(_as_given, each)]
    return shlex.join(words)


def _as_given(value: Any) -> str:
    """Return a value as an option takes it: a share of a group, a column and its direction."""
    if not isinstance(value, tuple):
        return str(value)
    name, number = value
    if isinstance(number, int):
        return f"{name}={'+' if number > 0 else '-'}"
    return str(number) if name is None else f"{name}={number}"


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
