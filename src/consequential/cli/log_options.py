"""Inputs: the file of a decision log, and rules by name or from a file."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from consequential.log import DecisionLog, DecisionLogError, EstimatedPropensity
from consequential.log.frames import read_table
from consequential.policy import AcceptAll, DecisionRule, Logged, RejectAll, load_policy
from consequential.policy.features import table_columns
from consequential.policy.policy import groups_of

Found = TypeVar("Found")

_ALL_OTHERS = "all-others"  # as a feature: every column that has no other role
_ROLES = (
    "sensitive",
    "decision",
    "label",
    "value",
    "propensity",
    "time_step",
    "amount",
    "cost_column",
    "observed",
)
_OUTCOMES = ("value_range", "positive_label", "horizon", "period", "missing")
_MADE_UP = re.compile(r"x\d+").fullmatch
_RULES: dict[str, Callable[[], DecisionRule]] = {
    "logged": Logged,
    "accept-all": AcceptAll,
    "reject-all": RejectAll,
}


def named(what: str, name: str, known: Mapping[str, Found]) -> Found:
    """Return what has a name, or say which names are close to it."""
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=4, cutoff=0.5)
    advice = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    raise ValueError(f"no {what} {name!r}; {advice}")


def read_rows(file: Path) -> tuple[Any, tuple[str, ...]]:
    """Read a file that has at least one row, and say how it was read."""
    if file.is_dir():
        raise DecisionLogError(f"{file} is a folder: name a CSV or Parquet file")
    table, notes = read_table(file)
    if len(table) == 0:
        raise DecisionLogError(f"{file} has no rows: one for each decision is needed")
    return table, notes


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a log, and what its columns mean."""

    name: str
    sha256: str
    table: Any
    roles: dict[str, str]
    features: tuple[str, ...]
    outcomes: dict[str, Any]  # how outcomes are read, and those that are late or missing treated
    estimate: EstimatedPropensity | None
    notes: tuple[str, ...]

    @classmethod
    def read(cls, options: argparse.Namespace) -> Source:
        """Read the file the options name, and find their columns in it."""
        for option in ("horizon", "period"):
            if getattr(options, option) and options.time_step is None:
                raise ValueError(
                    f"--{option} is about time steps: say with --time-step which column has them"
                )
        file = options.file
        table, notes = read_rows(file)
        known = dict.fromkeys(table.column_names)
        roles = {role: name for role in _ROLES if (name := getattr(options, role)) is not None}
        for role, name in roles.items():
            for each in sensitive_names(name, known) if role == "sensitive" else (name,):
                named(f"column for --{role.replace('_', '-')}:", each, known)
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        seed = getattr(options, "seed", 0)
        return cls(
            name=file.name,
            sha256=digest,
            table=table,
            roles=roles,
            features=_features(options.features or (), known, roles),
            outcomes={name: getattr(options, name) for name in _OUTCOMES}
            | {"horizon": options.horizon or None},
            estimate=EstimatedPropensity(seed=seed) if options.estimate_propensity else None,
            notes=notes,
        )

    def log_for(self, *rules: NamedRule) -> DecisionLog:
        """Return the log with the features that are asked for and those that the rules use."""
        names = [*self.features, *(name for rule in rules for name in rule.columns(self))]
        if not names:
            raise ValueError("give --features: the rules name none of their own")
        return self.log_of(dict.fromkeys(names))

    def log_of(self, features: Iterable[str]) -> DecisionLog:
        """Return the log with these columns as features."""
        table, columns = self.table, dict(self.roles)
        if columns.keys().isdisjoint(("label", "value")):  # overlap needs none
            columns["label"] = "label" + "'" * (len(table.column_names) + 1)  # a new name
            table = table.append_column(columns["label"], pa.nulls(len(table), pa.float64()))
        if "cost_column" in columns:
            columns["cost"] = columns.pop("cost_column")
        given: dict[str, Any] = {**columns, "propensity": columns.get("propensity", self.estimate)}
        if "sensitive" in columns:
            given["sensitive"] = sensitive_names(columns["sensitive"], table.column_names)
        log = DecisionLog.from_frame(table, features=list(features), **self.outcomes, **given)
        return replace(log, notes=(*self.notes, *log.notes))


def sensitive_names(text: str, known: Container[str]) -> list[str]:
    """Return the columns that `--sensitive` names: one, with a comma in it or not, or several."""
    return [text] if text in known else [part.strip() for part in text.split(",")]


def _features(
    asked: Sequence[str], known: dict[str, None], roles: dict[str, str]
) -> tuple[str, ...]:
    taken = {name: role for role, name in roles.items()}
    for name in sensitive_names(taken_by, known) if (taken_by := roles.get("sensitive")) else ():
        taken[name] = "sensitive"
    names: list[str] = []
    for text in asked:
        if text == _ALL_OTHERS and text not in known:
            names += [name for name in known if name not in taken]
        elif text in known:  # a name may have a comma in it
            names.append(text)
        else:
            names += [part.strip() for part in text.split(",") if part.strip()]
    if asked and not names:
        raise ValueError("--features names no column: give at least one")
    for name in names:
        named("column for --features:", name, known)
        if name in taken and taken[name] not in ("time_step", "amount"):
            role = taken[name].replace("_", "-")
            advice = (
                "give --uses-sensitive to fit for a policy that decides by it"
                if role == "sensitive"
                else "what decided or came after cannot be decided by"
            )
            raise ValueError(f"{name!r} is given as --{role} and as a feature: {advice}")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule with the name it was asked for by.

    `digest` is that of its file, `learned_from` that of the log's file it was fitted to, where the
    results of its fit are still beside it.
    """

    name: str
    rule: DecisionRule
    digest: str = ""
    learned_from: str = ""

    @classmethod
    def read(cls, reference: str) -> NamedRule:
        """Find a rule by name, or read it from a file."""
        if reference in _RULES:
            return cls(reference, _RULES[reference]())
        file = Path(reference)
        if not file.is_file():
            raise FileNotFoundError(
                f"no policy file {reference!r}; give one that `consequential fit` wrote, or one "
                f"of {', '.join(_RULES)}"
            )
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        return cls(reference, load_policy(file), digest, _fitted_to(file))

    def columns(self, source: Source) -> tuple[str, ...]:
        """Return the columns it looks at, except names made up for arrays (x0, x1, ...).

        A policy without a preparation names indicators, `purpose=car`, of a column of words.
        """
        known = source.table.column_names
        names = [name for name in self.rule.raw_columns if name in known or not _MADE_UP(name)]
        return table_columns(names, known)

    def notes(self, log: DecisionLog, source: Source) -> list[str]:
        """Return what to know of the rule when it is evaluated on a log."""
        rule = self.rule
        notes = list(rule.unfamiliar(log.named_features))
        if rule.uses_sensitive:
            self.check_groups_given(source.roles.get("sensitive"))
            notes.append(f"{self.name} decides by the sensitive attribute")
        if self.learned_from == source.sha256 or self._was_learned_from(source, log):
            notes.append(
                f"{self.name} was learned from this very log: its figures are flattered and its "
                "intervals too narrow. Evaluate it on decisions that came later, or read the "
                "cross-fitted figures of its fit"
            )
        return notes

    def check_groups_given(self, column: str | None) -> None:
        """Refuse a rule that decides by groups where no column has them."""
        if self.rule.uses_sensitive and column is None:
            groups = " or ".join(map(str, groups_of(self.rule)))
            raise ValueError(
                f"{self.name} decides by the sensitive attribute"
                f"{f' ({groups})' if groups else ''}: say with --sensitive which column has it"
            )

    def _was_learned_from(self, source: Source, log: DecisionLog) -> bool:
        """Whether the policy's own record of its log, with its features, is this one."""
        fingerprint = getattr(self.rule, "learned_from", "")
        if not fingerprint or log.estimated_propensity:
            return False
        assert log.preparation is not None  # the log is that of a file
        own = source.log_of(self.columns(source) or log.preparation.names)
        return fingerprint in (own.fingerprint, own.settled().fingerprint)


def _fitted_to(policy: Path) -> str:
    """Return the digest of the log's file that a policy was fitted to, empty where unknown."""
    try:
        found = json.loads((policy.parent / "results.json").read_text(encoding="utf-8"))
        return str(found["file"]["sha256"]) if found["command"] == "fit" else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
