"""Plan: the floors compared."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.planning.options import Option, Plan
from consequential.planning.stakes import Stakes, losses_per_thousand, worst_second_moment
from consequential.policies import DecisionRule, Logged

Floats = NDArray[np.float64]

_FEW = 30.0  # with fewer acceptances that matter a normal interval is a rough guess


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
) -> Plan:
    """Say what an exploration floor costs and when an improvement can be proven under it.

    A floor eps turns the incumbent's propensity p into `p' = eps + (1 - eps) p`. Per decision it
    costs `eps E[(1 - p) (cost - y)]`. From decisions taken with p' a candidate's advantage over
    the incumbent is the mean of `v = d/p' (y - cost) (pi - p)`, whose variance is
    `E[(y - cost)^2 (pi - p)^2 / p'] - improvement^2`. The improvement counts as proven when its
    two-sided normal interval at `confidence` lies above zero, which happens with probability
    `power` after `n = (z_conf + z_power)^2 variance / improvement^2` decisions, z_conf and
    z_power being normal quantiles at `(1 + confidence)/2` and at `power`.

    People who had no chance of acceptance have no labels in any such log. For them
    `(y - cost)^2` is what `success_rate` makes it, or as large as it can be; what accepting them
    brings is what `success_rate` makes it, or unknown but for the worst.

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
        The rule that is to be proven better. Without one, the plan is for the worst of all rules
        that decide differently on a share `changed` of people.
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
     0.02           13.4  -0.77         1.91      48063    12.6       -37.2
     0.05           33.6  -1.93         4.78      19221     6.8       -37.2
    - 67.1% of people never had a chance of acceptance: of their labels 20% assumed
    - for the worst of all rules that decide differently on 30%

    The smaller floor takes longer and costs as much: a floor buys time.
    """
    _check(cost, improvement, floors, changed, success_rate, rate, horizon, power, confidence)
    people = log.settled()
    stakes = Stakes.of(people, cost, success_rate)
    before = people.propensity_of(Logged() if incumbent is None else incumbent)
    shift = None if candidate is None else people.propensity_of(candidate) - before
    _check_possible(improvement, stakes, shift, changed)
    options, notes = [], list(stakes.notes)
    if shift is None:
        notes.append(f"for the worst of all rules that decide differently on {changed:.0%}")
    for floor in floors:
        after = floor + (1.0 - floor) * before
        if shift is None:
            second = worst_second_moment(stakes, before, after, changed)
            matter = floor * changed
        else:
            second = float((stakes.squares * shift * shift / after).mean())
            matter = float((after * np.abs(shift)).mean())
        decisions = _decisions(second, improvement, power, confidence)
        if matter * decisions < _FEW:
            notes.append(
                f"floor {floor:g}: only {matter * decisions:.0f} of the people accepted would tell "
                "the rules apart; take the number of decisions for a rough guess"
            )
        losses = losses_per_thousand(floor, before, stakes, confidence)
        options.append(_option(floor, before, stakes, losses, decisions, rate, horizon))
    return Plan(
        tuple(options),
        improvement=float(improvement),
        break_even=float(stakes.cost.mean()),
        power=float(power),
        confidence=float(confidence),
        notes=tuple(notes),
    )


def _decisions(second: float, improvement: float, power: float, confidence: float) -> int:
    from scipy.stats import norm

    quantiles = float(norm.ppf(0.5 + confidence / 2.0) + norm.ppf(power))
    variance = max(second - improvement**2, 0.0)
    return max(1, ceil(quantiles**2 * variance / improvement**2))


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
