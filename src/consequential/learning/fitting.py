"""Fit a policy to a log, and say what was reached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consequential.learning.constraints import Constraint, GapBound
from consequential.learning.problem import Columns, FitProblem
from consequential.learning.rows import Remembered, Rows, ScannedRows, moments, scanned_totals
from consequential.learning.search import (
    SURE,
    Stages,
    flattened,
    free_attempts,
    search,
    starting_points,
)
from consequential.learning.solver import KEPT
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective.fairness import Fairness, ShapedFairness, benefit_gap
from consequential.objective.functionals import LABELLED, NEGATIVES, POSITIVES
from consequential.objective.objective import Objective, Totals
from consequential.policy import FeatureSummary, Policy, Support, Unsupported, link_numbers
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]

SAMPLED = 1_000_000  # rows that are drawn from a scan at least; one in a hundred where that is more
LEAST_SHRUNK = 1e-9  # with none at all the best policy may be infinitely steep
_WHOM = {POSITIVES: "with label 1", NEGATIVES: "with label 0"}
_CERTAIN = 1.0 - 1e-9  # a propensity that leaves nothing to chance
_MISSED = 1e-3  # violation of a constraint that is worth a note


class UnexploredLogError(DecisionLogError):
    """A log that left nothing to chance: nobody who was rejected could have been accepted."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted policy with its certificates: figures on the log it was fitted to.

    They flatter the policy, having been maximised; an honest value comes from other rows.

    Attributes
    ----------
    utility, benefit_gap, benefits
        What the log says of the policy; of several bounds, benefits are those of the first.
    violation
        By how much the constraint is broken on the log; 0 without a constraint.
    unconstrained_utility
        What the best policy found without constraint and penalty reaches on the log.
    start
        Which start led to the policy.
    converged
        Whether the last ascent had nothing left to gain and kept the constraint to 1e-4.
    fallback
        Whether everything the solver found was worse than accepting or rejecting everybody, which
        the policy then does. A better policy may exist: try more starts, another `random_state`, a
        looser bound or a penalty.
    values
        The objective reached from each start, on a sample where the log is large; starts that
        led to the same place as an earlier one are left out.
    candidates
        The rules it was chosen among, a table; None where nothing was compared.
    remarks
        Which models it stands on, and what was noticed while they were fitted.
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
    fallback: bool = False
    candidates: Any = None
    remarks: tuple[str, ...] = ()

    @property
    def cost_of_fairness(self) -> float:
        """Utility given up for the constraint or the penalty, on the log."""
        return self.unconstrained_utility - self.utility

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before relying on the policy."""
        notes = list(self.remarks)
        if self.fallback:
            notes.append(
                f"every policy found was worse than {self.start.replace(' ', 'ing ', 1)}, so that "
                "is the policy; a better one may exist (more n_starts, another random_state, a "
                "looser bound, or a penalty in its place)"
            )
        elif not self.converged:
            notes.append("the search ended before it converged: a better policy may exist")
        if self.violation > _MISSED:
            notes.append(
                f"the constraint is missed by {self.violation:.3g} where it was learned: no policy "
                "of this form was found that meets it"
            )
        if self.policy.support is not None:
            notes.append(self.policy.support.note)
        return tuple(notes)


def fit_policy(
    log: DecisionLog | LogScan,
    template: Policy,
    objective: Objective,
    constraint: Constraint,
    *,
    l2: float,
    n_starts: int = 4,
    max_passes: int = 400,
    starts: Mapping[str, Floats] | None = None,
    inputs: Floats | None = None,
    signs: Floats | None = None,
    unsupported: Unsupported = "reject",
    rng: np.random.Generator,
) -> Fitted:
    """Fit theta of a policy like `template` to a log.

    With `starts`, thetas by name, these are the only starts. `inputs` takes the place of what the
    template's feature map would give for the log's settled rows: cross-fitted scores. `signs` are
    those that theta must have, one per input: 1, -1, or 0 where any is allowed. A log that is
    scanned is fitted on a sample first, and then all of its rows are used in a few passes. What is
    done with people whom the log does not support is fixed beforehand by `unsupported`; they count
    in benefits that need no label.
    """
    link = link_numbers(replace(template, support=None))
    if link is None:
        raise ValueError(f"the solver does not know the link {template.link.name!r}")
    if isinstance(log, LogScan):
        settled = log.sample(max(SAMPLED, len(log) // 100), rng)
    else:
        settled = log.settled()
    _check(settled, objective, constraint)
    n_settled = len(log) if isinstance(log, LogScan) else len(settled)
    template = replace(template, support=_support(settled, template, unsupported, n_settled))
    fingerprint = _beside(lambda: log.fingerprint)
    shrinkage = max(l2, LEAST_SHRUNK)
    problem, rows = problem_in_memory(
        settled,
        template,
        objective,
        link,
        shrinkage,
        inputs=inputs,
        counts=constraint.counts,
    )
    if signs is not None:
        problem = replace(problem, signs=np.tile([0.0, *signs], problem.n_blocks))
    stages = Stages.of(problem, rows, rng)
    known = _known(settled)
    if isinstance(log, LogScan) and len(settled) < len(log):
        totals = scanned_totals(log, objective)
        problem, known = _scanned(log, totals, problem, template), totals.sums
        stages = stages.followed_by(problem)
    if (constraint.compares or objective.penalty > 0.0) and objective.fairness is not None:
        for bound in constraint.gaps or (GapBound(1.0),):
            _check_measured(objective.fairness, bound, known, problem.columns, settled.groups)
    _check_reachable(constraint, problem, settled.groups)
    constraint = constraint.weighed(problem.columns.totals)
    if starts is not None:
        starts = {name: flattened(problem, theta) for name, theta in starts.items()}
    else:
        starts = starting_points(settled, rows, problem, template, n_starts, rng)
    # for vectors of a few numbers BLAS would only keep its threads busy waiting
    with threadpool_limits(limits=1, user_api="blas"):
        plain = stages.penalised(0.0)
        free = free_attempts(plain, starts, max_passes=max_passes)
        unbound = found = search(plain, free, Constraint(), max_passes=max_passes)
        if constraint.binds or objective.penalty > 0.0:
            if objective.penalty > 0.0:
                free = free_attempts(stages, starts, max_passes=max_passes)
            found = search(stages, free, constraint, max_passes=max_passes)
    sums = found.sums
    compared = constraint.gaps[0] if constraint.compares else GapBound(1.0)
    benefits = compared.benefits(sums)
    return Fitted(
        policy=replace(
            template.at(found.theta),
            learned_from=fingerprint(),
            feature_names=log.feature_names,
            summary=FeatureSummary.of(settled.features, log.feature_names),
            preparation=log.preparation,
        ),
        utility=sums.utility,
        benefit_gap=benefit_gap(benefits),
        benefits={
            group: float(value)
            for first in benefits[:1]
            for group, value in zip(compared.names(settled.groups), first, strict=True)
        },
        violation=found.violation,
        unconstrained_utility=max(unbound.sums.utility, sums.utility),
        start=found.start,
        converged=found.converged,
        n_passes=found.n_passes,
        values=found.values,
        fallback=found.fallback,
    )


def _beside(work: Callable[[], str]) -> Callable[[], str]:
    """Begin work in a thread of its own; return how to wait for its result."""
    pool = ThreadPoolExecutor(1)
    under_way = pool.submit(work)
    pool.shutdown(wait=False)
    return under_way.result


def _scanned(scan: LogScan, totals: Totals, sampled: FitProblem, template: Policy) -> FitProblem:
    """The problem of a sample, for all rows of the scan it was drawn from."""
    counts = sampled.columns.group_shares is not None
    passes = ScannedRows(scan, sampled.objective, template, totals, counts)
    columns = Columns.of(passes.coefficients(), totals.sums[0] / totals.n if counts else None)
    return replace(sampled, passes=Remembered(passes), columns=columns)


def _support(
    log: DecisionLog, template: Policy, unsupported: Unsupported, n_settled: int
) -> Support | None:
    """About whom a log can speak; a log that left nothing to chance is refused."""
    found = Support.of(
        log.features,
        log.propensity,
        n=n_settled,
        unsupported=unsupported,
        group=log.group if template.groups else None,
        n_groups=len(template.groups),
    )
    if found is None or not found.overrules:
        return found
    could = log.propensity >= found.smallest
    if (log.propensity[could] > _CERTAIN).all():
        raise UnexploredLogError(
            "the log left nothing to chance: whoever was rejected could not have been accepted, so "
            "it cannot tell what accepting them would bring"
        )
    if found.share == 1.0:
        raise DecisionLogError(
            "people of every kind are among those whom the log cannot speak about (propensity "
            f"below {found.smallest:.3g}): there is nobody to learn a policy for. Decide with an "
            "exploration floor first, for example rule.with_floor(0.05)"
        )
    return found


def _check(log: DecisionLog, objective: Objective, constraint: Constraint) -> None:
    if not log.decision.any():
        raise DecisionLogError("nobody was accepted: there is nothing to learn from")
    if constraint.compares and objective.fairness is None:
        raise ValueError("a constraint needs a fairness notion to constrain: give fairness=")
    if (constraint.compares or objective.penalty > 0) and len(log.groups) < 2:
        raise DecisionLogError(
            "fairness between groups needs a sensitive attribute with at least two groups; the "
            f"log has {len(log.groups)}"
        )


def _known(log: DecisionLog) -> Floats:
    """People by group, those known to have label 1, and those known to have label 0."""
    people = np.ones(len(log), dtype=np.bool_)
    counted = (people, log.labelled & (log.label == 1.0), log.labelled & (log.label == 0.0))
    return np.stack([np.bincount(log.group, mask, len(log.groups)) for mask in counted])


def _check_measured(
    notion: Fairness,
    bound: GapBound,
    known: Floats,
    columns: Columns,
    groups: tuple[Hashable, ...],
) -> None:
    """Refuse a notion of fairness that says nothing about one of the groups it compares.

    `known` counts, by group, people, people known to have label 1, and those known to have label 0.
    """
    groups, known = bound.names(groups), bound.united(known.T).T
    if isinstance(notion, ShapedFairness):
        shapes = notion.shapes()
        compared = [shapes[k] for k in range(len(shapes)) if bound.rows is None or k in bound.rows]
        needed = [shape.share_of or LABELLED for shape in compared if shape.labelled]
        unmeasured = [
            (_WHOM.get(mix, "with a label"), np.asarray(mix) @ known <= 0) for mix in needed
        ]
    else:
        unmeasured = [("to measure it on", ~defined) for defined in columns.defined]
    for whom, lacking in unmeasured:
        if lacking.any():
            raise DecisionLogError(
                f"{notion.name} cannot be measured for group {groups[int(lacking.argmax())]!r}: "
                f"the log has nobody {whom} there, so a bound or a penalty would constrain "
                'nothing. Merge groups, use fairness="demographic_parity", which needs no labels, '
                "or collect more decisions on this group"
            )


def _check_reachable(
    constraint: Constraint, problem: FitProblem, groups: tuple[Hashable, ...]
) -> None:
    """Refuse to accept more people than may be accepted at all."""
    if not constraint.least:
        return
    ((everybody, _),) = problem.alike(problem.passes.totals(), [SURE])
    assert everybody.acceptance is not None  # it is counted
    whom = (*(f"group {group!r}" for group in groups), "all applicants")
    for name, least, rate in zip(whom, constraint.least, everybody.acceptance, strict=True):
        if least > rate + KEPT:
            raise DecisionLogError(
                f"min_acceptance asks for {least:.1%} of {name}, but {rate:.1%} is the most that "
                "can be accepted: about the others the log cannot speak, and they are decided on "
                "as unsupported= says. Ask for less, or extrapolate with "
                'unsupported="trust_model"'
            )


def problem_in_memory(
    log: DecisionLog,
    template: Policy,
    objective: Objective,
    link: LinkNumbers,
    l2: float,
    *,
    inputs: Floats | None = None,
    counts: bool = False,
) -> tuple[FitProblem, Rows]:
    """Return the problem of a log in memory, and its rows; with `counts` acceptance is counted."""
    coefficients = objective.coefficients(log)
    rows = Rows.of(
        log,
        coefficients,
        template,
        inputs=inputs,
        n_people=len(log) if counts else None,
    )
    centre, scale = moments(rows.inputs)
    unit = float(np.abs(rows.columns[0]).sum())
    problem = FitProblem(
        Remembered(rows),
        Columns.of(coefficients, coefficients.shares() if counts else None),
        objective,
        link,
        centre,
        scale,
        l2,
        unit if unit > 0.0 else 1.0,
    )
    return problem, rows
