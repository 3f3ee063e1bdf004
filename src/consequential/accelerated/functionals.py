"""Functionals of many runs at once, as JAX functions: what `objective` computes.

Arrays have the axes (seeds, penalties, ...); one of length 1 is shared. People lie along the last
axis. A run's result does not depend on the runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.functionals import NOBODY

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
    shares: Array  # (S, Q, groups), of the whole log
    sizes: Entries = ()  # type: ignore[assignment]  # a minibatch's shares by group, (S, Q)

    def batch(self, number: Array, length: int) -> Rows:
        """Return a minibatch of the circle."""
        jax = needed("jax")
        jnp, at = jax.numpy, number % (self.n // length) * length

        def cut(array: Array) -> Array:
            if self.n.ndim == 0:
                return jax.lax.dynamic_slice_in_dim(array, at, length, axis=-1)
            rows = at[:, :, None] + jnp.arange(length)
            rows = rows if array.ndim == 3 else rows[:, :, None, :]
            return jnp.take_along_axis(array, rows, axis=-1)

        found = self.each(cut)
        n_groups = self.shares.shape[-1]
        sizes = [(found.group == z).mean(axis=-1, dtype="float64") for z in range(n_groups)]
        return found._replace(sizes=sizes)

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
    on_the_spot: bool
    n_before: int  # minibatches that are looked at before the first step

    @property
    def memory(self) -> float:
        """How many minibatches a running mean is worth."""
        return max(1.0, self.n_reference / self.batch_size)

    @property
    def refresh_every(self) -> int:
        """After how many steps their metric is brought up to date."""
        return max(1, int(self.memory / 4))


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


def sums_by_group(
    rows: Rows, settings: Settings, taken: Array, n: Array
) -> tuple[Entries, Entries]:
    """Return sums over rows, scaled to the whole log: numerators and denominators of benefits."""
    jnp = needed("jax").numpy
    scale, overs, unders = rows.total / n, [], []
    for b, is_ratio in enumerate(settings.is_ratio):
        for z in range(settings.n_groups):
            own = jnp.where(rows.group == z, rows.values[:, :, b], 0.0)
            overs.append(scale * (taken * own).sum(axis=-1))
            unders.append(jnp.zeros_like(overs[-1]))
            if is_ratio:
                assert rows.denominators is not None
                own = jnp.where(rows.group == z, rows.denominators[:, :, b], 0.0)
                unders[-1] = scale * (taken * own).sum(axis=-1)
    return overs, unders


def benefits_of(
    rows: Rows, settings: Settings, sums: tuple[Entries, ...], sizes: Entries | None
) -> Iterator[tuple[Entries, Entries, Entries]]:
    """Yield each benefit's values by group, what slopes are multiplied by, and which are known.

    Sums are scaled to the groups' shares of the whole log, where the groups' sizes are given.
    """
    jnp, n_groups = needed("jax").numpy, settings.n_groups
    for b, is_ratio in enumerate(settings.is_ratio):
        values, scales, known = [], [], []
        for z in range(n_groups):
            over, under = (part[b * n_groups + z] for part in sums)
            there, scale = rows.defined[:, :, b, z], 1.0
            if sizes is not None:
                there = there & (sizes[z] > 0.0)
                scale = rows.shares[:, :, z] / jnp.where(sizes[z] > 0.0, sizes[z], 1.0)
            if is_ratio:
                there = there & (scale * under > NOBODY)
                scale = jnp.where(there, scale, 1.0)
                under = jnp.where(there, scale * under, 1.0)
            else:
                under = 1.0
            values.append((rows.constant[:, :, b, z] + scale * over) / under)
            scales.append(jnp.where(there, scale / under, 0.0))
            known.append(there)
        yield values, scales, known


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
        sums = sums_by_group(first, settings, propensity, n)
        for values, _, known in benefits_of(first, settings, sums, None):
            value = value - penalty * sum(entry * entry for entry in centred(values, known))
    return value
