"""The search for the best policy: where it starts, and which attempts are followed to the end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consequential.learning.constraints import Constraint
from consequential.learning.problem import FitProblem, Price
from consequential.learning.rows import Remembered, Rows
from consequential.learning.solver import (
    KEPT,
    SHRINKING,
    Attempt,
    constrain,
    distinct,
    polish,
    solve_free,
)
from consequential.log import DecisionLog
from consequential.objective.functionals import Sums
from consequential.objective.objective import Objective
from consequential.objective.weightings.fractional import fit_classifier
from consequential.policy import Policy

Floats = NDArray[np.float64]

SCREENED = 30_000  # rows of the sample on which starts are compared
POLISHED = 150_000  # and of the one on which the best of them goes on
SURE = 30.0  # a score at which acceptance is all but certain
_FLAT = 4.0  # the largest standardised slope of a start
_NO_COST = 1e-9  # of a log whose values are all gains, as good as none
_SHRUNK = 1e-3  # ridge of the predictive model that one of the starts comes from
_FEW = 0.05  # who is accepted by a harsh start, or rejected by a lenient one
_FEWER = tuple(0.5 * 0.75**k for k in range(16))  # shares accepted, or rejected, tried at last
_PENALTY = 30.0  # of the gap, by the utility's scale, that leads to one of the starts


@dataclass(frozen=True, slots=True)
class Stages:
    """The same problem on ever more rows, with ever less shrinkage: the last is the whole one.

    Starts are screened on a small sample. `trial` are the later stages on that sample; where it is
    the whole log, they are the later stages themselves.
    """

    sample: Rows
    trial: tuple[FitProblem, ...]
    later: tuple[FitProblem, ...]

    @classmethod
    def of(cls, problem: FitProblem, rows: Rows, rng: np.random.Generator) -> Stages:
        """Draw the samples."""
        n = len(rows.group)
        drawn = rng.choice(n, min(n, POLISHED), replace=False) if n > SCREENED else np.arange(n)
        samples = {
            size: rows if size >= n else rows.take(np.sort(drawn[:size]))
            for size in (SCREENED, POLISHED)
        }
        small, large = (
            tuple(
                replace(
                    problem,
                    passes=Remembered(samples[size]),
                    l2=max(l2, problem.l2),
                )
                for l2 in (*SHRINKING, 0.0)
            )
            for size in (SCREENED, POLISHED)
        )
        if samples[POLISHED] is not rows:
            # the steepest policy a sample makes is too steep for all rows, and slow to come back
            large = (*large[:-1], problem)
        trial = large if samples[SCREENED] is rows else small
        return cls(samples[SCREENED], trial, large)

    @property
    def screened(self) -> FitProblem:
        """The problem on which starts are compared."""
        return self.trial[0]

    @property
    def whole(self) -> FitProblem:
        """The problem of all rows."""
        return self.later[-1]

    def penalised(self, penalty: float) -> Stages:
        """Return the same stages with another penalty in the objective."""
        trial, later = (
            tuple(
                replace(stage, objective=replace(stage.objective, penalty=penalty))
                for stage in stages
            )
            for stages in (self.trial, self.later)
        )
        return Stages(self.sample, later if self.trial is self.later else trial, later)

    def followed_by(self, problem: FitProblem) -> Stages:
        """Return the same stages with one more after them."""
        return replace(self, later=(*self.later, problem))


@dataclass(frozen=True, slots=True)
class Found:
    """What a search ended with.

    `fallback` says that accepting or rejecting everybody was better than what the solver found.
    """

    start: str
    theta: Floats
    sums: Sums
    violation: float
    converged: bool
    n_passes: int
    fallback: bool
    values: dict[str, float]


def free_attempts(
    stages: Stages, starts: Mapping[str, Floats], *, max_passes: int
) -> dict[str, Attempt]:
    """Return where the starts lead on a sample without a constraint, each place once."""
    found = {
        name: solve_free(stages.screened, start, max_passes=max_passes)
        for name, start in starts.items()
    }
    return distinct(stages.screened, found)


def search(
    stages: Stages, free: Mapping[str, Attempt], constraint: Constraint, *, max_passes: int
) -> Found:
    """Return the best policy that keeps a constraint, starting from free attempts.

    The attempt that is best on a sample is polished on all rows. While what comes of it is worse
    than accepting or rejecting everybody, the next best is tried.
    """
    attempts, polished = dict(free), {}
    order = _by_worth(attempts)
    if constraint.binds:
        attempts = _constrained(stages, free, constraint, max_passes)
        # with less shrinkage the best may be another one
        tried = {
            name: polish(stages.trial, attempt, max_passes=max_passes)
            for name, attempt in attempts.items()
        }
        order = _by_worth(tried)
        if stages.trial is stages.later:
            polished = tried
    trivial = _trivial(stages.whole, constraint)
    for name in order:
        if name not in polished:
            polished[name] = polish(stages.later, attempts[name], max_passes=max_passes)
        if trivial is None or polished[name].worth >= trivial.worth:
            break
    start = _by_worth(polished)[0]
    if constraint.binds and trivial is not None and polished[start].worth < trivial.worth:
        moved = _kept_by_moving(stages, free[_by_worth(free)[0]], constraint)
        polished["cut moved"] = polish(stages.later, moved, max_passes=max_passes)
        start = _by_worth(polished)[0]
    best = polished[start]
    found = Found(
        start,
        best.theta,
        best.sums,
        best.violation,
        best.converged,
        best.n_passes,
        fallback=False,
        values={name: attempt.value for name, attempt in attempts.items()},
    )
    if trivial is None or trivial.worth <= best.worth:
        return found
    # what differs by less than rounding and shrinkage was found by the solver as well
    fallback = not best.is_kept or trivial.value > best.value + KEPT * stages.whole.unit
    return replace(
        found,
        start=trivial.name,
        theta=trivial.theta,
        sums=trivial.sums,
        violation=constraint.violation(trivial.sums),
        converged=found.converged and not fallback,
        fallback=fallback,
    )


def _by_worth(attempts: Mapping[str, Attempt]) -> list[str]:
    return sorted(attempts, key=lambda name: attempts[name].worth, reverse=True)


def _constrained(
    stages: Stages, free: Mapping[str, Attempt], constraint: Constraint, max_passes: int
) -> dict[str, Attempt]:
    """Where free attempts lead under a constraint.

    From the best of them there are other ways in, since a bound has local optima of its own: at
    once instead of by degrees; with the cut moved so that few people are accepted, or few rejected,
    where groups' benefits are nearly equal; and by way of a penalty. Each place is kept once.
    """
    screened = stages.screened
    best = free[_by_worth(free)[0]]
    ways_in = {
        "at once": best,
        "few accepted": replace(best, theta=_moved(stages, flattened(screened, best.theta), _FEW)),
        "few rejected": replace(
            best, theta=_moved(stages, flattened(screened, best.theta), 1.0 - _FEW)
        ),
    }
    if constraint.compares:
        penalised = replace(
            screened, objective=replace(screened.objective, penalty=_PENALTY * screened.unit)
        )
        ways_in["penalty"] = solve_free(penalised, best.theta, max_passes=max_passes)
    found = {
        name: constrain(
            screened, attempt, constraint, by_degrees=name in free, max_passes=max_passes
        )
        for name, attempt in (*free.items(), *ways_in.items())
    }
    return distinct(screened, {name: found[name] for name in _by_worth(found)})


def _kept_by_moving(stages: Stages, free: Attempt, constraint: Constraint) -> Attempt:
    """A free attempt with its cut moved to where a constraint is kept and the objective is largest.

    A search may end in policies too steep to move, which all but keep the constraint. Groups'
    benefits become equal as everybody is accepted, or nobody.
    """
    tried = []
    for accepted in (*_FEWER, *(1.0 - share for share in _FEWER)):
        theta = _moved(stages, free.theta, accepted)
        sums, value = stages.whole.at(theta)
        violation = constraint.violation(sums)
        found = replace(free, theta=theta, sums=sums, value=value, violation=violation)
        tried.append(replace(found, price=Price(constraint)))
    return max(tried, key=lambda attempt: attempt.worth)


def _moved(stages: Stages, theta: Floats, accepted: float) -> Floats:
    """The same policy, with its cut where it accepts a share of the sample."""
    problem, rows = stages.screened, stages.sample
    beta = problem.standardised(theta).reshape(problem.n_blocks, -1)
    counts = rows.columns.any(axis=0)
    for block, slopes in enumerate(beta[:, 1:]):
        mine = counts if problem.n_blocks == 1 else counts & (rows.group == block)
        if mine.any():
            scores = (rows.inputs[mine] - problem.centre) / problem.scale @ slopes
            beta[block, 0] = -np.quantile(scores, 1.0 - accepted)
    return problem.original(beta.ravel())


@dataclass(frozen=True, slots=True)
class _Trivial:
    """Accepting or rejecting everybody whose propensity is not fixed."""

    name: str
    theta: Floats
    sums: Sums
    value: float

    @property
    def worth(self) -> tuple[bool, float]:
        """By which it compares with attempts."""
        return True, self.value


def _trivial(problem: FitProblem, constraint: Constraint) -> _Trivial | None:
    """The better one of accepting and rejecting everybody, of those that the constraint allows."""
    scores = {"accept all": SURE, "reject all": -SURE}
    found = []
    alike = problem.alike(problem.passes.totals(), list(scores.values()))
    for (name, score), (sums, value) in zip(scores.items(), alike, strict=True):
        theta = np.zeros((problem.n_blocks, len(problem.centre) + 1))
        theta[:, 0] = score
        if constraint.violation(sums) <= KEPT:
            found.append(_Trivial(name, theta.ravel(), sums, value))
    return max(found, key=lambda rule: rule.value, default=None)


def starting_points(
    log: DecisionLog,
    rows: Rows,
    problem: FitProblem,
    template: Policy,
    n_starts: int,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Where to start from: a predictive model, an even chance for all, and at random."""
    size = rows.n_parameters
    starts = {"prediction": _predicted(log, rows, problem, template)}
    starts["even chance"] = np.zeros(size)
    for k in range(n_starts - 2):
        starts[f"random {k + 1}"] = problem.original(rng.normal(size=size))
    return dict(list(starts.items())[:n_starts])


def flattened(problem: FitProblem, theta: Floats) -> Floats:
    """The same cut, less steep: a steep policy would not move."""
    beta = problem.standardised(theta)
    steepest = np.abs(np.delete(beta.reshape(problem.n_blocks, -1), 0, axis=1)).max(initial=0.0)
    return problem.original(beta * min(1.0, _FLAT / max(steepest, 1e-300)))


def _predicted(log: DecisionLog, rows: Rows, problem: FitProblem, template: Policy) -> Floats:
    """The policy that cuts where a weighted logistic regression predicts the cost."""
    from sklearn.linear_model import LogisticRegression

    objective: Objective = problem.objective
    seen = log.labelled
    if template.overrules:
        sensitive = log.sensitive if template.uses_sensitive else None
        seen = seen & template.supports(log.named_features, sensitive)
    chosen = np.flatnonzero(seen)
    chosen = chosen[:: max(1, len(chosen) // SCREENED)]
    weights = objective.weighting.weights(log)[chosen]
    cost = float(np.clip(log.mean_cost(objective.cost), _NO_COST, 1.0 - _NO_COST))
    theta = np.zeros((problem.n_blocks, len(problem.centre) + 1))
    for block in range(problem.n_blocks):
        inside = (problem.n_blocks == 1) | (log.group[chosen] == block)
        mine, own = chosen[inside], weights[inside]
        if len(mine) and log.label[mine].min() < log.label[mine].max():
            inputs = (rows.inputs[mine] - problem.centre) / problem.scale
            model = LogisticRegression(C=1.0 / (_SHRUNK * float(own.sum())), max_iter=200)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a start need not be the maximum
                fit_classifier(model, inputs, log.label[mine], own)
            theta[block] = np.concatenate([model.intercept_, model.coef_[0]])
        theta[block, 0] += np.log((1.0 - cost) / cost)
    return problem.original(theta.ravel())
