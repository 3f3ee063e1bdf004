"""Results: the folder with the page, the numbers and the policy that a command writes."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consequential import files
from consequential import policy as policies
from consequential.cli.column_options import columns_text
from consequential.cli.log_options import Source
from consequential.evaluation.estimate import json_ready
from consequential.log import DecisionLog
from consequential.provenance import versions
from consequential.workers import cluster

_FORMAT = "consequential results"
_SCHEMA = 1
_FILES = ("results.json", "report.html", "columns.toml", "policy.json", "model-card.md")
_OF_FINDER = ".DS_Store"  # which macOS leaves in every folder that is looked at
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
    """Where the results of a command go: checked before the work, written as a whole after it."""

    path: Path
    command: str
    overwrite: bool
    parameters: dict[str, Any]

    @classmethod
    def checked(cls, options: argparse.Namespace) -> Folder:
        """Refuse a folder that results cannot be written to, or not without `--overwrite`."""
        path = Path(os.path.realpath(options.out))
        # a link that leads to itself exists neither, and is no folder
        if (options.out.exists() or os.path.lexists(path)) and not path.is_dir():
            raise OSError(f"{options.out} is not a folder: name one with --out")
        if path == Path.cwd() or path.is_mount():
            raise OSError(f"{path} cannot be replaced as a whole: name a folder in it with --out")
        for place in (path.parent, path) if path.exists() else (path.parent,):
            check_writable(place, "--out")
        files.put_back(path)
        parameters = {
            name: value.name if isinstance(value, Path) else value
            for name, value in sorted(vars(options).items())
            if name not in _NOT_PARAMETERS
        }
        folder = cls(path, options.command, options.overwrite, parameters)
        folder._check()
        return folder

    def _check(self) -> None:
        """Refuse to replace anything but results of the same command, and these unless asked."""
        there = sorted(self.path.iterdir()) if self.path.is_dir() else []
        if not there:
            return
        if not self.overwrite:
            raise OSError(
                f"{self.path} is there already: choose another folder with --out, or replace it "
                "with --overwrite"
            )
        try:
            known = json.loads((self.path / "results.json").read_text(encoding="utf-8"))
            made_by = known["command"] if known["format"] == _FORMAT else None
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            made_by = None
        if made_by is not None and made_by != self.command:
            raise OSError(
                f"{self.path} has results of `{made_by}`: choose another folder with --out"
            )
        for each in there:
            own = each.name in (*_FILES, _OF_FINDER) and each.is_file()
            if made_by is None or not own:
                raise OSError(
                    f"{self.path} has a {each.name} that this command did not write: choose "
                    "another folder with --out"
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
            written["model-card.md"] = render("model-card.md", **document | shown)
        written["report.html"] = render(f"{self.command}.html", **document | shown)
        written["results.json"] = json.dumps(document, indent=2, allow_nan=False) + "\n"

        self._check()  # somebody may have put a file there since
        with files.new_folder(self.path, replace=self.overwrite) as folder:
            for name, content in written.items():
                files.write_atomically(folder / name, content)


def cluster_of(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return the context in which `--cluster` does the work, or this machine without it."""
    return nullcontext() if options.cluster is None else cluster(options.cluster)


def check_writable(folder: Path, option: str) -> None:
    """Refuse a folder that is not there or cannot be written to, before any work."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OSError(f"cannot write to {folder}: choose another place with {option}")


def check_new_file(out: Path, *, overwrite: bool, inputs: Sequence[Path] = ()) -> None:
    """Refuse a place for the file that a command writes, before any work."""
    place = Path(os.path.realpath(out))  # through a symbolic link
    # what /dev/stdout leads to may have no path
    if (out.exists() or place.exists()) and not place.is_file():
        kind = "folder" if place.is_dir() else "device or a pipe"
        raise OSError(f"{out} is a {kind}: name a file with --out")
    check_writable(place.parent, "--out")
    if place.exists() and any(each.exists() and place.samefile(each) for each in inputs):
        raise OSError(f"{place} is read by this command: choose another file with --out")
    if place.exists() and not overwrite:
        raise OSError(f"{place} exists: choose another file with --out, or give --overwrite")


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
