"""Doubts: where a log's decisions contradict the propensities that it gives for them."""

from __future__ import annotations

import numpy as np

from consequential.evaluation.contradictions import propensity_contradictions
from consequential.evaluation.coverage import CoverageSums
from consequential.evaluation.estimate import Estimate
from consequential.log import DecisionLog, LogScan, propensity_concerns
from consequential.objective import Objective

CONTRADICTED = "the propensities contradict the decisions"
# so many standard errors from 1 chance does not explain: one honest log in 16 000
_LIMIT = 4.0
# how often an honest log may be doubted over all its regions
_DOUBT = 1e-3


def weight_doubts(log: DecisionLog) -> tuple[str, ...]:
    """Return where weights do not average to 1 as those of true propensities do, by group.

    Estimated propensities are not tested: that they are wrong is known, and `sensitivity` says what
    follows.
    """
    if log.estimated_propensity:
        return ()
    groups = [log.take(log.group == code) for code in range(len(log.groups))]
    parts = [("", log)]
    if len(groups) > 1:
        parts += [(f" of group {log.groups[k]!r}", part) for k, part in enumerate(groups)]
    doubts = []
    for whose, part in parts:
        if len(part) == 0:
            continue
        found = CoverageSums.of(part, 0.5).coverage("", 0.0, 0.5)
        if abs(found.surprise) > _LIMIT:
            doubts.append(
                f"weights{whose} average {found.mean_weight:.3f} where those of true propensities "
                "average 1"
            )
    return tuple(doubts)


def contradictions(log: DecisionLog) -> tuple[str, ...]:
    """Return every reason there is to disbelieve a log's propensities.

    They are tested on average and in the regions of a tree; an honest log is doubted in one of a
    thousand cases.
    """
    regions = propensity_contradictions(log, doubt=_DOUBT)[:1]  # the clearest one will do
    return (
        *propensity_concerns(log),
        *weight_doubts(log),
        *map(str, regions),
    )


def impossible(
    objective: Objective, log: DecisionLog | LogScan, *utilities: Estimate
) -> tuple[str, ...]:
    """Return a doubt where a utility lies beyond what any rule could reach.

    Accepting a person brings `1 - cost` at most and costs `cost` at most.
    """
    if isinstance(log, LogScan) or objective.rejection_utility != (0.0, 0.0):
        return ()
    cost = objective.cost if log.cost is None else log.cost
    amount = np.ones(len(log)) if log.amount is None else log.amount
    least, most = -float((amount * cost).mean()), float((amount * (1.0 - cost)).mean())
    for each in utilities:
        if each.value > most or each.value < least:
            end = f"below {least:.4g}" if each.value < least else f"above {most:.4g}"
            return (f"an estimated utility of {each.value:.4g} is {end}, which no rule can reach",)
    return ()
