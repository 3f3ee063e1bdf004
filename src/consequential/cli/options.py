"""Options: the arguments that commands share, each defined once and added by name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")

ALL_OTHERS = "all-others"


def named(what: str, name: str, known: Mapping[str, Found]) -> Found:
    """Return what has a name, or say which names are close to it."""
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=4, cutoff=0.5)
    advice = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    raise ValueError(f"no {what} {name!r}; {advice}")


def cluster_of(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return the context in which `--cluster` does the work, or this machine without it."""
    from consequential.workers import cluster

    return nullcontext() if options.cluster is None else cluster(options.cluster)


# --- types of values


def at_least_one(text: str) -> int:
    """Read a count."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def at_least_two(text: str) -> int:
    """Read a number of parts."""
    if at_least_one(text) == 1:
        raise argparse.ArgumentTypeError("must be at least 2, not 1")
    return int(text)


def not_negative(text: str) -> float:
    """Read a number such as a penalty."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and not negative, not {text}")
    return number


def share(text: str) -> float:
    """Read a number strictly between 0 and 1."""
    number = text.strip().removesuffix("%").replace(",", ".")
    try:
        value = float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if number == text.strip() and 0.0 < value < 1.0:
        return value
    percent = text.strip().endswith("%") or 1.0 < value < 100.0
    meant = value / 100.0 if percent else value
    advice = f": write {meant:g}" if 0.0 < meant < 1.0 else ""
    raise argparse.ArgumentTypeError(f"must lie strictly between 0 and 1, not {text}{advice}")


def zero_or_share(text: str) -> float:
    """Read a number from 0 on and below 1."""
    return 0.0 if not_negative(text) == 0.0 else share(text)


# --- options

_OPTIONS: dict[str, dict[str, Any]] = {
    # what the columns of a file mean
    "--features": {
        "action": "append",
        "metavar": "A,B,...",
        "help": "what a decision may depend on, words too; give it again for a name with a comma. "
        f"`{ALL_OTHERS}` takes every column not named otherwise: mind numbers of accounts and "
        "what is only known afterwards.",
    },
    "--sensitive": {"metavar": "NAME", "help": "the sensitive group"},
    "--decision": {"metavar": "NAME", "help": "1 accepted, 0 rejected, or words for it"},
    "--label": {
        "metavar": "NAME",
        "help": "1 as hoped, 0 not, or words for it; empty where rejected or not known yet",
    },
    "--propensity": {
        "metavar": "NAME",
        "help": "the probability with which the rule in force would accept; the decision itself, "
        "where it left nothing to chance",
    },
    "--estimate-propensity": {
        "action": "store_true",
        "help": "estimate it, where it was not logged; refused where decisions left nothing to "
        "chance",
    },
    "--time-step": {"metavar": "NAME", "help": "when it was decided, a whole number or a date"},
    "--period": {
        "choices": ("day", "week", "month", "quarter", "year"),
        "help": "what a time step is, where --time-step has dates",
    },
    "--amount": {"metavar": "NAME", "help": "the size of each decision"},
    "--cost-column": {
        "metavar": "NAME",
        "help": "what accepting costs, where it differs by person",
    },
    "--horizon": {
        "type": at_least_one,
        "metavar": "STEPS",
        "help": "how many time steps an outcome may take; younger decisions are left out",
    },
    "--missing": {
        "choices": ("refuse", "against", "at_random"),
        "default": "refuse",
        "help": "accepted people whose label never came: an error, any label they could have, or "
        "missing by chance given features and group",
    },
    "--observed": {
        "metavar": "NAME",
        "help": "for at_random: the probability that a label is known",
    },
    # what is asked about the log
    "--cost": {
        "type": share,
        "metavar": "C",
        "help": "what accepting costs: label 1 is worth 1 - C, label 0 -C (or --cost-column)",
    },
    "--fairness": {
        "metavar": "NOTION",
        "default": "demographic_parity",
        "help": "whose gap counts; also equal_opportunity, equalised_odds, predictive_parity",
    },
    "--weighting": {
        "default": "inverse",
        "metavar": "NAME",
        "help": "how accepted people stand in for the rejected: inverse, clipped:M, "
        "self-normalised, doubly-robust",
    },
    "--confidence": {"type": share, "default": 0.95, "help": "how often intervals cover"},
    "--method": {
        "choices": ("normal", "bootstrap", "bernstein", "any_time"),
        "default": "normal",
        "help": "kind of interval; any_time is right however often one looks",
    },
    "--past-floor": {
        "type": share,
        "metavar": "EPS",
        "help": "for bernstein and any_time: the smallest propensity the past rule could give "
        "anybody (default: the smallest in the log)",
    },
    "--folds": {
        "type": at_least_two,
        "default": 5,
        "metavar": "K",
        "help": "evaluate each row under a policy learned from the other K - 1 of K parts",
    },
    "--seed": {"type": int, "default": 0, "help": "of whatever is random"},
    # what learned policies look like
    "--link": {
        "choices": ("logistic", "smooth_semi_logistic", "semi_logistic"),
        "default": "logistic",
        "help": "from a score to a probability",
    },
    "--spline": {
        "type": at_least_two,
        "metavar": "K",
        "help": "a spline with K knots in each feature",
    },
    "--polynomial": {
        "type": at_least_two,
        "metavar": "D",
        "help": "products of features up to degree D",
    },
    "--uses-sensitive": {
        "action": "store_true",
        "help": "let each group have parameters of its own: the policy then decides by the "
        "sensitive attribute",
    },
    "--l2": {
        "type": not_negative,
        "default": 1e-8,
        "help": "shrinkage; 1e-3, say, makes policies less steep, which keep bounds better on "
        "others",
    },
    "--floor": {
        "type": zero_or_share,
        "default": 0.0,
        "help": "nobody is accepted with less probability",
    },
    "--unsupported": {
        "choices": ("reject", "as_logged", "trust_model"),
        "default": "reject",
        "help": "people like whom the log accepts nobody: reject them, do as the past rule did, "
        "or extrapolate from others",
    },
    # how much work there is, who does it, and where results go
    "--seeds": {"type": at_least_one, "help": "runs of each"},
    "--jobs": {"type": at_least_one, "help": "threads (default: all cores)"},
    "--cluster": {
        "metavar": "ADDRESS",
        "help": "a Dask scheduler that does the work, tcp://host:8786 say (default: this machine)",
    },
    "--out": {"type": Path, "metavar": "DIR", "help": "folder for results"},
    "--overwrite": {
        "action": "store_true",
        "help": "replace other results of the same command",
    },
}


def add_option(group: argparse._ActionsContainer, name: str, **changes: Any) -> None:
    """Add a shared option, with changes of this command."""
    group.add_argument(name, **_OPTIONS[name] | changes)


def add_options(group: argparse._ActionsContainer, *names: str) -> None:
    """Add shared options as they are."""
    for name in names:
        add_option(group, name)


def add_columns(parser: argparse.ArgumentParser, *, features: str = "", label: bool = True) -> None:
    """Add the file and the options that say what its columns mean.

    `features` says what happens without `--features`; where it is empty, they are required.
    """
    parser.add_argument("file", type=Path, metavar="FILE", help="a decision log, CSV or Parquet")
    group = parser.add_argument_group("columns")
    words = f"{_OPTIONS['--features']['help']} {features}".strip()
    add_option(group, "--features", required=not features, help=words)
    add_option(group, "--sensitive")
    add_option(group, "--decision", required=True)
    add_option(group, "--label", required=label)
    add_options(
        group.add_mutually_exclusive_group(required=True), "--propensity", "--estimate-propensity"
    )
    add_options(group, "--time-step", "--period", "--amount", "--cost-column", "--horizon")
    add_options(group, "--missing", "--observed")


def add_question(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add what is asked about a log."""
    group = parser.add_argument_group("question")
    add_options(group, "--cost", "--fairness", "--weighting", "--confidence", *more, "--seed")


def add_policy_form(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what learned policies look like, and return the group of these options for more."""
    group = parser.add_argument_group("policy")
    add_option(group, "--link")
    add_options(group.add_mutually_exclusive_group(), "--spline", "--polynomial")
    add_options(group, "--uses-sensitive", "--l2", "--floor", "--unsupported")
    return group


def add_results(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add where the results of a question about a log go."""
    group = parser.add_argument_group("results")
    add_option(group, "--out", default=Path(folder))
    add_option(group, "--overwrite")
