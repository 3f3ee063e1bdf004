"""The running means of an ascent, made of all rows."""

from __future__ import annotations

import consequential as cq
from consequential.lab.algorithm.ascent import Means, Minibatch, Schedule
from consequential.lab.algorithm.update import compiled_rows
from consequential.lab.kernels.random import UniformStream


def means_at(objective, policy, rows, coefficients=None):
    """Return an ascent's running means, made of all rows at the policy's theta."""
    n, of_log = len(rows), objective.coefficients(rows) if coefficients is None else coefficients
    phi = policy.inputs(rows.features)
    batches = compiled_rows(phi, of_log, objective.coefficients(rows).shares(), n)
    ascent = cq.UpdatePolicy(objective, 1, n).numbers(n, 0.1)
    means = Means(batches, Schedule(1, n, 0), penalised=True)
    means.absorb(Minibatch(batches, 0, policy, policy.theta, ascent, UniformStream(0)))
    return means


def residual_slopes(objective, policy, rows):
    """Return what an ascent takes for the slopes of its penalty's residuals, from all rows."""
    return means_at(objective, policy, rows).residual_slopes()
