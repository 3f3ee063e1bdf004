"""The gap of the policy that is deployed, from policies that were fitted on parts of its log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import gap_interval
from consequential.evaluation.crossfit import CrossFitted
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.intervals import Interval, Normal
from consequential.evaluation.judged import question
from consequential.evaluation.measure import acceptance_shares
from consequential.evaluation.quantiles import normal_quantile
from consequential.evaluation.yardstick import Yardstick
from consequential.log import DecisionLog
from consequential.objective import Fairness, Weighting

Floats = NDArray[np.float64]


def deployed_gap(
    crossed: CrossFitted,
    log: DecisionLog,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Estimate the gap of the one policy learned from all rows.

    The cross-fitted gap is that of the average policy learned from such a log. The policy that is
    deployed is one of them, and another log would have taught another one, with another gap. How
    far these spread is estimated by the jackknife that leaves out a fold at a time,
    `(K - 1) / K sum_k (g_k - mean g)^2` with `g_k` the gap of fold k's policy on all rows, and the
    interval is widened by it.

    Parameters
    ----------
    crossed
        The learner's policies, from `cross_fitted`.
    log, cost, fairness, weighting, confidence, seed
        As in `evaluate`.
    """
    objective = question(log, cost, fairness, weighting, (0.0, 0.0))
    rows = log.settled()
    yardstick = Yardstick.of(objective, rows)

    def gap_of(propensity: Floats) -> Interval:
        benefits = yardstick.benefits(propensity)
        sides = tuple(side for benefit in benefits for side in benefit.sides)
        return gap_interval(Normal(sides, confidence, seed), benefits)  # type: ignore[arg-type]

    gap = gap_of(crossed.values)
    spread = (crossed.folds - 1.0) * float(np.var([gap_of(each).value for each in crossed.by_fold]))
    reach = normal_quantile(confidence) * spread**0.5
    low = gap.value - float(np.hypot(gap.value - gap.low, reach))
    signed = len(rows.groups) == 2 and len(yardstick.benefits(crossed.values)) == 1
    share, _ = acceptance_shares(rows, crossed.values, yardstick.overall.unsupported)
    return Estimate(
        gap.value,
        low if signed else max(low, 0.0),
        gap.value + float(np.hypot(gap.high - gap.value, reach)),
        float(np.hypot(gap.standard_error, spread**0.5)),
        len(rows),
        yardstick.effective_sizes(crossed.values)[0],
        confidence,
        "normal, widened by the spread over folds",
        share,
    )
