"""Columns: which columns of a file mean what, and the log they make."""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consequential.cli.arguments import at_least_one, named

if TYPE_CHECKING:
    from consequential.log import DecisionLog, EstimatedPropensity
    from consequential.policies import DecisionRule

ALL_OTHERS = "all-others"
_ROLES = (
    "sensitive",
    "decision",
    "label",
    "propensity",
    "time_step",
    "amount",
    "cost_column",
    "observed",
)


def add_columns(parser: argparse.ArgumentParser, *, features: str = "", label: bool = True) -> None:
    """Add the file and the options that say what its columns mean.

    `features` says what happens without `--features`; where nothing can, it is required.
    """
    parser.add_argument("file", type=Path, metavar="FILE", help="a decision log, CSV or Parquet")
    group = parser.add_argument_group("columns")
    add = group.add_argument
    add(
        "--features",
        action="append",
        required=not features,
        metavar="A,B,...",
        help="what a decision may depend on, words too; give it again for a name with a comma. "
        f"`{ALL_OTHERS}` takes every column not named otherwise: mind numbers of accounts and "
        f"what is only known afterwards. {features}".strip(),
    )
    add("--sensitive", metavar="NAME", help="the sensitive group")
    add("--decision", metavar="NAME", required=True, help="1 accepted, 0 rejected, or words for it")
    add(
        "--label",
        metavar="NAME",
        required=label,
        help="1 as hoped, 0 not, or words for it; empty where rejected or not known yet",
    )
    which = group.add_mutually_exclusive_group(required=True).add_argument
    which(
        "--propensity",
        metavar="NAME",
        help="the probability with which the rule in force would accept; the decision itself, "
        "where it left nothing to chance",
    )
    which(
        "--estimate-propensity",
        action="store_true",
        help="estimate it, where it was not logged; refused where decisions left nothing to chance",
    )
    add("--time-step", metavar="NAME", help="when it was decided, a whole number or a date")
    add(
        "--period",
        choices=("day", "week", "month", "quarter", "year"),
        help="what a time step is, where --time-step has dates",
    )
    add("--amount", metavar="NAME", help="the size of each decision")
    add("--cost-column", metavar="NAME", help="what accepting costs, where it differs by person")
    add(
        "--horizon",
        type=at_least_one,
        metavar="STEPS",
        help="how many time steps an outcome may take; younger decisions are left out",
    )
    add(
        "--missing",
        choices=("refuse", "against", "at_random"),
        default="refuse",
        help="accepted people whose label never came: an error, any label they could have, or "
        "missing by chance given features and group",
    )
    add("--observed", metavar="NAME", help="for at_random: the probability that a label is known")


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read, and what its columns mean."""

    name: str
    sha256: str
    table: Any
    roles: dict[str, str]
    features: tuple[str, ...]
    times: dict[str, Any]  # what is made of labels that are young or missing
    estimate: EstimatedPropensity | None
    notes: tuple[str, ...]

    @classmethod
    def read(cls, options: argparse.Namespace, *, seed: int = 0) -> Source:
        """Read the file the options name, and find their columns in it."""
        from consequential.log import DecisionLogError, EstimatedPropensity
        from consequential.log.files import read_table

        for option in ("horizon", "period"):
            if getattr(options, option) is not None and options.time_step is None:
                raise ValueError(
                    f"--{option} is about time steps: say with --time-step which column has them"
                )
        if options.file.is_dir():
            raise DecisionLogError(f"{options.file} is a folder: name a CSV or Parquet file")
        table, notes = read_table(options.file)
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        if twice:
            raise DecisionLogError(f"{options.file} has two columns {twice[0]!r}: rename one")
        if len(table) == 0:
            raise DecisionLogError(f"{options.file} has no rows: a log has one for each decision")
        known = dict.fromkeys(table.column_names)
        roles = {role: name for role in _ROLES if (name := getattr(options, role)) is not None}
        for role, name in roles.items():
            named(f"column for --{role.replace('_', '-')}:", name, known)
        features = _features(options.features or (), known, roles)
        with options.file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        estimate = EstimatedPropensity(seed=seed) if options.estimate_propensity else None
        name = options.file.name
        times = {
            "horizon": options.horizon,
            "period": options.period,
            "missing": options.missing,
        }
        return cls(name, digest, table, roles, features, times, estimate, notes)

    def log(self, *more: str) -> DecisionLog:
        """Return the log; `more` features stand after those asked for."""
        from consequential.log.frames import feature_names

        names = feature_names(self.table, self.features) if self.features else []
        names += [name for name in more if name not in names]
        return self.log_of(names)

    def log_of(self, features: Sequence[str]) -> DecisionLog:
        """Return the log with these features, an indicator `column=word` among them."""
        import pyarrow as pa

        from consequential.log import DecisionLog

        table, columns = self.table, dict(self.roles)
        if "label" not in columns:  # some questions need none
            columns["label"] = "label" + "'" * (len(table.column_names) + 1)
            table = table.append_column(columns["label"], pa.nulls(len(table), pa.float64()))
        if "cost_column" in columns:
            columns["cost"] = columns.pop("cost_column")
        given: dict[str, Any] = {**columns, "propensity": columns.get("propensity", self.estimate)}
        log = DecisionLog.from_frame(table, features=list(features), **self.times, **given)
        return replace(log, notes=(*self.notes, *log.notes))

    def columns_of(self, rule: DecisionRule) -> tuple[str, ...]:
        """Names of the features a rule looks at; not those made up for an array (x0, x1, ...)."""
        names, known = rule.feature_names, self.table.column_names
        return tuple(name for name in names if name in known or not re.fullmatch(r"x\d+", name))

    def new_words(self, names: Iterable[str]) -> list[str]:
        """Say which words of the file no indicator among the names stands for."""
        known: dict[str, set[str]] = {}
        for name in names:
            column, equals, word = name.partition("=")
            if equals and name not in self.table.column_names:
                known.setdefault(column, set()).add(word)
        notes = []
        for column, words in known.items():
            if column not in self.table.column_names:
                continue
            strange = Counter(
                text for text in map(str, self.table[column].to_pylist()) if text not in words
            )
            for word, count in strange.most_common(3):
                rows = "1 row has" if count == 1 else f"{count} rows have"
                notes.append(
                    f"{rows} the {column} {word!r}, which the policy has never seen: it treats "
                    f"them as having no {column} at all"
                )
        return notes


def announce(log: DecisionLog) -> None:
    """Print what was understood of a log, and what is suspicious in it."""
    for note in (*log.notes, *log.concerns):
        print(f"note: {note}")


def _features(
    asked: Sequence[str], known: dict[str, None], roles: dict[str, str]
) -> tuple[str, ...]:
    taken = {name: role for role, name in roles.items()}
    names: list[str] = []
    for text in asked:
        if text == ALL_OTHERS and text not in known:
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
