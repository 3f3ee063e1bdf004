"""Decisions: what a policy decides about the people in a file, with reasons for refusals."""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from consequential.cli.log_options import NamedRule, named, read_rows, sensitive_names
from consequential.cli.results import check_new_file
from consequential.files import write_atomically
from consequential.log.attributes import intersection
from consequential.policy import DecisionRule, Policy, ThresholdPolicy
from consequential.policy.cells import as_number, cells_of
from consequential.policy.features import table_columns
from consequential.policy.policy import groups_of, policies_in
from consequential.policy.raw_column import RawColumn
from consequential.policy.reasons import reasons_for

_WRITTEN = ("decision", "propensity", "reasons")
_LISTED = 100  # rows that cannot be decided, at most
_UNSUPPORTED = "the log that the policy was learned from accepted next to nobody like this"
_ORDINARY = "no single feature at its reference value would raise the score"


def decide(options: argparse.Namespace) -> int:
    """Draw a decision for each row of a file, and write it with its propensity and reasons."""
    inputs = [options.file, Path(options.policy)]
    check_new_file(options.out, overwrite=options.overwrite, inputs=inputs)
    if options.id in _WRITTEN:
        raise ValueError(f"--id {options.id} has the name of a column that is written: rename it")
    rule = NamedRule.read(options.policy)
    rule.check_groups_given(options.sensitive)
    table, notes = read_rows(options.file)
    known = dict.fromkeys(table.column_names)
    asked = {"id": [options.id] if options.id else []}
    asked["sensitive"] = sensitive_names(options.sensitive, known) if options.sensitive else []
    for option, names in asked.items():
        for name in names:
            named(f"column for --{option}:", name, known)
    ids = table[options.id] if options.id else pa.array(range(len(table)))
    people = _People.of(table, rule.rule, asked["sensitive"])
    if isinstance(rule.rule, Policy) and rule.rule.summary is None:
        notes += ("no reasons are given: the policy does not know the people it was learned from",)
    for note in (*notes, *people.notes):
        print(f"note: {note}")
    _list_undecided(people.undecided, options)
    decided = _decided(people, rule.rule, np.random.default_rng(options.seed))
    _write(pa.table({options.id or "row": ids} | decided), options)
    accepted, left = sum(filter(None, decided["decision"])), len(people.undecided)
    refused = f"{len(table) - accepted - left} refused"
    print(f"{accepted} accepted, {refused}{f', {left} left undecided' if left else ''}")
    print(f"policy: {rule.name}, sha256 {rule.digest}")
    print(f"decisions: {options.out.resolve()}")
    return 0


@dataclass(frozen=True, slots=True)
class _People:
    """The people of a table whom a rule can decide on, and why it cannot on the others."""

    rows: NDArray[np.intp]  # where they are in the table
    features: Any
    sensitive: NDArray[Any] | None
    undecided: dict[int, str]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, table: Any, rule: DecisionRule, sensitive: list[str]) -> _People:
        names, known = rule.raw_columns, dict.fromkeys(table.column_names)
        prepared = {
            column.name: column
            for policy in policies_in(rule)
            if policy.preparation is not None
            for column in policy.preparation.columns
        }
        if not names and isinstance(rule, Policy | ThresholdPolicy):
            raise ValueError(
                "the policy does not know the names of its columns, since it was learned from an "
                "array: learn it from a table"
            )
        columns: dict[str, Any] = {}
        undecided: dict[int, str] = {}
        for name in table_columns(names, table.column_names):
            named("column that the policy looks at:", name, known)
            if name in prepared:
                columns[name], wrong = _raw(table[name], prepared[name])
            else:
                columns[name], wrong = (_numbers if name in names else _words)(table[name])
            undecided |= {row: f"{name} is {text}" for row, text in wrong.items()}
        groups = None
        if rule.uses_sensitive and sensitive:
            values = [table[name].to_pylist() for name in sensitive]
            several = [intersection(each) for each in zip(*values, strict=True)]
            groups = np.array(several if len(values) > 1 else values[0], dtype=object)
            for row in [row for row, each in enumerate(groups) if each not in groups_of(rule)]:
                column, listed = ", ".join(sensitive), ", ".join(map(str, groups_of(rule)))
                undecided[row] = f"{column} is {_shown(groups[row])}, not one of {listed}"
        rows = np.array([row for row in range(len(table)) if row not in undecided], dtype=np.intp)
        features = pa.table(columns).take(rows) if columns else np.empty((len(rows), 0))
        return cls(
            rows=rows,
            features=features,
            sensitive=None if groups is None else groups[rows],
            undecided=dict(sorted(undecided.items())),
            notes=rule.unfamiliar(features) if columns else (),
        )


def _raw(column: Any, known: RawColumn) -> tuple[Any, dict[int, str]]:
    """Return a column that the policy prepares itself, and what rows have that it cannot read."""
    wrong = known.unreadable(cells_of(nw.from_native(column, series_only=True)))
    return column, {row: _shown(value) for row, value in wrong.items()}


def _numbers(column: Any) -> tuple[Any, dict[int, str]]:
    """Return a column as numbers, and what rows have that is none."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        numbers = column.cast(pa.float64()).to_numpy()
    else:
        numbers = np.array([as_number(value) for value in column.to_pylist()], dtype=np.float64)
    rows = np.flatnonzero(~np.isfinite(numbers))
    return pa.array(numbers), {int(row): _shown(column[int(row)].as_py()) for row in rows}


def _words(column: Any) -> tuple[Any, dict[int, str]]:
    """Return a column of words, and the rows where one is missing."""
    return column, dict.fromkeys(np.flatnonzero(column.is_null().to_numpy()).tolist(), "missing")


def _shown(value: Any) -> str:
    return "missing" if value is None or value != value else repr(value)


def _decided(people: _People, rule: DecisionRule, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Return the columns of decisions; people who cannot be decided on have only a reason."""
    n = len(people.rows) + len(people.undecided)
    columns: dict[str, list[Any]] = {name: [None] * n for name in _WRITTEN}
    for row, why in people.undecided.items():
        columns["reasons"][row] = f"cannot be decided: {why}"
    decision = rule.decide(people.features, people.sensitive, rng=rng)
    propensity = rule.propensity(people.features, people.sensitive)
    for row, taken, chance in zip(people.rows, decision, propensity, strict=True):
        columns["decision"][row], columns["propensity"][row] = int(taken), float(chance)
    refused = np.flatnonzero(~decision)
    reasons = _reasons(people, rule, refused)
    for place, texts in zip(refused, reasons, strict=True):
        if propensity[place] >= 0.5:
            texts = [f"chance, at a propensity of {propensity[place]:.2g}", *texts]
        columns["reasons"][people.rows[place]] = "; ".join(texts)
    return columns


def _reasons(people: _People, rule: DecisionRule, refused: NDArray[np.intp]) -> list[list[str]]:
    """Return what holds down the scores of some people; nothing where the rule gives no reasons."""
    if not isinstance(rule, Policy) or rule.summary is None or len(refused) == 0:
        return [[] for _ in refused]
    features = people.features.take(refused)
    sensitive = None if people.sensitive is None else people.sensitive[refused]
    found = reasons_for(rule, features, sensitive)
    beyond = ~rule.supports(features, sensitive) & rule.overrules
    return [
        [_UNSUPPORTED] * bool(out) + [str(reason) for reason in reasons] or [_ORDINARY]
        for out, reasons in zip(beyond, found, strict=True)
    ]


def _list_undecided(undecided: dict[int, str], options: argparse.Namespace) -> None:
    for row, why in list(undecided.items())[:_LISTED]:
        print(f"row {row}: {why}", file=sys.stderr)
    if len(undecided) > _LISTED:
        print(f"... and {len(undecided) - _LISTED} more", file=sys.stderr)
    if undecided and not options.allow_undecided:
        count = "1 row" if len(undecided) == 1 else f"{len(undecided)} rows"
        raise ValueError(
            f"{count} of {options.file} cannot be decided, so nothing is written: correct the "
            "file, or leave such rows without a decision with --allow-undecided"
        )


def _write(table: Any, options: argparse.Namespace) -> None:
    buffer = io.BytesIO()
    if options.out.suffix.lower() == ".parquet":
        pa.parquet.write_table(table, buffer, write_page_checksum=True)
    else:
        pa.csv.write_csv(table, buffer)
    write_atomically(options.out, buffer.getvalue(), replace=options.overwrite)
