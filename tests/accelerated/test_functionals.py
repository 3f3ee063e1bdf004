"""Functionals of many small logs at once, as JAX computes them: those that `Objective` defines.

Logs are so small that groups often have nobody accepted, or nobody with one of the labels. Where
that is so must be known exactly; values agree to 1e-12.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.accelerated.functionals import Link, Settings, objective_value
from consequential.accelerated.people import People
from consequential.accelerated.step import Given, Program, Shape, _functionals

jax = pytest.importorskip("jax")

N_LOGS, N, N_GROUPS = 200, 24, 3
COST, PENALTY = 0.4, 2.0
NOTIONS = [
    cq.fairness.DemographicParity(),
    cq.fairness.EqualOpportunity(),
    cq.fairness.EqualisedOdds(),
    cq.fairness.PredictiveParity(),
    cq.fairness.BenefitParity(lambda d, y: float(d == y)),
]
WEIGHTINGS = [cq.weightings.InversePropensity(), cq.weightings.SelfNormalised()]


def small_logs():
    """Return inputs, groups, labels and inverse propensities of accepted people, log by log."""
    rng = np.random.default_rng(11)
    group = rng.choice(N_GROUPS, size=(N_LOGS, N), p=[0.7, 0.22, 0.08])
    x = rng.normal(size=(N_LOGS, N))
    label = (rng.random((N_LOGS, N)) < np.where(group == 1, 0.2, 0.6)).astype(float)
    propensity = 0.05 + 0.9 * rng.random((N_LOGS, N))
    accepted = rng.random((N_LOGS, N)) < 0.5 * propensity
    accepted[:, 0] = True  # an update without anybody accepted is not taken at all
    return np.stack([np.ones_like(x), x], axis=1), group, label, np.where(accepted, propensity, 0.0)


PHI, GROUP, LABEL, CHANCE = small_logs()


def log_of(s):
    accepted = CHANCE[s] > 0
    return cq.DecisionLog.from_arrays(
        PHI[s, 1][:, None],
        accepted,
        np.where(accepted, CHANCE[s], 0.5),
        np.where(accepted, LABEL[s], np.nan),
        GROUP[s],
        groups=range(N_GROUPS),
    )


def program_of(notion, weighting, *, accepted_only):
    shapes = notion.shapes()
    settings = Settings(
        n_iterations=1, batch_size=N // 2, n_reference=0, n_groups=N_GROUPS,
        is_ratio=tuple(shape.denominator is not None for shape in shapes), sampled=False,
        preconditioned=False, penalised=True, ridge=0.0, max_step=1.0, max_share=1.0,
        on_the_spot=True, n_before=0,
    )  # fmt: skip
    return Program(
        settings,
        tuple(Shape(s.values, s.constant, s.share_of, s.denominator) for s in shapes),
        n_people=N,
        n_passed=N,
        n_checked=N,
        accepted_only=accepted_only,
        weighted=True,
        self_normalised=isinstance(weighting, cq.weightings.SelfNormalised),
    )


def on_device(notion, weighting, *, accepted_only):
    """Return the rows of all logs, and the objective of one policy on each."""
    program = program_of(notion, weighting, accepted_only=accepted_only)
    link = Link(1.0, 0.0, 0.0)
    with jax.enable_x64(True):
        weights = np.divide(1.0, CHANCE, out=np.zeros_like(CHANCE), where=CHANCE > 0)[:, None]
        jnp = jax.numpy
        people = People(*(jnp.asarray(a) for a in (PHI, GROUP, LABEL, np.zeros_like(LABEL))))
        given = Given(link, COST, COST, np.inf, 0.0, jnp.full((N_LOGS, 1), PENALTY))
        rows, _ = _functionals(
            program, given, people, jnp.asarray(weights), jnp.asarray(N), jnp.zeros(N_LOGS)
        )
        theta = jnp.broadcast_to(jnp.asarray([0.2, 0.7]), (N_LOGS, 1, 2))
        value = objective_value(rows, program.settings, link, theta, given.penalty, N)
        return jax.device_get(rows), np.asarray(value)[:, 0]


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("notion", NOTIONS, ids=lambda n: n.name)
def test_functionals_of_small_logs_are_those_of_the_objective(notion, weighting):
    rows, value = on_device(notion, weighting, accepted_only=False)
    objective = cq.Objective(COST, notion, PENALTY, weighting=weighting)
    undefined = 0
    for s in range(N_LOGS):
        log = log_of(s)
        for b, benefit in enumerate(objective.coefficients(log).benefits):
            assert_array_equal(rows.defined[s, 0, b], benefit.defined)
            assert_allclose(rows.constant[s, 0, b], benefit.constant, rtol=1e-12, atol=1e-12)
            assert_allclose(rows.values[s, 0, b], benefit.values, rtol=1e-12, atol=1e-12)
            if benefit.denominator is not None:
                found = rows.denominators[s, 0, b]
                assert_allclose(found, benefit.denominator, rtol=1e-12, atol=1e-12)
            undefined += (~benefit.defined).sum()
        expected = objective.value(cq.Policy([0.2, 0.7]), log)
        assert_allclose(value[s], expected, rtol=1e-12, atol=1e-12)
    assert undefined > 20


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("notion", NOTIONS, ids=lambda n: n.name)
def test_benefits_are_undefined_for_the_same_groups_under_the_papers_normalisation(
    notion, weighting
):
    rows, _ = on_device(notion, weighting, accepted_only=True)
    objective = cq.Objective(COST, notion, PENALTY, weighting=weighting, normalisation="paper")
    for s in range(N_LOGS):
        coefficients = objective.coefficients(log_of(s))
        assert_allclose(rows.shares[s, 0], coefficients.shares(), rtol=1e-12)
        for b, benefit in enumerate(coefficients.benefits):
            assert_array_equal(rows.defined[s, 0, b], benefit.defined)
            assert_allclose(rows.constant[s, 0, b], benefit.constant, rtol=1e-12, atol=1e-12)
