"""Functionals of a simulated run's log: what `Objective.coefficients` computes for a log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.batch_sums import CHUNK, BatchRows, Benefits, Codes, update_sums
from consequential.lab.kernels.compiled_ascent import Ascent
from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import linear_scores, propensities
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]
# columns of a tally, one row per group
ZEROS, ONES, ACCEPTED, SQUARES = range(4)


class Notion(NamedTuple):
    """A fairness notion as numbers: weights of people, positives and negatives."""

    values: Floats  # (benefits, 3)
    constant: Floats
    share_of: Floats
    denominator: Floats
    by_size: NDArray[np.bool_]  # (benefits,): divided by the group's size, not by a share of it
    is_ratio: NDArray[np.bool_]
    label_free: bool


class Learning(NamedTuple):
    """What the runs of a strategy have in common."""

    world_cost: float
    cost: float  # in the objective
    link: LinkNumbers
    notion: Notion
    ascent: Ascent  # for penalty 0, with the sizes asked for
    enough_rows: float  # a smaller effective sample size shortens steps; 0 for never
    n_checked: int  # rows on which the objective is compared before and after an update
    largest_weight: float  # weights are clipped here
    weighted: bool  # False: every accepted person counts as one
    self_normalised: bool
    accepted_only: bool  # the paper's normalisation
    max_passes: int  # over the rows that an update learns from; 0 for any number


class Workspace(NamedTuple):
    """Buffers for the functionals of one run after the other."""

    weights: Floats  # of the people read
    utility: Floats
    columns: Floats  # flat


class Reading(NamedTuple):
    """The people that updates read, in order, if all runs read the same ones."""

    inputs: Floats  # (inputs, n)
    group: Codes
    label: Floats
    columns: Floats  # (columns, n), of benefits that need no label
    batch_shares: Floats
    scale: Floats  # (inputs, inputs): mean(inputs inputs')
    start: float  # where among the people kept reading begins, in [0, 1)
    key: np.uint64  # of the random numbers for sampled decisions


@compiled
def count_tally(weights: Floats, label: Floats, group: Codes, tally: Floats) -> None:
    """Set each group's weight with label 0 and with label 1, accepted rows, and squared weight.

    Groups and labels are added up directly, never as a difference of totals: if nobody is there the
    sum is exactly 0, which marks a benefit as undefined.
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
def _mix(shape: Floats, people: float, positives: float, negatives: float) -> float:
    mixed: float = shape[0] * people + shape[1] * positives + shape[2] * negatives
    return mixed


@compiled
def _set_columns(
    factors: Floats, accepted_only: bool, weights: Floats, label: Floats, group: Codes, out: Floats
) -> None:
    """Set the coefficients of one functional, one row per group.

    Factors are those of people, label 1 and label 0, one row per group.
    """
    for z in range(out.shape[0]):
        for_all, for_ones, for_zeros = factors[z]
        for i in range(out.shape[1]):
            labelled = for_ones if label[i] > 0.0 else for_zeros
            coefficient = weights[i] * (for_all + labelled)
            if not accepted_only:
                coefficient = for_all + weights[i] * labelled
            out[z, i] = coefficient if group[i] == z else 0.0


@compiled
def functionals(
    learning: Learning, reading: Reading, weights: Floats, tally: Floats, sizes: Floats,
    total: float, penalised: bool, work: Workspace,
) -> BatchRows:  # fmt: skip
    """Return the functionals of the people read, normalised by the whole log of `total` rows.

    The columns of benefits are needed only if a penalty is on them.
    """
    notion, accepted_only = learning.notion, learning.accepted_only
    n_benefits, n_groups, n = notion.values.shape[0], sizes.size, weights.size
    norm, overall = np.ones(n_groups), 1.0
    if learning.self_normalised:
        weighed, n_people = 0.0, 0.0
        for z in range(n_groups):
            n_people += sizes[z]
            own = tally[z, ONES] + tally[z, ZEROS]
            weighed += own
            norm[z] = sizes[z] / own if own > 0.0 else 0.0
        overall = n_people / weighed if weighed > 0.0 else 1.0
    utility = work.utility[:n]
    for i in range(n):
        utility[i] = overall / total * weights[i] * (reading.label[i] - learning.cost)
    needed = penalised and (accepted_only or not notion.label_free)
    n_parts = 1
    for b in range(n_benefits):
        n_parts = 2 if notion.is_ratio[b] else n_parts
    columns = reading.columns
    if needed:
        n_columns = n_parts * n_benefits * n_groups
        columns = work.columns[: n_columns * n].reshape((n_columns, n))
    constant, defined = np.zeros((n_benefits, n_groups)), np.zeros((n_benefits, n_groups), np.bool_)
    factors = np.zeros((n_parts, n_groups, 3))
    for b in range(n_benefits):
        for z in range(n_groups):
            positives, negatives = norm[z] * tally[z, ONES], norm[z] * tally[z, ZEROS]
            counted = positives + negatives if accepted_only else sizes[z]
            in_total = tally[z, ACCEPTED] if accepted_only else sizes[z]
            if not notion.by_size[b]:
                in_total = _mix(notion.share_of[b], counted, positives, negatives)
            scale = 1.0 / in_total if in_total > 0.0 else 0.0
            defined[b, z] = in_total > 0.0
            constant[b, z] = _mix(notion.constant[b], counted, positives, negatives) * scale
            for part in range(n_parts):
                shape = notion.values[b] if part == 0 else notion.denominator[b]
                for k in range(3):
                    normed = norm[z] if accepted_only or k > 0 else 1.0
                    factors[part, z, k] = shape[k] * scale * normed
        for part in range(n_parts if needed else 0):
            first = (part * n_benefits + b) * n_groups
            if part == 0 or notion.is_ratio[b]:
                _set_columns(
                    factors[part], accepted_only, weights, reading.label, reading.group,
                    columns[first : first + n_groups],
                )  # fmt: skip
    shares = np.empty(n_groups)
    for z in range(n_groups):
        shares[z] = (tally[z, ACCEPTED] if accepted_only else sizes[z]) / total
    benefits = Benefits(constant, defined, notion.is_ratio, shares)
    return BatchRows(reading.inputs, utility, columns, reading.batch_shares, benefits, total)


@compiled
def label_free_columns(notion: Notion, sizes: Floats, group: Codes) -> Floats:
    """Return the coefficients of benefits that need no label."""
    n_benefits, n_groups = notion.values.shape[0], sizes.size
    columns = np.zeros((n_benefits * n_groups, group.size))
    for b in range(n_benefits):
        share = 1.0 if notion.by_size[b] else notion.share_of[b, 0]
        for z in range(n_groups):
            in_total = share * sizes[z]
            value = notion.values[b, 0] / in_total if in_total > 0.0 else 0.0
            for i in range(group.size):
                columns[b * n_groups + z, i] = value if group[i] == z else 0.0
    return columns


@compiled
def path_sums(inputs: Floats, columns: Floats, link: LinkNumbers, thetas: Floats) -> Floats:
    """Return `sum_i columns[c, i] pi_i` for each theta, one row per theta.

    `inputs` has one column per point of the population.
    """
    n, sums = inputs.shape[1], np.zeros((thetas.shape[0], columns.shape[0]))
    scores, chances = np.empty(CHUNK), np.empty(CHUNK)
    for k in range(thetas.shape[0]):
        for start in range(0, n, CHUNK):
            eta = scores[: min(CHUNK, n - start)]
            propensity = chances[: eta.size]
            linear_scores(thetas[k], inputs, start, eta)
            propensities(link, eta, propensity)
            update_sums(columns, start, propensity, 1.0, 1.0, sums[k])
    return sums
