"""Monitoring: what a growing log says, at every look."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.influence import Ratios
from consequential.evaluation.judged import checked_log, judge, question
from consequential.evaluation.reach import Extremes, known_floor
from consequential.evaluation.sequences import TUNED_FOR, mean_sequence
from consequential.evaluation.yardstick import Yardstick
from consequential.log import DecisionLog
from consequential.objective import Weighting

Floats = NDArray[np.float64]


def utility_sequence(
    rule: Any,
    log: DecisionLog,
    *,
    cost: float | None = None,
    versus: Any = None,
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    rejection_utility: tuple[float, float] = (0.0, 0.0),
    floor: float | None = None,
    tuned_for: int = TUNED_FOR,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of a rule's utility after each decision of a log.

    All bounds hold at once with the stated confidence: one may look after every decision, and
    stop when satisfied. An ordinary interval looked at again and again is wrong far more often
    than it says. Decisions count in the order of the log; their rule may have been learned from
    earlier ones.

    Parameters
    ----------
    rule, log, cost, weighting, confidence, rejection_utility, floor
        As in `evaluate`.
    versus
        Another rule, `Logged()` say: bounds are then of the difference of utilities.
    tuned_for
        The number of decisions at which bounds are to be narrowest. Choose it before looking.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 9000, np.random.default_rng(0))
    >>> lower, upper = cq.utility_sequence(
    ...     cq.Policy([1.5, 5.0]), log, cost=world.cost, versus=cq.Logged())
    >>> int(np.argmax(lower > 0))  # the first decision after which the policy is known better
    514
    """
    checked_log(log)
    objective = question(log, cost, None, weighting, rejection_utility)
    judged = judge(rule, log)
    other = None if versus is None else judge(versus, log).propensity
    lowest, _ = known_floor(judged.log, floor)
    extremes = Extremes.of(objective.weighting, lowest)
    found = Yardstick.of(objective, judged.log, extremes).utility(judged.propensity, other)
    sides = []
    for ratios in (found.low, found.high):
        assert isinstance(ratios, Ratios)
        assert ratios.reach is not None
        low, high, mean_low, mean_high = ratios.reach.at(0.0)
        sides.append(
            mean_sequence(
                ratios.numerator,
                low=low,
                high=high,
                mean_low=mean_low,
                mean_high=mean_high,
                confidence=confidence,
                tuned_for=tuned_for,
            )
        )
    return sides[0][0], sides[1][1]
