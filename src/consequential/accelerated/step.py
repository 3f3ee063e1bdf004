"""One time step of many runs as JAX functions: decide, keep, learn.

People are not stored: they are drawn again from their numbers where they are needed. A run keeps
one weight per person that it learns from. Arrays have the axes (seeds, runs of a seed, ...).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.ascent import ascend
from consequential.accelerated.backend import needed
from consequential.accelerated.functionals import Program, functionals, inverse, objective_value
from consequential.accelerated.people import Population, draw_people
from consequential.accelerated.response import linear_response, linear_scores, responses
from consequential.accelerated.steps import plain_step, preconditioned_step
from consequential.kernels.functionals import Learning
from consequential.kernels.step import NOBODY_ACCEPTED, People

jax = needed("jax")
jnp = jax.numpy
Array = Any


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
            propensity = responses(link, linear_scores(list(theta), people.inputs))[0]
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
        list(theta),
        penalty=ascent.penalty,
        n_iterations=program.n_iterations,
        n_batches=n_batches,
    )
    learns = n_accepted > 0
    learned = jnp.where(learns, jnp.stack(found), theta)
    inputs, n_checked = rows.inputs[:, : program.n_checked], jnp.minimum(n_there, program.n_checked)
    before, after = (
        objective_value(
            rows,
            responses(learning.link, linear_scores(list(each), inputs))[0],
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
