"""Plan: the floors compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.measurement import FEW
from consequential.evaluation.reach import Extremes, Span
from consequential.log import DecisionLog
from consequential.objective import InversePropensity, Objective, effective_sample_size
from consequential.planning.advantage import Advantage, worst_advantage
from consequential.planning.options import Option, Plan
from consequential.planning.power import decisions_to_any_time_proof, decisions_to_normal_proof
from consequential.planning.stakes import Stakes, losses_per_thousand
from consequential.policies import DecisionRule, Logged

Floats = NDArray[np.float64]


def plan(
    log: DecisionLog,
    *,
    cost: float,
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
    method: Literal["normal", "any_time"] = "normal",
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
        What accepting costs; a log with a cost for each row overrides it.
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
    _check(cost, improvement, floors, changed, success_rate, rate, horizon, power, confidence)
    if method not in ("normal", "any_time"):
        raise ValueError(f"method is 'normal' or 'any_time', not {method!r}")
    people = log.settled()
    stakes = Stakes.of(people, cost, success_rate)
    before = people.propensity_of(Logged() if incumbent is None else incumbent)
    shift = None if candidate is None else people.propensity_of(candidate) - before
    _check_possible(improvement, stakes, shift, changed)
    options, notes = [], list(stakes.notes)
    if shift is None:
        notes.append(
            f"for the largest variance of all rules that decide differently on {changed:.0%}"
        )
    else:
        notes += _few_labels(stakes, shift)
    if method == "any_time":
        notes.append("for intervals that hold however often one looks")
    for floor in floors:
        after = floor + (1.0 - floor) * before
        if shift is None:
            advantage = worst_advantage(stakes, before, after, changed)
        else:
            advantage = Advantage.of(stakes, shift, after)
        bins = _with_mean(advantage, improvement).binned()
        if method == "normal":
            needed = decisions_to_normal_proof(bins, power, confidence)
        else:
            reach = _reach(people, cost, float(after.min()))
            needed = decisions_to_any_time_proof(bins, power, confidence, reach)
        losses = losses_per_thousand(floor, before, stakes, confidence)
        options.append(_option(floor, before, stakes, losses, _rounded(needed), rate, horizon))
    return Plan(
        tuple(options),
        improvement=float(improvement),
        break_even=float(stakes.cost.mean()),
        power=float(power),
        confidence=float(confidence),
        method=method,
        notes=tuple(notes),
    )


def _reach(log: DecisionLog, cost: float, lowest: float) -> Span:
    """Return how far rows and means of a later log can go, as `compare` sees it."""
    extremes = Extremes.of(InversePropensity(), lowest)
    return extremes.difference(Objective(cost), log, ()).at(0.0)


def _with_mean(advantage: Advantage, improvement: float) -> Advantage:
    found = advantage.with_mean(improvement)
    if found is None:
        raise ValueError(
            f"an improvement of {improvement!r} is out of reach: the log has too few labels that "
            "speak for the candidate. Ask for less."
        )
    return found


def _few_labels(stakes: Stakes, shift: Floats) -> list[str]:
    told = effective_sample_size((stakes.masses * np.abs(shift))[:, stakes.possible].sum(axis=0))
    if not stakes.possible[shift != 0.0].any() or told >= FEW:
        return []
    return [
        f"the plan rests on {told:.0f} labels in effect of people on whom the rules differ: take "
        "the numbers of decisions for a rough guess"
    ]


def _rounded(decisions: int) -> int:
    """Round up to three digits; a simulation does not know more."""
    unit = int(10 ** max(len(str(decisions)) - 3, 0))
    return -(-decisions // unit) * unit


def _option(
    floor: float,
    before: Floats,
    stakes: Stakes,
    losses: tuple[float, float, float] | None,
    decisions: int,
    rate: float | None,
    horizon: float,
) -> Option:
    more = 1000.0 * floor * (1.0 - before)
    worst = float((more * stakes.amount * stakes.cost).mean())
    loss, low, high = losses if losses is not None else (None, None, None)
    if low == high:  # nothing in it is an estimate
        low = high = None
    return Option(
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


def _check(
    cost: float,
    improvement: float,
    floors: Sequence[float],
    changed: float,
    success_rate: float | None,
    rate: float | None,
    horizon: float,
    power: float,
    confidence: float,
) -> None:
    for name, share in (("cost", cost), ("power", power), ("confidence", confidence)):
        if not 0.0 < share < 1.0:
            raise ValueError(f"{name} lies strictly between 0 and 1, not {share!r}")
    if not 0.0 < improvement < np.inf:
        raise ValueError(f"improvement is a gain in utility above 0, not {improvement!r}")
    if len(floors) == 0:
        raise ValueError("floors is empty: give at least one exploration floor")
    for floor in floors:
        if not 0.0 < floor < 1.0:
            raise ValueError(f"an exploration floor lies strictly between 0 and 1, not {floor!r}")
    if not 0.0 < changed <= 1.0:
        raise ValueError(f"changed is a share of people above 0, not {changed!r}")
    if success_rate is not None and not 0.0 <= success_rate <= 1.0:
        raise ValueError(f"success_rate is a share between 0 and 1, not {success_rate!r}")
    if rate is not None and not 0.0 < rate < np.inf:
        raise ValueError(f"rate is the number of decisions a month, not {rate!r}")
    if not 0.0 <= horizon < np.inf:
        raise ValueError(f"horizon is the number of months an outcome takes, not {horizon!r}")


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
