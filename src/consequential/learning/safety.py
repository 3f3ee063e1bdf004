"""Safety: a bound on the gap that holds among people, shown on rows that nothing was learned from.

The log is cut in two. Candidates are learned from the first half, from the strictest bound to the
one asked for, and tested in that order on the second: a candidate passes if, at the confidence
asked for, no two groups' benefits differ by more than the bound. Testing ends with the first that
fails, and the last that passed is taken. In such a fixed sequence the chance that any candidate
passes whose true gap exceeds the bound is at most one minus the confidence, however many there
are: for a false pass, the first candidate whose gap is too wide must pass its own test.

For one candidate this is the construction of Seldonian algorithms (Thomas et al. 2019; Metevier et
al. 2019): candidate selection, then a safety test. They choose the one candidate by a predicted
bound; the sequence needs no prediction, and gives up less utility where a loose bound can be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from consequential.evaluation import Estimate, Evaluation, evaluate
from consequential.evaluation.intervals import Normal
from consequential.evaluation.weighted_log import WeightedLog
from consequential.learning import Fitted
from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.objective import Objective
from consequential.policy import Policy

# the bounds that candidates are learned under, by the one asked for
_STRICTNESS = (0.0, 0.25, 0.5, 0.75, 1.0)
# a log so many times as long is out of reach, and the number of its rows a wild guess
_HOPELESS = 1000.0


class BoundNotShownError(DecisionLogError):
    """No policy could be shown to keep the bound; `policy` is the best guess there is.

    `gap` is that policy's gap on held-out rows, and `decisions` is about how many decisions in all
    would show that it keeps the bound: infinite where the gap itself is estimated to be too wide.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.05), 2000,
    ...                     np.random.default_rng(0))
    >>> learner = cq.FairPolicyLearner(
    ...     cost=world.cost, fairness="equal_opportunity", max_gap=0.02, confidence=0.95)
    >>> try:
    ...     learner.fit_log(log)
    ... except cq.BoundNotShownError as declined:
    ...     print(str(declined)[:85], declined.decisions > 2000)
    no policy can be shown to keep a gap of at most 0.02 with confidence 0.95 on this log True
    """

    def __init__(self, message: str, policy: Policy, gap: Estimate, decisions: float) -> None:
        super().__init__(message)
        self.policy, self.gap, self.decisions = policy, gap, decisions


@dataclass(frozen=True, slots=True)
class Tested:
    """A candidate and what the held-out rows say of it.

    `most` is an upper confidence bound on the size of its gap.
    """

    max_gap: float
    fitted: Fitted
    value: Evaluation
    most: float

    def decisions_needed(self, bound: float, n_log: int) -> float:
        """Return about how many decisions would show the bound, half of them held out."""
        gap = abs(self.value.benefit_gap.value)
        if not gap < bound:
            return inf
        return ceil(n_log * ((self.most - gap) / (bound - gap)) ** 2)


@dataclass(frozen=True, slots=True)
class Safety:
    """How a bound was shown to hold: the candidates that passed, in the order of their tests.

    Attributes
    ----------
    max_gap, confidence
        What was asked for: in at most one minus the confidence of logs the true gap exceeds the
        bound.
    passed
        The candidates that passed, the last of which was taken.
    held_out
        The rows that tested them: nothing was learned from these.
    """

    max_gap: float
    confidence: float
    passed: tuple[Tested, ...]
    held_out: DecisionLog = field(repr=False)

    @property
    def chosen(self) -> Tested:
        """The candidate that was taken."""
        return self.passed[-1]

    def __str__(self) -> str:
        gap = self.chosen.value.benefit_gap
        return (
            f"shown on {len(self.held_out)} held-out decisions: the gap is {gap!r} and exceeds "
            f"{self.max_gap:g} in at most {1.0 - self.confidence:.0%} of logs like this one"
        )


def safely_fitted(
    fit: Callable[[DecisionLog, float], Fitted],
    log: DecisionLog,
    objective: Objective,
    max_gap: float,
    confidence: float,
    rng: np.random.Generator,
) -> Safety:
    """Learn candidates from half of a log and test them on the other half.

    `fit` learns from rows under a bound. Raises `BoundNotShownError` where not even the strictest
    candidate passes, and where the one to be taken is worth no more than rejecting everybody.
    """
    learned, held_out = log.settled().split(0.5, by="random", rng=rng)
    passed: list[Tested] = []
    for share in _STRICTNESS:
        candidate = _tested(
            share * max_gap, fit(learned, share * max_gap), held_out, objective, confidence
        )
        if candidate.most > max_gap:
            break
        passed.append(candidate)
    # Rejecting everybody is fair, needs no log and is worth 0: a policy worth less is no answer.
    if not passed or passed[-1].value.utility.value <= 0.0:
        raise _not_shown(passed[-1] if passed else candidate, max_gap, confidence, len(log))
    return Safety(max_gap, confidence, tuple(passed), held_out)


def _tested(
    bound: float, fitted: Fitted, held_out: DecisionLog, objective: Objective, confidence: float
) -> Tested:
    assert objective.fairness is not None
    value = evaluate(
        fitted.policy,
        held_out,
        cost=objective.cost,
        fairness=objective.fairness,
        weighting=objective.weighting,
        confidence=confidence,
    )
    benefits = WeightedLog.of(objective, held_out).benefits(held_out.propensity_of(fitted.policy))
    # one side of each pair's interval errs with half of what the interval does
    intervals = Normal(2.0 * confidence - 1.0)
    return Tested(bound, fitted, value, intervals.furthest_end(benefits))


def _not_shown(tried: Tested, max_gap: float, confidence: float, n_log: int) -> BoundNotShownError:
    if tried.most <= max_gap:
        return BoundNotShownError(
            f"the only policy that can be shown to keep a gap of at most {max_gap:g} with "
            f"confidence {confidence:g} on this log is worth no more than rejecting everybody: "
            f"{tried.value.utility!r} on {tried.value.n} held-out decisions. Ask for a wider gap, "
            "or for less confidence. In Python the policy is this error's `policy`",
            tried.fitted.policy,
            tried.value.benefit_gap,
            inf,
        )
    gap, needed = tried.value.benefit_gap, tried.decisions_needed(max_gap, n_log)
    more = "more decisions will hardly show it, for the gap itself is estimated to be about as wide"
    if needed < _HOPELESS * n_log:
        more = f"about {needed:.0f} decisions in all would show it, if the gap is as estimated"
    return BoundNotShownError(
        f"no policy can be shown to keep a gap of at most {max_gap:g} with confidence "
        f"{confidence:g} on this log: on {tried.value.n} held-out decisions the gap of the best "
        f"guess is {abs(gap.value):.4f}, and with that confidence at most {tried.most:.4f}; "
        f"{more}. Ask for a wider gap, or for less confidence. In Python the best guess is this "
        "error's `policy`",
        tried.fitted.policy,
        gap,
        needed,
    )
