"""Compare: is one rule better than another? Row by row on the same log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consequential.evaluation.contradictions import CONTRADICTED, contradictions
from consequential.evaluation.cross_fitting import checked_log, needs_folds, objective_of
from consequential.evaluation.estimate import UNKNOWN, Estimate, Interval, Result
from consequential.evaluation.evaluate import (
    Evaluation,
    Method,
    bounds_line,
    checked_method,
    evaluation,
    measure_rules,
)
from consequential.evaluation.intervals import Intervals
from consequential.evaluation.ratios import Range
from consequential.evaluation.weighted_log import FEW
from consequential.log import DecisionLog, LogScan
from consequential.objective.fairness import Fairness
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.shares import checked_share

_BETTER, _WORSE = "better: utility is higher", "worse: utility is lower"
# smaller differences are rounding errors
_RESOLUTION = 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """A new rule against an old one: differences, new minus old, each with its interval.

    Attributes
    ----------
    utility, acceptance
        How much more the new rule is worth, and accepts.
    benefit_gap
        How much larger `b0 - b1` is, for two groups and one benefit; else how much larger the
        largest difference between groups is.
    verdict
        What the log allows one to say, in words. *Cannot tell* is an answer: where the interval
        contains 0, where fewer than a hundred people in effect tell the rules apart, and where the
        propensities contradict the decisions.
    new, old
        Both rules evaluated by themselves.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.05), 5000, np.random.default_rng(1))
    >>> cq.compare(cq.Policy([1.5, 5.0]), cq.Logged(), log, cost=world.cost)
    new less old on 5000 decisions (95% intervals, normal)
      utility                     0.0209 [0.0143, 0.0285]
      acceptance                  0.3005 [0.2957, 0.3053]
      gap, demographic_parity   -0.0029 [-0.0125, 0.0068]
    better: utility is higher; cannot tell whether the gap is narrower
    """

    utility: Estimate
    acceptance: Estimate
    benefit_gap: Estimate
    verdict: str
    new: Evaluation
    old: Evaluation

    @property
    def better(self) -> bool:
        """Whether the log shows that the new rule's utility is higher."""
        return self.verdict.startswith(_BETTER)

    @property
    def worse(self) -> bool:
        """Whether the log shows that it is lower."""
        return self.verdict.startswith(_WORSE)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before relying on the figures; what is about the old rule alone says so."""
        of_old = (f"old rule: {note}" for note in self.old.notes if note not in self.new.notes)
        return tuple(dict.fromkeys((*self.new.notes, *of_old)))

    def __repr__(self) -> str:
        gap = f"gap, {self.new.fairness}"
        lines = [
            f"new less old on {self.new.n} decisions "
            f"({self.utility.confidence:.0%} intervals, {self.utility.method})",
            *bounds_line(self.utility.unsupported),
            f"  {'utility':<24}{self.utility!r:>27}",
            f"  {'acceptance':<24}{self.acceptance!r:>27}",
            f"  {gap:<24}{self.benefit_gap!r:>27}",
            self.verdict,
        ]
        lines[-1:-1] = [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def compare(
    new: Any,
    old: Any,
    log: DecisionLog | LogScan,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    method: Method = "normal",
    folds: int | None = None,
    floor: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Estimate how much better a new rule is than an old one, on the same rows.

    Rows on which both rules agree add no error, so the difference is estimated far more precisely
    than either value. With `method="normal"` the interval of the utility is corrected for
    skewness. Keywords are those of `evaluate`; with `folds` whichever of the two is a learner is
    cross-fitted.

    Parameters
    ----------
    new, old
        Rules or learners; `Logged()` is what the log itself did.
    log, cost, fairness, weighting, confidence, method, folds, floor, seed
        As in `evaluate`.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> log = world.collect(cq.Policy([0.0, 0.1]), 4000, np.random.default_rng(1))
    >>> found = cq.compare(cq.AcceptAll(), cq.Logged(), log, cost=world.cost)
    >>> found.utility, found.verdict
    (-0.0198 [-0.0316, -0.0082], 'worse: utility is lower; the gap is narrower')
    """
    checked_log(log, or_scan=True)
    needs_folds((new, old), folds)
    objective = objective_of(log, cost, fairness, weighting)
    kind, level = checked_method(method), checked_share("the confidence", confidence)
    one, other, difference = measure_rules(
        (new, old), log, objective, kind, folds=folds, floor=floor, seed=seed
    )
    intervals = kind(level, seed)
    n, changed = difference.n, difference.weights.effective_size
    unsupported = max(each.weights.unsupported_share for each in (one, other))
    gap, narrower = _gap_change(intervals, one.benefits, other.benefits)
    gain = intervals.estimate(intervals.difference(difference.utility), n, changed, unsupported)
    found = [evaluation(objective, each, intervals) for each in (one, other)]
    doubts: tuple[str, ...] = ()
    if isinstance(log, DecisionLog):
        utilities = (each.utility for each in found)
        doubts = contradictions(log.settled()) + _impossible(objective, log, *utilities)
    return Comparison(
        utility=gain,
        acceptance=intervals.estimate(intervals.of(difference.acceptance)[0], n, n),
        benefit_gap=intervals.estimate(gap, n, changed if one.benefits[0].labelled else n),
        verdict=_verdict(gain, narrower, doubts),
        new=found[0],
        old=found[1],
    )


def _gap_change(
    intervals: Intervals, new: tuple[Range, ...], old: tuple[Range, ...]
) -> tuple[Interval, str]:
    """Return the difference of gaps, and whether the new one is certainly narrower or wider."""
    n_groups = new[0].n_groups
    if n_groups == 1:
        return Interval(0.0, 0.0, 0.0, 0.0), ""
    if len(new) == 1 and n_groups == 2:
        if len(new[0].known) < 2 or len(old[0].known) < 2:
            return UNKNOWN, "the gap cannot be measured"
        sign = np.array([1.0, -1.0])
        change = intervals.contrast([(new[0], sign), (old[0], -sign)])
        # |a| < |b| exactly where (a - b) (a + b) < 0
        side = _sign(intervals.contrast([(new[0], sign), (old[0], sign)]))
    else:
        one, other = intervals.gap(new), intervals.gap(old)
        if not (one.known and other.known):
            return UNKNOWN, "the gap cannot be measured"
        # largest differences are not smooth: no pairing, but bounds that hold
        change = Interval(
            one.value - other.value,
            one.low - other.high,
            one.high - other.low,
            float(np.hypot(one.standard_error, other.standard_error)),
        )
        side = 1
    if _is_zero(change):
        return change, "no difference in the gap"
    narrower = _sign(change) * side
    if narrower == 0:
        return change, "cannot tell whether the gap is narrower"
    return change, f"the gap is {'narrower' if narrower < 0 else 'wider'}"


def _is_zero(found: Interval) -> bool:
    """Whether a difference is no more than what rounding leaves."""
    return max(abs(found.low), abs(found.high)) <= _RESOLUTION


def _sign(found: Interval) -> int:
    return int(found.low > _RESOLUTION) - int(found.high < -_RESOLUTION)


def _verdict(utility: Estimate, gap: str, doubts: tuple[str, ...]) -> str:
    if doubts:
        return f"cannot tell: {CONTRADICTED} ({'; '.join(doubts)})"
    if _is_zero(utility):
        words = "no difference in utility"
    elif utility.low <= 0.0 <= utility.high or not utility.known:
        words = "cannot tell which has the higher utility"
    elif utility.effective_sample_size < FEW:
        words = (
            f"cannot tell which has the higher utility: {utility.effective_sample_size:.0f} people "
            "in effect tell the rules apart"
        )
    else:
        words = _BETTER if utility.low > 0.0 else _WORSE
    return f"{words}; {gap}" if gap else words


def _impossible(objective: Objective, log: DecisionLog, *utilities: Estimate) -> tuple[str, ...]:
    """Return a doubt where a utility lies beyond what any rule could reach.

    Accepting a person brings `1 - cost` at most and costs `cost` at most.
    """
    cost = objective.cost if log.cost is None else log.cost
    amount = np.ones(len(log)) if log.amount is None else log.amount
    least, most = -float((amount * cost).mean()), float((amount * (1.0 - cost)).mean())
    for each in utilities:
        if each.value > most or each.value < least:
            end = f"below {least:.4g}" if each.value < least else f"above {most:.4g}"
            return (f"an estimated utility of {each.value:.4g} is {end}, which no rule can reach",)
    return ()
