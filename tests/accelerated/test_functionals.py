"""Functionals of many small logs at once, as JAX computes them: those that `Objective` defines.

Logs are so small that groups often have nobody accepted, or nobody with one of the labels. Where
that is so must be known exactly; values agree to 1e-12.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.kernels.step import People
from consequential.learning.ascent import Schedule
from consequential.learning.update import compiled_rows
from consequential.simulation.compiled_runs import CompiledRuns

jax = pytest.importorskip("jax")

from consequential.accelerated.step import (  # noqa: E402
    Program,
    functionals,
    objective_value,
)

N_LOGS, N, N_GROUPS, SIZE = 200, 24, 3, 8
COST, PENALTY = 0.4, 2.0
POLICY = cq.Policy([0.2, 0.7])
EVERY_PAIR = [
    ("demographic_parity", cq.weightings.InversePropensity(), "applicants"),
    ("demographic_parity", cq.weightings.SelfNormalised(), "paper"),
    ("equal_opportunity", cq.weightings.SelfNormalised(), "applicants"),
    ("equal_opportunity", cq.weightings.InversePropensity(), "paper"),
    ("equalised_odds", cq.weightings.InversePropensity(), "applicants"),
    ("equalised_odds", cq.weightings.SelfNormalised(), "paper"),
    ("predictive_parity", cq.weightings.SelfNormalised(), "applicants"),
    ("predictive_parity", cq.weightings.InversePropensity(), "paper"),
    (
        cq.fairness.BenefitParity(lambda d, y: float(d == y)),
        cq.weightings.InversePropensity(),
        "applicants",
    ),
    (
        cq.fairness.BenefitParity(lambda d, y: float(d == y)),
        cq.weightings.SelfNormalised(),
        "paper",
    ),
]


@pytest.fixture(scope="module")
def logs():
    rng = np.random.default_rng(11)
    group = rng.choice(N_GROUPS, size=(N_LOGS, N), p=[0.7, 0.22, 0.08])
    x = rng.normal(size=(N_LOGS, N))
    label = (rng.random((N_LOGS, N)) < np.where(group == 1, 0.2, 0.6)).astype(float)
    propensity = 0.05 + 0.9 * rng.random((N_LOGS, N))
    accepted = rng.random((N_LOGS, N)) < 0.5 * propensity
    accepted[:, 0] = True  # an update without anybody accepted is not taken at all
    return [
        cq.DecisionLog.from_arrays(
            x[s][:, None],
            accepted[s],
            propensity[s],
            np.where(accepted[s], label[s], np.nan),
            group[s],
            groups=range(N_GROUPS),
        )
        for s in range(N_LOGS)
    ]


def program_of(learning):
    return Program(
        Schedule(1, SIZE, 0),
        n_iterations=1,
        n_people=N,
        n_read=N,
        n_groups=N_GROUPS,
        n_checked=N,
        penalised=True,
        has_ratio=bool(learning.notion.is_ratio.any()),
        label_free=learning.notion.label_free,
        sampled=False,
        preconditioned=False,
        weighted=True,
        self_normalised=learning.self_normalised,
        accepted_only=learning.accepted_only,
    )


def on_device(objective, logs):
    """Return the rows of all logs and the objective of one policy on each."""
    learner = cq.UpdatePolicy(objective, 1, SIZE, cq.steps.GradientStep(1.0), shuffle=False)
    runs = CompiledRuns("", learner, cq.sequences.Iterative(), [0], [POLICY], (PENALTY,), 1)
    learning = runs.learning(COST)
    program = program_of(learning)

    def of_log(learning, people, weights, at, propensity):
        rows = functionals(program, learning, people, weights, at, N)
        n = (weights > 0).sum() if program.accepted_only else N
        return rows, objective_value(rows, propensity, n, PENALTY)

    people = People(
        np.stack([np.stack([np.ones(N), log.features[:, 0]]) for log in logs]),
        np.stack([log.group for log in logs]),
        np.stack([np.nan_to_num(log.label) for log in logs]),
        np.zeros((N_LOGS, N)),
    )
    weights = np.stack([cq.weightings.InversePropensity().weights(log) for log in logs])
    at = np.tile(np.arange(N), (N_LOGS, 1))
    if program.accepted_only:
        at = np.stack([np.resize(np.flatnonzero(log.decision), N) for log in logs])
    propensity = np.stack([POLICY.propensity(log.features) for log in logs])
    propensity = np.take_along_axis(propensity, at, axis=1)
    with jax.enable_x64(True):
        mapped = jax.jit(jax.vmap(of_log, (None, 0, 0, 0, 0)))
        return jax.device_get(mapped(learning, people, weights, at, propensity))


@pytest.mark.parametrize(("notion", "weighting", "normalisation"), EVERY_PAIR)
def test_functionals_of_small_logs_are_those_of_the_objective(
    notion, weighting, normalisation, logs
):
    objective = cq.Objective(
        COST, notion, PENALTY, weighting=weighting, normalisation=normalisation
    )
    rows, values = on_device(objective, logs)
    undefined = 0
    for s, log in enumerate(logs):
        found = jax.tree.map(lambda array, s=s: array[s], rows._replace(benefits=None))
        constant, defined, _, shares = (part[s] for part in rows.benefits)
        read = objective.rows(log)
        inputs, coefficients = POLICY.inputs(read.features), objective.coefficients(log)
        expected = compiled_rows(inputs, coefficients, coefficients.shares(), SIZE)
        n, close = len(read), {"rtol": 1e-12, "atol": 1e-12}
        assert_array_equal(defined, expected.benefits.defined)
        assert_allclose(constant, expected.benefits.constant, **close)
        assert_allclose(shares, expected.benefits.shares, **close)
        assert_allclose(found.inputs[:, :n], expected.inputs, **close)
        assert_allclose(found.utility[:n], expected.utility, **close)
        assert_allclose(found.columns[:, :n], expected.columns, **close)
        assert_allclose(found.batch_shares[: n // SIZE], expected.batch_shares, **close)
        assert_allclose(values[s], objective.value(POLICY, log), **close)
        undefined += (~defined).sum()
    assert undefined > 20
