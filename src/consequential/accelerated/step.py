"""One time step of many runs as JAX functions: decide, keep, learn.

People are not stored: they are drawn again from their numbers where they are needed. A run keeps
one weight per person that it learns from. Arrays have the axes (seeds, runs of a seed, ...).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.ascent import ascend, products
from consequential.accelerated.backend import needed
from consequential.accelerated.linear import (
    linear_response,
    linear_scores,
    plain_step,
    preconditioned_step,
    responses,
)
from consequential.accelerated.people import Population, draw_people
from consequential.kernels.batch_sums import Benefits, Rows
from consequential.kernels.functionals import Learning
from consequential.kernels.step import NOBODY_ACCEPTED, People
from consequential.learning.ascent import Schedule, residuals

jax = needed("jax")
jnp = jax.numpy
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
        sums = products(rows.columns[:, :checked], propensity)
        found = residuals(rows.benefits, sums, rows.benefits.shares)
        value = value - penalty / 2.0 * (found**2).sum()
    return value


class Runs(NamedTuple):
    """What runs decide and learn with, the same at all time steps."""

    population: Population
    learning: Learning  # with one link per run of a seed
    penalties: Array  # one per run of a seed
    seeds: Array


class Kept(NamedTuple):
    """What runs learn from: people by number (time step x n + row), and each run's weights."""

    numbers: Array  # (seeds, size)
    weights: Array  # (seeds, runs of a seed, size)


class Update(NamedTuple):
    """The numbers of a step's updates."""

    n_kept: Array  # the rest of the people kept is padding
    rate: Array
    start: Array  # where each seed begins to read, in [0, 1)
    key: Array  # each seed's, of the random numbers for sampled decisions


def _effective_size(weights: Array) -> Array:
    total = weights.sum()
    return total * total * inverse((weights * weights).sum())


def decide(
    program: Program, runs: Runs, time_step: Array, theta: Array
) -> tuple[Kept, Array, Array]:
    """Return this step's people with their weights, the gain and the effective sample size."""
    learning, n = runs.learning, program.n_people
    numbers = time_step * n + jnp.arange(n)

    def of_seed(seed: Array, thetas: Array) -> Any:
        people = draw_people(runs.population, seed, numbers, n)

        def of_run(link: Any, theta: Array) -> Any:
            propensity = responses(link, linear_scores(theta, people.inputs))[0]
            plain = jnp.where(people.uniforms < propensity, inverse(propensity), 0.0)
            gain = jnp.where(plain > 0.0, people.label - learning.world_cost, 0.0).mean()
            weights = (plain > 0.0).astype(plain.dtype)
            if program.weighted:
                weights = jnp.minimum(plain, learning.largest_weight)
            return weights, gain, _effective_size(plain)

        return jax.vmap(of_run)(learning.link, thetas)

    weights, gain, effective = jax.vmap(of_seed)(runs.seeds, theta)
    return Kept(jnp.broadcast_to(numbers, (len(runs.seeds), n)), weights), gain, effective


def keep(kept: Kept, fresh: Kept, slots: Array, sources: Array) -> Any:
    """Put entries of old and new people into slots, both (seeds, moves).

    Sources count through the old people first and then through the new ones; a slot after the last
    one is padding.
    """

    def of_seed(kept: Kept, fresh: Kept, slots: Array, sources: Array) -> Any:
        size = kept.numbers.shape[0]
        old, new = jnp.minimum(sources, size - 1), jnp.maximum(sources - size, 0)

        def put(kept: Array, fresh: Array) -> Array:
            moved = jnp.where(sources < size, kept[..., old], fresh[..., new])
            return kept.at[..., slots].set(moved, mode="drop")

        return jax.tree.map(put, kept, fresh)

    return jax.vmap(of_seed)(kept, fresh, slots, sources)


def learn(program: Program, runs: Runs, kept: Kept, update: Update, theta: Array) -> Any:
    """Return all runs' theta after an update, and what it brought, see `_learn`."""

    def of_seed(seed: Array, kept: Kept, update: Update, thetas: Array) -> Any:
        log = draw_people(runs.population, seed, kept.numbers, program.n_people)

        def of_run(link: Any, penalty: Array, weights: Array, theta: Array) -> Any:
            ascent = runs.learning.ascent._replace(penalty=penalty, rate=update.rate)
            learning = runs.learning._replace(link=link, ascent=ascent)
            return _learn(program, learning, log, update, weights, theta)

        return jax.vmap(of_run)(runs.learning.link, runs.penalties, kept.weights, thetas)

    return jax.vmap(of_seed, (0, 0, Update(None, None, 0, 0), 0))(runs.seeds, kept, update, theta)


def _learn(
    program: Program, learning: Learning, log: People, update: Update, weights: Array, theta: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return one run's theta after an update, and what the update brought.

    That is, as in kernels.step.Outcome, `rejected, before, after, absent`, and how many people were
    accepted.
    """
    ascent, size = learning.ascent, program.schedule.batch_size
    n_accepted = (weights > 0.0).sum()
    n_rows = n_accepted if program.accepted_only else update.n_kept
    start = (update.start * n_rows).astype("int64")
    at = (start + jnp.arange(program.n_read)) % jnp.maximum(n_rows, 1)
    if program.accepted_only:  # positions among the accepted people so far
        at = jnp.searchsorted(jnp.cumsum(weights > 0.0), at + 1, method="scan_unrolled")
    rows = functionals(program, learning, log, weights, at, update.n_kept)
    n_batches = jnp.minimum(n_rows, program.n_read) // size
    n_batches = jnp.maximum(n_batches - jnp.where(n_batches > 1, n_batches % 2, 0), 1)
    n_there = n_batches * size  # the other rows are padding
    trust = jnp.sqrt(_effective_size(weights) * inverse(learning.enough_rows))
    trust = jnp.where(learning.enough_rows > 0.0, jnp.minimum(1.0, trust), 1.0)
    ascent = ascent._replace(rate=ascent.rate * trust)
    step = plain_step(ascent)
    if program.preconditioned:
        there = jnp.arange(program.n_read) < n_there
        products = jnp.where(there, rows.inputs[:, None] * rows.inputs, 0.0)
        step = preconditioned_step(ascent, products.sum(axis=-1) / n_there)
    found, rejected = ascend(
        rows,
        linear_response(learning.link, update.key if program.sampled else None),
        step,
        program.schedule,
        theta,
        penalty=ascent.penalty,
        n_iterations=program.n_iterations,
        n_batches=n_batches,
    )
    learns = n_accepted > 0
    learned = jnp.where(learns, found, theta)
    inputs, n_checked = rows.inputs[:, : program.n_checked], jnp.minimum(n_there, program.n_checked)
    before, after = (
        objective_value(
            rows,
            responses(learning.link, linear_scores(each, inputs))[0],
            n_checked,
            ascent.penalty,
        )
        for each in (theta, learned)
    )
    bits = 1 << jnp.arange(program.n_groups)
    absent = (~rows.benefits.defined.all(axis=0) * bits).sum()
    return learned, (
        jnp.where(learns, rejected, NOBODY_ACCEPTED),
        jnp.where(learns, before, 0.0),
        jnp.where(learns, after, 0.0),
        jnp.where(learns, absent, 0),
        n_accepted,
    )
