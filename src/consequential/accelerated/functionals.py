"""Functionals of many runs at once, as JAX functions: what `objective` computes.

Arrays have the axes (seeds, penalties, ...); one of length 1 is shared. People lie along the last
axis. A run's result does not depend on the runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.objective import NOBODY

Array = Any
Entries = list[Array]  # one array an input, or a group


class Link(NamedTuple):
    """A link and its floor as numbers; see policies.compiled."""

    bend: Array
    flat: Array
    floor: Array


class Rows(NamedTuple):
    """Functionals of people in the order they are read in."""

    phi: Array  # (S, Q, inputs, n)
    utility: Array  # (S, P, n)
    values: Array  # (S, Q, benefits, n)
    denominators: Array | None  # (S, P, benefits, n) where any benefit is a ratio
    group: Array  # (S, Q, n)
    constant: Array  # (S, Q, benefits, groups)
    defined: Array
    n: Array  # how many of the people are there; the rest is padding. A number, or (S, P)
    total: Array  # rows of the whole log; a number, or (S, P)
    before: int | None = None  # where the circle begins, once it is unrolled

    def window(self, position: Array, back: int, length: int) -> Rows:
        """Return the stretch of the circle that begins so far back from a position."""
        jax = needed("jax")
        jnp = jax.numpy
        if self.before is not None:
            first = position % self.n + self.before - back
            return self.each(
                lambda array: jax.lax.dynamic_slice_in_dim(array, first, length, axis=-1)
            )
        at = (position - back + jnp.arange(length)) % self.n[:, :, None]

        def cut(array: Array) -> Array:
            return jnp.take_along_axis(array, at if array.ndim == 3 else at[:, :, None, :], axis=-1)

        return self.each(cut)

    def unrolled(self, before: int, after: int) -> Rows:
        """Return the circle as a line, so many of its last and first people repeated at its ends.

        Its windows are then slices, which cost nothing. Only where all runs pass the same people.
        """
        jnp = needed("jax").numpy
        at = (jnp.arange(self.utility.shape[-1] + before + after) - before) % self.n
        return self.each(lambda array: array[..., at])._replace(before=before)

    def each(self, change: Callable[[Array], Array]) -> Rows:
        """Change all arrays that have people along their last axis."""
        return self._replace(
            phi=change(self.phi),
            utility=change(self.utility),
            values=change(self.values),
            denominators=None if self.denominators is None else change(self.denominators),
            group=change(self.group),
        )


class Settings(NamedTuple):
    """What a program is compiled for."""

    n_iterations: int
    batch_size: int
    n_reference: int
    n_groups: int
    is_ratio: tuple[bool, ...]
    sampled: bool
    preconditioned: bool
    penalised: bool
    ridge: float
    max_step: float
    max_share: float


def scores(theta: list[Array], phi: Array) -> Array:
    """Return `phi . theta`, (S, P, n), as sums that fuse with what follows."""
    return sum(entry[..., None] * phi[:, :, k] for k, entry in enumerate(theta))


def linked(link: Link, eta: Array) -> tuple[Array, Array, Array, Array]:
    """Return propensity, its derivative, its score and the logistic derivative."""
    jnp = needed("jax").numpy
    e = jnp.exp(-jnp.abs(eta))
    q = 1.0 / (1.0 + e)
    up = eta >= 0.0
    base = jnp.where(up, q + link.flat * (1.0 - q), link.bend * e * q)
    propensity = link.floor + (1.0 - link.floor) * base
    steepness = e * q * q
    derivative = jnp.where(up, 1.0 - link.flat, link.bend) * (1.0 - link.floor) * steepness
    plain = jnp.where(up, e * q * (1.0 - link.flat), q)
    score = jnp.where(link.floor > 0.0, derivative / propensity, plain)
    return propensity, derivative, score, steepness


def summed(weight: Array, columns: Entries) -> Entries:
    """`sum_i weight_i column_i` for each column; together they are a kernel or two."""
    return [(weight * column).sum(axis=-1) for column in columns]


def benefits_of(rows: Rows, settings: Settings, taken: Array, n: Array) -> Any:
    """Return each benefit's values by group, their denominators, and where they are known."""
    jnp = needed("jax").numpy
    scale = rows.total / n
    groups = range(settings.n_groups)
    for b, is_ratio in enumerate(settings.is_ratio):

        def by_group(column: Array) -> Entries:
            own = [jnp.where(rows.group == z, column, 0.0) for z in groups]
            return [scale * total for total in summed(taken, own)]

        overs = by_group(rows.values[:, :, b])
        known = [rows.defined[:, :, b, z] for z in groups]
        unders = [jnp.ones_like(over) for over in overs]
        if is_ratio:
            assert rows.denominators is not None
            unders = by_group(rows.denominators[:, :, b])
            known = [k & (under > NOBODY) for k, under in zip(known, unders, strict=True)]
            unders = [jnp.where(k, under, 1.0) for k, under in zip(known, unders, strict=True)]
        values = [(rows.constant[:, :, b, z] + overs[z]) / unders[z] for z in groups]
        yield b, values, unders, known


def centred(values: Entries, known: Entries) -> Entries:
    """Each group's value less the known groups' mean; 0 where it is not known."""
    jnp = needed("jax").numpy
    kept = [jnp.where(k, v, 0.0) for v, k in zip(values, known, strict=True)]
    mean = sum(kept) / jnp.maximum(sum(k.astype("int32") for k in known), 1)
    return [jnp.where(k, v - mean, 0.0) for v, k in zip(kept, known, strict=True)]


def objective_value(
    rows: Rows, settings: Settings, link: Link, theta: Array, penalty: Array, n_checked: int
) -> Array:
    """Return the objective estimated on the first rows, (S, P)."""
    jnp = needed("jax").numpy
    first = rows.each(lambda array: array[..., :n_checked])
    entries = [theta[..., k] for k in range(theta.shape[-1])]
    there = jnp.arange(n_checked) < (rows.n[..., None] if rows.n.ndim else rows.n)
    propensity = jnp.where(there, linked(link, scores(entries, first.phi))[0], 0.0)
    n = jnp.minimum(rows.n, n_checked)
    value = (first.utility * propensity).sum(axis=-1) * (rows.total / n)
    if settings.penalised:
        for _, values, _, known in benefits_of(first, settings, propensity, n):
            value = value - penalty * sum(entry * entry for entry in centred(values, known))
    return value
