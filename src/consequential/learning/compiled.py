"""From objects to the compiled kernel's numbers, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.learning import kernel
from consequential.learning.kernel import Ascent
from consequential.learning.reference import Circle
from consequential.learning.steps import GradientStep, PreconditionedStep, StepRule
from consequential.learning.sums import Rows
from consequential.objective import Benefit, Objective
from consequential.policies import Policy
from consequential.policies.compiled import bend_of, compiling_reported

Floats = NDArray[np.float64]

_NONE = (np.empty(0), np.empty(0))  # no random numbers drawn before, and no room for copies


def knows(policy: Policy, step: StepRule) -> bool:
    """Whether the kernel has this link and this step rule."""
    return bend_of(policy) is not None and type(step) in (GradientStep, PreconditionedStep)


def ascend(
    circle: Circle,
    objective: Objective,
    policy: Policy,
    step_rule: StepRule,
    rate: float,
    n_iterations: int,
    key: int,
) -> tuple[Floats, int]:
    """Return what `reference.ascend` returns."""
    ascent = numbers_of(
        step_rule, objective, n_iterations, circle.batch_size, circle.n_reference
    )._replace(rate=rate)
    link = bend_of(policy)
    assert link is not None
    with compiling_reported("the ascent"):
        theta, rejected = kernel.ascend(
            rows_of(circle), link, ascent, policy.theta, circle.scale, np.uint64(key), *_NONE
        )
    return theta, int(rejected)


def rows_of(circle: Circle) -> Rows:
    """Return the circle as the kernel reads it."""
    coefficients = circle.coefficients
    n, shape = len(circle.phi), (len(coefficients.benefits), coefficients.n_groups)
    is_ratio = np.array([b.denominator is not None for b in coefficients.benefits], dtype=np.bool_)
    return Rows(
        phi=np.ascontiguousarray(circle.phi.T),
        utility=coefficients.utility,
        values=_stacked([b.values for b in coefficients.benefits], n),
        denominators=_stacked(
            [_ones_unless_ratio(b, n) for b in coefficients.benefits if is_ratio.any()], n
        ),
        is_ratio=is_ratio,
        group=coefficients.group.astype(np.int16),
        constant=np.array([b.constant for b in coefficients.benefits]).reshape(shape),
        defined=np.array([b.defined for b in coefficients.benefits], dtype=np.bool_).reshape(shape),
        utility_constant=coefficients.utility_constant,
        total=float(n),
        shares=circle.shares,
    )


def numbers_of(
    step: StepRule, objective: Objective, n_iterations: int, batch_size: int, n_reference: int
) -> Ascent:
    """Return how to ascend, at rate 1."""
    preconditioned = isinstance(step, PreconditionedStep)
    return Ascent(
        n_iterations=n_iterations,
        batch_size=batch_size,
        n_reference=n_reference,
        penalty=objective.penalty,
        sampled=objective.decisions == "sampled",
        preconditioned=preconditioned,
        rate=1.0,
        ridge=step.ridge if isinstance(step, PreconditionedStep) else 0.0,
        max_step=float(step.max_step),  # type: ignore[attr-defined]  # both rules have it
        max_share=step.max_share if isinstance(step, PreconditionedStep) else 1.0,
    )


def _stacked(columns: list[Floats], n: int) -> Floats:
    return np.stack(columns) if columns else np.zeros((0, n))


def _ones_unless_ratio(benefit: Benefit, n: int) -> Floats:
    return np.ones(n) if benefit.denominator is None else benefit.denominator
