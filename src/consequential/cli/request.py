"""Request: the options of a command about a decision log, and how it is run."""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

from consequential.cli.log_options import NamedRule, Source, named
from consequential.cli.results import Findings, Folder
from consequential.evaluation import (
    Evaluation,
    Overlap,
    Sensitivity,
    WinnersCurseWarning,
    sensitivity,
)
from consequential.evaluation.earnings import Earnings, earnings
from consequential.learning import FairPolicyLearner
from consequential.learning.bounds import compared_in
from consequential.log import DecisionLog
from consequential.objective.fairness import Bound, fairness_named
from consequential.objective.weightings import (
    Clipped,
    DoublyRobust,
    InversePropensity,
    SelfNormalised,
    Weighting,
)

_RULES = ("policy", "new", "old", "candidate")  # options that name a rule
# how many time steps of a period a month has
_PER_MONTH = {
    "day": 365.25 / 12,
    "week": 365.25 / 84,
    "month": 1.0,
    "quarter": 1 / 3,
    "year": 1 / 12,
}


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a command, the log they are about, and the rules they name."""

    options: argparse.Namespace
    source: Source
    log: DecisionLog
    rules: dict[str, NamedRule]
    learned_weighting: Weighting | None = None  # of a learner with a model of the label

    def print_log(self) -> None:
        """Print what policies are learned from, before the learning, which takes time."""
        print(f"{self.log}\nfeatures: {', '.join(self.log.feature_names)}")

    def question(self, *names: str) -> dict[str, Any]:
        """Return options as keywords of `evaluate` and the like: all of them, or those named."""
        options = self.options
        asked = {
            "cost": self.cost,
            "fairness": self.fairness,
            "weighting": self.weighting,
            "confidence": options.confidence,
            "seed": options.seed,
        }
        return {name: asked[name] for name in names or asked}

    @property
    def interval(self) -> dict[str, Any]:
        """How intervals are made, as keywords of `evaluate` and `compare`."""
        if self.options.past_floor is not None and self.options.method == "normal":
            raise ValueError("--past-floor is for --method any_time only")
        return {"method": self.options.method, "floor": self.options.past_floor}

    @property
    def cost(self) -> float:
        """What accepting costs; of no effect where every row has its own cost."""
        cost, by_row, money = self.options.cost, self.log.cost, self.money
        if money is not None and money.cost is not None:
            return money.cost
        if cost is not None and by_row is not None:
            raise ValueError("give one of --cost, --cost-column and --value")
        if cost is None and by_row is None:
            raise ValueError(
                "give --cost, what accepting costs between 0 and 1: a loan of 100 that earns 10 "
                "when repaid and loses 60 when not has cost 60 / (60 + 10) = 0.857 (fit, evaluate, "
                "compare and plan also take --gain 10 --loss 60). A column of profits and losses "
                "takes the place of labels and cost: --value"
            )
        return 0.5 if cost is None else float(cost)

    @property
    def money(self) -> Money | None:
        """What is asked about money."""
        return Money.asked(self.options, self.log)

    def earnings(self, new: Any, log: DecisionLog, old: Any = None) -> dict[str, Earnings]:
        """Return what a rule earns where money is asked for, else nothing."""
        if (money := self.money) is None:
            return {}
        asked = self.question("weighting", "confidence", "seed") | self.interval
        if money.cost is None:
            asked["cost"] = None if log.has_costs else self.cost
        return {"earnings": earnings(new, log, old=old, **asdict(money), **asked)}

    @property
    def fairness(self) -> str:
        """The name of the fairness notion, of several bounds that of the first."""
        if self.bounds:
            return self.bounds[0].notion.name
        return fairness_named(self.options.fairness.replace("-", "_").replace(" ", "_")).name

    @property
    def weighting(self) -> Weighting:
        """How accepted people are weighted."""
        if self.options.weighting is None:
            return self.learned_weighting or InversePropensity()
        name, colon, largest = self.options.weighting.partition(":")
        if name == "clipped":
            try:
                return Clipped(float(largest))
            except ValueError:
                raise ValueError(
                    f"--weighting clipped:M takes the largest weight, 20 say, not {largest!r}"
                ) from None
        if colon:
            raise ValueError(f"--weighting {name} takes no number")
        known: dict[str, Any] = {
            "inverse": InversePropensity,
            "clipped:M": Clipped,
            "self-normalised": SelfNormalised,
            "doubly-robust": DoublyRobust,
        }
        made: Weighting = named("weighting", name, known)()
        return made

    @property
    def bounds(self) -> list[Bound]:
        """The bounds that are asked for one by one."""
        found = []
        for text in vars(self.options).get("bound") or ():
            notion, gap, by = (*text.split(":", 2), None, None)[:3]
            try:
                found.append(Bound(notion.replace("-", "_"), float(gap or ""), by))
            except ValueError as error:
                raise ValueError(
                    f"--bound takes a notion, a gap and maybe a sensitive column, as in "
                    f"equal_opportunity:0.05:age, not {text!r}: {error}"
                ) from None
        if found and self.options.bound_confidence is not None:  # which is not --confidence
            raise ValueError("--bound-confidence does not go with --bound: give --max-gap")
        return found

    def compared(self, rows: DecisionLog) -> DecisionLog:
        """Return rows with the groups that figures are about: those of the first bound."""
        return compared_in(rows, self.bounds[0]) if self.bounds else rows

    def acceptance(self, option: str) -> float | dict[Any, float] | None:
        """Return the bound of an option: a share of all applicants, or shares by group."""
        shares = getattr(self.options, option)
        if shares is None:
            return None
        if len(shares) == 1 and shares[0][0] is None:
            return float(shares[0][1])
        groups = {str(group): group for group in self.log.groups}
        if any(name not in groups for name, _ in shares):
            raise ValueError(
                f"--{option.replace('_', '-')} takes one share of all applicants, or GROUP=SHARE "
                f"for groups of the log, which are {', '.join(groups)}"
            )
        return {groups[name]: share for name, share in shares}

    def learner(self, **bound: Any) -> FairPolicyLearner:
        """Return the learner of policies of the form that is asked for, under a bound."""
        options, feature_map = self.options, None
        if options.spline is not None:
            feature_map = SplineTransformer(n_knots=options.spline, include_bias=False)
        elif options.polynomial is not None:
            products = PolynomialFeatures(options.polynomial, include_bias=False)
            # unscaled, products of large amounts would dominate all other features
            feature_map = make_pipeline(StandardScaler(), products)
        return FairPolicyLearner(
            **self.question("cost", "weighting"),
            fairness=options.fairness if self.bounds else self.fairness,
            bounds=self.bounds or None,
            max_acceptance=self.acceptance("max_acceptance"),
            min_acceptance=self.acceptance("min_acceptance"),
            monotone=dict(options.monotone or ()) or None,
            method=options.learn,
            link=options.link,
            feature_map=feature_map,
            l2=options.l2,
            floor=options.floor,
            unsupported=options.unsupported,
            uses_sensitive=options.uses_sensitive,
            random_state=options.seed,
            **bound,
        )

    def sensitivity(self, rule: Any, log: DecisionLog, **versus: Any) -> dict[str, Sensitivity]:
        """Return what errors in estimated propensities could change; nothing if they are logged."""
        if not self.log.estimated_propensity:
            return {}
        asked = self.question("cost", "fairness", "confidence", "seed")
        return {"sensitivity": sensitivity(rule, log, **versus, **asked)}


def log_command(analyse: Callable[[Request], Findings]) -> Callable[[argparse.Namespace], int]:
    """Turn an analysis into a command: it reads a log, prints and writes what was found."""
    return partial(_run, analyse=analyse)


def _run(options: argparse.Namespace, analyse: Callable[[Request], Findings]) -> int:
    folder = Folder.checked(options)
    given = {name: each for name in _RULES if (each := vars(options).get(name)) is not None}
    rules = {name: NamedRule.read(each) for name, each in given.items()}
    digests = {name: each.digest for name, each in rules.items()}
    source = Source.read(options)
    log = source.log_for(*rules.values())
    announced = (*log.notes, *log.concerns)
    for note in announced:
        print(f"note: {note}")
    with _warnings_as_notes() as warned:
        found = analyse(Request(options, source, log, rules))
    found = replace(found, notes=[*found.notes, *warned])
    print(found.text)
    for note in dict.fromkeys(found.notes):
        if note not in announced and note not in found.text:
            print(f"  note: {note}")
    folder.write(found, log, source, digests)
    if options.columns is None:
        print(f"columns: {(folder.path / 'columns.toml').resolve()}")
    if found.policy is not None:
        print(f"policy: {(folder.path / 'policy.json').resolve()}")
        print(f"model card: {(folder.path / 'model-card.md').resolve()}")
    print(f"report: {(folder.path / 'report.html').resolve()}")
    return 130 if found.interrupted else 0


@contextmanager
def _warnings_as_notes() -> Iterator[list[str]]:
    """Collect what scikit-learn warns of as notes, once each; pass other warnings on."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", WinnersCurseWarning)  # a note of the rule says it
        warnings.filterwarnings("always", module=r"sklearn\.")
        yield notes
    theirs: Counter[str] = Counter()
    for each in caught:
        if f"{os.sep}sklearn{os.sep}" in each.filename:
            first, *_ = str(each.message).strip().split("\n\n")
            theirs[" ".join(first.split())] += 1
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    notes += [
        f"scikit-learn warned{'' if count == 1 else f' {count} times'}: {text}"
        for text, count in theirs.items()
    ]


def decided(log: DecisionLog) -> str:
    """Return what the log has; where a page ends it says so in full."""
    return f"The log has {len(log)} decisions; {log.n_accepted} people were accepted."


def left_out(log: DecisionLog) -> list[str]:
    """Say how many decisions are too young to have their outcomes."""
    count = len(log) - len(log.settled())
    if not count:
        return []
    return [
        f"{count} decisions younger than the horizon of {log.horizon} time steps are left out, "
        "accepted and rejected alike"
    ]


def exploration_notes(found: Overlap) -> list[str]:
    """Return what is wrong with a log's exploration, one sentence each."""
    verdicts = {"partly": "the log explores in part: ", "no": "the log does not explore: "}
    verdict = verdicts.get(found.exploring, "")
    return [*(verdict + reason for reason in found.reasons), *found.concerns]


def money_notes(
    found: Evaluation, earned: dict[str, Earnings], what: str = "this policy"
) -> list[str]:
    """Return what to know of a rule's value first: that it surely loses, and of its money."""
    utility, unit = found.utility, "of utility"
    notes: list[str] = []
    for each in earned.values():
        utility, unit = each.overall.new, each.unit
        notes += each.notes
    if utility.known and utility.high < 0.0:
        lost = f"{-utility.value:.{2 if earned else 4}f} {unit}".strip()
        notes.insert(
            0,
            f"{what} loses {lost} per application; accepting nobody, without a floor, loses "
            "nothing",
        )
    return notes


def with_earnings(text: str, earned: dict[str, Earnings]) -> str:
    """Return a text with what is earned after it, where that was asked for."""
    return "\n".join([text, *(f"\nwhat it earns\n{each}" for each in earned.values())])


@dataclass(frozen=True, slots=True)
class Money:
    """What label 1 brings and label 0 takes, in a unit, and how many applications a month has.

    Without `gain` and `loss` the log's amounts are money already, and the cost says the rest.
    """

    gain: float | None
    loss: float | None
    unit: str
    monthly: float | None

    @classmethod
    def asked(cls, options: argparse.Namespace, log: DecisionLog) -> Money | None:
        """Return what the options say about money; None where they say nothing."""
        gain, loss, unit = (vars(options).get(name) for name in ("gain", "loss", "unit"))
        if gain is None and loss is None and unit is None:
            return None
        if (gain is None) != (loss is None) or gain == 0.0 or loss == 0.0:
            raise ValueError(
                "give --gain, what label 1 brings, and --loss, what label 0 takes, both above 0"
            )
        by_row = options.cost is not None or log.cost is not None
        if gain is not None and by_row:
            raise ValueError(
                "--gain and --loss say what accepting costs, loss / (gain + loss): leave --cost, "
                "--cost-column and --value out"
            )
        if gain is None and log.amount is None:
            raise ValueError(
                "--unit is about money: say with --gain and --loss what an accepted person brings "
                "and takes, with --value, or with --amount which column has the amounts"
            )
        return cls(gain, loss, unit or "", options.rate or per_month(options, log))

    @property
    def worth(self) -> float:
        """What a unit of utility is in money: what label 1 brings and label 0 takes, together."""
        return 1.0 if self.gain is None or self.loss is None else self.gain + self.loss

    @property
    def cost(self) -> float | None:
        """What accepting costs, between 0 and 1; None where gain and loss do not say it."""
        if self.gain is None or self.loss is None:
            return None
        return self.loss / (self.gain + self.loss)


def per_month(options: argparse.Namespace, log: DecisionLog) -> float | None:
    """Return how many applications a month of the log has, where its time steps have a length."""
    if options.period is None:
        return None
    steps = int(log.time_step.max() - log.time_step.min()) + 1
    return len(log) / steps * _PER_MONTH[options.period]


def outcome_months(options: argparse.Namespace, log: DecisionLog) -> float:
    """Return how many months an outcome takes by the log's horizon; 0 where nothing says it."""
    return 0.0 if options.period is None else (log.horizon or 0) / _PER_MONTH[options.period]
