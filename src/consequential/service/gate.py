"""The gate: what a candidate must prove on decisions that it was not learned from.

A loop's k-th candidate is looked at each time one of its proving cohorts is frozen, with
`alpha_k = alpha / (k (k + 1))`, `alpha = 1 - confidence`. These sum to alpha over all k.

*Utility.* Decision i adds `v_i = d_i / p_i a_i (y_i - cost) (pi_i - rho_i)`, for the candidate pi
and what decides now, rho. Whatever policy drew `d_i` with the logged `p_i`, the mean of v_i given
all earlier decisions is what the candidate brings more on people like the i-th. The lower bound of
a confidence sequence is above it at some look with probability alpha_k at most. A label that is
missing, for instance because an acceptance was overridden, is taken as it speaks against the
candidate, which makes v_i smaller only.

*Fairness.* The gap is the largest difference between two groups' benefits. Each end of each
group's interval errs with probability alpha_k / 2 at most.

*Nothing is shared between lines or groups.* A candidate passes only when all lines do. If it is no
better, the line on utility alone must have erred: alpha_k. If its gap is too large, it is so for
one pair of groups, and one of two ends must have erred: alpha_k again. Hence the chance that a
loop ever promotes a policy that is no better than what decided before, and the chance that it ever
promotes one whose gap is above the limit, are each at most alpha; and for a candidate for which
either is true the chance to pass is at most alpha_k.

What this rests on: propensities as logged; proving cohorts that only grow; a `tuned_for`, a
confidence, a lowest floor and a largest amount that do not follow from the proving cohorts; a
candidate that does not either. Where people change over time, a candidate is "no better" if it was
at no time better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.any_time import AnyTime, lower_bounds
from consequential.evaluation.contradictions import contradictions
from consequential.evaluation.estimate import Result
from consequential.evaluation.evaluate import measure_rules
from consequential.evaluation.reach import Span
from consequential.evaluation.weighted_log import Measurement
from consequential.log import DecisionLog
from consequential.objective.objective import Objective
from consequential.policy import DecisionRule
from consequential.service.exports import UNKNOWN
from consequential.service.problems import Problem
from consequential.service.settings import LoopSettings

Floats = NDArray[np.float64]

FEWEST = 10  # people of a group that is judged, and shown
_GROUP = 0.1  # share of people for which the bounds of a group are tuned
_ROUNDING = 1e-12
_SHARES = 1e-8  # which policies' shares may lack of 1
_MOST = 2_000_000  # decisions that are foreseen


@dataclass(frozen=True, slots=True)
class Line(Result):
    """One requirement: whether it is met, its figures, and both in words.

    `needed` says what would be, where it is not met.
    """

    name: str
    passed: bool
    value: float | None
    low: float | None
    high: float | None
    limit: float | None
    sentence: str
    needed: str | None = None


@dataclass(frozen=True, slots=True)
class Checklist(Result):
    """What was found at one look."""

    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        """Whether all requirements are met."""
        return all(line.passed for line in self.lines)

    def __getitem__(self, name: str) -> Line:
        return next(line for line in self.lines if line.name == name)


class Limits(NamedTuple):
    """The lowest floor and the largest amount that decisions can have: how far a value can go."""

    floor: float
    amount: float

    @classmethod
    def of(cls, versions: Sequence[LoopSettings]) -> Limits:
        """Return those of a loop that had these settings, one after another."""
        return cls(
            min(each.floor for each in versions), max(each.largest_amount for each in versions)
        )

    def check(self, log: DecisionLog) -> None:
        """Refuse decisions that lie beyond."""
        lowest = float(log.propensity.min())
        if lowest < self.floor * (1.0 - _SHARES):
            why = f"these cohorts were decided with a floor of {lowest:.3g}, below {self.floor:g}"
            raise Problem("past_floor", 409, f"{why}, which the proof rests on: propose it again")
        if (largest := _largest_amount(log)) > self.amount:
            why = f"these cohorts have an amount of {largest:g}, above {self.amount:g}"
            raise Problem("past_amount", 409, f"{why}, which the proof rests on: propose it again")


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """How much more a rule brings than another: one value per decision, in order of time.

    Labels that are missing speak against the rule in `least` and for it in `most`.
    """

    least: Floats
    most: Floats
    span: Span
    tuned_for: int
    rule: Measurement

    @classmethod
    def of(
        cls,
        rule: DecisionRule,
        against: DecisionRule,
        log: DecisionLog,
        settings: LoopSettings,
        limits: Limits | None = None,
    ) -> Gain:
        """Measure two rules on a log whose decisions have these limits, else the settings'."""
        limits = limits or Limits.of([settings])
        limits.check(log)
        objective = Objective(settings.cost, settings.fairness)
        floor = min(limits.floor, float(log.propensity.min()))
        found = measure_rules((rule, against), log, objective, AnyTime, floor=floor)
        sides: tuple[Any, Any] = found[-1].utility.low, found[-1].utility.high
        least, most = (side.numerator for side in sides)
        times = limits.amount / _largest_amount(log)
        span = Span(*(times * end for end in sides[0].reach.at(0.0)))
        return cls(least, most, span, settings.gate.tuned_for, found[0])

    def lower(self, alpha: float) -> Floats:
        """Lower bounds of the mean after each decision, all of them right but for chance alpha."""
        return self._bounds(self.least, self.span, alpha)

    def upper(self, alpha: float) -> Floats:
        """Upper bounds of the same kind."""
        return -self._bounds(-self.most, -self.span, alpha)

    def _bounds(self, rows: Floats, span: Span, alpha: float) -> Floats:
        # two-sided bounds share their error between the sides
        return lower_bounds(rows, span.low, span.mean_high, 1.0 - 2.0 * alpha, self.tuned_for)


def look(
    candidate: DecisionRule,
    against: DecisionRule,
    log: DecisionLog,
    settings: LoopSettings,
    number: int,
    limits: Limits | None = None,
) -> Checklist:
    """Return what the proving cohorts so far say about a candidate.

    Parameters
    ----------
    candidate, against
        The policy to be proven, and what decides now: a policy, or a `Mixture` of several.
    log
        All proving cohorts in order of time, with `missing="against"`.
    settings
        Those of the loop; `gate.tuned_for` as it was when the candidate was filed.
    number
        The candidate is the loop's k-th.
    limits
        Those of the decisions, known when the candidate was filed; without them, the settings'.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.service.gate import look
    >>> from consequential.service.settings import loop_settings
    >>> world = cq.worlds.first_setting()
    >>> live, better = (cq.Policy([b, 5.0], floor=0.1) for b in (-3.0, 1.5))
    >>> log = world.collect(live, 20_000, np.random.default_rng(0))
    >>> score = {"low": -9, "high": 9, "phrase": "Score"}
    >>> settings = loop_settings({"cost": world.cost, "floor": 0.1, "features": {"x0": score}})
    >>> found = look(better, live, log, settings, 1)
    >>> found.passed
    True
    >>> print(found["effective"].sentence)
    The labels say as much as those of 3829 people whom the candidate accepts; 1000 are needed.
    """
    alpha = (1.0 - settings.gate.confidence) / (number * (number + 1))
    gain = Gain.of(candidate, against, log, settings, limits)
    judged = [
        k
        for k, name in enumerate(log.groups)
        if log.group_counts[k] >= FEWEST and name != UNKNOWN and settings.sensitive
    ]
    accepted = log.propensity_of(candidate)
    return Checklist(
        (
            _utility(gain, settings, alpha),
            _fairness(gain.rule, judged, settings, alpha),
            _effective(gain.rule, settings),
            _acceptance(accepted, log, judged, settings),
            _floor(accepted, settings),
            _chance(log),
        )
    )


def _utility(gain: Gain, settings: LoopSettings, alpha: float) -> Line:
    margin, n = settings.gate.margin, len(gain.least)
    value = float(gain.least.mean())
    # the largest bound so far stays true, but nothing passes that looks worse by now
    low = min(float(gain.lower(alpha)[-1]), value)
    passed = low > margin
    sentence = (
        f"On {n} decisions after those it was learned from, the candidate brings {value:.4f} more "
        f"per decision than what decides now, and at least {low:.4f} with a confidence of "
        f"{_percent(alpha)}, however often one looked; more than {margin:g} is needed."
    )
    needed = None
    if not passed:
        needed = f"an estimate above {margin:g}; so far it is not, and waiting alone will not help"
        if value > margin:
            needed = _more(n * _growth(value - low, value - margin, n / gain.tuned_for))
    high = max(float(gain.upper(alpha)[-1]), value)
    return Line("utility", passed, value, low, high, margin, sentence, needed)


def _fairness(
    measured: Measurement, judged: list[int], settings: LoopSettings, alpha: float
) -> Line:
    limit = settings.max_gap
    tuned_for = max(1, round(_GROUP * settings.gate.tuned_for))
    intervals = AnyTime(1.0 - alpha, tuned_for=tuned_for)
    found = map(intervals.of, measured.benefits if len(judged) > 1 else ())
    pairs = [pair for each in found for pair in permutations([each[k] for k in judged], 2)]
    if not pairs or not all(each.known for pair in pairs for each in pair):
        sentence = f"No gap can be measured between groups of {FEWEST} people or more."
        needed = None if limit is None else "people and labels of at least two groups"
        return Line("fairness", limit is None, None, None, None, limit, sentence, needed)
    value = max(a.value - b.value for a, b in pairs)
    low = max(0.0, *(float(a.low - b.high) for a, b in pairs))
    high = max(float(a.high - b.low) for a, b in pairs)
    passed, needed = limit is None or high <= limit, None
    if limit is not None and not passed:
        needed = f"a candidate with a gap below {limit:g}"
        if value < limit:
            reached = min(measured.sizes[k] for k in judged) / tuned_for
            needed = _more(measured.n * _growth(high - value, limit - value, reached))
    sentence = (
        f"The groups' rates ({settings.fairness.replace('_', ' ')}) differ by {value:.3f}, and by "
        f"no more than {high:.3f} with a confidence of {_percent(alpha)}; "
        f"{'no limit is set' if limit is None else f'at most {limit:g} is allowed'}. People whose "
        f"group is unknown, and groups of fewer than {FEWEST}, are not part of it."
    )
    return Line("fairness", passed, value, low, high, limit, sentence, needed)


def _effective(measured: Measurement, settings: LoopSettings) -> Line:
    people, least = measured.weights.effective_size, settings.gate.effective
    passed = people >= least
    sentence = (
        f"The labels say as much as those of {people:.0f} people whom the candidate accepts; "
        f"{least} are needed."
    )
    needed = None
    if not passed and people > 0.0:
        needed = _more(measured.n * (least / people - 1.0))
    elif not passed:
        needed = "labels of people whom the candidate accepts"
    return Line("effective", passed, people, None, None, float(least), sentence, needed)


def _acceptance(
    accepted: Floats, log: DecisionLog, judged: list[int], settings: LoopSettings
) -> Line:
    least, most = settings.acceptance
    value = float(accepted.mean())
    shares = {str(log.groups[k]): float(accepted[log.group == k].mean()) for k in judged}
    beyond = {name: share for name, share in shares.items() if not least <= share <= most}
    passed = not beyond and least <= value <= most
    told = "".join(f", {share:.1%} of group {name}" for name, share in beyond.items())
    sentence = (
        f"The candidate accepts {value:.1%} of people{told}; agreed are {least:.0%} to {most:.0%}, "
        "also for each group."
    )
    too_few = min([value, *shares.values()]) < least
    needed = None if passed else f"a candidate that accepts {'more' if too_few else 'fewer'} people"
    limit = least if too_few else most
    return Line("acceptance", passed, value, None, None, limit, sentence, needed)


def _floor(accepted: Floats, settings: LoopSettings) -> Line:
    least, floor = float(accepted.min()), settings.floor
    passed = least >= floor - _ROUNDING
    sentence = f"Nobody is accepted with a probability below {least:.3g}; the floor is {floor:g}."
    needed = None if passed else f"a candidate with a floor of {floor:g}"
    return Line("floor", passed, least, None, None, floor, sentence, needed)


def _chance(log: DecisionLog) -> Line:
    passed = not contradictions(log.settled())
    sentence = (
        "The decisions were drawn as the logged probabilities say."
        if passed
        else "The decisions do not fit the logged probabilities, and every figure rests on these."
    )
    needed = None if passed else "an explanation from whoever operates the service"
    return Line("chance", passed, None, None, None, None, sentence, needed)


def _largest_amount(log: DecisionLog) -> float:
    return 1.0 if log.amount is None else float(log.amount.max())


def _percent(alpha: float) -> str:
    return f"{100.0 * (1.0 - alpha):.5g} %"


def _growth(width: float, wanted: float, reached: float) -> float:
    """Return how many times as many rows must be added until a bound is `wanted` wide.

    With n = u n* rows, tuned for n*, its width is `log(1/alpha) + sum l^2 s^2 / 2` over `sum l`:
    in proportion to `1/u + 1` up to `u = 1`, and about to `(2 + log u) / (2 sqrt(u) - 1)` later.
    """
    times = np.geomspace(1.0, 1e6, 10_000)
    u = reached * times
    later = np.maximum(u, 1.0)
    widths = np.where(u < 1.0, 1.0 / u + 1.0, (2.0 + np.log(later)) / (2.0 * later**0.5 - 1.0))
    enough = widths <= widths[0] * wanted / width
    return float(times[enough.argmax()]) - 1.0 if enough.any() else np.inf


def _more(count: float) -> str:
    """Say how many decisions are missing, in two digits: more is not known."""
    if count > _MOST:
        return f"more than {_MOST} more decisions"
    unit = 10.0 ** max(len(str(int(count))) - 2, 0)
    return f"about {np.ceil(count / unit) * unit:.0f} more decisions"
