"""Questions: options about cost, fairness, weights and intervals that commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from consequential.cli.arguments import at_least_two, named, share

if TYPE_CHECKING:
    from consequential.log import DecisionLog
    from consequential.objective import Weighting

METHODS = ("normal", "bootstrap", "bernstein", "any_time")
_WEIGHTINGS = ("inverse", "clipped:M", "self-normalised", "doubly-robust")


def add_question(
    parser: argparse.ArgumentParser, *, methods: bool = True, folds: bool = False
) -> None:
    """Add what is asked of a log; folds where something is learned before it is judged."""
    add = parser.add_argument_group("question").add_argument
    add(
        "--cost",
        type=share,
        metavar="C",
        help="what accepting costs: label 1 is worth 1 - C, label 0 -C (or --cost-column)",
    )
    add(
        "--fairness",
        metavar="NOTION",
        default="demographic_parity",
        help="whose gap counts; also equal_opportunity, equalised_odds, predictive_parity",
    )
    add(
        "--weighting",
        default="inverse",
        metavar="NAME",
        help=f"how accepted people stand in for the rejected: {', '.join(_WEIGHTINGS)}",
    )
    add("--confidence", type=share, default=0.95, help="how often intervals cover")
    if methods:
        add(
            "--method",
            choices=METHODS,
            default="normal",
            help="kind of interval; any_time is right however often one looks",
        )
        add(
            "--past-floor",
            type=share,
            metavar="EPS",
            help="for bernstein and any_time: the smallest propensity the past rule could give "
            "anybody (default: the smallest in the log)",
        )
    if folds:
        add(
            "--folds",
            type=at_least_two,
            default=5,
            metavar="K",
            help="judge each row by a policy learned from the other K - 1 of K parts",
        )
    add("--seed", type=int, default=0, help="of whatever is random")


def cost_of(options: argparse.Namespace, log: DecisionLog) -> float:
    """Return the cost, or any where every row has its own."""
    if options.cost is not None and log.cost is not None:
        raise ValueError("give --cost or --cost-column, not both")
    if options.cost is not None:
        return float(options.cost)
    if log.cost is None:
        raise ValueError(
            "give --cost, what accepting costs between 0 and 1: a loan of 100 that earns 10 when "
            "repaid and loses 60 when not has cost 60 / (60 + 10) = 0.857"
        )
    return 0.5  # of no effect


def weighting_of(options: argparse.Namespace) -> Weighting:
    """Return the weights of a name."""
    from consequential.objective import Clipped, DoublyRobust, InversePropensity, SelfNormalised

    name, colon, largest = options.weighting.partition(":")
    if name == "clipped":
        try:
            return Clipped(float(largest))
        except ValueError:
            raise ValueError(
                f"--weighting clipped:M takes the largest weight, 20 say, not {largest!r}"
            ) from None
    if colon:
        raise ValueError(f"--weighting {name} takes no number")
    known: dict[str, type[Any]] = {
        "inverse": InversePropensity,
        "clipped:M": Clipped,
        "self-normalised": SelfNormalised,
        "doubly-robust": DoublyRobust,
    }
    made: Weighting = named("weighting", name, known)()
    return made


def fairness_of(options: argparse.Namespace) -> str:
    """Return the notion's name, hyphens or not."""
    from consequential.objective import fairness_named

    return fairness_named(options.fairness.replace("-", "_").replace(" ", "_")).name


def method_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return how intervals are made, as keywords of `evaluate` and `compare`."""
    return {"method": options.method, "floor": options.past_floor}


def question_of(options: argparse.Namespace, log: DecisionLog) -> dict[str, Any]:
    """Return what is asked, as keywords of `evaluate` and the like."""
    return {
        "cost": cost_of(options, log),
        "fairness": fairness_of(options),
        "weighting": weighting_of(options),
        "confidence": options.confidence,
        "seed": options.seed,
    }
