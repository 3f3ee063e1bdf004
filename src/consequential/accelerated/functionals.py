"""Functionals of many runs at once, as JAX functions: what `objective` computes.

Arrays have the axes (seeds, penalties, ...); one of length 1 is shared. People lie along the last
axis. A run's result does not depend on the runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed

Array = Any

NOBODY = 1e-300


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


def _by_group(values: Array, group: Array, n_groups: int) -> Array:
    """Sum over people, group by group: a new last axis."""
    jnp = needed("jax").numpy
    sums = [jnp.where(group == z, values, 0.0).sum(axis=-1) for z in range(n_groups)]
    return jnp.stack(sums, axis=-1)


def benefits_of(rows: Rows, settings: Settings, taken: Array, scale: Array) -> tuple[Array, Array]:
    """Return benefits (S, P, benefits, groups), NaN where undefined, and their denominators."""
    jnp = needed("jax").numpy
    benefits, denominators = [], []
    scale = scale[..., None] if scale.ndim else scale
    for b, is_ratio in enumerate(settings.is_ratio):
        over = _by_group(rows.values[:, :, b] * taken, rows.group, settings.n_groups)
        numerator = rows.constant[:, :, b] + scale * over
        denominator = jnp.ones_like(numerator)
        if is_ratio:
            assert rows.denominators is not None
            under = rows.denominators[:, :, b] * taken
            denominator = scale * _by_group(under, rows.group, settings.n_groups)
        usable = rows.defined[:, :, b] & (denominator > NOBODY)
        safe = jnp.where(usable, denominator, 1.0)
        benefits.append(jnp.where(usable, numerator / safe, jnp.nan))
        denominators.append(safe)
    return jnp.stack(benefits, axis=2), jnp.stack(denominators, axis=2)


def deviations(benefits: Array) -> Array:
    """Each group's benefit less the groups' mean; 0 where it is undefined."""
    jnp = needed("jax").numpy
    known = ~jnp.isnan(benefits)
    count = jnp.maximum(known.sum(axis=-1, keepdims=True), 1)
    mean = jnp.where(known, benefits, 0.0).sum(axis=-1, keepdims=True) / count
    return jnp.where(known, benefits - mean, 0.0)


def objective_value(
    rows: Rows, settings: Settings, link: Link, theta: Array, penalty: Array, n_checked: int
) -> Array:
    """Return the objective estimated on the first rows, (S, P)."""
    jnp = needed("jax").numpy
    first = rows.each(lambda array: array[..., :n_checked])
    entries = [theta[..., k] for k in range(theta.shape[-1])]
    there = jnp.arange(n_checked) < (rows.n[..., None] if rows.n.ndim else rows.n)
    propensity = jnp.where(there, linked(link, scores(entries, first.phi))[0], 0.0)
    scale = rows.total / jnp.minimum(rows.n, n_checked)
    value = (first.utility * propensity).sum(axis=-1) * scale
    if settings.penalised:
        spread = deviations(benefits_of(first, settings, propensity, scale)[0])
        value = value - penalty * (spread * spread).sum(axis=(-2, -1))
    return value
