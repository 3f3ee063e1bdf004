"""Functionals of one run's log as JAX functions: what `kernels.functionals` computes."""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.ascent import centred, column_sums, group_benefits
from consequential.accelerated.backend import needed
from consequential.kernels.batch_sums import Benefits, Rows
from consequential.kernels.functionals import Learning
from consequential.kernels.step import People
from consequential.learning.ascent import Schedule

jnp = needed("jax").numpy
Array = Any


class Program(NamedTuple):
    """What a time step is compiled for."""

    schedule: Schedule
    n_iterations: int
    n_people: int  # in a time step
    n_read: int  # by an update
    n_groups: int
    n_checked: int
    penalised: bool
    has_ratio: bool
    label_free: bool
    sampled: bool
    preconditioned: bool
    weighted: bool
    self_normalised: bool
    accepted_only: bool


def inverse(values: Array) -> Array:
    """Return 1 / values, 0 where they are not above 0."""
    return jnp.where(values > 0.0, 1.0 / jnp.where(values > 0.0, values, 1.0), 0.0)


def functionals(
    program: Program, learning: Learning, log: People, weights: Array, at: Array, n_log: Array
) -> Rows:
    """Return the functionals of the people at some positions of a log.

    They are normalised by the whole log. Its rows after the first `n_log` are padding.
    """
    notion, accepted_only = learning.notion, program.accepted_only
    groups = jnp.arange(program.n_groups)[:, None]
    in_log = (log.group == groups) & (jnp.arange(log.label.shape[0]) < n_log)

    def by_group(values: Array) -> Array:
        return jnp.where(in_log, values, 0.0).sum(axis=-1)

    # Added up directly: a difference of totals would not be exactly 0 if nobody is there.
    positives, negatives = by_group(weights * log.label), by_group(weights * (1.0 - log.label))
    sizes = by_group(1.0)
    norm, overall = jnp.ones_like(sizes), 1.0
    if program.self_normalised:
        own = positives + negatives
        norm, overall = sizes * inverse(own), sizes.sum() * inverse(own.sum())
        positives, negatives = norm * positives, norm * negatives
    counted = in_size = sizes
    if accepted_only:
        counted, in_size = positives + negatives, by_group((weights > 0.0).astype("float64"))
    elif program.label_free:  # without the weights, runs of a seed share their columns
        positives = negatives = jnp.zeros_like(sizes)
    counts, total = jnp.stack([counted, positives, negatives], axis=-1), in_size.sum()

    def mixed(mix: Array) -> Array:
        return (mix[:, None] * counts).sum(axis=-1)

    in_total = jnp.where(notion.by_size[:, None], in_size, mixed(notion.share_of))
    scale = inverse(in_total)  # (benefits, groups)
    label, weights = log.label[at], weights[at]
    of_group = log.group[at] == groups  # (groups, n)

    def columns(mix: Array) -> Array:
        """Return a functional of each benefit, (benefits x groups, n)."""
        for_all, for_ones, for_zeros = (mix.T[..., None] * scale)[..., None]
        coefficients = for_all
        if accepted_only or not program.label_free:
            labelled = norm[:, None] * jnp.where(label > 0.0, for_ones, for_zeros)
            people = norm[:, None] * weights if accepted_only else 1.0
            coefficients = for_all * people + weights * labelled
        return jnp.where(of_group, coefficients, 0.0).reshape(-1, at.size)

    parts = [columns(notion.values)] if program.penalised else [jnp.zeros((0, at.size))]
    if program.penalised and program.has_ratio:
        parts.append(columns(notion.denominator))
    size = program.schedule.batch_size
    n_batches = at.size // size
    in_batches = of_group[:, : n_batches * size].reshape(-1, n_batches, size)
    return Rows(
        log.inputs[:, at],
        overall / total * weights * (label - learning.cost),
        jnp.concatenate(parts),
        in_batches.mean(axis=-1, dtype="float64").T,
        Benefits(mixed(notion.constant) * scale, in_total > 0.0, notion.is_ratio, in_size / total),
        total,
    )


def objective_value(rows: Rows, propensity: Array, n: Array, penalty: Array) -> Array:
    """Return the objective estimated on the first n rows; the other propensities are ignored."""
    checked = propensity.shape[0]
    propensity = rows.total / n * jnp.where(jnp.arange(checked) < n, propensity, 0.0)
    value = (rows.utility[:checked] * propensity).sum()
    if len(rows.columns):
        sums, shares = column_sums(rows.columns[:, :checked], propensity), rows.benefits.shares
        values, factors = group_benefits(rows.benefits, sums, list(shares))
        value = value - penalty * sum(r * r for r in centred(values, factors, len(shares)))
    return value
