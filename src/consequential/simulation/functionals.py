"""Functionals of a simulated run's log, compiled: what `Objective.coefficients` is to a log."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.sums import Rows
from consequential.policies.compiled import compiled

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]


class People(NamedTuple):
    """A seed's people in the order they are learned from."""

    phi: Floats  # (inputs, n)
    group: Codes
    label: Floats


class Notion(NamedTuple):
    """A fairness notion's shapes as numbers: weights of people, positives and negatives."""

    values: Floats  # (benefits, 3)
    constant: Floats
    share_of: Floats
    denominator: Floats
    by_size: NDArray[np.bool_]  # (benefits,): divide by the group's size, not by a share
    is_ratio: NDArray[np.bool_]
    label_free: bool


class Weighing(NamedTuple):
    """How decisions become weights, and which rows an estimate is about."""

    largest: float  # weights are clipped here; infinity for plain ones
    weighted: bool  # False: every accepted person counts one
    self_normalised: bool
    accepted_only: bool  # the paper's normalisation


@compiled
def count_groups(group: Codes, sizes: Floats) -> None:
    """Fill in how many people each group has."""
    for z in range(sizes.size):
        count = 0
        for i in range(group.size):
            count += group[i] == z
        sizes[z] = count


# columns of a tally, one row a group: weight with label 0 and with label 1, accepted rows, and
# squared weight
ZEROS, ONES, ACCEPTED, SQUARES = range(4)


@compiled
def count_tally(weights: Floats, label: Floats, group: Codes, tally: Floats) -> None:
    """Count what each group's accepted rows weigh.

    Groups and labels are counted directly, never as a difference of totals: where nobody is there
    the total is exactly 0, by which a benefit is known to be undefined.
    """
    for z in range(tally.shape[0]):
        zeros, ones, accepted, squares = 0.0, 0.0, 0.0, 0.0
        for i in range(weights.size):
            weight = weights[i] if group[i] == z else 0.0
            zeros += 0.0 if label[i] > 0.0 else weight
            ones += weight if label[i] > 0.0 else 0.0
            accepted += 1.0 if weight > 0.0 else 0.0
            squares += weight * weight
        tally[z, ZEROS], tally[z, ONES] = zeros, ones
        tally[z, ACCEPTED], tally[z, SQUARES] = accepted, squares


@compiled
def count_weights(weights: Floats, tally: Floats) -> None:
    """Count what all accepted rows weigh, where neither groups nor labels need telling apart."""
    total, accepted, squares = 0.0, 0.0, 0.0
    for i in range(weights.size):
        total += weights[i]
        accepted += 1.0 if weights[i] > 0.0 else 0.0
        squares += weights[i] * weights[i]
    tally[ZEROS], tally[ACCEPTED], tally[SQUARES] = total, accepted, squares


@compiled
def _mix(shape: Floats, people: float, positives: float, negatives: float) -> float:
    mixed: float = shape[0] * people + shape[1] * positives + shape[2] * negatives
    return mixed


@compiled
def _set_column(
    shape: Floats, scale: Floats, norm: Floats, accepted_only: bool, weights: Floats,
    people: People, out: Floats,
) -> None:  # fmt: skip
    """Fill in a functional's coefficient of each row, from its factors by group."""
    n_groups = scale.size
    for_all, for_zeros, for_ones = np.empty(n_groups), np.empty(n_groups), np.empty(n_groups)
    for z in range(n_groups):
        for_all[z] = shape[0] * scale[z] * (norm[z] if accepted_only else 1.0)
        for_zeros[z] = shape[2] * scale[z] * norm[z]
        for_ones[z] = shape[1] * scale[z] * norm[z] - for_zeros[z]
    for i in range(out.size):
        group = np.uint16(people.group[i])
        labelled = for_zeros[group] + people.label[i] * for_ones[group]
        if accepted_only:
            out[i] = weights[i] * (for_all[group] + labelled)
        else:
            out[i] = for_all[group] + weights[i] * labelled


@compiled
def read_circle(values: NDArray[Any], start: int, out: NDArray[Any]) -> None:
    """Copy a stretch of values, read in a circle."""
    first = min(out.size, values.size - start)
    out[:first] = values[start : start + first]
    if first < out.size:
        out[first:] = values[: out.size - first]


@compiled
def _set_utility(
    weights: Floats, start: int, label: Floats, cost: float, factor: float, utility: Floats
) -> None:
    """Fill in the utility's coefficients; weights are read in a circle, as people were."""
    n = utility.size
    first = min(n, weights.size - start)
    own = weights[start : start + first]
    for i in range(first):
        utility[i] = factor * own[i] * (label[i] - cost)
    rest, outcome = utility[first:], label[first:n]
    for i in range(n - first):
        rest[i] = factor * weights[i] * (outcome[i] - cost)


class Log(NamedTuple):
    """What normalisers are taken from: all rows of a run's log, counted."""

    tally: Floats  # (groups, 4); for notions without labels the groups need not be told apart
    sizes: Floats  # people a group


class Room(NamedTuple):
    """Where a thread computes one run after another: asking the system for so much takes time."""

    fresh: Floats  # (runs, people of the step)
    weights: Floats  # one entry a person learned from, where such are asked for
    label: Floats
    group: Codes
    rows: NDArray[np.uint64]
    phi: Floats  # as many entries for each input
    utility: Floats
    values: Floats  # for each benefit
    denominators: Floats
    copies: Floats  # of minibatches, see `ascend_on_the_spot`


class Sizes(NamedTuple):
    """How many numbers a thread's room is for."""

    fresh: tuple[int, int]
    people: int
    accepted: int  # as many, where rows are the accepted ones
    inputs: int
    values: int
    denominators: int
    copies: int


def sizes_of(
    fresh: tuple[int, int],
    n: int,
    n_inputs: int,
    notion: Notion,
    weighing: Weighing,
    n_copied: int,
) -> Sizes:
    """Return what runs need that learn from n people at most."""
    n_values, labelled = len(notion.values) * n, weighing.accepted_only or not notion.label_free
    return Sizes(
        fresh,
        people=n,
        accepted=n if weighing.accepted_only else 0,
        inputs=n_inputs * n if weighing.accepted_only else 0,
        values=n_values if labelled else 0,
        denominators=n_values if notion.is_ratio.any() else 0,
        copies=n_copied,
    )


def room_for(sizes: Sizes) -> Room:
    """Return room of these sizes."""
    return Room(
        np.empty(sizes.fresh),
        np.empty(sizes.people),
        np.empty(sizes.accepted),
        np.empty(sizes.accepted, np.int16),
        np.empty(sizes.accepted + 1, np.uint64),
        np.empty(sizes.inputs),
        np.empty(sizes.people),
        np.empty(sizes.values),
        np.empty(sizes.denominators),
        np.empty(sizes.copies),
    )


@compiled
def functionals(
    log: Log, people: People, circle: Floats, start: int, notion: Notion, weighing: Weighing,
    cost: float, total: float, values: Floats, room: Room,
) -> Rows:  # fmt: skip
    """Return the functionals of the people learned from, normalised by the whole log.

    `circle` has the weights of the rows to learn from, which begin at `start`. `values` has the
    benefits' coefficients already where they need no label.
    """
    n, n_benefits, n_groups = people.label.size, notion.values.shape[0], log.sizes.size
    norm, scale = np.ones(n_groups), np.zeros(n_groups)
    positives, negatives, accepted = np.zeros(n_groups), np.zeros(n_groups), np.zeros(n_groups)
    everybody = 1.0
    shared = notion.label_free and not weighing.accepted_only
    if weighing.self_normalised or not shared:
        for z in range(n_groups):
            negatives[z], positives[z] = log.tally[z, ZEROS], log.tally[z, ONES]
            accepted[z] = log.tally[z, ACCEPTED]
    if weighing.self_normalised:
        in_all = 0.0
        for z in range(n_groups):
            own = positives[z] + negatives[z]
            in_all += own
            norm[z] = log.sizes[z] / own if own > 0.0 else 0.0
            positives[z] *= norm[z]
            negatives[z] *= norm[z]
        everybody = log.sizes.sum() / in_all if in_all > 0.0 else 1.0
    utility = room.utility[:n]
    _set_utility(circle, start, people.label, cost, everybody / total, utility)
    weights = circle
    if not (shared or weighing.accepted_only):
        weights = room.weights[:n]
        read_circle(circle, start, weights)
    constant = np.zeros((n_benefits, n_groups))
    defined = np.zeros((n_benefits, n_groups), np.bool_)
    any_ratio = notion.is_ratio.any()
    n_ratios = n_benefits if any_ratio else 0
    denominators = room.denominators[: n_ratios * n].reshape((n_ratios, n))
    denominators[:] = 1.0
    if not shared:
        values = room.values[: n_benefits * n].reshape((n_benefits, n))
    for b in range(n_benefits):
        for z in range(n_groups):
            labelled = positives[z] + negatives[z]
            counted = labelled if weighing.accepted_only else log.sizes[z]
            in_total = accepted[z] if weighing.accepted_only else log.sizes[z]
            if not notion.by_size[b]:
                in_total = _mix(notion.share_of[b], counted, positives[z], negatives[z])
            defined[b, z] = in_total > 0.0
            scale[z] = 1.0 / in_total if in_total > 0.0 else 0.0
            constant[b, z] = (
                _mix(notion.constant[b], counted, positives[z], negatives[z]) * scale[z]
            )
        if not shared:
            _set_column(
                notion.values[b], scale, norm, weighing.accepted_only, weights, people, values[b]
            )
        if notion.is_ratio[b]:
            _set_column(
                notion.denominator[b], scale, norm, weighing.accepted_only, weights, people,
                denominators[b],
            )  # fmt: skip
    shares = np.empty(n_groups)
    for z in range(n_groups):
        shares[z] = (accepted[z] if weighing.accepted_only else log.sizes[z]) / total
    return Rows(
        people.phi, utility, values, denominators, notion.is_ratio, people.group, constant,
        defined, 0.0, total, shares,
    )  # fmt: skip
