"""Fit a policy to a log: starts, their screening on a sample, and what was reached."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consequential.learning.constraints import Constraint
from consequential.learning.newton import fit_logistic
from consequential.learning.passes import Rows, moments
from consequential.learning.problem import Columns, Problem, Remembered
from consequential.learning.scanned import ScannedRows, whole_of
from consequential.learning.solver import (
    KEPT,
    SHRINKING,
    Attempt,
    constrain,
    distinct,
    polish,
    solve_free,
)
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import Objective, Sums, benefit_gap
from consequential.policies import Policy
from consequential.policies.compiled import Bend, bend_of

Floats = NDArray[np.float64]

SCREENED = 30_000  # rows of the sample on which starts are compared
POLISHED = 150_000  # and of the one on which the best of them goes on
SAMPLED = 1_000_000  # rows that are drawn from a scan at least; one in a hundred where that is more
LEAST_SHRUNK = 1e-9  # with none at all the best policy may be infinitely steep
_SURE = 30.0  # a score at which acceptance is all but certain
_FLAT = 4.0  # the largest standardised slope of a start
_SHRUNK = 1e-3  # ridge of the predictive model that one of the starts comes from


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted policy with its certificates: figures on the log it was fitted to.

    They flatter the policy, having been maximised; an honest value comes from other rows.

    Attributes
    ----------
    utility, benefit_gap, benefits
        What the log says of the policy.
    violation
        By how much the constraint is broken on the log; 0 without a constraint.
    unconstrained_utility
        What the best policy found without constraint and penalty reaches on the log.
    start
        Which start led to the policy.
    converged
        Whether the last ascent ended because nothing was left to gain.
    values
        The objective reached from each start, on a sample where the log is large; starts that
        led to the same place as an earlier one are left out.
    """

    policy: Policy
    utility: float
    benefit_gap: float
    benefits: dict[Hashable, float]
    violation: float
    unconstrained_utility: float
    start: str
    converged: bool
    n_passes: int
    values: dict[str, float]

    @property
    def cost_of_fairness(self) -> float:
        """Utility given up for the constraint or the penalty, on the log."""
        return self.unconstrained_utility - self.utility


def fit_policy(
    log: DecisionLog | LogScan,
    template: Policy,
    objective: Objective,
    constraint: Constraint,
    *,
    l2: float,
    n_starts: int = 4,
    variance_penalty: float = 0.0,
    max_passes: int = 400,
    warm: Policy | None = None,
    rng: np.random.Generator,
) -> Fitted:
    """Fit theta of a policy like `template` to a log.

    With `warm`, a policy of the same form, its theta is the only start. A log that is scanned is
    fitted on a sample first, and then all of its rows have their say in a few passes.
    """
    link = bend_of(template)
    if link is None:
        raise ValueError(f"the solver does not know the link {template.link.name!r}")
    if isinstance(log, LogScan):
        settled = log.sample(max(SAMPLED, len(log) // 100), rng)
    else:
        settled = log.settled()
    _check(settled, objective, constraint)
    fingerprint = _beside(lambda: log.fingerprint)
    shrinkage = max(l2, LEAST_SHRUNK)
    problem, rows = _problem(settled, template, objective, link, shrinkage, variance_penalty)
    screened, *stages = _stages(problem, rows, rng)
    if isinstance(log, LogScan) and len(settled) < len(log):
        problem = _scanned(log, problem, template)
        stages.append(problem)
    if warm is not None:
        starts = {"the policy so far": _flattened(problem, np.array(warm.theta))}
    else:
        starts = _starts(settled, rows, problem, objective, n_starts, rng)
    # for vectors of a few numbers BLAS would only keep its threads busy waiting
    with threadpool_limits(limits=1, user_api="blas"):
        free = {
            name: solve_free(screened, start, max_passes=max_passes)
            for name, start in starts.items()
        }
        attempts = {
            name: constrain(screened, attempt, constraint, max_passes=max_passes)
            for name, attempt in distinct(screened, free).items()
        }
        start = max(attempts, key=lambda name: attempts[name].worth)
        best = polish(stages, attempts[start], max_passes=max_passes)
    start, theta, sums, violation = _never_worse(problem, constraint, start, best)
    unbound = sums.utility
    if constraint.binds:
        unbound = problem.at(best.free_theta)[0].utility
    benefits = [] if objective.fairness is None else sums.benefits[0].tolist()
    return Fitted(
        policy=replace(
            template.at(theta), learned_from=fingerprint(), feature_names=log.feature_names
        ),
        utility=sums.utility,
        benefit_gap=benefit_gap(sums.benefits),
        benefits=dict(zip(settled.groups, benefits, strict=False)),
        violation=violation,
        unconstrained_utility=max(unbound, sums.utility),
        start=start,
        converged=best.converged,
        n_passes=best.n_passes,
        values={name: attempt.value for name, attempt in attempts.items()},
    )


def _beside(work: Callable[[], str]) -> Callable[[], str]:
    """Begin work in a thread of its own; return how to wait for its result."""
    pool = ThreadPoolExecutor(1)
    under_way = pool.submit(work)
    pool.shutdown(wait=False)
    return under_way.result


def _stages(problem: Problem, rows: Rows, rng: np.random.Generator) -> list[Problem]:
    """The same problem with ever less shrinkage, on ever more rows: the last on all."""
    n = len(rows.group)
    drawn = rng.choice(n, min(n, POLISHED), replace=False) if n > SCREENED else np.arange(n)
    samples = {
        size: rows if size >= n else rows.take(np.sort(drawn[:size]))
        for size in (SCREENED, POLISHED)
    }
    plan = [(SHRINKING[0], SCREENED), *((l2, POLISHED) for l2 in (*SHRINKING, 0.0))]
    stages = [
        replace(
            problem,
            passes=Remembered(samples[size]),
            n_rows=len(samples[size].group),
            l2=max(l2, problem.l2),
        )
        for l2, size in plan
    ]
    # the steepest policy a sample makes is too steep for all rows, and slow to come back
    return stages if samples[POLISHED] is rows else [*stages[:-1], problem]


def _scanned(scan: LogScan, sampled: Problem, template: Policy) -> Problem:
    """The problem of a sample, for all rows of the scan it was drawn from."""
    whole = whole_of(scan, sampled.objective)
    squares = sampled.variance_penalty > 0.0
    passes = ScannedRows(scan, sampled.objective, template, whole, squares)
    columns = passes.columns()
    return replace(sampled, passes=Remembered(passes), columns=columns, n_rows=whole.n)


def _never_worse(
    problem: Problem, constraint: Constraint, start: str, best: Attempt
) -> tuple[str, Floats, Sums, float]:
    """Fall back on accepting or rejecting everybody where that is better and allowed."""
    found, worth = (start, best.theta, best.sums, best.violation), best.worth
    scores = {"accept all": _SURE, "reject all": -_SURE}
    alike = problem.alike(problem.passes.totals(), list(scores.values()))
    for (name, score), (sums, value) in zip(scores.items(), alike, strict=True):
        theta = np.zeros((problem.n_blocks, len(problem.centre) + 1))
        theta[:, 0] = score
        violation = constraint.violation(sums.benefits)
        if violation <= KEPT and (True, value) > worth:
            found, worth = (name, theta.ravel(), sums, violation), (True, value)
    return found


def _check(log: DecisionLog, objective: Objective, constraint: Constraint) -> None:
    if not log.decision.any():
        raise DecisionLogError("nobody was accepted: there is nothing to learn from")
    if constraint.binds and objective.fairness is None:
        raise ValueError("a constraint needs a fairness notion to constrain: give fairness=")
    if (constraint.binds or objective.penalty > 0) and len(log.groups) < 2:
        raise DecisionLogError(
            "fairness between groups needs a sensitive attribute with at least two groups; the "
            f"log has {len(log.groups)}"
        )


def _problem(
    log: DecisionLog,
    template: Policy,
    objective: Objective,
    link: Bend,
    l2: float,
    variance_penalty: float,
) -> tuple[Problem, Rows]:
    coefficients = objective.coefficients(log)
    inputs = template.mapped(log.features)
    rows = Rows(
        inputs,
        Columns.rows(coefficients),
        coefficients.group,
        coefficients.n_groups,
        apart=template.uses_sensitive,
        squares=variance_penalty > 0.0,
    )
    centre, scale = moments(inputs)
    unit = float(np.abs(coefficients.utility).sum())
    problem = Problem(
        Remembered(rows),
        Columns.of(coefficients),
        objective,
        link,
        centre,
        scale,
        l2,
        unit if unit > 0.0 else 1.0,
        len(log),
        variance_penalty,
    )
    return problem, rows


def _starts(
    log: DecisionLog,
    rows: Rows,
    problem: Problem,
    objective: Objective,
    n_starts: int,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Where to start from: a predictive model, an even chance for all, and at random."""
    size = rows.n_parameters
    starts = {"prediction": _predicted(log, rows, problem, objective)}
    starts["even chance"] = np.zeros(size)
    for k in range(n_starts - 2):
        starts[f"random {k + 1}"] = problem.original(rng.normal(size=size))
    return dict(list(starts.items())[:n_starts])


def _flattened(problem: Problem, theta: Floats) -> Floats:
    """The same cut, less steep: a steep policy would not move."""
    beta = problem.standardised(theta)
    steepest = np.abs(np.delete(beta.reshape(problem.n_blocks, -1), 0, axis=1)).max(initial=0.0)
    return problem.original(beta * min(1.0, _FLAT / max(steepest, 1e-300)))


def _predicted(log: DecisionLog, rows: Rows, problem: Problem, objective: Objective) -> Floats:
    """The policy that cuts where a weighted logistic regression predicts the cost."""
    accepted = np.flatnonzero(log.decision)
    accepted = accepted[:: max(1, len(accepted) // SCREENED)]
    weights = objective.weighting.weights(log)[accepted]
    cost = objective.cost if log.cost is None else float(log.cost.mean())
    theta = np.zeros((problem.n_blocks, len(problem.centre) + 1))
    for block in range(problem.n_blocks):
        mine = accepted if problem.n_blocks == 1 else accepted[log.group[accepted] == block]
        chosen = weights if problem.n_blocks == 1 else weights[log.group[accepted] == block]
        if len(mine) and log.label[mine].min() < log.label[mine].max():
            phi = np.ones((len(problem.centre) + 1, len(mine)))
            phi[1:] = ((rows.inputs[mine] - problem.centre) / problem.scale).T
            ridge = _SHRUNK * float(chosen.sum())
            start = np.zeros(len(phi))
            theta[block] = fit_logistic(phi, log.label[mine], chosen, start, ridge, 50)[0]
        theta[block, 0] += np.log((1.0 - cost) / cost)
    return problem.original(theta.ravel())
