"""Options: the arguments that commands share, each defined once and added by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
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


def _at_least(smallest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        if number < smallest:
            raise argparse.ArgumentTypeError(f"must be at least {smallest}, not {number}")
        return number

    return read


at_least_one, at_least_two = _at_least(1), _at_least(2)


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


def _option(words: str, **settings: Any) -> dict[str, Any]:
    return {"help": words, **settings}


_OPTIONS = {
    # what the columns of a file mean
    "--features": _option(
        "what a decision may depend on, words too; give it again for a name with a comma. "
        f"`{ALL_OTHERS}` takes every column not named otherwise: mind numbers of accounts and "
        "what is only known afterwards.",
        action="append",
        metavar="A,B,...",
    ),
    "--sensitive": _option("the sensitive group", metavar="NAME"),
    "--decision": _option("1 accepted, 0 rejected, or words for it", metavar="NAME"),
    "--label": _option(
        "1 as hoped, 0 not, or words for it; empty where rejected or not known yet", metavar="NAME"
    ),
    "--propensity": _option(
        "the probability with which the rule in force accepts; give the decision column itself "
        "if the rule left nothing to chance",
        metavar="NAME",
    ),
    "--estimate-propensity": _option(
        "estimate it, if it was not logged; refused if decisions left nothing to chance",
        action="store_true",
    ),
    "--time-step": _option("when it was decided, a whole number or a date", metavar="NAME"),
    "--period": _option(
        "what a time step is, where --time-step has dates",
        choices=("day", "week", "month", "quarter", "year"),
    ),
    "--amount": _option("the size of each decision", metavar="NAME"),
    "--cost-column": _option("what accepting costs, where it differs by person", metavar="NAME"),
    "--horizon": _option(
        "how many time steps an outcome may take; younger decisions are left out",
        type=at_least_one,
        metavar="STEPS",
    ),
    "--missing": _option(
        "accepted people whose label never came: refuse the log, allow any label (figures become "
        "bounds), or treat labels as missing at random given features and group",
        choices=("refuse", "against", "at_random"),
        default="refuse",
    ),
    "--observed": _option("for at_random: the probability that a label is known", metavar="NAME"),
    # what is asked about the log
    "--cost": _option(
        "what accepting costs: label 1 is worth 1 - C, label 0 -C (or --cost-column)",
        type=share,
        metavar="C",
    ),
    "--fairness": _option(
        "fairness notion; also equal_opportunity, equalised_odds, predictive_parity",
        default="demographic_parity",
        metavar="NOTION",
    ),
    "--weighting": _option(
        "how accepted people are weighted to represent the rejected: inverse, clipped:M, "
        "self-normalised, doubly-robust",
        default="inverse",
        metavar="NAME",
    ),
    "--confidence": _option("confidence level of intervals", type=share, default=0.95),
    "--method": _option(
        "kind of interval; any_time stays valid however often you look",
        choices=("normal", "bootstrap", "bernstein", "any_time"),
        default="normal",
    ),
    "--past-floor": _option(
        "for bernstein and any_time: the smallest propensity the past rule could give anybody "
        "(default: the smallest in the log)",
        type=share,
        metavar="EPS",
    ),
    "--folds": _option(
        "evaluate each row under a policy learned from the other K - 1 of K parts",
        type=at_least_two,
        default=5,
        metavar="K",
    ),
    "--seed": _option("random seed", type=int, default=0),
    # what learned policies look like
    "--link": _option(
        "how a score becomes a probability",
        choices=("logistic", "smooth_semi_logistic", "semi_logistic"),
        default="logistic",
    ),
    "--spline": _option("a spline with K knots in each feature", type=at_least_two, metavar="K"),
    "--polynomial": _option("products of features up to degree D", type=at_least_two, metavar="D"),
    "--uses-sensitive": _option(
        "let each group have parameters of its own: the policy then decides by the sensitive "
        "attribute",
        action="store_true",
    ),
    "--l2": _option(
        "shrinkage; with 1e-3, say, policies are less steep and keep bounds better on new people",
        type=not_negative,
        default=1e-8,
    ),
    "--floor": _option("smallest probability of acceptance", type=zero_or_share, default=0.0),
    "--unsupported": _option(
        "people such as the log never accepts: reject them, do as the past rule did, or "
        "extrapolate from others",
        choices=("reject", "as_logged", "trust_model"),
        default="reject",
    ),
    # how much work there is, who does it, and where results go
    "--seeds": _option("runs of each", type=at_least_one),
    "--jobs": _option("threads (default: all cores)", type=at_least_one),
    "--cluster": _option(
        "a Dask scheduler that does the work, tcp://host:8786 say (default: this machine)",
        metavar="ADDRESS",
    ),
    "--out": _option("folder for results", type=Path, metavar="DIR"),
    "--overwrite": _option("replace other results of the same command", action="store_true"),
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
