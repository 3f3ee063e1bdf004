"""One time step of many runs, as a JAX program: decide, weigh, learn.

People are not stored: they are drawn again from their numbers where they are needed. A run keeps
one weight a person it learns from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.ascent import ascend
from consequential.accelerated.backend import needed
from consequential.accelerated.functionals import (
    Link,
    Rows,
    Settings,
    linked,
    objective_value,
    scores,
)
from consequential.accelerated.people import Crowd, People, people_at

Array = Any
Mix = tuple[float, float, float]


class Shape(NamedTuple):
    """A benefit as numbers; see objective.fairness.Shape."""

    values: Mix
    constant: Mix
    share_of: Mix | None
    denominator: Mix | None


class Program(NamedTuple):
    """What a time step is compiled for."""

    settings: Settings
    shapes: tuple[Shape, ...]
    n_people: int
    n_passed: int
    n_checked: int
    accepted_only: bool
    weighted: bool
    self_normalised: bool


class Given(NamedTuple):
    """Numbers of a strategy that may change without compiling anew."""

    link: Link
    cost: Array
    world_cost: Array
    largest: Array  # weights are clipped here
    enough_rows: Array  # infinite trust where 0
    penalty: Array  # (S, P)


class Learned(NamedTuple):
    """What an update brought, (S, P) each; see simulation.step.Happened."""

    rejected: Array
    before: Array
    after: Array
    absent: Array
    n_accepted: Array


def _weights(given: Given, program: Program, plain: Array) -> Array:
    jnp = needed("jax").numpy
    if not program.weighted:
        return (plain > 0.0).astype(plain.dtype)
    return jnp.minimum(plain, given.largest)


def _decided(link: Link, theta: Array, people: People) -> Array:
    """Return `d / p`, (S, P, n)."""
    jnp = needed("jax").numpy
    eta = scores([theta[..., k] for k in range(theta.shape[-1])], people.phi[:, None])
    propensity = linked(link, eta)[0]
    accepted = people.uniform[:, None] < propensity
    return jnp.where(accepted, 1.0 / jnp.where(accepted, propensity, 1.0), 0.0)


def _mix(mix: Mix, people: Array, positives: Array, negatives: Array) -> Array:
    return mix[0] * people + mix[1] * positives + mix[2] * negatives


def _circle(n_passed: int, n: Array, start: Array) -> Array:
    """Return the positions of rows read in a circle of n from a start on, a new last axis."""
    jnp = needed("jax").numpy
    return (start[..., None] + jnp.arange(n_passed)) % n[..., None]


def _functionals(
    program: Program, given: Given, log: People, weights: Array, n_log: Array, start: Array
) -> tuple[Rows, Array]:
    """Return the rows an update passes over, and `mean(phi phi')` over them."""
    jnp = needed("jax").numpy
    n_groups, groups = program.settings.n_groups, range(program.settings.n_groups)
    there = jnp.arange(log.label.shape[-1]) < n_log
    here = [(log.group == z) & there for z in groups]
    sizes = jnp.stack([each.sum(axis=-1) for each in here], axis=-1)[:, None].astype("float64")
    label = log.label[:, None]

    def by_group(values: Array) -> Array:
        sums = [jnp.where(here[z][:, None], values, 0.0).sum(axis=-1) for z in groups]
        return jnp.stack(sums, axis=-1)

    # counted directly: a difference of totals would not be exactly 0 where nobody is there
    positives, negatives = by_group(weights * label), by_group(weights * (1.0 - label))
    own, accepted = positives + negatives, by_group((weights > 0.0).astype("float64"))
    norm, everybody = jnp.ones_like(own), jnp.ones(own.shape[:2])
    if program.self_normalised:
        norm = jnp.where(own > 0.0, sizes / jnp.where(own > 0.0, own, 1.0), 0.0)
        everybody = n_log / own.sum(axis=-1)
        positives, negatives = positives * norm, negatives * norm
    # which of the log's people are passed, per run only where runs accept differently
    if program.accepted_only:
        n_rows = accepted.sum(axis=-1).astype("int64")
        order = _accepted_first(weights > 0.0)
        begin = (start[:, None] * n_rows).astype("int64")
        at = _circle(program.n_passed, jnp.maximum(n_rows, 1), begin)
        at = jnp.take_along_axis(order, at, axis=-1)  # (S, P, n_passed)
        n = _even_batches(n_rows, program)
        counted, in_size = positives + negatives, accepted
    else:
        n_rows = n_log
        at = _circle(program.n_passed, n_log[None], (start * n_log).astype("int64"))[:, None]
        n = _even_batches(n_rows, program)
        counted, in_size = sizes, sizes

    def passed(values: Array) -> Array:
        wide = jnp.broadcast_to(values, (*at.shape[:2], values.shape[-1]))
        return jnp.take_along_axis(wide, at, axis=-1)

    each = jnp.broadcast_to(at, (*weights.shape[:2], at.shape[-1]))
    own_weight = jnp.take_along_axis(weights, each, axis=-1)
    phi = jnp.stack([passed(log.phi[:, None, k]) for k in range(log.phi.shape[1])], axis=2)
    group, outcome = passed(log.group[:, None]), passed(label)
    total = n_rows.astype("float64")
    per_row = everybody / total
    utility = per_row[..., None] * own_weight * (outcome - given.cost)

    def column(mix: Mix, scale: Array) -> Array:
        def of_group(values: Array) -> Array:
            found = jnp.zeros(())
            for z in groups:
                found = jnp.where(group == z, values[..., z, None], found)
            return found

        for_all = mix[0] * scale * (norm if program.accepted_only else 1.0)
        people = own_weight if program.accepted_only else 1.0
        if not any(mix[1:]):
            return of_group(for_all) * people
        labelled = outcome * of_group(mix[1] * scale * norm) + (1.0 - outcome) * of_group(
            mix[2] * scale * norm
        )
        return of_group(for_all) * people + own_weight * labelled

    values, denominators, constant, defined = [], [], [], []
    for shape in program.shapes:
        in_total = in_size
        if shape.share_of is not None:
            in_total = _mix(shape.share_of, counted, positives, negatives)
        scale = jnp.where(in_total > 0.0, 1.0 / jnp.where(in_total > 0.0, in_total, 1.0), 0.0)
        defined.append(in_total > 0.0)
        constant.append(_mix(shape.constant, counted, positives, negatives) * scale)
        values.append(column(shape.values, scale))
        if shape.denominator is not None:
            denominators.append(column(shape.denominator, scale))
        elif any(each.denominator is not None for each in program.shapes):
            denominators.append(jnp.ones_like(utility))
    empty = jnp.zeros((*at.shape[:2], 0, program.n_passed))
    no_groups = jnp.zeros((*at.shape[:2], 0, n_groups))
    rows = Rows(
        phi,
        utility,
        jnp.stack(jnp.broadcast_arrays(*values), axis=2) if values else empty,
        jnp.stack(denominators, axis=2) if denominators else None,
        group,
        jnp.stack(jnp.broadcast_arrays(*constant), axis=2) if constant else no_groups,
        jnp.stack(jnp.broadcast_arrays(*defined), axis=2) if defined else no_groups > 0,
        n,
        total,
        in_size / total[..., None],
    )
    return rows, _mean_squares(phi, n, program.n_passed)


def _even_batches(n_rows: Array, program: Program) -> Array:
    """Return how many rows are passed over: minibatches even in number."""
    jnp, size = needed("jax").numpy, program.settings.batch_size
    n_batches = jnp.minimum(n_rows, program.n_passed) // size
    return jnp.where(n_batches > 1, n_batches - n_batches % 2, n_batches) * size


def _mean_squares(phi: Array, n: Array, n_passed: int) -> Array:
    jnp, m = needed("jax").numpy, phi.shape[2]
    there = jnp.arange(n_passed) < (n[..., None] if n.ndim else n)
    n = n[..., None, None] if n.ndim else n
    rows = [
        jnp.stack(
            [jnp.where(there, phi[:, :, j] * phi[:, :, k], 0.0).sum(-1) for k in range(m)], axis=-1
        )
        for j in range(m)
    ]
    return jnp.stack(rows, axis=-2) / n


def _accepted_first(accepted: Array) -> Array:
    """Return positions of the accepted people in order, (S, P, n); what follows them is noise."""
    jnp = needed("jax").numpy
    n = accepted.shape[-1]
    rank = jnp.cumsum(accepted, axis=-1) - 1
    target = jnp.where(accepted, rank, n)  # outside: dropped
    s, p = jnp.indices(accepted.shape[:2])
    order = jnp.zeros(accepted.shape, dtype="int64")
    places = jnp.broadcast_to(jnp.arange(n), accepted.shape)
    return order.at[s[..., None], p[..., None], target].set(places, mode="drop")


class Kept(NamedTuple):
    """What runs learn from: people by number (time step x n + row), and each run's weights."""

    numbers: Array  # (S, room)
    weights: Array  # (S, P, room)


def decide(
    program: Program, given: Given, crowd: Crowd, seeds: Array, time_step: Array, theta: Array
) -> tuple[Kept, Array, Array]:
    """Return this step's people with their weights, the gain and the effective sample size."""
    jnp, n = needed("jax").numpy, program.n_people
    rows = jnp.broadcast_to(jnp.arange(n), (seeds.shape[0], n))
    people = people_at(crowd, seeds[:, None], time_step, rows, n)
    plain = _decided(given.link, theta, people)
    gain = jnp.where(plain > 0.0, people.label[:, None] - given.world_cost, 0.0).mean(axis=-1)
    weights = _weights(given, program, plain)
    return Kept(time_step * n + rows, weights), gain, _effective(plain)


def keep(kept: Kept, fresh: Kept, slots: Array, sources: Array) -> Kept:
    """Put entries of old and new people into slots, both (S, moves).

    A source counts through the old room first and then through the new people; a slot beyond the
    room is padding.
    """
    jnp = needed("jax").numpy
    room = kept.numbers.shape[1]
    old, new = jnp.minimum(sources, room - 1), jnp.maximum(sources - room, 0)
    s = jnp.arange(slots.shape[0])[:, None]
    numbers = jnp.where(sources < room, kept.numbers[s, old], fresh.numbers[s, new])
    s, p = s[:, None], jnp.arange(kept.weights.shape[1])[None, :, None]
    old, new, sources = old[:, None], new[:, None], sources[:, None]
    weights = jnp.where(sources < room, kept.weights[s, p, old], fresh.weights[s, p, new])
    return Kept(
        kept.numbers.at[s[:, 0], slots].set(numbers, mode="drop"),
        kept.weights.at[s, p, slots[:, None]].set(weights, mode="drop"),
    )


def learn(
    program: Program,
    given: Given,
    crowd: Crowd,
    seeds: Array,
    kept: Kept,
    n_kept: Array,
    theta: Array,
    rate: Array,
    starts: Array,
    keys: Array,
) -> tuple[Array, Learned]:
    """Return the updated theta of all runs; of the people kept, the first `n_kept` count."""
    jnp, n = needed("jax").numpy, program.n_people
    log = people_at(crowd, seeds[:, None], kept.numbers // n, kept.numbers % n, n)
    weights = kept.weights
    n_accepted = (weights > 0.0).sum(axis=-1)
    trust = jnp.sqrt(_effective(weights) / jnp.maximum(given.enough_rows, 1e-300))
    rate = rate * jnp.where(given.enough_rows > 0.0, jnp.minimum(1.0, trust), 1.0)
    rows, scale = _functionals(program, given, log, weights, n_kept, starts)
    learned, rejected = ascend(
        rows, program.settings, given.link, theta, scale, given.penalty, rate, keys
    )
    learns = n_accepted > 0
    learned = jnp.where(learns[..., None], learned, theta)
    check = (rows, program.settings, given.link)
    before = objective_value(*check, theta, given.penalty, program.n_checked)
    after = objective_value(*check, learned, given.penalty, program.n_checked)
    bits = 1 << jnp.arange(program.settings.n_groups)
    absent = (~rows.defined.all(axis=2) * bits).sum(axis=-1)
    return learned, Learned(
        jnp.where(learns, rejected, -1),
        jnp.where(learns, before, 0.0),
        jnp.where(learns, after, 0.0),
        jnp.where(learns, absent, 0),
        n_accepted,
    )


def _effective(weights: Array) -> Array:
    jnp = needed("jax").numpy
    squares = (weights * weights).sum(axis=-1)
    total = weights.sum(axis=-1)
    return jnp.where(squares > 0.0, total * total / jnp.where(squares > 0.0, squares, 1.0), 0.0)
