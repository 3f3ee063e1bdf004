"""Columns file: what the columns of a log mean, written by one command and read by later ones."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

# the options about columns, which are the keys of the file
_OPTIONS = (
    "features",
    "sensitive",
    "decision",
    "label",
    "positive_label",
    "value",
    "value_range",
    "propensity",
    "estimate_propensity",
    "time_step",
    "period",
    "amount",
    "cost_column",
    "horizon",
    "missing",
    "observed",
)
_REPLACED_BY = {  # the option that takes an entry's place, besides its own
    "propensity": "estimate_propensity",
    "estimate_propensity": "propensity",
    "label": "value",
    "positive_label": "value",
    "value": "label",
    "value_range": "label",
}

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {  # of entries other than names
    "estimate_propensity": ((bool,), "true or false"),
    "horizon": ((int,), "a whole number"),
    "value_range": ((int, float), "two numbers in brackets"),
}


def columns_text(parameters: Mapping[str, Any], features: Sequence[str], log: str) -> str:
    """Return the file for a log's name, from the options of a command and the features they mean.

    Examples
    --------
    >>> from consequential.cli.column_options import columns_text
    >>> print(columns_text({"decision": "approved", "horizon": 3}, ["income", "age"], "loans.csv"))
    # What the columns of loans.csv mean: later commands read it with --columns.
    features = ["income", "age"]
    decision = "approved"
    horizon = 3
    <BLANKLINE>
    """
    known = {name: parameters.get(name) for name in _OPTIONS} | {"features": list(features)}
    if known["missing"] == "refuse":  # as without it
        del known["missing"]
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in known.items()
        if value not in (None, False, [])
    ]
    name = json.dumps(log, ensure_ascii=False)[1:-1]  # on one line, whatever is in it
    about = f"# What the columns of {name} mean: later commands read it with --columns."
    return "\n".join([about, *lines, ""])


def with_columns(arguments: Sequence[str]) -> list[str]:
    """Return arguments of a command with the options that its `--columns` file stands for.

    Options that are given besides the file take the place of the file's.
    """
    file = _file(arguments)
    if file is None:
        return list(arguments)
    given = [text.partition("=")[0] for text in arguments if text.startswith("--")]
    flags = []
    for name, value in _read(file).items():
        options = (name, _REPLACED_BY.get(name, name))
        if not any(_flag(option).startswith(each) for option in options for each in given):
            flags += _flags(name, value)
    return [arguments[0], *flags, *arguments[1:]]


def _file(arguments: Sequence[str]) -> Path | None:
    """Return the file that `--columns` names; None without one, or where no file follows."""
    for text, following in pairwise([*arguments, ""]):
        if text.startswith("--columns="):
            return Path(text.partition("=")[2])
        if text == "--columns" and following:
            return Path(following)
    return None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _flags(name: str, value: Any) -> list[str]:
    """Return the arguments that say the same as an entry of the file."""
    if value is True:
        return [_flag(name)]
    values = [str(each) for each in value] if isinstance(value, list) else [value]
    if len(values) != 1 and not any("," in each for each in values):
        values = [",".join(values)]  # as people write it
    return [f"{_flag(name)}={each}" for each in values]


def _read(file: Path) -> dict[str, Any]:
    """Return what a file says, if it can be meant."""
    if not file.is_file():
        raise FileNotFoundError(
            f"no file {str(file)!r} for --columns: give the columns.toml that an earlier command "
            "wrote to its folder"
        )
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not TOML: {error}") from None
    for name, value in found.items():
        if name not in _OPTIONS:
            raise ValueError(f"{file} has {name!r}, which is none of {', '.join(_OPTIONS)}")
        listed = isinstance(value, list) and name in ("features", "value_range")
        texts = value if listed else [value]
        kinds, wanted = _KINDS.get(name, ((str,), "a name in quotes"))
        if not all(type(each) in kinds for each in texts):
            raise ValueError(f"{file}: {name} must be {wanted}, not {value!r}")
    return {name: value for name, value in found.items() if value is not False}
