"""Plan: what an exploration floor costs, and when an improvement is proven under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.any_time import TUNED_FOR
from consequential.evaluation.contrasts import normal_quantile
from consequential.evaluation.cross_fitting import objective_of
from consequential.evaluation.evaluate import Method, checked_method
from consequential.evaluation.reach import Extremes
from consequential.evaluation.weighted_log import FEW
from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.objective import Objective
from consequential.objective.weightings import InversePropensity, effective_sample_size
from consequential.planning.option import Option
from consequential.planning.power import (
    Advantage,
    Bins,
    Stakes,
    decisions_to_any_time_proof,
    decisions_to_normal_proof,
    worst_advantage,
)
from consequential.policy import DecisionRule, Logged
from consequential.shares import checked_share
from consequential.tables import text_table

Floats = NDArray[np.float64]

_HEADINGS = (
    "floor",
    "more accepted",
    "loss",
    "if all fail",
    "decisions",
    "months",
    "total loss",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What `plan` worked out, one option per floor; print it for a table.

    `break_even` is the share of label 1 at which extra acceptances cost nothing, None for a log of
    values; `unit` is what losses and the improvement are counted in, after `in_money`, else empty.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 1], [0.0, 1.0], [None, 1])
    >>> found = cq.plan(log, cost=0.5, improvement=0.05, changed=0.5, floors=[0.1])
    >>> found.options[0].decisions, found.options[0].worst_loss
    (3880, 25.0)
    """

    options: tuple[Option, ...]
    improvement: float
    break_even: float | None
    power: float
    confidence: float
    method: str
    notes: tuple[str, ...]
    unit: str = ""

    def in_money(self, worth: float, unit: str = "") -> Plan:
        """Return the plan with losses and the improvement in money.

        Parameters
        ----------
        worth
            What a unit of utility is in money: what label 1 brings plus what label 0 takes.
        unit
            What it is counted in.

        Examples
        --------
        >>> import consequential as cq
        >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 1], [0.0, 1.0], [None, 1])
        >>> found = cq.plan(log, cost=0.5, improvement=0.05, changed=0.5, floors=[0.1])
        >>> found.in_money(1000, "EUR").options[0].worst_loss
        25000.0
        """
        options = tuple(each.scaled(worth) for each in self.options)
        return replace(self, options=options, improvement=worth * self.improvement, unit=unit)

    @property
    def sentences(self) -> list[str]:
        """What each floor means, in words for whoever allows it.

        Examples
        --------
        >>> import consequential as cq
        >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 1], [0.0, 1.0], [None, 1])
        >>> found = cq.plan(log, cost=0.5, improvement=0.05, changed=0.5, floors=[0.1], rate=400)
        >>> print(found.sentences[0])
        With a floor of 0.1, 50 of 1000 applicants are accepted who would not have been. What that
        costs the log cannot say: per 1000 at most 25.00 if all of them fail. A rule that is
        better by 0.05 per applicant is then proven better, with a chance of 80%, after 3880
        decisions (9.7 months); exploring costs 97.0 until then.
        """
        return [each.sentence(self.improvement, self.power, self.unit) for each in self.options]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        found = asdict(self)
        return found | {"options": list(found["options"]), "notes": list(self.notes)}

    def __str__(self) -> str:
        rows = [
            (
                f"{each.floor:g}",
                f"{each.extra_acceptances:.1f}",
                each.loss_text,
                f"{each.worst_loss:.2f}",
                each.decisions,
                "" if each.months is None else f"{each.months:.1f}",
                f"{each.total_loss:.1f}",
            )
            for each in self.options
        ]
        lines = text_table([_HEADINGS, *rows], align=">")
        # each of two more headings stands over the columns it heads
        ends = [lines[0].index(each) + len(each) for each in ("floor", "if all fail")]
        above = f"{'':{ends[0]}}  per thousand decisions".ljust(ends[1])
        money = [f"losses and improvement in {self.unit}"] if self.unit else []
        notes = [f"- {note}" for note in (*money, *self.notes)]
        return "\n".join([f"{above}  until +{self.improvement:g} is proven", *lines, *notes])


def plan(
    log: DecisionLog,
    *,
    cost: float | None = None,
    improvement: float,
    floors: Sequence[float] = (0.01, 0.02, 0.05, 0.1),
    incumbent: DecisionRule | None = None,
    candidate: DecisionRule | None = None,
    changed: float = 0.1,
    success_rate: float | None = None,
    rate: float | None = None,
    horizon: float = 0.0,
    power: float = 0.8,
    confidence: float = 0.95,
    method: Method = "normal",
    tuned_for: int = TUNED_FOR,
) -> Plan:
    """Say what an exploration floor costs and when an improvement can be proven under it.

    A floor eps turns the incumbent's propensity p into `p' = eps + (1 - eps) p`. Per decision it
    costs `eps E[(1 - p) (cost - y)]`. From decisions taken with p' a candidate's advantage over
    the incumbent is the mean of `v = d/p' (y - cost) (pi - p)`. The improvement counts as proven
    when `compare(candidate, incumbent, later_log)` says *better* with this method and confidence.

    How v is distributed is estimated from the log: each label stands for w people, who will be
    accepted with p'. Gains are made more frequent and losses less, or the other way round, until
    the mean is the improvement asked for. Logs drawn from that distribution then show after how
    many decisions a share `power` of them proves it. Few large losses, or few large gains, are
    taken into account.

    People who had no chance of acceptance have no labels in any such log. Their gains and losses
    are what `success_rate` makes them, or as large as they can be; what accepting them brings is
    what `success_rate` makes it, or unknown but for the worst.

    Parameters
    ----------
    log
        Who applies. It may be the log of a deterministic rule, with propensities 0 and 1.
    cost
        What accepting costs; a log with a cost for each row, or with values, overrides it.
    improvement
        The gain in utility per decision that should be proven.
    floors
        The exploration floors to compare.
    incumbent
        The rule now in force; what the log did by default.
    candidate
        The rule that is to be proven better. Without one, the plan is for the largest variance of
        all rules that decide differently on a share `changed` of people.
    changed
        That share; without effect where a candidate is given.
    success_rate
        Your assumption about the share of label 1 among people whom the log never accepts.
    rate, horizon
        Decisions a month, and months until an outcome is known; for `months` alone.
    power
        The probability of a proof when the improvement is real.
    confidence
        Of the interval that proves it.
    method
        Of the interval, as in `compare`: `"normal"` for one look when all decisions are in,
        `"any_time"` for looking as often as one likes.
    tuned_for
        For `"any_time"`: the number of decisions at which bounds are to be narrowest, as in
        `statistics.utility_sequence`.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), world.cost)
    >>> log = world.collect(rule, 5_000, np.random.default_rng(0))
    >>> found = cq.plan(log, cost=world.cost, improvement=0.02, changed=0.3, success_rate=0.2,
    ...                 rate=5_000, horizon=3, floors=[0.02, 0.05])
    >>> print(found)
           per thousand decisions             until +0.02 is proven
    floor  more accepted   loss  if all fail  decisions  months  total loss
     0.02           13.4  -0.77         1.91      42000    11.4       -32.5
     0.05           33.6  -1.93         4.78      16800     6.4       -32.5
    - 67.1% of people never had a chance of acceptance: of their labels 20% assumed
    - for the largest variance of all rules that decide differently on 30%

    Here the people on whom rules differ are people whom the incumbent rejects. A log says about
    them as much as it accepts of them, so a small floor takes longer and costs as much in all. A
    candidate that only rejects more needs no floor: then a larger one costs more and proves nothing
    sooner.
    """
    cost = objective_of(log, cost, None).cost
    for name, share in (("power", power), ("confidence", confidence)):
        checked_share(name, share)
    if success_rate is not None and log.value_range is not None:
        raise DecisionLogError(
            "success_rate is a share of label 1, and this log has values: leave it out"
        )
    for floor in floors:
        checked_share("an exploration floor", floor)
    if len(floors) == 0:
        raise ValueError("floors is empty: give at least one exploration floor")
    inf, assumed = np.inf, 0.0 if success_rate is None else success_rate
    for holds, meaning, value in (
        (0.0 < improvement < inf, "improvement is a gain in utility above 0", improvement),
        (0.0 < changed <= 1.0, "changed is a share of people above 0", changed),
        (0.0 <= assumed <= 1.0, "success_rate is a share between 0 and 1", success_rate),
        (rate is None or 0.0 < rate < inf, "rate is the number of decisions a month", rate),
        (0.0 <= horizon < inf, "horizon is the number of months an outcome takes", horizon),
        (tuned_for >= 1, "tuned_for is a number of decisions from 1 on", tuned_for),
    ):
        if not holds:
            raise ValueError(f"{meaning}, not {value!r}")
    checked_method(method)
    people = log.settled()
    stakes = Stakes.of(people, cost, success_rate)
    before = people.propensity_of(Logged() if incumbent is None else incumbent)
    shift = None if candidate is None else people.propensity_of(candidate) - before
    _check_possible(improvement, stakes, shift, changed)
    options = []
    for floor in floors:
        after = floor + (1.0 - floor) * before
        if shift is None:
            advantage = worst_advantage(stakes, before, after, changed)
        else:
            advantage = Advantage.of(stakes.values, stakes.masses, shift, after)
        bins = Bins.of(advantage.with_mean(improvement))
        if method == "normal":
            needed = decisions_to_normal_proof(bins, power, confidence)
        else:
            # how far rows and means of a later log can go, as `compare` sees it
            extremes = Extremes.of(InversePropensity(), float(after.min()))
            reach = extremes.difference(Objective(cost), people, ()).at(0.0)
            needed = decisions_to_any_time_proof(bins, power, confidence, reach, tuned_for)
        # up to three digits; a simulation does not know more
        unit = int(10 ** max(len(str(needed)) - 3, 0))
        decisions = -(-needed // unit) * unit
        more = 1000.0 * floor * (1.0 - before)
        loss, low, high = _loss(stakes, more, confidence)
        worst = float((more * stakes.failure).mean())
        options.append(
            Option(
                floor=float(floor),
                extra_acceptances=float(more.mean()),
                loss=loss,
                loss_low=low,
                loss_high=high,
                worst_loss=worst,
                decisions=decisions,
                months=None if rate is None else decisions / rate + horizon,
                total_loss=(worst if loss is None else loss) * decisions / 1000.0,
            )
        )
    notes = []
    never = 1.0 - float(stakes.possible.mean())
    if never > 0.0:
        known = "nothing is known" if success_rate is None else f"{success_rate:.0%} assumed"
        notes.append(
            f"{never:.1%} of people never had a chance of acceptance: of their labels {known}"
        )
    if log.estimated_propensity:
        notes.append("propensities are estimates, and so is everything made from them")
    if shift is None:
        notes.append(
            f"for the largest variance of all rules that decide differently on {changed:.0%}"
        )
    else:
        notes += _few_labels(stakes, shift)
    if method == "any_time":
        notes.append("for intervals that hold however often one looks")
    return Plan(
        tuple(options),
        improvement=float(improvement),
        break_even=stakes.break_even if log.value_range is None else None,
        power=float(power),
        confidence=float(confidence),
        method=method,
        notes=tuple(notes),
    )


def _loss(
    stakes: Stakes, more: Floats, confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Return the loss from accepting so many `more` per thousand, with an interval.

    None where labels are unknown, and in place of the interval where nothing is an estimate.
    """
    losses = np.where(more > 0.0, -more * stakes.gains, 0.0)
    if not np.isfinite(losses).all():
        return None, None, None
    loss, possible = float(losses.mean()), stakes.possible
    error = float(losses[possible].std()) * possible.sum() ** 0.5 / len(losses)
    half = normal_quantile(confidence) * error
    return (loss, loss - half, loss + half) if half > 0.0 else (loss, None, None)


def _few_labels(stakes: Stakes, shift: Floats) -> list[str]:
    effective = effective_sample_size(
        (stakes.masses * np.abs(shift))[:, stakes.possible].sum(axis=0)
    )
    if not stakes.possible[shift != 0.0].any() or effective >= FEW:
        return []
    return [
        f"the plan rests on {effective:.0f} labels in effect of people on whom the rules differ: "
        "take the numbers of decisions for a rough guess"
    ]


def _check_possible(
    improvement: float, stakes: Stakes, shift: Floats | None, changed: float
) -> None:
    if shift is None:
        limit, advice = float(stakes.largest.max()) * changed, "Give a larger `changed`."
    else:
        limit, advice = float((stakes.largest * np.abs(shift)).mean()), "Ask for less."
    if limit == 0.0:
        raise ValueError("the candidate decides as the incumbent does: nothing can be proven")
    if improvement > limit:
        raise ValueError(
            f"an improvement of {improvement!r} is out of reach: other decisions on so few people "
            f"can bring {limit:.3g} at most. {advice}"
        )
